"""Quotas of clients: how fast a user or a client id may produce, fetch, ask and change topics.

    records of the metadata log ─► limits by entity ─► the most specific one ─► a counter
    a request ─► Charge ─► its bytes and its time are counted ─► throttle_time_ms

The quota of a client is the first that there is of these (KIP-55), and all clients that have one
quota with a counter in common share it:

    user and client id, user and default client id           a counter for both names
    user                                                     a counter for the user
    default user and client id, both defaults                a counter for both names
    default user                                             a counter for the user
    client id, default client id                             a counter for the client id

Rates and throttle times are those of Kafka's `ClientQuotaManager`, `ClientRequestQuotaManager` and
`ControllerMutationQuotaManager`. Kafka counts a client before it has a quota, too; here a count
begins with the quota.

Not here: how a client is throttled. The server reads its connection no more for a time.

Invariant: memory is bounded, since a client may call itself by any number of names; and nothing is
counted where there is no quota.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tailrace.config.settings import INT32_MAX, setting, settings_of
from tailrace.protocol.apis import BETWEEN_NODES, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader
from tailrace.runtime.clock import Clock, elapsed_ms
from tailrace.runtime.rates import Rate, TokenBucket, Windows
from tailrace.runtime.timed import Timed
from tailrace.values import dataclass, replace

M = TypeVar("M", bound=Message)
T = TypeVar("T")

logger = logging.getLogger(__name__)

COUNTERS_MAX: Final = 10_000
"""Most counters of one quota, of some 2 KB each."""

CLIENT_ID_CHARACTERS_MAX: Final = 500
"""Clients whose ids have the same beginning of this length are one client. An id has up to 32 KB,
and each counter, and each page of metrics, has it."""

LOG_INTERVAL_MS: Final = 10_000
"""Time between two lines of the log about throttled clients."""

Quotas = Mapping[Any, Mapping[str, float]]
"""Quotas by entity, whose `parts` are pairs of a type and a name; None is the default's name."""


class QuotaKind:
    """The quotas of users and client ids, by their names in records."""

    # No Enum: its hash is a function in Python, and each small request would pay for it.
    PRODUCE: Final = "producer_byte_rate"
    FETCH: Final = "consumer_byte_rate"
    REQUEST_TIME: Final = "request_percentage"
    MUTATIONS: Final = "controller_mutation_rate"


_KINDS: Final = (
    QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST_TIME, QuotaKind.MUTATIONS
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class QuotaConfig:
    """Kafka's settings of quotas."""

    window_count: int = setting(
        "quota.window.num",
        default=11,
        low=1,
        high=INT32_MAX,
        text="Windows over which the rates of clients and of new connections are measured.",
    )
    window_s: int = setting(
        "quota.window.size.seconds",
        default=1,
        low=1,
        high=INT32_MAX,
        text="Length of such a window. No new connection, and no request that took too much time, "
        "is delayed by more.",
    )
    controller_window_count: int = setting(
        "controller.quota.window.num",
        default=11,
        low=1,
        high=INT32_MAX,
        text="Windows whose partitions a client may create and delete at once, by the quota "
        "controller_mutation_rate.",
    )
    controller_window_s: int = setting(
        "controller.quota.window.size.seconds",
        default=1,
        low=1,
        high=INT32_MAX,
        text="Length of such a window.",
    )

    @property
    def windows(self) -> Windows:
        return Windows(self.window_count, self.window_s * 1000)

    @property
    def controller_windows(self) -> Windows:
        return Windows(self.controller_window_count, self.controller_window_s * 1000)


QUOTA_SETTINGS: Final = settings_of(QuotaConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStatistics:
    """Throttled clients at one moment."""

    throttled_count: Mapping[str, int]
    """Throttled requests since the start, by the name of the quota; read only."""
    counter_count: int
    """Users and client ids that are counted."""


# The default of a type has no name (KIP-546), and the name of a client id is never empty.
_Entity = tuple[str | None, str | None]
"""User and client id; None is the default, and empty that the quota has no such part."""


class QuotaCounter:
    """The use of one quota by those who share it, and its limit."""

    __slots__ = ("bucket", "entity", "kind", "last_ms", "limit", "rate", "record", "windows")

    def __init__(self, kind: str, entity: tuple[str, str], windows: Windows) -> None:
        self.kind = kind
        self.entity = entity
        """User and client id, one of them may be empty."""
        self.limit = 0.0
        """The largest rate in a second: bytes, percent, or partitions."""
        self.windows = windows
        self.rate = Rate(windows)
        self.record = self.rate.record
        """Counts a value, whatever the limit."""
        self.bucket = TokenBucket(windows) if kind == QuotaKind.MUTATIONS else None
        self.last_ms = 0
        """When partitions were last counted."""

    @property
    def used_ms(self) -> int:
        """When something was last counted."""
        return max(self.last_ms, self.rate.last_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """The time for which its clients have to be silent; 0: the limit is kept."""
        throttle_ms = self.rate.throttle_ms(self.limit, now_ms)
        # As in Kafka: one request may take long, and heartbeats of the client would wait too.
        if self.kind == QuotaKind.REQUEST_TIME:
            return min(throttle_ms, self.windows.size_ms)
        return min(throttle_ms, INT32_MAX)

    def has_room(self, value: float, now_ms: int) -> bool:
        """Whether the limit is kept with this value, too."""
        return self.rate.has_room(value, self.limit, now_ms)

    @property
    def most_at_once(self) -> float:
        """The largest value that a client may have that was silent before."""
        return self.limit * (self.windows.count - 1) * self.windows.size_ms / 1000


class _Counters:
    """The limits and counters of one kind of quota."""

    def __init__(self, kind: str, windows: Windows) -> None:
        self.limits: dict[_Entity, float] = {}
        self._kind = kind
        self._windows = windows
        self._by_entity: dict[tuple[str, str], QuotaCounter] = {}
        self.by_client: dict[tuple[str, str], QuotaCounter | None] = {}
        """The results of `find`, each of which looks eight entities up, by user and client id."""
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._by_entity)

    def __iter__(self) -> Iterator[tuple[tuple[str, str], QuotaCounter]]:
        return iter(tuple(self._by_entity.items()))

    def replace_limits(self, limits: dict[_Entity, float]) -> None:
        """Use other limits for what is counted already, too."""
        self.limits = limits
        self.by_client.clear()

    def find(self, user: str, client_id: str, clock: Clock) -> QuotaCounter | None:
        """The counter of a client that is not in `by_client`, and then is."""
        if len(self.by_client) >= COUNTERS_MAX:
            self.by_client.clear()
        found = None
        matched = _matched(self.limits, user, client_id)
        if matched is not None:
            entity, limit = matched
            found = self._by_entity.get(entity)
            if found is None:
                self._make_room(elapsed_ms(clock))
                found = QuotaCounter(self._kind, entity, self._windows)
                self._by_entity[entity] = found
            found.limit = limit
        self.by_client[user, client_id] = found
        return found

    def _make_room(self, now_ms: int) -> None:
        if len(self._by_entity) < COUNTERS_MAX:
            return
        # Those that say nothing any more go first. Rarely, as each one is looked at.
        if now_ms - self._swept_ms >= self._windows.size_ms:
            self._swept_ms = now_ms
            for entity, counter in tuple(self._by_entity.items()):
                if now_ms - counter.used_ms >= self._windows.all_ms:
                    del self._by_entity[entity]
        while len(self._by_entity) >= COUNTERS_MAX:
            # Who has other names at hand exceeds no quota of one name, so nothing is lost by it.
            del self._by_entity[next(iter(self._by_entity))]
        self.by_client.clear()


def _matched(
    limits: Mapping[_Entity, float], user: str, client_id: str
) -> tuple[tuple[str, str], float] | None:
    """The counter and the limit of a client: those of the most specific quota."""
    both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
    levels: tuple[tuple[_Entity, tuple[str, str]], ...]
    if not client_id:
        # A client without an id has quotas of users alone, as in Kafka.
        levels = ((of_user, of_user), ((None, ""), of_user))
    else:
        levels = (
            (both, both),
            ((user, None), both),
            (of_user, of_user),
            ((None, client_id), both),
            ((None, None), both),
            ((None, ""), of_user),
            (of_client, of_client),
            (("", None), of_client),
        )
    for entity, counter in levels:
        limit = limits.get(entity)
        if limit is not None:
            return counter, limit
    return None


# Kafka calls them exempt: requests between nodes, without which the cluster would not run. A Fetch
# is charged by its handler, which knows whether a follower asks.
_NOT_CHARGED: Final = frozenset(
    {*map(int, BETWEEN_NODES), ApiKey.WRITE_TXN_MARKERS, ApiKey.FETCH,
     ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)  # fmt: skip


STRICT_SINCE: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
"""The requests that create and delete partitions, and the version from which on they are refused
above the quota. Older clients know no such error: they are done, and the client is delayed."""


class ClientQuotas:
    """The quotas of users and client ids on one node; on the event loop."""

    def __init__(self, quotas_now: Callable[[], Quotas], clock: Clock, config: QuotaConfig) -> None:
        """`quotas_now` gives those of the metadata log: the same object as long as they are."""
        self.clock = clock
        self._quotas_now = quotas_now
        self._taken: Quotas | None = None
        self._counters = {
            kind: _Counters(
                kind,
                config.controller_windows if kind == QuotaKind.MUTATIONS else config.windows,
            )
            for kind in _KINDS
        }
        self._limited: dict[str, _Counters] = {}
        """The kinds of which there are quotas."""
        self.has_any = False
        """Whether there were quotas when one was last looked for."""
        self.has_times = False
        """Whether there were quotas of time then."""
        self._throttled: Counter[str] = Counter()
        self._logged_ms: int | None = None
        self._unlogged_count = 0

    def find(self, kind: str, user: str, client_id: str | None) -> QuotaCounter | None:
        """The counter of a client; None: it has no quota of this kind."""
        quotas = self._quotas_now()
        if quotas is not self._taken:
            self._take_over(quotas)
        counters = self._limited.get(kind)
        if counters is None:
            return None
        client = (user, (client_id or "")[:CLIENT_ID_CHARACTERS_MAX])
        try:
            return counters.by_client[client]
        except KeyError:
            return counters.find(*client, self.clock)

    @property
    def are_there(self) -> bool:
        """Whether any user or client id has a quota."""
        quotas = self._quotas_now()
        if quotas is not self._taken:
            self._take_over(quotas)
        return self.has_any

    @property
    def now_ms(self) -> int:
        """The time for counters."""
        return elapsed_ms(self.clock)

    def charge_or_none(self, header: RequestHeader, size: int) -> "Charge | None":
        """The charge of a request of `size` bytes, which begins now; None: nothing is counted."""
        if not self.are_there or header.api_key in _NOT_CHARGED:
            return None
        is_produce = header.api_key == ApiKey.PRODUCE
        return self._charge(header, QuotaKind.PRODUCE if is_produce else None, size=size)

    def fetch_charge_or_none(self, header: RequestHeader) -> "Charge | None":
        """The charge of a consumer's Fetch, which begins now; None: nothing is counted."""
        return self._charge(header, QuotaKind.FETCH, size=0) if self.are_there else None

    def _charge(self, header: RequestHeader, kind: str | None, *, size: int) -> "Charge | None":
        user, client_id = header.caller.principal.name, header.client_id
        of_time = self.find(QuotaKind.REQUEST_TIME, user, client_id)
        of_bytes = None if kind is None else self.find(kind, user, client_id)
        if of_time is None and of_bytes is None:
            return None
        return Charge(self, of_time=of_time, of_bytes=of_bytes, size=size)

    def mutations(self, header: RequestHeader) -> "Mutations":
        """Counts the partitions that a request creates or deletes (KIP-599).

        One that is not in `STRICT_SINCE` has a topic created beside its purpose, and may not exceed
        the quota either.
        """
        user = header.caller.principal.name
        counter = self.find(QuotaKind.MUTATIONS, user, header.client_id)
        is_strict = header.api_version >= STRICT_SINCE.get(header.api_key, 0)
        return Mutations(self, counter, is_strict=is_strict)

    def throttled(self, counter: QuotaCounter, throttle_ms: int) -> None:
        """Note that a client is throttled."""
        self._throttled[counter.kind] += 1
        self._unlogged_count += 1
        now_ms = self.now_ms
        # One line for all: thousands of requests may be throttled in a second.
        if self._logged_ms is None or now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            user, client_id = counter.entity
            logger.info(
                "client_throttled quota=%s limit=%g user=%r client_id=%r throttle_ms=%d "
                "throttled_since_last_line=%d",
                counter.kind, counter.limit, user, client_id, throttle_ms, self._unlogged_count,
            )  # fmt: skip
            self._logged_ms, self._unlogged_count = now_ms, 0

    def statistics(self) -> QuotaStatistics:
        """The throttled clients right now."""
        return QuotaStatistics(
            throttled_count=MappingProxyType({kind: self._throttled[kind] for kind in _KINDS}),
            counter_count=sum(map(len, self._counters.values())),
        )

    def rates(self, kind: str) -> Iterator[tuple[tuple[str, str], float, int]]:
        """User and client id of those that are counted, their rate in a second, and throttle time.

        The latter is that of an answer that would be made now, in milliseconds.
        """
        now_ms = self.now_ms
        for entity, counter in self._counters[kind]:
            yield entity, counter.rate.per_second(now_ms), counter.throttle_ms(now_ms)

    def _take_over(self, quotas: Quotas) -> None:
        limits: dict[str, dict[_Entity, float]] = {kind: {} for kind in _KINDS}
        for entity, values in quotas.items():
            names: dict[str, str | None] = dict(entity.parts)
            if "ip" in names:
                continue
            user, client_id = names.get("user", ""), names.get("client-id", "")
            if client_id is not None:
                client_id = client_id[:CLIENT_ID_CHARACTERS_MAX]
            for key, limit in values.items():
                # A log of another version may have others.
                if key in limits:
                    limits[key][user, client_id] = limit
        for kind, counters in self._counters.items():
            counters.replace_limits(limits[kind])
        self._limited = {kind: each for kind, each in self._counters.items() if each.limits}
        self.has_any = bool(self._limited)
        self.has_times = QuotaKind.REQUEST_TIME in self._limited
        self._taken = quotas


class Charge:
    """The costs of one request, which `settle` counts: bytes, and time of the event loop.

    Time is that of the loop, and of threads that decode and encode long requests; not that of
    devices, nor of a request that waits. 100 percent are one core, which is all that requests of
    clients have here.
    """

    __slots__ = ("_of_bytes", "_of_time", "_quotas", "_size", "_spent_s", "_started_s")

    def __init__(
        self,
        quotas: ClientQuotas,
        *,
        of_time: QuotaCounter | None = None,
        of_bytes: QuotaCounter | None = None,
        size: int = 0,
    ) -> None:
        self._quotas = quotas
        self._of_time = of_time
        self._of_bytes = of_bytes
        self._size = size
        self._spent_s = 0.0
        self._started_s: float | None = quotas.clock.monotonic_s()

    @property
    def bytes_max(self) -> float:
        """The most bytes that an answer may have without being throttled for certain."""
        return float("inf") if self._of_bytes is None else self._of_bytes.most_at_once

    def pause(self) -> None:
        """Count no time from now on."""
        if self._started_s is not None:
            self._spent_s += self._quotas.clock.monotonic_s() - self._started_s
            self._started_s = None

    def resume(self) -> None:
        """Count time again."""
        self._started_s = self._quotas.clock.monotonic_s()

    def timed(self, awaitable: Awaitable[T]) -> Awaitable[T]:
        """The same, with the time of its steps counted and not that of its waits."""
        self.pause()
        return awaitable if self._of_time is None else Timed(awaitable, self)

    def settle(self, *, size: int | None = None, is_answered: bool = True) -> int:
        """Count the request, and return the time for which the client is throttled; 0: it is not.

        `size` are the bytes, if they are not those of the request.
        """
        self.pause()
        now_ms = self._quotas.now_ms
        throttle_ms, exceeded = 0, None
        if self._of_bytes is not None:
            self._of_bytes.record(self._size if size is None else size, now_ms)
            throttle_ms, exceeded = self._of_bytes.throttle_ms(now_ms), self._of_bytes
        # Without an answer the client learns nothing of it, so its time does not count in Kafka.
        if self._of_time is not None and is_answered:
            self._of_time.record(percent(self._spent_s), now_ms)
            by_time_ms = self._of_time.throttle_ms(now_ms)
            if by_time_ms > throttle_ms:
                throttle_ms, exceeded = by_time_ms, self._of_time
        self._spent_s = 0.0
        if exceeded is not None and throttle_ms > 0:
            self._quotas.throttled(exceeded, throttle_ms)
        return throttle_ms

    def take_back(self, size: int) -> None:
        """Count bytes no more that were settled: the answer leaves without them."""
        if self._of_bytes is not None:
            self._of_bytes.record(-size, self._quotas.now_ms)

    def end(self) -> None:
        """Count the time after `settle`, which throttles later requests."""
        self.pause()
        if self._of_time is not None and self._spent_s:
            self._of_time.record(percent(self._spent_s), self._quotas.now_ms)


def percent(seconds: float) -> float:
    """The time of a request, as a rate of them in a second is a share of one core."""
    return seconds * 100


class Mutations:
    """The partitions that one request creates and deletes, against the quota of its client."""

    def __init__(
        self, quotas: ClientQuotas, counter: QuotaCounter | None, *, is_strict: bool
    ) -> None:
        """None: there is no quota."""
        self._quotas = quotas
        self._counter = counter
        self._is_strict = is_strict
        self._is_exceeded = False

    def take(self, count: int) -> bool:
        """Count partitions; False: the quota is used up, and nothing was counted."""
        counter = self._counter
        if counter is None or counter.bucket is None:
            return True
        now_ms = counter.last_ms = self._quotas.now_ms
        # A request may overdraw, or none with more partitions than the bucket holds could pass.
        if self._is_strict and counter.bucket.tokens(counter.limit, now_ms) < 0:
            self._is_exceeded = True
            return False
        counter.bucket.take(count, counter.limit, now_ms)
        if not self._is_strict and counter.bucket.tokens(counter.limit, now_ms) < 0:
            self._is_exceeded = True
        return True

    def settle(self, answer: M) -> M:
        """The answer with the time for which the client is throttled."""
        throttle_ms = self._throttle_ms()
        fields: Any = {"throttle_time_ms": throttle_ms}
        return replace(answer, **fields) if throttle_ms else answer

    def _throttle_ms(self) -> int:
        counter = self._counter
        if not self._is_exceeded or counter is None or counter.bucket is None:
            return 0
        throttle_ms = min(counter.bucket.throttle_ms(counter.limit, self._quotas.now_ms), INT32_MAX)
        if throttle_ms > 0:
            self._quotas.throttled(counter, throttle_ms)
        return throttle_ms
