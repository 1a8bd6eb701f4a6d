"""Offsets of partitions: at both ends of a log, at a time, or at another place.

    admin.list_offsets({TopicPartition("flights", 0): SpecialTimestamp.LATEST})
    admin.find_offsets(partitions, at=OffsetAt(Place.TIME, 1700000000000))

Not here: offsets that groups have committed; see `group_offsets`.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple, assert_never

from tailrace.client.admin.items import (
    ItemRequest,
    by_topic,
    for_each,
    of_partitions,
    partition_values_in,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import IncompleteAnswerError
from tailrace.client.routes import leader
from tailrace.errors import TailraceError
from tailrace.model import IsolationLevel, SpecialTimestamp, TopicPartition
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.values import dataclass

_FIRST_VERSIONS = {
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""The versions of ListOffsets in which a special timestamp is no time."""


class Place(Enum):
    """Kinds of places in a log."""

    EARLIEST = "the first record"
    LATEST = "after the last record"
    OFFSET = "an offset"
    TIME = "the first record from a time on, in milliseconds since 1970"
    FROM_LATEST = "a number of offsets after the last record; before it, if negative"
    FROM_COMMITTED = "a number of offsets after the committed one; before it, if negative"


class OffsetAt(NamedTuple):
    """A place in any log."""

    place: Place
    number: int = 0
    """The offset, time or distance."""


class LogRange(NamedTuple):
    """The two ends of a log."""

    start: int
    """Its first offset."""
    end: int
    """The offset after its last readable record."""


class FoundOffset(NamedTuple):
    """A place in one log, as an offset."""

    offset: int
    """May lie outside of `log`, where an offset or a distance was asked for."""
    log: LogRange

    @property
    def within(self) -> int:
        """The nearest offset that the log has, or the one after its last record."""
        # The end counts as within: it is the place of the next record.
        return min(max(self.offset, self.log.start), self.log.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset of the next record that a group wants from a partition."""

    offset: int
    leader_epoch: int = -1
    """The leader epoch of the last record that was processed; -1 if it is not known."""
    metadata: str = ""
    """A note by the client that committed it."""


class ListedOffset(NamedTuple):
    """The answer about one partition."""

    offset: int
    """-1 where no record is that new."""
    timestamp: int
    """The timestamp of the record there, in milliseconds; -1 for the ends of a log."""
    leader_epoch: int
    """The leader epoch of that record; -1 if it is not known."""


def list_offsets(
    call: Call,
    questions: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Steps[Outcomes[TopicPartition, ListedOffset]]:
    """The offset of each partition at a time in milliseconds, or at a `SpecialTimestamp`.

    With READ_COMMITTED a log ends at its last stable offset. Repeated after a lost connection.
    """
    wanted: dict[TopicPartition, int] = partition_values_in(
        questions, what="questions", kinds=(int,)
    )
    found: dict[TopicPartition, ListedOffset | TailraceError] = {}
    # An older broker would take a special timestamp for a time, so these go apart.
    by_version: dict[int, list[TopicPartition]] = {}
    for partition, timestamp in wanted.items():
        by_version.setdefault(_first_version(timestamp), []).append(partition)
    for version, partitions in by_version.items():
        found |= yield from for_each(
            call,
            partitions,
            _offsets_request(call, wanted, isolation=isolation, first_version=version),
        )
    return Outcomes({each: found[each] for each in wanted})


def log_ranges(
    call: Call,
    partitions: Collection[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Steps[Outcomes[TopicPartition, LogRange]]:
    """Both ends of each log."""
    # Two requests: a request cannot ask twice about a partition.
    chosen = list(partitions)
    earliest = dict.fromkeys(chosen, SpecialTimestamp.EARLIEST)
    starts = yield from list_offsets(call, earliest, isolation=isolation)
    latest = dict.fromkeys(chosen, SpecialTimestamp.LATEST)
    ends = yield from list_offsets(call, latest, isolation=isolation)
    return Outcomes({each: _range(each, starts[each], ends[each]) for each in starts})


def find_offsets(
    call: Call,
    partitions: Collection[TopicPartition],
    *,
    at: OffsetAt,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    committed: Mapping[TopicPartition, CommittedOffset] | None = None,
) -> Steps[Outcomes[TopicPartition, FoundOffset]]:
    """The offset at a place in each log.

    A time after the last record is the end of the log. A partition without an offset in `committed`
    is left out where the distance from that is wanted.
    """
    known = committed or {}
    chosen = [each for each in partitions if at.place is not Place.FROM_COMMITTED or each in known]
    logs = yield from log_ranges(call, chosen, isolation=isolation)
    times: Mapping[TopicPartition, ListedOffset | TailraceError] = {}
    if at.place is Place.TIME:
        # Negative times are special timestamps.
        questions = dict.fromkeys(chosen, max(at.number, 0))
        times = yield from list_offsets(call, questions, isolation=isolation)
    found: dict[TopicPartition, FoundOffset | TailraceError] = {}
    for each, log in logs.items():
        time = times.get(each)
        if isinstance(log, TailraceError):
            found[each] = log
        elif isinstance(time, TailraceError):
            found[each] = time
        else:
            offset = _offset_at(at, log, time=time, committed=known.get(each))
            found[each] = FoundOffset(offset, log)
    return Outcomes(found)


def _offset_at(
    at: OffsetAt,
    log: LogRange,
    *,
    time: ListedOffset | None,
    committed: CommittedOffset | None,
) -> int:
    match at.place:
        case Place.EARLIEST:
            return log.start
        case Place.LATEST:
            return log.end
        case Place.OFFSET:
            return at.number
        case Place.TIME:
            # No record is that new.
            return log.end if time is None or time.offset < 0 else time.offset
        case Place.FROM_LATEST:
            return log.end + at.number
        case Place.FROM_COMMITTED:
            assert committed is not None, "partitions without one are left out"
            return committed.offset + at.number
        case _:
            assert_never(at.place)


def _range(
    partition: TopicPartition,
    start: ListedOffset | TailraceError,
    end: ListedOffset | TailraceError,
) -> LogRange | TailraceError:
    if isinstance(start, TailraceError):
        return start
    if isinstance(end, TailraceError):
        return end
    # A broker of Kafka answers so for a time only.
    if start.offset < 0 or end.offset < 0:
        return IncompleteAnswerError(
            f"{partition}: the leader has given no end of its log (from {start.offset} to "
            f"{end.offset}); is it a broker of Kafka?"
        )
    return LogRange(start.offset, end.offset)


def _first_version(timestamp: int) -> int:
    special = timestamp in set(SpecialTimestamp)
    return _FIRST_VERSIONS.get(SpecialTimestamp(timestamp), 0) if special else 0


def _offsets_request(
    call: Call,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel,
    first_version: int,
) -> ItemRequest[TopicPartition, ListedOffset, ListOffsetsResponse]:
    return ItemRequest(
        what="partition",
        target=leader,
        request=lambda batch: ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=tuple(
                ListOffsetsTopic(
                    name=topic,
                    partitions=tuple(
                        ListOffsetsPartition(
                            partition_index=number, timestamp=wanted[TopicPartition(topic, number)]
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(batch).items()
            ),
            timeout_ms=call.left_ms,
        ),
        response=ListOffsetsResponse,
        entries=lambda answer, _: of_partitions(answer.topics),
        value=lambda _, each: ListedOffset(each.offset, each.timestamp, each.leader_epoch),
        first_version=first_version,
    )
