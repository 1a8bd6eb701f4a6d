r"""One partition of a coordinator: a log, a state machine, and the path of a request through both.

                 decide           append            replay          committed
    request ---> machine ------> PartitionLog ----> machine ------------------> reply
                    ^                                  ^
                    '--- one turn of the event loop ---'

Decide, append and replay are one turn of the event loop, so that each request sees the state that
all earlier ones have left. An append that fails leaves log and state as they were.

    LOADING --> ACTIVE --> STOPPED    another broker leads the partition, or this one stops
       '------> FAILED                a record cannot be read, and a reply could be a wrong one

The state follows the log end, and the log end may be ahead of the high watermark: what is between
them can be lost with this broker. So a reply leaves when the watermark has passed all that was in
the log when it was decided, whether the request has written that or has only read it. Kafka keeps
the committed state beside the newest one, for reads that do not wait (`SnapshotRegistry`): where a
follower holds up the watermark it still answers OffsetFetch, and we answer after the wait, or with
COORDINATOR_NOT_AVAILABLE. Three kinds of state are outside of this, as in Kafka:

    parked requests, members that     memory alone, gone with the leadership
      have not joined
    deadlines                         decisions that may be lost set them; a new leader sets its own
    `machine`                         for statistics, and for what `run` looks at again

Records that are appended and lost take their state with them: to lose them this broker has to
follow another one, which stops the shard before anything is cut. A wait for a commit that ends
without it undoes nothing, since the records are in the log and in the state, and may be committed
yet; a repeated request finds them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from typing import Generic, NamedTuple, Protocol, TypeVar

from tailrace.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tailrace.coordinator.machine import (
    CoordinatorRecord,
    Decision,
    Machine,
    Origin,
    RecordCodec,
    TransactionalProducer,
)
from tailrace.coordinator.statistics import ShardCounts
from tailrace.errors import CorruptionError, TailraceError
from tailrace.model import NO_PRODUCER_ID, LeaderEpoch, TopicPartition
from tailrace.records.batch import Batch
from tailrace.records.builder import build_batch, records_of
from tailrace.records.control import (
    ControlType,
    build_end_marker,
    end_transaction_marker_or_none,
)
from tailrace.records.untaken import TakeBatches, leave_all
from tailrace.runtime.background import BackgroundTasks
from tailrace.runtime.clock import Clock
from tailrace.storage.verification import VerificationGuard

M = TypeVar("M", bound=Machine)
T = TypeVar("T")

logger = logging.getLogger(__name__)


class StoredBatches(NamedTuple):
    """The batches of a coordinator's log, to be replayed."""

    size: int
    """Bytes of all of them."""
    untaken: Callable[[TakeBatches], Iterator[Batch]]
    """The batches that a reader of bytes leaves, each when those before it are taken."""


class BulkReplay(Protocol):
    """Replays batches of one machine from their bytes, many at a time."""

    def take(self, window: memoryview, position: int) -> int:
        """Take batches; see `records.untaken.TakeBatches`."""
        ...

    def put(self) -> None: ...


class PartitionLog(Protocol):
    """The log of a coordinator's partition on this broker, which leads it."""

    @property
    def partition(self) -> TopicPartition:
        """Topic and number."""
        ...

    @property
    def commits_at_once(self) -> bool:
        """Whether appends are possible now, and records are committed when they are appended."""
        ...

    def wait_until_free(self) -> Awaitable[object] | None:
        """An awaitable that ends when appends are possible; None: they are.

        They are not while a move to another directory completes.
        """
        ...

    def begin_verification(
        self, producer: TransactionalProducer, *, begins_at_zero: bool
    ) -> VerificationGuard | None:
        """The guard for a first batch, from `ProducerStates`; None: the transaction is open here.

        Raises:
            InvalidProducerEpochError: the log has a newer epoch of the producer.
            TailraceError, OSError: the partition is not here, or its directory failed.
        """
        ...

    def append(
        self,
        batch: bytearray,
        *,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> int:
        """Append one batch, which is stamped in place; returns its base offset.

        `guard` and `raises_epoch` as of `Log.append`.

        Raises:
            NotCoordinatorError: the partition has another leader; nothing was appended.
            TailraceError, OSError: nothing was appended.
        """
        ...

    def committed(self) -> Awaitable[None] | None:
        """An awaitable that ends when every appended record is committed; None: all are.

        Raises (also from the awaitable):
            NotCoordinatorError: the partition has another leader.
            TailraceError, OSError: the device failed, or the partition is not here.
        """
        ...

    async def read(self, replay: Callable[[StoredBatches], T]) -> T:
        """The result of `replay` on the batches from the log start to the log end.

        `replay` runs on a worker thread, and again from the start if the log was compacted
        meanwhile.

        Raises:
            CorruptionError, OSError: the log cannot be read; or from `replay`.
        """
        ...


class ShardState(Enum):
    """The stages in the life of a shard; only an active one takes requests."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    STOPPED = auto()


class Shard(Generic[M]):
    """One partition of a coordinator's topic that this broker leads; `load` makes it active.

    `make_machine` returns an empty machine, and `make_codec` what reads its records. `load` calls
    both on a worker thread, where they may import modules, and again if a compaction makes it read
    the log once more.
    """

    def __init__(
        self,
        log: PartitionLog,
        make_machine: Callable[[], M],
        make_codec: Callable[[], RecordCodec],
        *,
        clock: Clock,
        commit_timeout_ms: int | None = None,
        counts: ShardCounts | None = None,
        make_bulk: Callable[[M, int], BulkReplay | None] = lambda _machine, _size: None,
    ) -> None:
        """`commit_timeout_ms` limits how long a reply waits for its records; None: for ever.

        `counts` is shared by the shards of a topic; None: it is this shard's own. `make_bulk` gets
        an empty machine and the bytes of its log, on a worker thread. None: the log is replayed
        record by record.
        """
        self._counts = ShardCounts() if counts is None else counts
        self.state = ShardState.LOADING
        self._log = log
        self._make_machine = make_machine
        self._make_codec = make_codec
        self._machine: M
        """Set when `load` has read the log."""
        self._codec: RecordCodec
        """Set when `load` begins to read the log."""
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._make_bulk = make_bulk
        self._proposed = BackgroundTasks()

    async def load(self) -> None:
        """Replay the log on a worker thread, then take requests.

        A record that cannot be read is logged and leaves the shard FAILED: it answers as a broker
        that does not coordinate the key, and never from half a state.
        """
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        # On a worker thread: a million commits take seconds (decision 40).
        try:
            self._machine, byte_count = await self._log.read(
                lambda batches: (self.replayed(batches), batches.size)
            )
        except (TailraceError, OSError) as error:
            # Half a state would give wrong offsets: its clients are refused instead (decision 33).
            if self.state is ShardState.LOADING:
                self.state = ShardState.FAILED
                self._counts.failed_loads += 1
                # Damage has its place in the message; a traceback would say no more.
                logger.error(  # noqa: TRY400
                    "coordinator_load_failed partition=%s reason=%s; its clients are refused; stop "
                    "the broker, mend the partition (tailrace log repair), and start again",
                    self._log.partition,
                    error,
                )
            return
        except Exception:
            # A bug in a machine: clients must not ask for ever whether the partition is loaded.
            self.state = ShardState.FAILED
            self._counts.failed_loads += 1
            logger.exception("coordinator_load_failed partition=%s", self._log.partition)
            return
        # Another broker may have got the partition meanwhile: then it is STOPPED, and stays so.
        if self.state is ShardState.LOADING:
            self.state = ShardState.ACTIVE
            self._counts.loaded(byte_count, loop.time() - started_s)
            self._machine.start(self._propose)
            logger.debug("coordinator_loaded partition=%s", self._log.partition)

    def stop(self) -> None:
        """Take no more requests, and answer the parked ones: look the coordinator up again."""
        # First the state: what is answered below may ask again at once.
        was_active, self.state = self.state is ShardState.ACTIVE, ShardState.STOPPED
        if was_active:
            self._stop_machine(self._not_led())

    def abandon(self) -> None:
        """Wait no more for the commit of decisions that no client has asked for.

        After `stop`, when the broker stops: its followers may never have them, and no new leader is
        going to end the wait.
        """
        self._proposed.cancel()

    @property
    def is_serving(self) -> bool:
        """Whether it takes requests, or will when it is loaded."""
        return self.state in (ShardState.LOADING, ShardState.ACTIVE)

    @property
    def machine(self) -> M:
        """The state, to read what need not be committed.

        Raises:
            CoordinatorLoadInProgressError: the log is being replayed.
            NotCoordinatorError: the shard has failed or is stopped.
        """
        if self.state is ShardState.ACTIVE:
            return self._machine
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgressError(f"{self._log.partition} is being loaded")
        raise NotCoordinatorError(f"{self._log.partition} is not coordinated by this broker")

    async def run(self, decide: Callable[[M, int], Decision[T]]) -> T:
        """The reply to a request, when all that it rests on is committed.

        `decide` gets the machine and the time of day in milliseconds.

        Raises:
            CoordinatorLoadInProgressError, NotCoordinatorError: as `machine`.
            CoordinatorNotAvailableError: the records could not be written, and nothing has changed;
                or nobody knows yet whether they are committed. Its cause is the log's own error.
            TailraceError: from `decide`, or from the parked reply.
        """
        _ = self.machine
        if (waiting := self._log.wait_until_free()) is not None:
            await waiting
        # Decide, append and replay: no await from here to the commit, or another request would see
        # a state without this one (decision 33).
        decision = self._decided(decide)
        await self._commit()
        if not isinstance(decision.reply, Awaitable):
            return decision.reply
        # A parked reply comes with records of its own, as the assignment of a rebalance: these have
        # to be committed too.
        # `shield`: the machine keeps a parked reply, also when its client has gone.
        reply: T = await asyncio.shield(decision.reply)
        await self._commit()
        return reply

    @property
    def runs_at_once(self) -> bool:
        """Whether `run_at_once` takes requests now."""
        return self.state is ShardState.ACTIVE and self._log.commits_at_once

    def run_at_once(self, decide: Callable[[M, int], Decision[T]]) -> T:
        """The reply to a request that is never parked, as of `run`; only while `runs_at_once`.

        Raises:
            CoordinatorNotAvailableError: the records could not be written, and nothing has changed.
            TailraceError: from `decide`.
        """
        # No wait for a commit: `commits_at_once` says that what is appended is committed.
        reply = self._decided(decide).reply
        assert not isinstance(reply, Awaitable)
        return reply

    def begin_verification(
        self, producer: TransactionalProducer, *, begins_at_zero: bool
    ) -> VerificationGuard | None:
        """The guard for a decision of this producer, after its coordinator's yes.

        None: its transaction is open in this partition, and needs none.

        Raises:
            CoordinatorLoadInProgressError, NotCoordinatorError: as `machine`.
            InvalidProducerEpochError: the log has a newer epoch of the producer.
            TailraceError, OSError: the partition is not here, or its directory failed.
        """
        _ = self.machine
        return self._log.begin_verification(producer, begins_at_zero=begins_at_zero)

    async def end_transaction(
        self,
        producer: TransactionalProducer,
        *,
        is_commit: bool,
        coordinator_epoch: LeaderEpoch,
        raises_epoch: bool = False,
    ) -> None:
        """Append the marker that ends a producer's transaction; returns when it is committed.

        `raises_epoch` as of `Log.append`.

        Raises:
            CoordinatorLoadInProgressError, NotCoordinatorError: as `machine`.
            TailraceError, OSError: the log has refused the marker; nothing has changed.
        """
        _ = self.machine
        if (waiting := self._log.wait_until_free()) is not None:
            await waiting
        marker = build_end_marker(
            producer.producer_id,
            producer.producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=self._clock.now_ms(),
        )
        # Again: the shard may have stopped while the append had to wait.
        machine = self.machine
        started_s = self._clock.monotonic_s()
        self._log.append(marker, raises_epoch=raises_epoch)
        self._counts.appended(self._clock.monotonic_s() - started_s)
        try:
            # Not by a record: a marker is a batch of its own kind, which the log writes.
            machine.replay_marker(producer.producer_id, is_commit=is_commit)
        except Exception as error:
            self._fail_diverged(error)
            raise
        await self._commit()

    def _propose(self, decide: Callable[[int], Decision[None]]) -> Awaitable[None]:
        task = self._proposed.start(self.run(lambda _, now_ms: decide(now_ms)))
        task.add_done_callback(self._end_proposed)
        return task

    def _end_proposed(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        # With its leadership everything ends that it was about to do; the next leader does it.
        if self.state is not ShardState.STOPPED:
            logger.warning(
                "coordinator_refused_itself partition=%s reason=%s", self._log.partition, error
            )

    async def _commit(self) -> None:
        # A parked reply may be woken after the end of this leadership. What it rests on may be cut
        # off since, and the log of a later leadership would not tell.
        if self.state is ShardState.STOPPED:
            raise self._not_led()
        timeout_ms = self._commit_timeout_ms
        # The log waits for everything appended so far, also by others: what a reply rests on may be
        # theirs.
        try:
            committed = self._log.committed()
            if committed is not None:
                committed = asyncio.ensure_future(committed)
                # The first step of a request may run outside of a task (`runtime.steps`), where
                # Python has no timeouts.
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    # Nobody would hear how it ends.
                    committed.cancel()
                    raise
                with self._counts.commit_wait():
                    async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                        await committed
        except TimeoutError as error:
            raise CoordinatorNotAvailableError(
                f"records of {self._log.partition} were not committed within {timeout_ms} ms; "
                "they may still be"
            ) from error
        except NotCoordinatorError:
            # The records may be lost, or committed by the next leader: the client asks that one.
            raise
        except (TailraceError, OSError) as error:
            raise CoordinatorNotAvailableError(str(error)) from error

    def _not_led(self) -> NotCoordinatorError:
        return NotCoordinatorError(f"{self._log.partition} has another leader now")

    def _fail_diverged(self, error: Exception) -> None:
        """Fail the shard, because its state does not follow what was appended."""
        self.state = ShardState.FAILED
        logger.error("coordinator_replay_failed partition=%s", self._log.partition, exc_info=error)
        # It takes no more decisions, so its deadlines end, and nobody waits for a reply.
        self._stop_machine(NotCoordinatorError(f"{self._log.partition} has failed"))

    def _decided(self, decide: Callable[[M, int], Decision[T]]) -> Decision[T]:
        decision = decide(self.machine, self._clock.now_ms())
        if decision.records:
            self._append(decision)
        return decision

    def _stop_machine(self, reason: NotCoordinatorError) -> None:
        try:
            self._machine.stop(reason)
        except Exception:
            # A bug in a machine: its partition goes all the same, and so do the others.
            logger.exception("coordinator_stop_failed partition=%s", self._log.partition)

    def _append(self, decision: Decision[object]) -> None:
        # One batch: after a crash all of the records are there, or none.
        try:
            batch = self._batch_of(decision)
        except Exception as error:
            # Such as a text that is longer than its record may have it.
            if decision.undo is not None:
                decision.undo(error)
            raise
        started_s = self._clock.monotonic_s()
        try:
            offset = self._log.append(batch, guard=decision.guard)
        except (TailraceError, OSError) as error:
            # The append comes before the replay, so there is nothing to roll back but what only
            # memory had (decision 33).
            self._counts.failed_appends += 1
            if decision.undo is not None:
                decision.undo(error)
            # The leadership has ended, and the word of it is on its way to `stop`.
            if isinstance(error, NotCoordinatorError):
                raise
            raise CoordinatorNotAvailableError(str(error)) from error
        self._counts.appended(self._clock.monotonic_s() - started_s)
        producer_id = NO_PRODUCER_ID if decision.producer is None else decision.producer.producer_id
        try:
            for delta, record in enumerate(decision.records):
                self._machine.replay(record, Origin(offset + delta, producer_id))
        except Exception as error:
            self._fail_diverged(error)
            raise

    def _batch_of(self, decision: Decision[object]) -> bytearray:
        records = [self._codec.encode(record) for record in decision.records]
        now_ms, producer = self._clock.now_ms(), decision.producer
        if producer is None:
            return build_batch(records, timestamp=now_ms)
        return build_batch(
            records,
            timestamp=now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )

    def replayed(self, batches: StoredBatches) -> M:
        """A machine with the state that these batches make."""
        machine = self._make_machine()
        self._codec = self._make_codec()
        bulk = self._make_bulk(machine, batches.size)
        if bulk is None:
            for batch in batches.untaken(leave_all):
                self._replay(machine, batch)
        else:
            for batch in batches.untaken(bulk.take):
                # What was taken comes before this batch in the log.
                bulk.put()
                self._replay(machine, batch)
            bulk.put()
        return machine

    def _replay(self, machine: M, batch: Batch) -> None:
        batch.check()
        if batch.is_control:
            marker = end_transaction_marker_or_none(batch)
            if marker is not None:
                is_commit = marker.type is ControlType.COMMIT
                machine.replay_marker(batch.producer_id, is_commit=is_commit)
            return
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        for each in records_of(batch):
            record = self._decode(each.key, each.value, each.offset)
            if record is not None:
                machine.replay(record, Origin(each.offset, producer_id))

    def _decode(
        self, key: bytes | None, value: bytes | None, offset: int
    ) -> CoordinatorRecord | None:
        if key is None:
            raise CorruptionError("a record of a coordinator has no key", offset=offset)
        try:
            return self._codec.decode(key, value)
        except CorruptionError as error:
            # Its position is one in the record, and would be taken for one in the file.
            error.position, error.offset = None, offset
            raise
