"""Fetch sessions (KIP-227): the partitions that a client fetches, and what it has got last.

    client                                         broker
    id 0, epoch 0, all partitions        ->        answers all, session 7 is made
    id 7, epoch 1, changed offsets       ->        answers those with news
    id 7, epoch 2, nothing               ->        answers those with news
    id 7, epoch 0 or -1                  ->        session 7 ends

A request is full, incremental, or of no session; `FetchSessions.begin` tells which. It is answered
in three steps: the partitions to read, one call of `take` for each answer, which tells whether it
is news, and `end`. A partition that had records moves after the others, so that each gets its
turn (KIP-74).

The session of another client is replaced by Kafka's rules; see `FetchSessions`. A client without a
session sends all of its partitions with each request, so that a lost session costs bytes only.

Invariant: no step goes through the partitions of a session while they may change; requests of many
partitions are answered in slices, and another one of the session may come in between.
"""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from tailrace.config.settings import INT32_MAX
from tailrace.protocol.errors import ErrorCode
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.model import TopicPartition
    from tailrace.protocol.messages.fetch import (
        FetchPartition,
        FetchRequest,
        FetchTopic,
        PartitionData,
    )

CONSUMER: Final = -1
"""The replica id in requests of consumers."""

FUTURE_REPLICA: Final = -3
"""The replica id of a copy in another directory of a broker, which is no consumer either."""

ANY_REPLICA_SINCE: Final = 11
"""The first version in which a consumer may read from a follower (KIP-392)."""

NO_SESSION: Final = 0
"""The session id of requests and answers outside of any session."""

INITIAL_EPOCH: Final = 0
"""The epoch of a request that wants a new session."""

FINAL_EPOCH: Final = -1
"""The epoch of a request that ends its session."""

# Kafka's slots count sessions (`max.incremental.fetch.session.cache.slots`), and a client may put
# any number of partitions into one.
PARTITIONS_MAX: Final = 250_000
"""Most partitions in all sessions together. Each takes some 400 bytes, so this is 100 MB. Apache
Kafka has no such limit."""

_SESSION_ID_BITS: Final = 31


NameOf = Callable[[UUID], str | None]
"""The name of the topic that has an id; None: no topic has it."""


class WantedPartition(NamedTuple):
    """A partition to read for a request."""

    topic: str
    """Name of the topic, empty from v13 on."""
    topic_id: UUID
    """Id of the topic, zero up to v12."""
    wanted: "FetchPartition"
    """The limits and the offset of the request."""
    cached: "CachedPartition | None" = None
    """Its last answer in the session; None outside of sessions."""


class PartitionKey(NamedTuple):
    """A partition as the client names it."""

    topic: str
    topic_id: UUID
    number: int


class FetchContext(Protocol):
    """The steps in which one request is answered."""

    def count(self) -> int:
        """Number of the partitions to read."""
        ...

    def partitions(self) -> Iterator[WantedPartition]:
        """The partitions to read, in the order of their turns."""
        ...

    def name_of(self, read: WantedPartition) -> str | None:
        """The name that the topic of a wanted id had when it came into the session, if it did."""
        ...

    def check(self) -> ErrorCode:
        """NONE, or the error for the whole answer; before the first `take`."""
        ...

    def is_news(self, read: WantedPartition, answer: "PartitionData") -> bool:
        """Whether the answer of a partition belongs into the response; before its `take`."""
        ...

    def take(self, read: WantedPartition, answer: "PartitionData") -> bool:
        """Note the answer of a partition; returns whether it belongs into the response."""
        ...

    def end(self, now_s: float) -> int:
        """The session id of the response; after the last `take`."""
        ...

    @property
    def throttled_id(self) -> int:
        """The session id of a response without partitions, which the client has to wait for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSessionLimits:
    """The number of fetch sessions of a broker, and when one may be replaced."""

    slot_count: int
    """Most sessions at a time."""
    eviction_s: float
    """Age, and time without a request, after which another session may take the place of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSessionsStatistics:
    """The fetch sessions of a broker at one moment."""

    session_count: int
    """Sessions."""
    partition_count: int
    """Partitions in all sessions together."""
    evicted_count: int
    """Sessions that others have replaced since the start."""


class CachedPartition:
    """A partition of a session: what is wanted of it, and what the client has got last."""

    __slots__ = ("high_watermark", "log_start_offset", "name", "place", "wanted")

    def __init__(self, wanted: "FetchPartition", name: str | None) -> None:
        self.wanted = wanted
        self.name = name
        """The name of the topic; None: it is in the key, or nobody had the id."""
        self.place: TopicPartition | None = None
        """The partition by its topic's name, once a follower has found it: no id changes its name,
        and whether the topic is still there is asked each time."""
        # No log has these offsets, so the first answer is news even if the partition is empty.
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_news(self, answer: "PartitionData") -> bool:
        """Whether the client has to get an answer."""
        return (
            # Kafka's list (FetchSession.maybeUpdateResponseData). The last stable offset is not in
            # it.
            len(answer.records or b"") > 0
            or answer.error_code != ErrorCode.NONE
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch.epoch >= 0
        )

    def tell(self, answer: "PartitionData") -> bool:
        """Note what the client gets; returns whether it is news."""
        is_news = self.is_news(answer)
        # The client needs the partition again when the error is gone.
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_news


class FetchSession:
    """The partitions that one client fetches, in the order of their turns."""

    __slots__ = (
        "created_s", "epoch", "id", "is_privileged", "name_of", "partitions", "size", "used_s",
        "uses_topic_ids",
    )  # fmt: skip

    def __init__(
        self,
        session_id: int,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
        name_of: NameOf,
        now_s: float,
    ) -> None:
        self.id = session_id
        self.name_of = name_of
        self.is_privileged = is_privileged
        """Whether a follower has it."""
        self.uses_topic_ids = uses_topic_ids
        self.created_s = self.used_s = now_s
        self.epoch = INITIAL_EPOCH + 1
        """The epoch of the next request."""
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.size = 0
        """Partitions when it was last counted."""

    def put(self, read: WantedPartition) -> None:
        """Add a partition after the others, or change what is wanted of it."""
        key = _key(read)
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = CachedPartition(read.wanted, self.name_of(read.topic_id))
        else:
            # What the client has got stays: a new fetch offset alone is no reason to send the
            # partition.
            known.wanted = read.wanted

    def forget(self, key: PartitionKey) -> None:
        """Drop a partition, if it is there."""
        self.partitions.pop(key, None)

    def repeat(
        self, read: WantedPartition, *, high_watermark: int, log_start_offset: int, now_s: float
    ) -> None:
        """Note the next request, for one partition, that is answered with records of it."""
        cached = self.partitions[_key(read)]
        cached.wanted = read.wanted
        cached.high_watermark = high_watermark
        cached.log_start_offset = log_start_offset
        self.used_s = now_s
        self.next_epoch()

    def next_epoch(self) -> None:
        """Expect the next request."""
        # After the highest epoch comes 1: 0 would begin a session, a negative one would end it
        # (KIP-227).
        self.epoch = INITIAL_EPOCH + 1 if self.epoch == INT32_MAX else self.epoch + 1


class SessionlessFetch:
    """A request outside of any session: everything is news."""

    def __init__(self, topics: "tuple[FetchTopic, ...]") -> None:
        self._topics = topics

    def count(self) -> int:
        """See `FetchContext`."""
        return count_of(self._topics)

    def name_of(self, _read: WantedPartition) -> str | None:
        """See `FetchContext`."""
        return None

    def partitions(self) -> Iterator[WantedPartition]:
        """See `FetchContext`."""
        return named_partitions(self._topics)

    def check(self) -> ErrorCode:
        """See `FetchContext`."""
        return ErrorCode.NONE

    def is_news(self, _read: WantedPartition, _answer: "PartitionData") -> bool:
        """See `FetchContext`."""
        return True

    def take(self, _read: WantedPartition, _answer: "PartitionData") -> bool:
        """See `FetchContext`."""
        return True

    def end(self, _now_s: float) -> int:
        """See `FetchContext`."""
        return NO_SESSION

    @property
    def throttled_id(self) -> int:
        """See `FetchContext`: a session does not begin with nothing."""
        return NO_SESSION


class FullFetch(SessionlessFetch):
    """A request that begins a session, if there is room for one."""

    def __init__(
        self,
        topics: "tuple[FetchTopic, ...]",
        sessions: "FetchSessions",
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        super().__init__(topics)
        self._sessions = sessions
        self._is_privileged = is_privileged
        self._uses_topic_ids = uses_topic_ids
        self._told: dict[PartitionKey, CachedPartition] = {}

    def take(self, read: WantedPartition, answer: "PartitionData") -> bool:
        """See `FetchContext`."""
        # What was answered, not what was asked for: only that is known to the client.
        name = self._sessions.name_of(read.topic_id)
        known = self._told[_key(read)] = CachedPartition(read.wanted, name)
        known.tell(answer)
        return True

    def end(self, now_s: float) -> int:
        """See `FetchContext`."""
        return self._sessions.create(
            self._told,
            is_privileged=self._is_privileged,
            uses_topic_ids=self._uses_topic_ids,
            now_s=now_s,
        )


class IncrementalFetch:
    """A request of a session, after the session took over its changes."""

    def __init__(self, session: FetchSession, *, is_last: bool = False) -> None:
        """`is_last`: the session has ended, as its client learns from the id 0 in the answer."""
        self._session = session
        self._is_last = is_last
        # Another request of the session, after a timeout of the client, raises it; `check` sees
        # that.
        self._epoch = session.epoch
        # Only the session's own entries change later, not this list of them.
        self._cached = list(session.partitions.items())

    def count(self) -> int:
        """See `FetchContext`."""
        return len(self._cached)

    def partitions(self) -> Iterator[WantedPartition]:
        """See `FetchContext`."""
        return (
            WantedPartition(key[0], key[1], cached.wanted, cached) for key, cached in self._cached
        )

    def name_of(self, read: WantedPartition) -> str | None:
        """See `FetchContext`."""
        cached = self._session.partitions.get(_key(read))
        return None if cached is None else cached.name

    def check(self) -> ErrorCode:
        """See `FetchContext`: another request of the session came while this one waited."""
        is_ours = self._session.epoch == self._epoch
        return ErrorCode.NONE if is_ours else ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def is_news(self, read: WantedPartition, answer: "PartitionData") -> bool:
        """See `FetchContext`."""
        return read.cached is None or read.cached.is_news(answer)

    def take(self, read: WantedPartition, answer: "PartitionData") -> bool:
        """See `FetchContext`; a partition with records moves after the others."""
        key, partitions = _key(read), self._session.partitions
        cached = partitions.get(key)
        # Forgotten meanwhile by another request, whose epoch makes `check` refuse this one's
        # answer.
        if cached is None:
            return True
        is_news = cached.tell(answer)
        if len(answer.records or b"") > 0:
            # A dict keeps the order of insertion, so this is the end of the line. As in Kafka: a
            # response is filled in this order up to its limit (KIP-74), and each gets its turn.
            del partitions[key]
            partitions[key] = cached
        return is_news

    def end(self, _now_s: float) -> int:
        """See `FetchContext`."""
        return NO_SESSION if self._is_last else self._session.id

    @property
    def throttled_id(self) -> int:
        """See `FetchContext`."""
        return NO_SESSION if self._is_last else self._session.id


class FetchSessions:
    """The fetch sessions of a broker, `slot_count` at most; `eviction_s` is how long each is safe.

    When all slots are taken, a new session replaces the one that was unused for longest, if that
    was more than `eviction_s`. Otherwise it replaces the smallest session, if it has more
    partitions itself and that one was used when it was older than `eviction_s`. Followers replace
    sessions of consumers of any age and size, and consumers never replace those of followers.
    """

    def __init__(
        self,
        limits: FetchSessionLimits,
        chance: random.Random,
        *,
        name_of: NameOf = lambda _: None,
    ) -> None:
        """`name_of` gives the name of the topic that has an id, if there is one."""
        self.name_of = name_of
        self._slot_count = limits.slot_count
        self._eviction_s = limits.eviction_s
        self._chance = chance
        self._sessions: dict[int, FetchSession] = {}
        self._partition_count = 0
        self._evicted_count = 0

    def statistics(self) -> FetchSessionsStatistics:
        """Sessions right now."""
        return FetchSessionsStatistics(
            session_count=len(self._sessions),
            partition_count=self._partition_count,
            evicted_count=self._evicted_count,
        )

    def begin(
        self, request: "FetchRequest", *, uses_topic_ids: bool, now_s: float
    ) -> FetchContext | ErrorCode:
        """The steps to answer a request, or the error for the whole answer."""
        found = self._find(request, uses_topic_ids=uses_topic_ids)
        if not isinstance(found, FetchSession):
            return found
        for each in named_partitions(request.topics):
            found.put(each)
        # After the additions, as in Kafka: Java forgets a topic that was made again by its old id,
        # and adds it by its new one, in one request.
        for key in _forgotten(request):
            found.forget(key)
        return self._updated(found, request, now_s=now_s)

    async def begin_in_slices(
        self, request: "FetchRequest", slices: Slices, *, uses_topic_ids: bool, now_s: float
    ) -> FetchContext | ErrorCode:
        """The same as `begin`, for a request of many partitions."""
        found = self._find(request, uses_topic_ids=uses_topic_ids)
        if not isinstance(found, FetchSession):
            return found
        await each_in_slices(named_partitions(request.topics), found.put, slices)
        await each_in_slices(_forgotten(request), found.forget, slices)
        return self._updated(found, request, now_s=now_s)

    def find_single(self, session_id: int, epoch: int, key: PartitionKey) -> FetchSession | None:
        """The session with only this partition that expects a request of this epoch, or None."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch:
            return None
        return session if len(session.partitions) == 1 and key in session.partitions else None

    def create(
        self,
        partitions: dict[PartitionKey, CachedPartition],
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
        now_s: float,
    ) -> int:
        """The id of a new session, or `NO_SESSION` if there is no room for one."""
        size = len(partitions)
        has_slot = len(self._sessions) < self._slot_count
        if not has_slot and not self._evict(is_privileged=is_privileged, size=size, now_s=now_s):
            return NO_SESSION
        # Only sessions that nobody uses give way to this limit, which Kafka does not have.
        while self._partition_count + size > PARTITIONS_MAX:
            if not self._evict_unused(now_s):
                return NO_SESSION
        session = FetchSession(
            self._new_id(),
            is_privileged=is_privileged,
            uses_topic_ids=uses_topic_ids,
            name_of=self.name_of,
            now_s=now_s,
        )
        session.partitions = partitions
        self._sessions[session.id] = session
        self._count(session)
        return session.id

    def _find(
        self, request: "FetchRequest", *, uses_topic_ids: bool
    ) -> FetchSession | FetchContext | ErrorCode:
        """The session of an incremental request, whose next epoch begins with this."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # Epoch 0 with the id of a session ends it too: the client begins again after an error.
            self._remove(request.session_id)
            if request.session_epoch == FINAL_EPOCH:
                return SessionlessFetch(request.topics)
            return FullFetch(
                request.topics,
                self,
                is_privileged=replica_id_of(request) >= 0,
                uses_topic_ids=uses_topic_ids,
            )
        session = self._sessions.get(request.session_id)
        # Java answers both errors with a full request in a new session (KIP-227).
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids is not uses_topic_ids:
            # An upgraded client begins again: names and ids are different keys (KIP-516).
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.next_epoch()
        return session

    def _updated(
        self, session: FetchSession, request: "FetchRequest", *, now_s: float
    ) -> FetchContext:
        """The steps to answer a request, whose changes the session has taken over."""
        # As in Kafka: a session whose last partition was forgotten ends, and its client learns that
        # from the id 0 in the answer.
        if not session.partitions:
            self._remove(session.id)
            return SessionlessFetch(request.topics)
        has_grown = len(session.partitions) > session.size
        session.used_s = now_s
        self._count(session)
        if has_grown and self._partition_count > PARTITIONS_MAX:
            # Answered all the same. After an error its client would begin again at once: a follower
            # names a part of its partitions with each request, and would never come to the rest.
            self._remove(session.id)
            return IncrementalFetch(session, is_last=True)
        return IncrementalFetch(session)

    def _count(self, session: FetchSession) -> None:
        if session.id in self._sessions:
            self._partition_count += len(session.partitions) - session.size
            session.size = len(session.partitions)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= session.size

    def _new_id(self) -> int:
        while True:
            session_id = self._chance.getrandbits(_SESSION_ID_BITS)
            # By chance, as in Kafka: after a restart, a client with an old id should find no
            # session rather than that of another client.
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id

    def _evict(self, *, is_privileged: bool, size: int, now_s: float) -> bool:
        """Remove a session that a new one may replace; returns whether there was one."""
        if self._evict_unused(now_s):
            return True
        replaceable = [
            each
            for each in self._sessions.values()
            if each.used_s - each.created_s > self._eviction_s
            or (is_privileged and not each.is_privileged)
        ]
        if not replaceable:
            return False
        least = min(replaceable, key=_value)
        # Among equals the older session stays.
        if (is_privileged, size, NO_SESSION) < _value(least):
            return False
        self._replace(least)
        return True

    def _evict_unused(self, now_s: float) -> bool:
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda each: (each.used_s, each.id))
        if now_s - oldest.used_s <= self._eviction_s:
            return False
        self._replace(oldest)
        return True

    def _replace(self, session: FetchSession) -> None:
        self._remove(session.id)
        self._evicted_count += 1


def named_partitions(topics: "tuple[FetchTopic, ...]") -> Iterator[WantedPartition]:
    """The partitions that a request names, in its order."""
    for topic in topics:
        for wanted in topic.partitions:
            yield WantedPartition(topic.topic, topic.topic_id, wanted)


def count_of(topics: "tuple[FetchTopic, ...]") -> int:
    """Number of the partitions that a request names."""
    return sum(len(topic.partitions) for topic in topics)


def _forgotten(request: "FetchRequest") -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        for number in topic.partitions:
            yield PartitionKey(topic.topic, topic.topic_id, number)


def _key(read: WantedPartition) -> PartitionKey:
    return PartitionKey(read.topic, read.topic_id, read.wanted.partition)


def _value(session: FetchSession) -> tuple[bool, int, int]:
    """Sessions with less of it are replaced first."""
    return session.is_privileged, session.size, session.id


def replica_id_of(request: "FetchRequest") -> int:
    """The broker that sends a request as a follower; negative: a consumer or a tool does."""
    # v15 has moved it (KIP-903); the field that a version does not have is -1.
    replica_id = request.replica_id
    return request.replica_state.replica_id if replica_id == CONSUMER else replica_id
