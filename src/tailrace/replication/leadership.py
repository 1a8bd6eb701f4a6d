"""`Leadership`: what the leader of a partition knows of its replicas, and what follows from it.

    followers fetch ─► their log ends ─┬─► the high watermark: those in sync have what is below
                                       └─► the ISR: who keeps up; the controller decides each change

Kafka's `Partition` on its leader (KIP-497, KIP-841, KIP-903, KIP-966), without its log and without
I/O: the caller gives log end and time, sends what `expand` and `shrink` propose as AlterPartition,
and says what came of it.

              expand, shrink              confirm, or a newer image
    committed ──────────────► proposed ─┬───────────────────────────► committed, the new one
                                        └───────────────────────────► committed, the old one
                                          reject: it was not made

Invariant: nothing is below the high watermark that a member of the ISR, as the controller knows it
or may know it by now, does not have.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tailrace.errors import RetriableError
from tailrace.model import LeaderEpoch, Offset
from tailrace.protocol.errors import ErrorCode
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

UNKNOWN: Final = Offset(-1)
"""The log end of a follower that has not fetched in this leadership."""

_NEVER_MS: Final = -(2**62)
"""Longer ago than any lag; a virtual clock may begin at 0."""

NO_BROKER_EPOCH: Final = -1
"""The broker epoch of a follower that sends none, which is not checked."""


class StaleFollowerError(RetriableError):
    """A fetch of a follower that has registered again since: answered NOT_LEADER_OR_FOLLOWER."""


class NotReplicaError(RetriableError):
    """A fetch of a broker that is no replica, as far as this broker knows: UNKNOWN_LEADER_EPOCH."""


class Brokers(Protocol):
    """The other brokers, as the metadata image has them."""

    def alive_epoch(self, broker_id: int) -> int | None:
        """The epoch of its registration; None if it has none or is fenced."""
        ...

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether it is in controlled shutdown."""
        ...


@dataclass(slots=True, eq=False)
class Follower:
    """The progress of one follower."""

    log_end: Offset = UNKNOWN
    log_start: Offset = UNKNOWN
    leader_end: Offset = UNKNOWN
    """The leader's log end at its last fetch."""
    fetched_at_ms: int = _NEVER_MS
    caught_up_at_ms: int = _NEVER_MS
    """The last time at which it had all that the leader had then."""
    broker_epoch: int | None = None
    """By its last fetch; None: it has not fetched yet."""

    def is_caught_up(self, log_end: int, now_ms: int, lag_ms: int) -> bool:
        return self.log_end == log_end or now_ms - self.caught_up_at_ms <= lag_ms


class IsrChange(NamedTuple):
    """A change of the ISR, as an AlterPartition request proposes it."""

    isr: Mapping[int, int]
    """Broker epochs by member; -1: not known, and not checked."""
    leader_epoch: LeaderEpoch
    partition_epoch: int
    joining: int | None
    """The member that is new; None: members leave."""


class Rejection(Enum):
    """The step of a leader after an error of AlterPartition."""

    UNDONE = "the committed ISR counts again"
    WAIT = "the image will say what counts"
    AGAIN = "the same change is sent again"


# The controller says with these that the change was not made, and that no controller made it.
_NOT_MADE: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Something newer than this leader knows is on its way to it.
_OUTDATED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class Leadership:
    """The replicas of a partition that this broker leads; for one thread."""

    def __init__(self, node_id: int, brokers: Brokers, *, lag_ms: int) -> None:
        """`lag_ms` is `replica.lag.time.max.ms`."""
        self.epoch = LeaderEpoch(-1)
        self.partition_epoch = -1
        self.isr: frozenset[int] = frozenset()
        """The members that the controller has confirmed."""
        self.lag_ms = lag_ms
        self.proposed: IsrChange | None = None
        """The change that the controller has not answered yet."""
        self.followers: dict[int, Follower] = {}
        self._node_id = node_id
        self._brokers = brokers
        self.epoch_start = Offset(0)
        """The log end when the epoch began."""
        self._factor = 0

    def lead(self, state: "PartitionRecord", *, log_end: Offset, now_ms: int) -> bool:
        """Take the partition's state from the image; whether it is a new epoch.

        One that an answer to AlterPartition has brought before changes only the replicas, which no
        answer has. In a new epoch the caller begins it at `log_end` in the log's epochs before it
        answers anybody (KIP-320).
        """
        if state.partition_epoch < self.partition_epoch:
            return False
        others = [each for each in state.replicas if each != self._node_id]
        self.followers = {each: self.followers.get(each) or Follower() for each in others}
        # Without those that a reassignment adds: until its end the topic has its old factor.
        self._factor = len(set(state.replicas) - set(state.adding_replicas))
        # Kafka takes the ISR of the same state again, too, and forgets what it has proposed since:
        # the high watermark may then pass a member that the controller is about to let in.
        if state.partition_epoch == self.partition_epoch:
            return False
        is_new_epoch = state.leader_epoch > self.epoch
        # Between two images another broker may have led, in whose epoch followers have cut their
        # logs: what they had in the epoch before is not what they have. Kafka forgets it too where
        # it has seen that image.
        is_new_leader = self.epoch < 0 or state.leader_epoch > self.epoch + 1
        # Taken out by the controller, because the directory of the replica has failed: it does not
        # keep up, though it did a moment ago. Kafka's rule for those that do would have the high
        # watermark, and acks=all, wait for it for `replica.lag.time.max.ms`.
        for each in self.isr - frozenset(state.isr):
            if each in self.followers:
                self.followers[each].caught_up_at_ms = _NEVER_MS
        self.isr = frozenset(state.isr)
        # Whatever was proposed: the state has it, or excludes it by its newer partition epoch.
        self.proposed = None
        if is_new_epoch:
            for each, follower in self.followers.items():
                self._begin(follower, log_end, now_ms, is_new=is_new_leader, is_in=each in self.isr)
            self.epoch, self.epoch_start = LeaderEpoch(state.leader_epoch), log_end
        self.partition_epoch = state.partition_epoch
        return is_new_epoch

    def _begin(
        self, follower: Follower, log_end: Offset, now_ms: int, *, is_new: bool, is_in: bool
    ) -> None:
        # A member gets the whole lag to fetch for the first time. Others must not hold up the high
        # watermark until they have shown that they keep up.
        follower.caught_up_at_ms = now_ms if is_in else _NEVER_MS
        if is_new:
            follower.log_end = follower.log_start = follower.leader_end = UNKNOWN
            follower.fetched_at_ms, follower.broker_epoch = _NEVER_MS, None
        else:
            follower.leader_end = log_end
            follower.fetched_at_ms = now_ms if is_in else _NEVER_MS

    # -- followers ----------------------------------------------------------------------------

    def note_fetch(
        self,
        broker_id: int,
        *,
        broker_epoch: int,
        offset: Offset,
        log_start: Offset,
        log_end: Offset,
        now_ms: int,
    ) -> bool:
        """A follower has all before `offset`; whether that is news for the high watermark.

        `log_end` is the leader's, when the fetch was read.

        Raises:
            NotReplicaError: it is none of the replicas.
            StaleFollowerError: its registration is older than the one that the image has.
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            raise NotReplicaError(
                f"broker {broker_id} is not a replica in leader epoch {self.epoch}, partition "
                f"epoch {self.partition_epoch}"
            )
        alive = self._brokers.alive_epoch(broker_id)
        if broker_epoch != NO_BROKER_EPOCH and alive is not None and alive > broker_epoch:
            # From before a restart, in which it may have lost what it had (KIP-903).
            raise StaleFollowerError(
                f"broker {broker_id} has registered with epoch {alive} since its fetch with epoch "
                f"{broker_epoch}"
            )
        if offset >= log_end:
            follower.caught_up_at_ms = max(follower.caught_up_at_ms, now_ms)
        elif offset >= follower.leader_end:
            # It has what there was at its last fetch: under steady load nobody has the newest.
            follower.caught_up_at_ms = max(follower.caught_up_at_ms, follower.fetched_at_ms)
        is_news = offset != follower.log_end
        follower.log_end, follower.log_start = offset, log_start
        follower.leader_end = max(follower.leader_end, log_end)
        follower.fetched_at_ms, follower.broker_epoch = now_ms, broker_epoch
        return is_news

    def high_watermark(self, log_end: Offset, *, now_ms: int, insync_min: int) -> Offset:
        """The smallest log end of the replicas that count; -1: it does not move now.

        `insync_min` is `min.insync.replicas`. A high watermark never goes back: this may be lower
        than the one that is known.
        """
        # The shortest way for a partition that has one replica.
        if not self.followers:
            return log_end
        # With fewer members, what they have may be lost with them, so nobody may read it (KIP-966).
        if len(self.isr) < self.effective_min(insync_min):
            return UNKNOWN
        lowest, members = log_end, self._members
        for broker_id, follower in self.followers.items():
            if follower.log_end < lowest and (
                broker_id in members
                # One that keeps up is about to join, and could not while the watermark runs ahead.
                or (
                    follower.is_caught_up(log_end, now_ms, self.lag_ms)
                    and self._may_join(broker_id, follower)
                )
            ):
                lowest = follower.log_end
        return lowest

    def low_watermark(self, log_start: Offset) -> Offset:
        """The smallest log start of the replicas that are alive: what DeleteRecords answers."""
        starts = (
            follower.log_start
            for broker_id, follower in self.followers.items()
            if self._brokers.alive_epoch(broker_id) is not None
        )
        return min((log_start, *starts))

    # -- the ISR ------------------------------------------------------------------------------

    @property
    def _members(self) -> frozenset[int]:
        """The ISR with the member that may have joined it by now."""
        proposed = self.proposed
        if proposed is None or proposed.joining is None:
            return self.isr
        return self.isr | {proposed.joining}

    @property
    def member_count(self) -> int:
        """Members of the ISR, with one that may have joined it by now."""
        return len(self._members)

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are missing in the ISR, besides those that are being added."""
        return len(self.isr) < self._factor

    def effective_min(self, insync_min: int) -> int:
        """`min.insync.replicas`, which cannot be more than there are replicas."""
        # With those that are being added, as Kafka (`effectiveMinIsr`): a topic that goes from one
        # replica to three takes no acks=all before as many are in sync as it asks for.
        return min(insync_min, len(self.followers) + 1)

    def expand(self, broker_id: int, *, high_watermark: Offset) -> IsrChange | None:
        """Propose a follower that has caught up as a member of the ISR; None: not now."""
        follower = self.followers.get(broker_id)
        if (
            follower is None
            or self.proposed is not None
            or broker_id in self.isr
            or not self._may_join(broker_id, follower)
            # Below the epoch's start it may have records that this leader does not have.
            or follower.log_end < max(high_watermark, self.epoch_start)
        ):
            return None
        return self._propose({*self.isr, broker_id}, joining=broker_id)

    def shrink(self, *, log_end: Offset, now_ms: int) -> IsrChange | None:
        """Propose the ISR without the members that do not keep up; None: all do, or not now."""
        if self.proposed is not None:
            return None
        late = {each for each in self.isr if self._is_late(each, log_end, now_ms)}
        # Until the controller agrees they count: another leader might be elected among them.
        return self._propose(self.isr - late, joining=None) if late else None

    def _is_late(self, broker_id: int, log_end: Offset, now_ms: int) -> bool:
        if broker_id == self._node_id:
            return False
        follower = self.followers.get(broker_id)
        return follower is None or not follower.is_caught_up(log_end, now_ms, self.lag_ms)

    def _may_join(self, broker_id: int, follower: Follower) -> bool:
        # The controller refuses these too (KIP-841, KIP-903); here they cost no request.
        alive = self._brokers.alive_epoch(broker_id)
        return (
            alive is not None
            and not self._brokers.is_shutting_down(broker_id)
            and follower.broker_epoch in (NO_BROKER_EPOCH, alive)
        )

    def _propose(self, isr: Iterable[int], *, joining: int | None) -> IsrChange:
        self.proposed = IsrChange(
            isr={each: self._epoch_of(each) for each in sorted(isr)},
            leader_epoch=self.epoch,
            partition_epoch=self.partition_epoch,
            joining=joining,
        )
        return self.proposed

    def _epoch_of(self, broker_id: int) -> int:
        if broker_id == self._node_id:
            own = self._brokers.alive_epoch(broker_id)
            return NO_BROKER_EPOCH if own is None else own
        follower = self.followers.get(broker_id)
        # A member that has not fetched yet: if it was restarted meanwhile, the controller has
        # removed it, and refuses this change by its partition epoch.
        if follower is None or follower.broker_epoch is None:
            return NO_BROKER_EPOCH
        return follower.broker_epoch

    def confirm(
        self, change: IsrChange, isr: Iterable[int], *, leader_epoch: int, partition_epoch: int
    ) -> bool:
        """The controller has made the change; whether it counts here, and the watermark may move.

        The arguments are those of its answer. One that comes after a newer image changes nothing,
        and one whose members are not of this leadership neither: the image will say what counts.
        """
        members = frozenset(isr)
        if (
            self.proposed is not change
            or leader_epoch != self.epoch
            or partition_epoch < self.partition_epoch
            # A member that is no replica would count for `min.insync.replicas`, and never fetch.
            or self._node_id not in members
            or not members <= {self._node_id, *self.followers}
        ):
            return False
        # The same partition epoch: the controller had this ISR already.
        self.isr, self.proposed = members, None
        self.partition_epoch = partition_epoch
        return True

    def reject(self, change: IsrChange, code: ErrorCode) -> Rejection:
        """The controller has refused the change, or did not answer for it."""
        if self.proposed is not change:
            return Rejection.WAIT
        if code in _NOT_MADE:
            self.proposed = None
            return Rejection.UNDONE
        # Still proposed: whether the change was made is not known, so both ISRs must be satisfied.
        return Rejection.WAIT if code in _OUTDATED else Rejection.AGAIN
