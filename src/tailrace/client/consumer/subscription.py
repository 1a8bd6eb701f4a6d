"""`SubscriptionState`: what a consumer reads, and the position in each assigned partition.

    subscribe, assign                           which partitions there are
    INITIALIZING -> AWAIT_RESET -> FETCHING     how each of them gets its position
                        ^             |
                        |       AWAIT_VALIDATION     after a change of the leader (KIP-320)
                        '-------------'              after OFFSET_OUT_OF_RANGE

Pure: no requests, no clock but the times that are passed in.

Invariant: a partition has a position in FETCHING and AWAIT_VALIDATION and only there. `version` of
a partition is larger after every change of its position that is not reading on, so that an answer
to an older request can be recognized.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tailrace.client.cluster_metadata import NO_NODE, NOBODY, Leader
from tailrace.client.consumer.errors import SubscriptionError
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.model import NO_LEADER_EPOCH, SpecialTimestamp, TopicPartition
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.client.consumer.fetched import FetchedPart


class Position(NamedTuple):
    """The next record to return, and what is known of the log there."""

    offset: int
    epoch: int = NO_LEADER_EPOCH
    """Leader epoch of the record before it; -1 if it is not known."""
    leader: Leader = NOBODY
    """The leader under which the position was last found valid."""


class Phase(Enum):
    """The thing that a partition waits for."""

    INITIALIZING = "the committed offset"
    AWAIT_RESET = "an offset from its leader"
    AWAIT_VALIDATION = "its leader to confirm the position"
    FETCHING = "nothing"


class ResetPolicy(NamedTuple):
    """The beginning without a valid position: `auto.offset.reset`."""

    name: str
    """earliest, latest, none or by_duration."""
    duration_ms: int = 0
    """The time that by_duration goes back."""

    @property
    def is_time(self) -> bool:
        """Whether it is a time, from which on the log may have no record."""
        return self.name == "by_duration"

    def timestamp(self, now_ms: int) -> int:
        match self.name:
            case "earliest":
                return SpecialTimestamp.EARLIEST
            case "latest":
                return SpecialTimestamp.LATEST
        return max(0, now_ms - self.duration_ms)


EARLIEST = ResetPolicy("earliest")
LATEST = ResetPolicy("latest")
NO_RESET = ResetPolicy("none")


@dataclass(slots=True, eq=False)
class Assigned:
    """The state of one assigned partition."""

    partition: TopicPartition
    phase: Phase = Phase.INITIALIZING
    position: Position | None = None
    reset: ResetPolicy | None = None
    """The beginning, in AWAIT_RESET."""
    version: int = 0
    """Larger after each seek, reset and validation."""
    stored: OffsetAndMetadata | None = None
    """The committed offset, as far as this consumer has fetched or stored it."""
    is_paused: bool = False
    is_revoking: bool = False
    """Whether the partition is being given back, so that nothing of it is fetched or returned."""
    retry_at: float = 0.0
    """No request about the partition before this time."""
    is_asked: bool = False
    """Whether a request for the reset or the validation is in flight."""
    preferred_replica: int = NO_NODE
    """The follower to fetch from (KIP-392); -1: the leader."""
    preferred_until: float = 0.0
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    parts: "deque[FetchedPart]" = field(default_factory=deque)
    """Records that were fetched and not returned, in the order of offsets."""
    fetch_offset: int = 0
    """The offset of the next fetch: after `parts`."""
    fetching_at: int = NO_NODE
    """The broker at which a fetch of it is in flight; -1: there is none."""
    topic_id: UUID | None = None
    """The id of the topic that was fetched last."""
    read_from: int | None = None
    """The offset from which the present call of the program has read; None: it has read nothing."""

    @property
    def has_position(self) -> bool:
        return self.position is not None

    @property
    def is_fetchable(self) -> bool:
        """Whether its records may be returned."""
        return self.phase is Phase.FETCHING and not self.is_paused and not self.is_revoking

    def seek(self, position: Position) -> None:
        """Go to a position and drop what was fetched."""
        # A seek by hand ends a reset or a validation that is under way.
        self.phase, self.position, self.reset = Phase.FETCHING, position, None
        self._changed()

    def seek_unvalidated(self, position: Position) -> None:
        """Go to a position that another life of the log may have given (KIP-320)."""
        self.seek(position)
        self.await_validation(position.leader)

    def await_reset(self, policy: ResetPolicy) -> None:
        """Lose the position; `policy` says which one to ask for."""
        self.phase, self.position, self.reset = Phase.AWAIT_RESET, None, policy
        self._changed()

    def await_validation(self, leader: Leader) -> None:
        """Have the new leader confirm the position, if there is an epoch to compare.

        Only that leader says from now on which follower to fetch from.
        """
        assert self.position is not None, "there is nothing to validate"
        self.position = self.position._replace(leader=leader)
        # The new leader knows its followers; the old one's choice may lack records.
        self.preferred_replica = NO_NODE
        # Without an epoch on both sides there is nothing to compare (old brokers, KIP-320).
        if NO_LEADER_EPOCH not in {self.position.epoch, leader.epoch}:
            self.phase = Phase.AWAIT_VALIDATION
            self._changed()
        else:
            self.phase = Phase.FETCHING

    def validated(self) -> None:
        """The position is valid: read on."""
        self.phase = Phase.FETCHING
        self._changed()

    def read_to(self, offset: int, epoch: int) -> None:
        """Move the position past records that were returned or passed over."""
        assert self.position is not None, "records were returned without a position"
        if self.read_from is None:
            self.read_from = self.position.offset
        self.position = Position(
            # Old formats have no epochs: keep the last one that is known.
            offset,
            self.position.epoch if epoch < 0 else epoch,
            self.position.leader,
        )

    def drop_parts(self) -> None:
        """Forget what was fetched and not returned; it is fetched again."""
        for each in self.parts:
            each.release()
        self.parts.clear()
        if self.position is not None:
            self.fetch_offset = self.position.offset

    def _changed(self) -> None:
        self.version += 1
        # A seek counts, also if the call in which it was made is interrupted.
        self.read_from = None
        self.is_asked = False
        self.retry_at = 0.0
        self.drop_parts()


class Kind(Enum):
    """The ways to choose partitions; a consumer does one of these at a time."""

    NONE = "nothing"
    TOPICS = "subscribe() with topics"
    PATTERN = "subscribe() with a pattern"
    PARTITIONS = "assign()"


class SubscriptionState:
    """Topics or partitions of one consumer, and the state of each assigned partition."""

    def __init__(self, default_reset: ResetPolicy) -> None:
        self.default_reset = default_reset
        self.kind = Kind.NONE
        self.topics: frozenset[str] = frozenset()
        """The topics that were named, or that the pattern has matched."""
        self.pattern: re.Pattern[str] | str | None = None
        """A regular expression that is matched here, or the text of one for the broker."""
        self.assigned: dict[TopicPartition, Assigned] = {}
        self._first_version = 0
        """A version that no partition has had that was given back: it may come again."""

    @property
    def is_by_group(self) -> bool:
        """Whether a group assigns the partitions."""
        return self.kind in {Kind.TOPICS, Kind.PATTERN}

    def subscribe(self, topics: frozenset[str]) -> None:
        """Have a group assign partitions of these topics."""
        self._become(Kind.TOPICS)
        self.topics, self.pattern = topics, None

    def subscribe_pattern(self, pattern: re.Pattern[str] | str) -> None:
        """Have a group assign partitions of the topics that match."""
        self._become(Kind.PATTERN)
        self.pattern, self.topics = pattern, frozenset()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions; those that were assigned before keep their position."""
        self._become(Kind.PARTITIONS)
        self.take_over(partitions)

    def unsubscribe(self) -> None:
        self.kind, self.topics, self.pattern = Kind.NONE, frozenset(), None
        self.take_over(())

    def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """Have exactly these partitions; those that were assigned before keep their state."""
        before = self.assigned
        # A late answer about an earlier assignment must not fit the new one.
        self._first_version = 1 + max(
            self._first_version, *(each.version for each in before.values()), 0
        )
        self.assigned = {
            each: before.get(each) or Assigned(each, version=self._first_version)
            for each in partitions
        }
        for each, state in before.items():
            if each not in self.assigned:
                # Their records are of no use any more, and hold memory.
                state.drop_parts()

    def of(self, partition: TopicPartition) -> Assigned:
        """The state of an assigned partition.

        Raises:
            SubscriptionError: it is not assigned.
        """
        found = self.assigned.get(partition)
        if found is None:
            assigned = ", ".join(map(str, sorted(self.assigned))) or "none"
            raise SubscriptionError(
                f"{partition} is not assigned to this consumer (assigned: {assigned}); call "
                "assign, or wait until the group has assigned it"
            )
        return found

    def current(self, partition: TopicPartition, version: int) -> Assigned | None:
        """The state of a partition if it is still that of a request; else None."""
        found = self.assigned.get(partition)
        # A seek or a rebalance since the request has raised the version.
        return found if found is not None and found.version == version else None

    def in_phase(self, phase: Phase) -> Iterator[Assigned]:
        return (each for each in self.assigned.values() if each.phase is phase)

    def topics_in_use(self) -> frozenset[str]:
        """The topics whose metadata is needed."""
        return self.topics | {each.topic for each in self.assigned}

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position of each partition that has one, as it is committed."""
        return {
            # With the epoch, the next owner can tell whether the log was cut meanwhile (KIP-320).
            each: OffsetAndMetadata(state.position.offset, state.position.epoch)
            for each, state in self.assigned.items()
            if state.position is not None
        }

    def begin_call(self) -> None:
        """A call of the program begins, or has read nothing that it would return."""
        for state in self.assigned.values():
            state.read_from = None

    def read_from(self) -> dict[TopicPartition, int]:
        """The offsets from which the present call has read, of the partitions that it has read."""
        return {
            each: state.read_from
            for each, state in self.assigned.items()
            if state.read_from is not None
        }

    def set_paused(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        """Stop or resume returning records of these partitions."""
        for state in [self.of(each) for each in partitions]:
            state.is_paused = is_paused

    def _become(self, kind: Kind) -> None:
        # As in Kafka: a group that assigns and a program that does would undo each other.
        if self.kind not in {Kind.NONE, kind}:
            raise SubscriptionError(
                f"this consumer reads by {self.kind.value}; call unsubscribe before {kind.value}"
            )
        self.kind = kind


Hook = Callable[[list[TopicPartition]], Any]
"""Is called with the partitions, in order; for `AsyncConsumer` it may be a coroutine function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceHooks:
    """The hooks of one subscription.

    They run in the thread or task that calls `poll`, `unsubscribe` or `close`, without any lock,
    and may call the consumer: `seek` in `on_assigned`, `commit` in `on_revoked`; not `poll`. An
    exception in a hook is raised by the call, after the rebalance has been carried out.
    """

    on_assigned: Hook | None = None
    """Partitions came; the list may be empty, since it is called after each rebalance."""
    on_revoked: Hook | None = None
    """Partitions go to another member; what was read of them can still be committed."""
    on_lost: Hook | None = None
    """Partitions are gone, and another member may read them already; `on_revoked` if not given."""
