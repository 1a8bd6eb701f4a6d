"""Limits on connections: their number and their rate, in total, per listener and per address.

As in Kafka's `ConnectionQuotas`: a connection above the limit of its address is closed at once; at
the limit of its listener or in total no more are accepted, and new ones stay in the kernel's queue
until one ends. The listener of other brokers is beyond the total limit, so that clients cannot keep
replicas from their leader (KIP-402).

New connections have rates, too (KIP-612). Above that of the broker or of a listener the listener
accepts the next one later. One above the rate of its address, which is a quota of the cluster, is
closed later, without an answer, and does not count for the others. Nobody waits for more than a
window at a time. There is a count only where there is a limit.

Not here: sockets and timers (`server.listener`).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Final

from tailrace.config.settings import INT32_MAX
from tailrace.runtime.rates import Rate, Windows
from tailrace.security.quotas import COUNTERS_MAX, Quotas
from tailrace.values import dataclass

ADDRESS_QUOTA: Final = "connection_creation_rate"
"""The quota of addresses, by its name in records."""


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
    creation_rate: int = INT32_MAX
    """Most new connections in a second, without those of `preferred`; `INT32_MAX`: any number."""
    creation_rates: Mapping[str, int] = MappingProxyType({})
    """The rates of single listeners, by name; the others have `creation_rate` each."""


class ConnectionRates:
    """Measures how fast connections are made, and tells for how long the next ones wait."""

    def __init__(
        self, limits: ConnectionLimits, windows: Windows, *, quotas_now: Callable[[], Quotas]
    ) -> None:
        """`quotas_now` gives those of the cluster: the same object as long as they are."""
        self._limits = limits
        self._windows = windows
        self._quotas_now = quotas_now
        self._taken: Quotas | None = None
        self._of_addresses: dict[str | None, float] = {}
        """Limits of single addresses; None is the default."""
        self._all = Rate(windows)
        self._by_listener: dict[str, Rate] = {}
        self._by_address: dict[str, Rate] = {}

    def limit(self, limits: ConnectionLimits) -> None:
        """Use other limits for connections that come from now on."""
        self._limits = limits

    def accept_delay_ms(self, listener: str, now_ms: int) -> int:
        """Count a new connection; the time after which it is accepted."""
        return max(
            (self._record(rate, limit, now_ms) for rate, limit in self._limited(listener)),
            default=0,
        )

    def close_delay_ms(self, listener: str, address: str, now_ms: int) -> int:
        """Count an accepted connection of an address.

        Returns the time after which it has to be closed; 0: it may stay.
        """
        quotas = self._quotas_now()
        if quotas is not self._taken:
            self._take_over(quotas)
        if not self._of_addresses:
            return 0
        name = plain_address(address)
        limit = self._of_addresses.get(name, self._of_addresses.get(None))
        if limit is None:
            return 0
        rate = self._by_address.get(name)
        if rate is None:
            if len(self._by_address) >= COUNTERS_MAX:
                del self._by_address[next(iter(self._by_address))]
            rate = self._by_address[name] = Rate(self._windows)
        delay_ms = self._record(rate, limit, now_ms)
        if delay_ms:
            # One that is closed takes no room from others.
            for each in (rate, *(counted for counted, _ in self._limited(listener))):
                each.record(-1, now_ms)
        return delay_ms

    def _limited(self, listener: str) -> list[tuple[Rate, float]]:
        """The rates that a connection of a listener counts for, with their limits."""
        limits, found = self._limits, []
        if limits.creation_rate < INT32_MAX and listener != limits.preferred:
            found.append((self._all, float(limits.creation_rate)))
        own = limits.creation_rates.get(listener, limits.creation_rate)
        if own < INT32_MAX:
            rate = self._by_listener.setdefault(listener, Rate(self._windows))
            found.append((rate, float(own)))
        return found

    def _record(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms) if limit else self._windows.size_ms
        return min(throttle_ms, self._windows.size_ms)

    def _take_over(self, quotas: Quotas) -> None:
        self._of_addresses = {
            None if names["ip"] is None else plain_address(names["ip"]): values[ADDRESS_QUOTA]
            for names, values in ((dict(entity.parts), quotas[entity]) for entity in quotas)
            if "ip" in names and ADDRESS_QUOTA in values
        }
        self._taken = quotas


# Most connections come from few addresses.
@lru_cache(maxsize=1024)
def plain_address(address: str) -> str:
    """An address in one way of writing it; a text that is none as it is."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    # A socket for both versions shows IPv4 addresses so.
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found)


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
        name = plain_address(address)
        allowed = self._limits.overrides.get(name, self._limits.per_address_max)
        if self._by_address[name] >= allowed:
            return False
        self._by_address[name] += 1
        self._by_listener[listener] += 1
        self._count += 1
        return True

    def give_back(self, listener: str, address: str) -> None:
        """Note that a connection has ended."""
        self._count -= 1
        self._by_listener[listener] -= 1
        name = plain_address(address)
        self._by_address[name] -= 1
        if not self._by_address[name]:
            del self._by_address[name]
