"""Limits on the number of connections, in total and per address.

As in Kafka's `ConnectionQuotas` on a broker with one listener: a connection above the limit of its
address is closed at once; at the total limit no more are accepted, and new ones stay in the
kernel's queue until one ends.
"""

from collections import Counter
from collections.abc import Mapping

from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits from the broker's settings."""

    connections_max: int
    per_address_max: int
    overrides: Mapping[str, int]
    """Limits for single addresses, which replace `per_address_max`."""


class ConnectionQuotas:
    """Counts connections and checks the limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._count = 0
        self._by_address: Counter[str] = Counter()

    def limit(self, limits: ConnectionLimits) -> None:
        """Use other limits for connections that come from now on."""
        self._limits = limits

    @property
    def is_full(self) -> bool:
        """Whether the total limit is reached."""
        return self._count >= self._limits.connections_max

    def take(self, address: str) -> bool:
        """Count a new connection; False if its address has reached its limit."""
        # Above the limit of its address a connection is closed at once; at the total limit no more
        # are accepted, and new ones stay in the kernel's queue (as in Kafka's ConnectionQuotas).
        allowed = self._limits.overrides.get(address, self._limits.per_address_max)
        if self._by_address[address] >= allowed:
            return False
        self._by_address[address] += 1
        self._count += 1
        return True

    def give_back(self, address: str) -> None:
        """Note that a connection has ended."""
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
