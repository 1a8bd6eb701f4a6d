"""Producer state of one log: sequence numbers and transactions (KIP-98, KIP-360, KIP-447).

A producer numbers its records per partition. The log remembers the last five batches of each
producer. A batch that repeats one of them is acknowledged and not appended; a batch that leaves a
gap is refused. Five, because a client has at most five requests in flight.

The first transactional batch of a producer begins its transaction in this log, and a marker from
the transaction coordinator ends it. read_committed consumers stop at the first offset of the oldest
open transaction. A marker counts only after the high watermark has passed it, because a new leader
may not have it.

    offset    40   41   42   43   44        producers 1 and 2, markers C and A
              1    2    1    C1   A2
    open      1    1,2  1,2  2              in order of first offset
    ended                    1    1,2       until the high watermark is 44 (for 1), 45 (for 2)
    unstable  40   40   40   40   40        then 41, then none

Which checks apply depends on who appends:

                                            client    coordinator   replication
    older producer epoch                    refused   refused       logged
    sequence does not follow                refused   not checked   not checked
    no transaction, while one is open       refused   refused       logged
    begins one without its guard            refused   refused       not checked
    marker of an older coordinator epoch    refused   refused       logged

Elsewhere: the snapshot files are in `snapshots`, guards in `verification`, and each segment has the
index of its aborted transactions.

Invariant: the state in memory equals a replay of the log's batches, except for expired producers,
for the clock, and for producers read from a snapshot, which has only the last batch of each: those
before it are read from the log when a client repeats one.
"""

import logging
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError, FatalError, UnsupportedCodecError
from tailrace.model import PRODUCER_EPOCH_MAX, AppendOrigin, Offset, ProducerEpoch, ProducerId
from tailrace.records.batch import Batch
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.records.layout import SEQUENCE_MAX
from tailrace.runtime.files import Files
from tailrace.storage.segment import Segment
from tailrace.storage.segments import Segments
from tailrace.storage.snapshots import (
    NONE,
    KnownBatch,
    KnownProducer,
    SnapshotFiles,
)
from tailrace.storage.verification import VerificationGuard, Verifications

__all__ = [
    "BATCHES_KEPT",
    "EXPIRATION_MS",
    "LATE_BUFFER_MS",
    "CompletedTransaction",
    "CoordinatorFencedError",
    "InvalidProducerEpochError",
    "InvalidTransactionStateError",
    "KnownBatch",
    "KnownProducer",
    "OpenTransaction",
    "ProducerSequenceError",
    "ProducerStates",
    "open_producers",
]

logger = logging.getLogger(__name__)

BATCHES_KEPT: Final = 5
"""Batches that are remembered of each producer."""

TAIL_ENTRIES: Final = 256
"""Entries of the offset index, each for 4 KB of log or for a batch, that cover the batches to read
for those that a snapshot does not have: 10,000 headers with batches of 100 bytes."""

EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
"""For how long an idle producer is remembered: Kafka's default of `producer.id.expiration.ms`."""

LATE_BUFFER_MS: Final = 5 * 60 * 1000
"""Time after the longest transaction timeout within which a coordinator aborts a transaction."""

_UNKNOWN: Final = KnownProducer(ProducerEpoch(NONE), (), NONE)


class InvalidProducerEpochError(FatalError, ValueError):
    """A batch has an older epoch than the newest one in the log with this producer id."""

    def __init__(
        self, producer_id: ProducerId, *, epoch: ProducerEpoch, known_epoch: ProducerEpoch
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.known_epoch = known_epoch
        super().__init__(
            f"producer {producer_id} sent epoch {epoch}, and the log has epoch {known_epoch} of "
            "it already; ask for a new epoch"
        )


class ProducerSequenceError(FatalError, ValueError):
    """A batch neither follows the last one of its producer nor repeats one of the last five."""

    def __init__(self, producer_id: ProducerId, *, sequence: int, expected: int) -> None:
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected
        super().__init__(
            f"producer {producer_id} sent sequence {sequence} where {expected} is due; "
            "batches before it are lost, or it is older than the last five batches, so the log "
            "cannot tell whether it was appended"
        )


class InvalidTransactionStateError(FatalError, ValueError):
    """A batch without a transaction from a producer that has one open in this partition.

    Or the first batch of a transaction that the coordinator has not verified.
    """

    def __init__(self, producer_id: ProducerId, *, transaction_start: Offset | None) -> None:
        self.producer_id = producer_id
        self.transaction_start = transaction_start
        """First offset of the open transaction, or None."""
        super().__init__(
            f"producer {producer_id} sent the first batch of a transaction that its coordinator "
            "has not verified for this partition, or has ended; send it again in an open one"
            if transaction_start is None
            else f"producer {producer_id} sent a batch without a transaction, but its transaction "
            f"from offset {transaction_start} is still open; commit or abort it first"
        )


class AbortedSequenceError(InvalidTransactionStateError):
    """A batch with the sequence numbers of one whose transaction was aborted (decision 98)."""

    def __init__(self, producer_id: ProducerId, *, sequence: int, offset: Offset) -> None:
        self.producer_id = producer_id
        self.transaction_start = None
        FatalError.__init__(
            self,
            f"producer {producer_id} sent sequence {sequence} again, which is that of offset "
            f"{offset} in a transaction that was aborted; abort this one too, and send it again",
        )


class CoordinatorFencedError(FatalError, ValueError):
    """A marker from a transaction coordinator that has been replaced by a newer one."""

    def __init__(self, producer_id: ProducerId, *, epoch: int, known_epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.known_epoch = known_epoch
        super().__init__(
            f"the coordinator of producer {producer_id} sent a marker with epoch {epoch}, and the "
            f"log has a marker of coordinator epoch {known_epoch} already"
        )


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Offset of the marker."""
    is_aborted: bool


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended yet."""

    producer_id: ProducerId
    first_offset: Offset
    timestamp: int
    """Timestamp of the producer's newest batch, in milliseconds."""


class ProducerStates:
    """The producers of one log; `open_producers` makes it.

    `check` changes nothing, but may read batches from before a snapshot. The caller calls `note`
    once the batch is in the log. When a batch ends a transaction, the caller first writes an abort
    to the segment's index, then calls `complete`.
    """

    def __init__(self, files: Files, directory: str, *, expiration_ms: int = EXPIRATION_MS) -> None:
        """Begins without producers, and reads no file; `reload` does."""
        self.verifications = Verifications()
        """Transactions that wait for the coordinator's verification."""
        self.snapshots = SnapshotFiles(files, directory)
        """The snapshots in the folder of the log."""
        self._expiration_ms = expiration_ms
        self._producers: dict[ProducerId, KnownProducer] = {}
        # Producer id by first offset. Offsets rise, so the first entry is the oldest one.
        self._open: dict[Offset, ProducerId] = {}
        # First and last offset of ended transactions, as a heap: the smallest first offset on top.
        # An entry below the high watermark is removed when it comes to the top; until then it has
        # no effect on the last stable offset.
        self._unreplicated: list[tuple[Offset, Offset]] = []
        # The log, and the snapshot's offset, until the batches before it were looked at.
        self._before_snapshot: tuple[Segments, Offset] | None = None

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: ProducerId) -> KnownProducer | None:
        """The state of a producer, or None; may be called from any thread."""
        return self._producers.get(producer_id)

    def items(self) -> list[tuple[ProducerId, KnownProducer]]:
        """Every producer id and its state; may be called from any thread."""
        return list(self._producers.items())

    def begin_verification(
        self,
        producer_id: ProducerId,
        *,
        epoch: ProducerEpoch,
        sequence: int,
        now_ms: int,
        begins_at_zero: bool = False,
    ) -> VerificationGuard | None:
        """The guard to append the first batch of a transaction with, after the coordinator's yes.

        None if the producer has a transaction of this epoch open here: then no verification is
        needed. `begins_at_zero` as in `Verification`.

        Raises:
            InvalidProducerEpochError: the log has a newer epoch of the producer. Its coordinator
                may know less by now, if it has given the transactional id another producer id.
        """
        known = self._producers.get(producer_id, _UNKNOWN)
        # A zombie: it must not even ask the coordinator (KIP-890).
        if epoch < known.epoch:
            raise InvalidProducerEpochError(producer_id, epoch=epoch, known_epoch=known.epoch)
        if known.is_writing(epoch):
            return None
        return self.verifications.begin(
            producer_id,
            epoch=epoch,
            sequence=sequence,
            now_ms=now_ms,
            begins_at_zero=begins_at_zero,
        ).guard

    def continue_verifications(self, before: "ProducerStates") -> None:
        """Go on with the verifications of the log whose place this one takes after a move."""
        self.verifications = before.verifications

    def check(
        self,
        batch: Batch,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        raises_epoch: bool = False,
    ) -> KnownBatch | None:
        """The batch of the log that `batch` repeats, or None if it may be appended.

        Only for batches with a producer id. A client may repeat any of its last five batches; those
        that lie before the snapshot of the last start are read from the log when the first sequence
        does not fit, once. A producer that is not in the state may begin at any
        sequence, because it may have expired. The leader has checked replicated batches: for these
        a broken rule is only logged. With `raises_epoch` a marker ends only a transaction of an
        older epoch than its own (KIP-890).

        Raises:
            InvalidProducerEpochError: the log has a newer epoch of the producer; or a marker that
                `raises_epoch`, and the producer writes under its epoch already.
            ProducerSequenceError: it does not follow the last batch, does not begin at
                sequence 0 in a new epoch, or is ahead of one that is being verified.
            InvalidTransactionStateError: it has no transaction, and one is open; or it begins a
                transaction that needs verification, and `guard` is not the producer's.
            CoordinatorFencedError: a marker, and the log has one of a newer coordinator.
            CorruptRecordError, CorruptCompressionError, UnsupportedCodecError: a control batch
                whose record cannot be read.
        """
        known = self._producers.get(batch.producer_id, _UNKNOWN)
        if batch.is_control:
            _check_marker(batch, known, origin, raises_epoch=raises_epoch)
            return None
        if origin is AppendOrigin.CLIENT:
            # First: a batch that is in the log is answered with its offsets, even if the producer
            # could not append it now.
            repeated = None if known.epoch == NONE else self._repeated(batch, known)
            if repeated is not None:
                return repeated
            lowest = self.verifications.lowest_sequence_or_none(batch, is_known=known.epoch != NONE)
            # Where the log has batches of this epoch, this one follows the last of them. A question
            # that comes late, for a batch that is in the log, leaves a sequence that never will be:
            # Kafka 4.3.1 refuses this batch then, which ends librdkafka's producers.
            if lowest is not None and known.epoch != batch.producer_epoch:
                raise ProducerSequenceError(
                    batch.producer_id, sequence=batch.base_sequence, expected=lowest
                )
        else:
            _check_epoch(batch, known, origin)
        if known.has_open_transaction and not batch.is_transactional:
            error = InvalidTransactionStateError(
                batch.producer_id, transaction_start=known.transaction_start
            )
            _refuse(error, origin)
        is_begin = batch.is_transactional and not known.is_writing(batch.producer_epoch)
        is_checked = is_begin and origin is not AppendOrigin.REPLICATION
        if is_checked and not self.verifications.has_let_in(batch, guard):
            raise InvalidTransactionStateError(batch.producer_id, transaction_start=None)
        return None

    def note(
        self,
        batch: Batch,
        *,
        base_offset: Offset,
        last_offset: Offset,
        timestamp: int,
        now_ms: int = NONE,
    ) -> CompletedTransaction | None:
        """Update the state for a batch that is in the log now, with its offsets and timestamp.

        Returns the transaction that the batch has ended, if it is a marker and one was open; the
        caller passes it to `complete`. Only checks that a marker can be read. Uses no file.

        Raises:
            CorruptRecordError, CorruptCompressionError, UnsupportedCodecError: a control batch
                whose record cannot be read; nothing has changed.
        """
        assert batch.has_producer
        if batch.is_transactional:
            self.verifications.forget(batch.producer_id)
        known = self._producers.get(batch.producer_id, _UNKNOWN)
        # Sequences of an older epoch can never come again: the epoch is fenced.
        batches = known.batches if known.epoch == batch.producer_epoch else ()
        if batch.is_control:
            marker = end_transaction_marker_or_none(batch)
            if marker is None:
                return None
            # The batches stay: after a commit the producer continues with the next sequence, and a
            # retry of the last batch is still a duplicate.
            self._producers[batch.producer_id] = KnownProducer(
                batch.producer_epoch,
                batches,
                timestamp,
                coordinator_epoch=marker.coordinator_epoch,
                seen_ms=now_ms,
            )
            if not known.has_open_transaction:
                return None
            return CompletedTransaction(
                batch.producer_id,
                known.transaction_start,
                last_offset,
                is_aborted=marker.type is ControlType.ABORT,
            )
        start = known.transaction_start
        if batch.is_transactional and not known.has_open_transaction:
            # The first batch of a transaction in this partition: the last stable offset stops here.
            start = base_offset
            self._open[start] = batch.producer_id
        added = _known_batch(
            batch, base_offset=base_offset, last_offset=last_offset, timestamp=timestamp
        )
        self._producers[batch.producer_id] = KnownProducer(
            batch.producer_epoch,
            (*batches[1 - BATCHES_KEPT :], added),
            timestamp,
            known.coordinator_epoch,
            start,
            now_ms,
        )
        return None

    def last_stable_offset(self, completed: CompletedTransaction) -> Offset:
        """The last stable offset after `completed` has ended.

        It is the first offset of the oldest other open transaction, or the offset after the marker.
        """
        # `_open` is in the order of first offsets, so the first other one is the oldest.
        others = (
            first
            for first, producer_id in self._open.items()
            if producer_id != completed.producer_id
        )
        return next(others, Offset(completed.last_offset + 1))

    def complete(self, completed: CompletedTransaction) -> None:
        """Close a transaction; it holds the last stable offset until its marker is replicated."""
        producer_id = self._open.pop(completed.first_offset, NONE)
        assert producer_id == completed.producer_id, completed
        # A heap, because transactions end in another order than they begin.
        heappush(self._unreplicated, (completed.first_offset, completed.last_offset))

    @property
    def first_unstable_offset(self) -> Offset | None:
        """First offset of the oldest transaction that is open or has an unreplicated marker.

        It can lie below the log start, if the records there were deleted meanwhile.
        """
        first = next(iter(self._open), None)
        if not self._unreplicated:
            return first
        unreplicated = self._unreplicated[0][0]
        return unreplicated if first is None else min(first, unreplicated)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Drop the transactions whose markers lie below `offset`: they are replicated."""
        # Only from the top: one below it is covered by the lower first offset above it.
        while self._unreplicated and self._unreplicated[0][1] < offset:
            heappop(self._unreplicated)

    def expire_after(self, expiration_ms: int) -> None:
        """Keep idle producers for another time, from the next `expire` on."""
        self._expiration_ms = expiration_ms

    def expire(self, now_ms: int) -> None:
        """Drop producers without an append for the expiration time and without open transaction.

        Kafka takes the age from the record timestamps, so it could drop a producer of old data
        between two of its batches. Here the broker's clock counts; for producers read at the start
        it begins with the first call. Verifications expire after the same time.
        """
        self.verifications.expire(now_ms, expiration_ms=self._expiration_ms)
        self._producers = {
            producer_id: known if known.seen_ms != NONE else known._replace(seen_ms=now_ms)
            for producer_id, known in self._producers.items()
            if known.seen_ms == NONE
            or now_ms - known.seen_ms < self._expiration_ms
            # Its marker is still to come, and needs the state.
            or known.has_open_transaction
        }

    def late_transactions(self, now_ms: int, *, transaction_ms_max: int) -> list[OpenTransaction]:
        """The open transactions that their coordinator should have ended, the oldest first.

        A transaction is late five minutes after the longest timeout that a client may request. The
        time counts from the timestamp of the producer's newest batch, as in Kafka, because a
        snapshot has only that; a batch without a timestamp is never late.
        """
        limit = now_ms - transaction_ms_max - LATE_BUFFER_MS
        found = []
        for first_offset, producer_id in self._open.items():
            timestamp = self._producers[producer_id].timestamp
            # Kafka counts such partitions in PartitionsWithLateTransactionsCount.
            if 0 < timestamp < limit:
                found.append(OpenTransaction(producer_id, first_offset, timestamp))
        return found

    def write_snapshot(self, offset: Offset, *, is_synced: bool = False) -> None:
        """Write a snapshot for `offset`, the log end, as `SnapshotFiles.write` does."""
        self.snapshots.write(offset, self._producers, is_synced=is_synced)

    def offer_snapshot(self, offset: Offset) -> None:
        """Write a snapshot as `write_snapshot` does; an OSError is only logged.

        For a snapshot that only makes the next start faster.
        """
        try:
            self.write_snapshot(offset)
        except OSError as error:
            logger.warning("producer_snapshot_not_written offset=%d reason=%s", offset, error)

    def reload(self, segments: Segments, *, log_start: Offset, log_end: Offset) -> None:
        """Rebuild the state at the log end from the newest sound snapshot and the batches after it.

        Called at a start, and after the log was cut: `segments` end at `log_end` already. A
        snapshot has only the last batch of each producer. Transactions that ended after the
        snapshot count as unreplicated until `advance_high_watermark` is called; those that ended
        before it count as replicated, as in Kafka, whose snapshots do not have them.

            snapshots 10, 20, 30   reload(log_start=10, log_end=25)   20, and a replay of 20 to 24

        Removes snapshots as `SnapshotFiles.load` does; `sync_removals` has to follow. Writes
        a snapshot where the replay passes the base offset of one of the last two segments, as in
        Kafka. A damaged segment is replayed up to the damage, which is logged.

        Raises:
            OSError: a file cannot be read or removed; call again, or open the log again.
        """
        bases = {segment.base_offset for segment in segments}
        found, start = self.snapshots.load(log_start=log_start, log_end=log_end, bases=bases)
        self._reset(found)
        if found:
            self._before_snapshot = segments, start
        # The next start then finds one near the end, even if this replay was long.
        due = sorted(bases)[-2:]
        for segment in segments.from_offset(start):
            if segment.base_offset >= log_end:
                break
            if segment.base_offset in due:
                self.offer_snapshot(segment.base_offset)
            self._replay(segment, start, log_end=log_end)

    def truncate_fully(self, offset: Offset) -> None:
        """Drop all state and remove all snapshots: the log restarts at `offset`.

        Raises:
            OSError: a snapshot cannot be removed; call again.
        """
        self._reset({})
        self.snapshots.clear(offset)

    def _repeated(self, batch: Batch, known: KnownProducer) -> KnownBatch | None:
        try:
            return _check_sequence(batch, known)
        except ProducerSequenceError:
            if self._before_snapshot is None:
                raise
            # Once for each start: it reads headers for some milliseconds, and only if a client
            # repeats a batch from before an orderly stop.
            self._recall(*self._before_snapshot)
            self._before_snapshot = None
            return _check_sequence(batch, self._producers[batch.producer_id])

    def _recall(self, segments: Segments, limit: Offset) -> None:
        """Note the batches below `limit`, a snapshot's offset, that its producers wrote before.

        Kafka does without: after an orderly stop with answers on their way, its clients take the
        next epoch, and what they repeat is in the log twice.
        """
        older: dict[ProducerId, list[KnownBatch]] = {}
        try:
            for batch in _tail_before(segments, limit):
                known = self._producers.get(batch.producer_id, _UNKNOWN)
                if batch.is_control or known.epoch != batch.producer_epoch or not known.batches:
                    continue
                if batch.last_offset < known.batches[0].base_offset:
                    older.setdefault(batch.producer_id, []).append(
                        _known_batch(
                            batch,
                            base_offset=batch.base_offset,
                            last_offset=batch.last_offset,
                            timestamp=batch.max_timestamp,
                        )
                    )
        except (CorruptionError, UnsupportedCodecError, OSError) as error:
            logger.warning("producers_incomplete offset=%d reason=%s", limit, error)
        for producer_id, batches in older.items():
            known = self._producers[producer_id]
            recalled = (*batches, *known.batches)[-BATCHES_KEPT:]
            self._producers[producer_id] = known._replace(batches=recalled)

    def _reset(self, producers: dict[ProducerId, KnownProducer]) -> None:
        self._before_snapshot = None
        self._producers = producers
        self._open = dict(
            sorted(
                (known.transaction_start, producer_id)
                for producer_id, known in producers.items()
                if known.has_open_transaction
            )
        )
        self._unreplicated = []

    def _replay(self, segment: Segment, offset: Offset, *, log_end: Offset) -> None:
        """Note the batches of a segment from `offset` on, without a check of sequences.

        Reads only the headers of data batches.
        """
        due = segment.base_offset
        try:
            for position, batch in segment.batches(offset):
                if not due <= batch.base_offset <= batch.last_offset < log_end:
                    raise CorruptionError(
                        f"offsets {batch.base_offset} to {batch.last_offset} where {due} to "
                        f"{log_end - 1} are due",
                        path=segment.log.path,
                        position=position,
                    )
                due = batch.next_offset
                if not batch.has_producer:
                    continue
                if batch.is_control:
                    # Only of markers the records are read, so only theirs can be wrong here.
                    batch.check()
                completed = self.note(
                    batch,
                    base_offset=batch.base_offset,
                    last_offset=batch.last_offset,
                    timestamp=batch.max_timestamp,
                )
                if completed is not None:
                    self.complete(completed)
        except (CorruptionError, UnsupportedCodecError) as error:
            # Recovery trusted this segment. Readers will get the error; producers can continue.
            logger.warning("producers_incomplete path=%s reason=%s", segment.log.path, error)


def open_producers(
    files: Files,
    directory: str,
    *,
    segments: Segments,
    log_start: Offset,
    log_end: Offset,
    expiration_ms: int = EXPIRATION_MS,
) -> ProducerStates:
    """The state at the log end, as `ProducerStates.reload` finds it; what it removes stays removed.

    Raises:
        OSError: a file cannot be read or removed.
    """
    states = ProducerStates(files, directory, expiration_ms=expiration_ms)
    states.reload(segments, log_start=log_start, log_end=log_end)
    states.snapshots.sync_removals()
    return states


def _tail_before(segments: Segments, limit: Offset) -> Iterator[Batch]:
    """The batches below `limit` that `TAIL_ENTRIES` entries of the offset indexes cover."""
    entry_count = TAIL_ENTRIES
    tail = []
    for segment in reversed([each for each in segments if each.base_offset < limit]):
        tail.append((segment, segment.offset_index.tail_offset(entry_count)))
        entry_count -= segment.offset_index.entries.count
        if entry_count <= 0:
            break
    for segment, start in reversed(tail):
        for _, batch in segment.batches(start):
            if batch.base_offset >= limit:
                return
            yield batch


def _known_batch(
    batch: Batch, *, base_offset: Offset, last_offset: Offset, timestamp: int
) -> KnownBatch:
    return KnownBatch(batch.last_sequence, last_offset, last_offset - base_offset, timestamp)


def _check_sequence(batch: Batch, known: KnownProducer) -> KnownBatch | None:
    """The batch that a client repeats, or None if this one follows the last."""
    first, epoch = batch.base_sequence, batch.producer_epoch
    expected = 0
    if epoch == known.epoch:
        # After 2147483647 comes 0 (KIP-98).
        expected = (known.last_sequence + 1) & SEQUENCE_MAX
    if epoch >= known.epoch and first == expected:
        return None
    _check_epoch(batch, known, AppendOrigin.CLIENT)
    if epoch == known.epoch and first >= 0:
        last = batch.last_sequence
        for each in known.batches:
            # Both ends, as Kafka compares: a batch that was split or merged is no duplicate.
            if each.last_sequence == last and each.first_sequence == first:
                return each
    raise ProducerSequenceError(batch.producer_id, sequence=first, expected=expected)


def _check_epoch(batch: Batch, known: KnownProducer, origin: AppendOrigin) -> None:
    if batch.producer_epoch < known.epoch:
        error = InvalidProducerEpochError(
            batch.producer_id, epoch=batch.producer_epoch, known_epoch=known.epoch
        )
        _refuse(error, origin)


def _check_marker(
    batch: Batch, known: KnownProducer, origin: AppendOrigin, *, raises_epoch: bool
) -> None:
    marker = end_transaction_marker_or_none(batch)
    if marker is None:
        return
    _check_epoch(batch, known, origin)
    # A transaction of the last epoch, which a faulty producer may have begun, can only end in it.
    may_raise = batch.producer_epoch < PRODUCER_EPOCH_MAX
    if raises_epoch and may_raise and known.is_writing(batch.producer_epoch):
        # It comes a second time, late: it has ended the transaction before this one.
        raise InvalidProducerEpochError(
            batch.producer_id, epoch=batch.producer_epoch, known_epoch=known.epoch
        )
    if marker.coordinator_epoch < known.coordinator_epoch:
        error = CoordinatorFencedError(
            batch.producer_id,
            epoch=marker.coordinator_epoch,
            known_epoch=known.coordinator_epoch,
        )
        _refuse(error, origin)


def _refuse(error: FatalError, origin: AppendOrigin) -> None:
    if origin is not AppendOrigin.REPLICATION:
        raise error
    logger.warning("producer_rule_broken_by_leader reason=%s", error)
