"""Limits on the number of connections: in total, per listener and per address.

As in Kafka's `ConnectionQuotas`: a connection above the limit of its address is closed at once; at
the limit of its listener or in total no more are accepted, and new ones stay in the kernel's queue
until one ends. The listener of other brokers is beyond the total limit, so that clients cannot keep
replicas from their leader (KIP-402).
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits from the broker's settings."""

    connections_max: int
    per_address_max: int
    overrides: Mapping[str, int]
    """Limits for single addresses, which replace `per_address_max`."""
    of_listeners: Mapping[str, int] = MappingProxyType({})
    """Limits for single listeners, by name; those of the others are `connections_max`."""
    preferred: str = ""
    """The listener that the total limit does not stop; empty: there is none beside it."""


class ConnectionQuotas:
    """Counts connections and checks the limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._count = 0
        self._by_listener: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()

    def limit(self, limits: ConnectionLimits) -> None:
        """Use other limits for connections that come from now on."""
        self._limits = limits

    @property
    def preferred(self) -> str:
        """The listener that the total limit does not stop; empty: there is none."""
        return self._limits.preferred

    @property
    def is_exceeded(self) -> bool:
        """Whether the preferred listener has more connections than the total limit leaves room."""
        return self._count > self._limits.connections_max

    @property
    def by_listener(self) -> Mapping[str, int]:
        """The connections of each listener that has had one."""
        return self._by_listener

    def is_full(self, listener: str) -> bool:
        """Whether a listener may have no more connections."""
        limits = self._limits
        allowed = limits.of_listeners.get(listener, limits.connections_max)
        if self._by_listener[listener] >= allowed:
            return True
        return self._count >= limits.connections_max and listener != limits.preferred

    def take(self, listener: str, address: str) -> bool:
        """Count a new connection; False if its address has reached its limit."""
        # Of all listeners together, as in Kafka.
        allowed = self._limits.overrides.get(address, self._limits.per_address_max)
        if self._by_address[address] >= allowed:
            return False
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        self._count += 1
        return True

    def give_back(self, listener: str, address: str) -> None:
        """Note that a connection has ended."""
        self._count -= 1
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
