"""A partition on one of its replicas: a log with the checks of leadership.

    lead(state)      the image names this broker as leader, alone or with followers
    follow(state)    the image names another, or nobody: no appends, waiting requests end

In a cluster of one node, which has no `ClusterView`, it leads alone from the start on.

A leader that is the only replica has no `leadership`: the high watermark is the log end offset, and
its own append satisfies `acks=all`. With followers `leadership` says where the high watermark is,
and `acknowledged` waits for it.

A device error of an append or a read is handled here before the caller gets it: a full disk is
logged once and may recover, any other error takes the log directory out of service.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tailrace.errors import (
    FatalError,
    OffsetOutOfRangeError,
    RetriableError,
    StorageError,
    TailraceError,
)
from tailrace.model import NO_LEADER_EPOCH, AppendOrigin, LeaderEpoch, Offset, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.leadership import (
    Brokers,
    IsrChange,
    Leadership,
    NotReplicaError,
    Rejection,
)
from tailrace.replication.traffic import TopicTraffic
from tailrace.replication.waiting import OffsetWaits, Watched
from tailrace.runtime.clock import Clock, elapsed_ms
from tailrace.runtime.files import CutMeanwhileError
from tailrace.storage.appends import PlannedAppend
from tailrace.storage.checked_appends import CheckedBatches, append_checked
from tailrace.storage.directories import unusable
from tailrace.storage.epochs import EpochEnd
from tailrace.storage.log import Log, LogAppendInfo, append_built
from tailrace.storage.manager import is_shortage
from tailrace.storage.positions import ReadLimit
from tailrace.storage.reads import ReadSlice
from tailrace.storage.shrink import raise_log_start
from tailrace.storage.verification import VerificationGuard
from tailrace.values import dataclass

if TYPE_CHECKING:
    from uuid import UUID

    from tailrace.protocol.metadata_records import PartitionRecord

T = TypeVar("T")

logger = logging.getLogger(__name__)

NO_LEADER: Final = -1

UP_TO_HIGH_WATERMARK: Final = Offset(-1)
"""The offset in DeleteRecords that means the high watermark."""


class FencedLeaderEpochError(RetriableError):
    """The client sent an older leader epoch: it must refresh its metadata."""


class UnknownLeaderEpochError(RetriableError):
    """The client sent a newer leader epoch than this broker has."""


class UnknownPartitionError(RetriableError, LookupError):
    """This broker has no such partition."""


class DeletionPolicyError(FatalError, ValueError):
    """DeleteRecords for a topic whose `cleanup.policy` is `compact` alone."""


class NotLeaderError(RetriableError):
    """Another broker leads the partition, or none does now: the client must refresh its metadata.

    NOT_LEADER_OR_FOLLOWER.
    """


class NotEnoughReplicasError(RetriableError):
    """Fewer replicas are in sync than `min.insync.replicas`; nothing was appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster, as the replicas of a broker know it."""

    node_id: int
    brokers: Brokers
    has_partition: Callable[[TopicPartition], bool]
    """Whether a topic of the cluster has this partition, on whichever broker it is."""
    clock: Clock
    lag_ms: int
    """`replica.lag.time.max.ms`."""


class Partition:
    """One partition that this broker leads or follows.

    The lag of followers is measured by `elapsed_ms`, and every `now_ms` but those of appends is of
    it. Kafka takes the time of day: when that is set, all followers leave the ISR, or one that does
    not fetch stays in it until the time is back.
    """

    def __init__(
        self,
        log: Log,
        *,
        on_failure: Callable[[OSError], None],
        on_room: Callable[[], None] = lambda: None,
        cluster: ClusterView | None = None,
        traffic: TopicTraffic | None = None,
        propose: "Callable[[Partition, IsrChange], None]" = lambda _, __: None,
    ) -> None:
        """`cluster` is None where this broker is all of it, and leads every partition.

        `traffic` counts what comes and goes, with the other partitions of its topic.

        `propose` asks the controller for a change of the ISR.
        """
        self.log = log
        self.traffic = TopicTraffic() if traffic is None else traffic
        # At least that of its last batch, until the cluster's state is read.
        self.leader_epoch = LeaderEpoch(max(log.epochs.latest, 0))
        self.partition_epoch = -1
        """The newest that `lead`, `follow` or an answer to AlterPartition has brought."""
        self.is_leader = cluster is None
        self.leader_id = NO_LEADER
        """The leader as the newest state has it; -1: it has none."""
        self.topic_id: UUID | None = None
        """The topic as the newest state has it; None: there was no state."""
        self.leadership: Leadership | None = None
        """The followers, as their leader knows them; None: there are none, or it follows itself."""
        self._cluster = cluster
        self._propose_change = propose
        self._on_failure = on_failure
        """Takes the log directory out of service, or notes that it is full."""
        self._on_room = on_room
        """Called when an append succeeds after one that was refused."""
        self._is_refused = False
        """Whether the last append failed because the disk was full."""
        self._committed = OffsetWaits()
        """Log ends that acks=all waits for."""
        self._deleted = OffsetWaits()
        """Log starts that DeleteRecords waits for."""
        self.appended = Watched()
        """Changes when records become readable, for consumers or for followers, and when the role
        ends: on anything that a waiting request may wait for."""
        self.takes_appends = asyncio.Event()
        """Not set for the short time in which a move or a cut completes; appends wait for it."""
        self.takes_appends.set()
        self._hold_count = 0
        """Calls of `hold_appends` without their `take_appends`."""
        self.on_free: Callable[[Partition], None] = lambda _: None
        """Called when it takes appends again."""

    def hold_appends(self) -> None:
        """Have appends wait for the end of a cut or a move, until a call of `take_appends`."""
        self._hold_count += 1
        self.takes_appends.clear()

    def take_appends(self) -> None:
        """End one hold, and take appends again if it was the last one."""
        # A cut and a move may overlap: the end of a move must not let records in while the
        # checkpoints from before the cut are on the device.
        self._hold_count -= 1
        assert self._hold_count >= 0
        if not self._hold_count:
            self.takes_appends.set()
            self.on_free(self)

    # -- roles --------------------------------------------------------------------------------

    def raise_epoch(self, epoch: LeaderEpoch) -> None:
        """Lead alone in the epoch that the cluster's state has, from the next append on."""
        # The log may have a larger one, from a state that was lost, and epochs in a log only rise.
        self.leader_epoch = max(epoch, self.leader_epoch)

    def lead(self, state: "PartitionRecord", *, now_ms: int) -> bool:
        """Lead as the image says; whether a leadership begins, or a new epoch of it.

        One that is known already, also from an answer to AlterPartition, changes nothing but the
        replicas. In a new epoch of the same leader requests keep waiting for acknowledgements: its
        log was not cut.
        """
        cluster = self._cluster
        assert cluster is not None
        if state.partition_epoch <= self.partition_epoch:
            if self.leadership is not None:
                # The answer that has brought its epoch said nothing of the replicas.
                self.leadership.lead(state, log_end=self.log.end_offset, now_ms=now_ms)
            return False
        is_new = not self.is_leader or state.leader_epoch > self.leader_epoch
        self.is_leader, self.leader_id, self.topic_id = True, state.leader, state.topic_id
        self.leader_epoch = LeaderEpoch(state.leader_epoch)
        self.partition_epoch = state.partition_epoch
        if is_new:
            # Also without a record: a follower that has records of an epoch that this log does not
            # know learns from it where to cut (KIP-320). In memory, as for appends: a start drops
            # the entry of an epoch without records anyway, as Kafka's does.
            self.log.epochs.assign(self.leader_epoch, self.log.end_offset)
        if len(state.replicas) == 1:
            self.leadership = None
        else:
            if self.leadership is None:
                self.leadership = Leadership(
                    cluster.node_id, cluster.brokers, lag_ms=cluster.lag_ms
                )
            self.leadership.lead(state, log_end=self.log.end_offset, now_ms=now_ms)
        self.move_watermark(now_ms)
        if is_new:
            # A fetch that waits with the old epoch is refused now, and its sender finds the leader.
            self.appended.changed()
        return is_new

    def follow(self, state: "PartitionRecord") -> bool:
        """Follow as the image says; whether it is another epoch than the one before.

        A state that is known already changes nothing. Requests that wait for acknowledgements or
        records end with a NotLeaderError.
        """
        if state.partition_epoch <= self.partition_epoch:
            return False
        is_new = self.partition_epoch < 0 or state.leader_epoch > self.leader_epoch
        was_leader, self.is_leader, self.leadership = self.is_leader, False, None
        self.leader_id, self.topic_id = state.leader, state.topic_id
        self.partition_epoch = state.partition_epoch
        self.leader_epoch = LeaderEpoch(state.leader_epoch)
        if was_leader:
            self.end(self._not_leader())
        elif is_new:
            self.appended.changed()
        return is_new

    def check_leader(self) -> None:
        """Raises NotLeaderError where this broker does not lead."""
        if not self.is_leader:
            raise self._not_leader()

    def _not_leader(self) -> NotLeaderError:
        leader = "no broker" if self.leader_id < 0 else f"broker {self.leader_id}"
        return NotLeaderError(
            f"{self.name} is led by {leader} in leader epoch {self.leader_epoch}; refresh the "
            "metadata"
        )

    def step_down(self) -> None:
        """Lead no more until a newer state says so, whatever the one that is known says."""
        self.leader_id = NO_LEADER
        self.resign(self._not_leader())

    def resign(self, error: TailraceError) -> None:
        """Lead no more; see `end`.

        A request that waits, and has it still in hand, appends nothing to a closed log.
        """
        self.is_leader, self.leadership = False, None
        self.end(error)

    def end(self, error: TailraceError) -> None:
        """End what waits for other replicas with an error, and wake other waiting requests."""
        self._committed.fail(error)
        self._deleted.fail(error)
        self.appended.changed()

    # -- replicas -----------------------------------------------------------------------------

    @property
    def is_alone(self) -> bool:
        """Whether this broker leads as the only replica: what it appends is committed at once."""
        return self.is_leader and self.leadership is None

    def note_fetch(
        self,
        broker_id: int,
        *,
        broker_epoch: int,
        offset: Offset,
        log_start: Offset,
        log_end: Offset,
        now_ms: int,
    ) -> None:
        """A follower has fetched from `offset`, so that it has all before; after the read.

        `log_end` is that of this log when the fetch was read. May move the high watermark, and
        propose the follower as a member of the ISR.

        Raises:
            NotLeaderError: this broker does not lead.
            NotReplicaError, StaleFollowerError: as `Leadership.note_fetch`.
        """
        self.check_leader()
        leadership = self.leadership
        if leadership is None:
            raise NotReplicaError(
                f"broker {broker_id} is not a replica of {self.name} in leader epoch "
                f"{self.leader_epoch}, partition epoch {self.partition_epoch}"
            )
        is_news = leadership.note_fetch(
            broker_id,
            broker_epoch=broker_epoch,
            offset=offset,
            log_start=log_start,
            log_end=log_end,
            now_ms=now_ms,
        )
        if broker_id not in leadership.isr:
            # Before the high watermark moves: from now on the new member counts for it.
            self._propose(
                leadership.expand(broker_id, high_watermark=self.log.positions.high_watermark)
            )
        if is_news:
            self.move_watermark(now_ms)
        if self._deleted:
            self._deleted.reach(self.low_watermark)

    def check_followers(self, now_ms: int) -> None:
        """Propose an ISR without the members that do not keep up."""
        leadership = self.leadership
        if leadership is not None:
            self._propose(leadership.shrink(log_end=self.log.end_offset, now_ms=now_ms))
            # A follower that was about to join, and has stopped, holds it up no more.
            self.move_watermark(now_ms)
        if self._deleted:
            # Nor one that is not alive any more.
            self._deleted.reach(self.low_watermark)

    def _propose(self, change: IsrChange | None) -> None:
        if change is not None:
            logger.info(
                "isr_change_proposed partition=%s isr=%s joining=%s leader_epoch=%d "
                "partition_epoch=%d",
                self.name, _listed(change.isr), change.joining, change.leader_epoch,
                change.partition_epoch,
            )  # fmt: skip
            self._propose_change(self, change)

    def confirm(
        self,
        change: IsrChange,
        isr: Iterable[int],
        *,
        leader_epoch: int,
        partition_epoch: int,
        now_ms: int,
    ) -> None:
        """The controller has made the change; the other arguments are those of its answer."""
        leadership = self.leadership
        before = frozenset() if leadership is None else leadership.isr
        if leadership is not None and leadership.confirm(
            change, isr, leader_epoch=leader_epoch, partition_epoch=partition_epoch
        ):
            self.traffic.isr_shrinks += bool(before - leadership.isr)
            self.traffic.isr_expands += bool(leadership.isr - before)
            self.partition_epoch = leadership.partition_epoch
            logger.info(
                "isr_changed partition=%s isr=%s partition_epoch=%d",
                self.name, _listed(leadership.isr), partition_epoch,
            )  # fmt: skip
            self.move_watermark(now_ms)

    def reject(self, change: IsrChange, code: ErrorCode, *, now_ms: int) -> Rejection:
        """The controller has refused the change; whether the caller sends it again."""
        leadership = self.leadership
        if leadership is None:
            return Rejection.WAIT
        rejection = leadership.reject(change, code)
        logger.info(
            "isr_change_refused partition=%s isr=%s code=%s consequence=%s",
            self.name, _listed(change.isr), code.name, rejection.value,
        )  # fmt: skip
        if rejection is Rejection.UNDONE:
            self.move_watermark(now_ms)
        return rejection

    def move_watermark(self, now_ms: int) -> None:
        """Raise the leader's high watermark to where it is now; wakes what waits for it."""
        log, leadership = self.log, self.leadership
        found = log.end_offset
        if leadership is not None:
            found = leadership.high_watermark(
                found, now_ms=now_ms, insync_min=log.config.min_insync_replicas
            )
        if log.advance_high_watermark(found):
            # Kafka asks for `min.insync.replicas` here once more, since another thread may have
            # shrunk the ISR meanwhile (NOT_ENOUGH_REPLICAS_AFTER_APPEND). In one thread the high
            # watermark cannot have moved while there were too few (KIP-966).
            self._committed.reach(log.positions.high_watermark)
            self.appended.watermark_moved()

    def followed(self, *, has_appended: bool = False) -> None:
        """Wake requests after a follower has changed its log or its high watermark."""
        if has_appended:
            self._note_room()
        self.appended.changed()

    @property
    def insync_spare(self) -> int:
        """Members of the ISR above `min.insync.replicas`; negative: too few for acks=all."""
        leadership = self.leadership
        if leadership is None:
            return 0  # One is there, and no more can be asked for.
        insync_min = leadership.effective_min(self.log.config.min_insync_replicas)
        return len(leadership.isr) - insync_min

    def check_replicas(self) -> None:
        """Check that enough replicas are in sync for an append with acks=all.

        Raises:
            NotEnoughReplicasError: they are fewer than `min.insync.replicas`.
        """
        leadership = self.leadership
        if leadership is not None and self.insync_spare < 0:
            raise NotEnoughReplicasError(
                f"{self.name} has {len(leadership.isr)} replicas in sync "
                f"({_listed(leadership.isr)}), and min.insync.replicas is "
                f"{len(leadership.isr) - self.insync_spare}"
            )

    def acknowledged(self, offset: Offset) -> asyncio.Future[None] | None:
        """Wait until the high watermark is at `offset` or above; None: it is.

        May be cancelled.

        Raises (also from the future):
            NotLeaderError: this broker does not lead, or not any more.
            UnknownPartitionError, StorageError: the partition was deleted, its directory failed.
        """
        self.check_leader()
        if offset <= self.log.positions.high_watermark:
            return None
        return self._committed.add(offset)

    @property
    def low_watermark(self) -> Offset:
        """The smallest log start of the replicas that are alive; -1: one has not fetched yet."""
        leadership, log_start = self.leadership, self.log.start_offset
        return log_start if leadership is None else leadership.low_watermark(log_start)

    def deleted(self, offset: Offset) -> asyncio.Future[None] | None:
        """Wait until the low watermark is at `offset` or above; None: it is.

        Errors as of `acknowledged`.
        """
        self.check_leader()
        return None if offset <= self.low_watermark else self._deleted.add(offset)

    @property
    def name(self) -> TopicPartition:
        return self.log.partition

    def exchange(
        self, log: Log, *, on_failure: Callable[[OSError], None], on_room: Callable[[], None]
    ) -> None:
        """Serve the moved copy of the log, in another directory, from now on."""
        self.leave_directory()
        # A transaction that was verified before the move begins after it.
        log.producers.continue_verifications(self.log.producers)
        # It may have moved since the copy was prepared.
        log.advance_high_watermark(self.log.positions.high_watermark)
        self.log = log
        self._on_failure, self._on_room = on_failure, on_room
        self.appended.changed()

    def leave_directory(self) -> None:
        """Note that the log goes, which gives room to a full directory."""
        if self._is_refused:
            self._is_refused = False
            self._on_room()

    # -- records ------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> LogAppendInfo:
        """Append as leader and wake waiting fetches; arguments and errors as of `Log.append`.

        A full disk is logged once, and logged again when an append works.
        """
        return self._append(
            lambda: self.log.append(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                guard=guard,
                raises_epoch=raises_epoch,
            ),
            size=len(records),
        )

    def append_planned(
        self, planned: PlannedAppend, *, now_ms: int, guard: VerificationGuard | None = None
    ) -> LogAppendInfo:
        """Append, as `append` does, what `plan_append` has checked; see `Log.append_planned`."""
        return self._append(
            lambda: self.log.append_planned(
                planned, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard
            ),
            size=planned.batch.size,
        )

    def append_built(
        self,
        built: memoryview,
        *,
        now_ms: int,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> LogAppendInfo:
        """Append, as `append` does, what a coordinator has built; see `log.append_built`."""
        return self._append(
            lambda: append_built(
                self.log,
                built,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                guard=guard,
                raises_epoch=raises_epoch,
            ),
            size=len(built),
        )

    def append_checked(self, batches: CheckedBatches, *, now_ms: int) -> bool:
        """Append batches that a kernel has checked (`storage.checked_appends`).

        False if nothing was appended: `append` handles what is in the way.
        """
        before = self.log.end_offset
        # Errors are not settled here: the general path meets them again, and answers them.
        try:
            is_done = append_checked(self.log, batches, now_ms=now_ms)
        except (TailraceError, OSError):
            return False
        if is_done:
            self._count(before, len(batches.data))
            self._note_appended()
        return is_done

    def _append(self, append: Callable[[], LogAppendInfo], *, size: int) -> LogAppendInfo:
        # Asked again here, where the append is: who led when a request came may follow by now.
        if not self.is_leader:
            raise self._not_leader()
        before = self.log.end_offset
        try:
            appended = append()
        except OSError as error:
            self.failed(error)
            raise
        self._count(before, size)
        self._note_appended()
        return appended

    def _count(self, end_before: Offset, size: int) -> None:
        """Count an append of `size` bytes; a batch that the log had already is none."""
        count = self.log.end_offset - end_before
        if count:
            self.traffic.messages_in += count
            self.traffic.bytes_in += size

    def _note_appended(self) -> None:
        self._note_room()
        if self.leadership is None:
            # Nobody else has to have it, so what is appended is committed.
            self.log.advance_high_watermark(self.log.end_offset)
            self.appended.changed()
            return
        assert self._cluster is not None
        # It moves when they fetch; at once where this leader is the ISR. Not the time of the
        # append, which is that of day.
        self.move_watermark(elapsed_ms(self._cluster.clock))
        # Followers read up to the log end. Consumers would find nothing yet: also the last stable
        # offset moves with the high watermark alone.
        self.appended.log_end_moved()

    def _note_room(self) -> None:
        if self._is_refused:
            logger.info("append_recovered path=%s", self.log.folder.path)
            self._is_refused = False
            self._on_room()

    def read(
        self, offset: Offset, *, bytes_max: int, is_first_whole: bool, limit: ReadLimit
    ) -> ReadSlice:
        """Batches from an offset on, and the offsets of the log; raises as `Log.read` does.

        On the event loop; a device error is handled at once.
        """
        log = self.log
        try:
            found = log.read(
                offset, bytes_max=bytes_max, is_first_whole=is_first_whole, limit=limit
            )
        except OSError as error:
            self.failed(error)
            raise
        return self._owned(log, found)

    async def read_from_device(
        self,
        reads: DeviceReads,
        offset: Offset,
        *,
        bytes_max: int,
        is_first_whole: bool,
        limit: ReadLimit,
    ) -> ReadSlice:
        """Read as `read` does; on a worker thread if the page cache lacks the index or headers."""
        log, found = await self.look(
            reads,
            lambda log: (
                log,
                log.read(offset, bytes_max=bytes_max, is_first_whole=is_first_whole, limit=limit),
            ),
        )
        return self._owned(log, found)

    async def look(self, reads: DeviceReads, look: Callable[[Log], T]) -> T:
        """The result of `look` on the log, on a worker thread, which may wait for a device.

        A device error is handled on the event loop, because a thread must not close files. If the
        partition moves to another directory meanwhile, `look` is called again with the log there.

        Raises:
            CutMeanwhileError: as `DeviceReads.of_log`.
            CorruptionError, OSError: from `look`.
        """
        while True:
            log = self.log
            try:
                return await reads.of_log(log, partial(look, log))
            except OSError as error:
                if self.log is log:
                    self.failed(error)
                    raise

    def _owned(self, log: Log, found: ReadSlice) -> ReadSlice:
        """The slice, which reports a later device error to this partition."""
        if found.records is None:
            return found

        def failed(error: OSError) -> None:
            # After a move the error concerns the old directory, not the one in use.
            if self.log is log:
                self.failed(error)

        return found._replace(records=found.records.owned(failed))

    def delete_records(self, before_offset: Offset) -> Offset:
        """Raise the log start to an offset, or to the high watermark for -1; returns the offset.

        Retention deletes the files later. On the device with the next checkpoint of log starts.
        Followers raise theirs when they fetch: see `deleted`.

        Raises:
            DeletionPolicyError: the topic's `cleanup.policy` is `compact` alone.
            OffsetOutOfRangeError: below -1, or above the high watermark.
            StorageError: the log has failed.
        """
        # A failed log must not promise a log start that it cannot save.
        self.log.check_usable()
        config = self.log.config
        if config.is_compacted and not config.is_deleted_from:
            raise DeletionPolicyError(
                f"records of {self.name} cannot be deleted: its cleanup.policy is compact; add "
                "delete to it"
            )
        # Not the log end: a record that may still be lost is not there to be deleted (KIP-107).
        high_watermark = self.log.positions.high_watermark
        offset = high_watermark if before_offset == UP_TO_HIGH_WATERMARK else before_offset
        if offset < 0:
            raise OffsetOutOfRangeError(
                offset, log_start_offset=self.log.start_offset, log_end_offset=high_watermark
            )
        raise_log_start(self.log, offset)
        return offset

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """Check the leader epoch that a client sent along (KIP-320); -1 is not checked.

        Raises:
            FencedLeaderEpochError: it is older than the partition's.
            UnknownLeaderEpochError: it is newer.
        """
        if epoch == NO_LEADER_EPOCH:
            return  # A client of an old version, or one that does not know the epoch.
        if epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"leader epoch {epoch} is older than the current one, {self.leader_epoch}; refresh "
                "the metadata"
            )
        # The client has newer metadata than this broker, which will catch up: it asks here again.
        if epoch > self.leader_epoch:
            raise UnknownLeaderEpochError(
                f"leader epoch {epoch} is newer than the one of this broker, {self.leader_epoch}"
            )

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """The newest epoch at or below `epoch`, and where it ends; see `end_offset_for`.

        The leader's own epoch is known, and ends at the log end, before its first record too.
        """
        log_end = self.log.end_offset
        # Where this broker leads alone, its own epoch has no entry before its first record. A
        # follower must not say where an epoch ends of which it has nothing yet: a consumer that has
        # read further at the leader would take its records for truncated (KIP-392).
        if epoch == self.leader_epoch and self.is_leader:
            return EpochEnd(epoch, log_end)
        return self.log.epochs.end_offset_for(epoch, log_end=log_end)

    def divergence(self, offset: Offset, last_epoch: LeaderEpoch) -> EpochEnd | None:
        """The end of the last epoch that another log has in common (KIP-595); None: both are equal.

        The other log ends at `offset`, with a record of `last_epoch`; a negative one is not
        checked.

        Raises:
            OffsetOutOfRangeError: this log does not know the epoch, or begins after the offset.
        """
        if last_epoch < 0:
            return None
        end = self.end_of_epoch(last_epoch)
        if end.epoch < 0 or offset < self.log.start_offset:
            raise OffsetOutOfRangeError(
                offset, log_start_offset=self.log.start_offset, log_end_offset=self.log.end_offset
            )
        return end if end.epoch < last_epoch or end.end_offset < offset else None

    def failed(self, error: OSError) -> None:
        """Handle a device error: log a full disk, else take the directory out of service.

        On the event loop only: this may close files and stop the broker. Not a failure: a log that
        had failed before, a read that would have to wait, and a read during a cut.
        """
        if isinstance(error, StorageError | BlockingIOError | CutMeanwhileError):
            return
        self._on_failure(error)
        # A full disk has not failed: consumers read on, and retention may make room.
        if is_shortage(error) and not self._is_refused:
            logger.error("append_refused reason=%s", unusable(self.log.folder.path, error))
            self._is_refused = True


def _listed(members: Iterable[int]) -> str:
    return ",".join(map(str, sorted(members)))
