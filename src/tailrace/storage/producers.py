"""What one log knows of its producers: sequences and transactions (KIP-98, KIP-360, KIP-447).

A producer numbers its records per partition. By the last five batches of each producer the log
tells a batch that was sent again, which it acknowledges and does not append, from one that leaves
a gap, which it refuses. Five, since a client has at most that many requests under way.

The first transactional batch of a producer opens its transaction in this log, and the marker that
a transaction coordinator has written ends it. From the first offset of the oldest one on nothing is
decided, so that is where readers of committed records must stop. A marker counts for them once the
high watermark has passed it: a new leader may not have it, so the transaction stays in the way.

    offset    40   41   42   43   44        producers 1 and 2, markers C and A
              1    2    1    C1   A2
    open      1    1,2  1,2  2              in order of first offset
    ended                    1    1,2       until the high watermark is 44 (for 1), 45 (for 2)
    unstable  40   40   40   40   40        then 41, then none

Which checks apply depends on who appends:

                                            client    coordinator   replication
    older producer epoch                    refused   refused       logged
    sequence does not follow                refused   not looked at not looked at
    no transaction, while one is open       refused   refused       logged
    begins one without its guard            refused   refused       not looked at
    marker of an older coordinator epoch    refused   refused       logged

What is not here: the snapshot files, see `snapshots`; what a guard is, see `verification`; and the
index of aborted transactions, which the segment keeps.

Invariant: what is in memory is what a replay of the log's batches gives, apart from producers that
were forgotten, from all but the last batch of each that a snapshot held, and from the clock.
"""

import logging
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from tailrace.errors import CorruptionError, FatalError, UnsupportedCodecError
from tailrace.model import AppendOrigin
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
    list_snapshots,
    read_snapshot,
    snapshot_path,
    write_snapshot,
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
    "OutOfOrderSequenceError",
    "ProducerStates",
    "open_producers",
]

logger = logging.getLogger(__name__)

BATCHES_KEPT: Final = 5
"""Of each producer."""

EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
"""For how long an idle producer is remembered: Kafka's default of `producer.id.expiration.ms`."""

LATE_BUFFER_MS: Final = 5 * 60 * 1000
"""What a coordinator gets, beyond the longest timeout, to abort a transaction that nobody ends."""

_UNKNOWN: Final = KnownProducer(NONE, (), NONE)


class InvalidProducerEpochError(FatalError, ValueError):
    """The producer's epoch is over: a newer one has written with its id."""

    def __init__(self, producer_id: int, *, epoch: int, known_epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.known_epoch = known_epoch
        super().__init__(
            f"producer {producer_id} sent epoch {epoch}, and epoch {known_epoch} has written "
            "already; ask for a new epoch"
        )


class OutOfOrderSequenceError(FatalError, ValueError):
    """A batch does not follow on the last one of its producer, and is none of the last five."""

    def __init__(self, producer_id: int, *, sequence: int, expected: int) -> None:
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected = expected
        super().__init__(
            f"producer {producer_id} sent sequence {sequence} where {expected} is due; "
            "batches before it are lost, or it is too old to tell whether it was appended"
        )


class InvalidTransactionStateError(FatalError, ValueError):
    """A batch outside of any transaction, from a producer that has one open here; or the reverse.

    That is, the first of a transaction of which the coordinator has not said that it may begin.
    """

    def __init__(self, producer_id: int, *, transaction_start: int | None) -> None:
        self.producer_id = producer_id
        self.transaction_start = transaction_start
        """Of the open transaction, or None."""
        super().__init__(
            f"producer {producer_id} sent the first batch of a transaction that its coordinator "
            "has not let begin in this partition, or has ended; send it again in one that is open"
            if transaction_start is None
            else f"producer {producer_id} sent a batch without a transaction, and the one that it "
            f"began at offset {transaction_start} is open; commit or abort it first"
        )


class CoordinatorFencedError(FatalError, ValueError):
    """A marker from a transaction coordinator that has been replaced by a newer one."""

    def __init__(self, producer_id: int, *, epoch: int, known_epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.known_epoch = known_epoch
        super().__init__(
            f"the coordinator of producer {producer_id} has epoch {epoch}, and one of epoch "
            f"{known_epoch} has written a marker already"
        )


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's."""
    is_aborted: bool


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended yet."""

    producer_id: int
    first_offset: int
    timestamp: int
    """Of the producer's newest batch, in milliseconds."""


class ProducerStates:
    """The producers of one log; `open_producers` makes it.

    To check changes nothing: the caller notes a batch once it is in the log. When a batch ends a
    transaction, the caller writes an abort down in the segment's index, and completes it then.
    """

    def __init__(self, files: Files, directory: str, *, expiration_ms: int = EXPIRATION_MS) -> None:
        """Nothing is known yet, and no file is looked at: see `reload`."""
        self.verifications = Verifications()
        """The transactions that may be about to begin."""
        self._files = files
        self._directory = directory
        self._expiration_ms = expiration_ms
        self._producers: dict[int, KnownProducer] = {}
        self._open: dict[int, int] = {}
        """Producer id by first offset. Offsets rise, so the first entry is the oldest one."""
        self._unreplicated: list[tuple[int, int]] = []
        """First and last offset of ended transactions, as a heap: the smallest first offset on top.

        One below the high watermark that is not on top stays until it is, as it is in nobody's way.
        """
        self._snapshots: list[int] = []
        """Offsets of the snapshots in the folder, rising."""
        self._snapshot_offset = 0
        """Up to here a snapshot would tell nothing new."""

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> KnownProducer | None:
        """What is known of a producer; may be called from any thread."""
        return self._producers.get(producer_id)

    def items(self) -> list[tuple[int, KnownProducer]]:
        """Every producer id and what is known of it; may be called from any thread."""
        return list(self._producers.items())

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, now_ms: int
    ) -> VerificationGuard | None:
        """What to show with the first batch of a transaction, once the coordinator agrees.

        None if the producer has a transaction open here: then there is nothing to ask.
        """
        if self._producers.get(producer_id, _UNKNOWN).has_open_transaction:
            return None
        return self.verifications.begin(
            producer_id, epoch=epoch, sequence=sequence, now_ms=now_ms
        ).guard

    def check(
        self,
        batch: Batch,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> KnownBatch | None:
        """The batch of the log that `batch` repeats, or None if it may be appended.

        For batches with a producer id only. One of an unknown producer may begin anywhere, since
        the log may have forgotten it. What replication brings was checked by the leader: a broken
        rule is told in the log, and the batch is taken.

        Raises:
            InvalidProducerEpochError: the log has a newer epoch of the producer.
            OutOfOrderSequenceError: it does not follow on the last batch, does not begin at
                sequence 0 in a new epoch, or is ahead of one that is being verified.
            InvalidTransactionStateError: it belongs to no transaction, and one is open; or it
                begins one, which needs verification, and `guard` is not the producer's.
            CoordinatorFencedError: a marker, and the log has one of a newer coordinator.
            CorruptRecordError, CorruptCompressionError, UnsupportedCodecError: a control batch
                whose record cannot be read.
        """
        known = self._producers.get(batch.producer_id, _UNKNOWN)
        if batch.is_control:
            _check_marker(batch, known, origin)
            return None
        if origin is AppendOrigin.CLIENT:
            repeated = None if known.epoch == NONE else _check_sequence(batch, known)
            if repeated is not None:
                return repeated
            lowest = self.verifications.lowest_sequence_or_none(batch)
            if lowest is not None:
                raise OutOfOrderSequenceError(
                    batch.producer_id, sequence=batch.base_sequence, expected=lowest
                )
        else:
            _check_epoch(batch, known, origin)
        if known.has_open_transaction and not batch.is_transactional:
            error = InvalidTransactionStateError(
                batch.producer_id, transaction_start=known.transaction_start
            )
            _refuse(error, origin)
        is_begin = batch.is_transactional and not known.has_open_transaction
        is_checked = is_begin and origin is not AppendOrigin.REPLICATION
        if is_checked and not self.verifications.has_let_in(batch, guard):
            raise InvalidTransactionStateError(batch.producer_id, transaction_start=None)
        return None

    def note(
        self,
        batch: Batch,
        *,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        now_ms: int = NONE,
    ) -> CompletedTransaction | None:
        """Remember a batch that is in the log now, under the offsets and timestamp it got.

        Gives the transaction that the batch has ended, if it is a marker and one was open; the
        caller hands it to `complete`. Nothing is checked but whether a marker can be read, and no
        file is touched.

        Raises:
            CorruptRecordError, CorruptCompressionError, UnsupportedCodecError: a control batch
                whose record cannot be read; nothing has changed.
        """
        assert batch.has_producer
        if batch.is_transactional:
            self.verifications.forget(batch.producer_id)
        known = self._producers.get(batch.producer_id, _UNKNOWN)
        batches = known.batches if known.epoch == batch.producer_epoch else ()
        if batch.is_control:
            marker = end_transaction_marker_or_none(batch)
            if marker is None:
                return None
            self._producers[batch.producer_id] = KnownProducer(
                batch.producer_epoch, batches, timestamp, marker.coordinator_epoch, NONE, now_ms
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
            start = base_offset
            self._open[start] = batch.producer_id
        added = KnownBatch(batch.last_sequence, last_offset, last_offset - base_offset, timestamp)
        self._producers[batch.producer_id] = KnownProducer(
            batch.producer_epoch,
            (*batches[1 - BATCHES_KEPT :], added),
            timestamp,
            known.coordinator_epoch,
            start,
            now_ms,
        )
        return None

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset once `completed` is: where the oldest other transaction began.

        Or the offset behind the marker, if no other one is open.
        """
        others = (
            first
            for first, producer_id in self._open.items()
            if producer_id != completed.producer_id
        )
        return next(others, completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """Have a transaction count as decided, once the high watermark has passed its marker."""
        producer_id = self._open.pop(completed.first_offset, NONE)
        assert producer_id == completed.producer_id, completed
        heappush(self._unreplicated, (completed.first_offset, completed.last_offset))

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction began that is open, or whose marker may yet be lost.

        It can lie below the log start, if the records there were deleted meanwhile.
        """
        first = next(iter(self._open), None)
        if not self._unreplicated:
            return first
        unreplicated = self._unreplicated[0][0]
        return unreplicated if first is None else min(first, unreplicated)

    def advance_high_watermark(self, offset: int) -> None:
        """Forget the transactions whose markers lie below `offset`: they are decided for good."""
        while self._unreplicated and self._unreplicated[0][1] < offset:
            heappop(self._unreplicated)

    def expire(self, now_ms: int) -> None:
        """Forget producers without an append for too long, unless they have a transaction open.

        Kafka takes the age from the record timestamps, which would forget a producer of old data
        between two of its batches. Here it is the broker's clock; for producers that were known
        at the start it begins with the first call. A verification lasts no longer either.
        """
        self.verifications.expire(now_ms, expiration_ms=self._expiration_ms)
        self._producers = {
            producer_id: known if known.seen_ms != NONE else known._replace(seen_ms=now_ms)
            for producer_id, known in self._producers.items()
            if known.seen_ms == NONE
            or now_ms - known.seen_ms < self._expiration_ms
            or known.has_open_transaction
        }

    def late_transactions(self, now_ms: int, *, transaction_ms_max: int) -> list[OpenTransaction]:
        """The open transactions that their coordinator should have ended, the oldest first.

        That is five minutes after the longest timeout a client may ask for. The time is taken from
        the timestamp of the producer's newest batch, as in Kafka, since that is what a snapshot
        keeps; a batch without one is never late.
        """
        limit = now_ms - transaction_ms_max - LATE_BUFFER_MS
        found = []
        for first_offset, producer_id in self._open.items():
            timestamp = self._producers[producer_id].timestamp
            if 0 < timestamp < limit:
                found.append(OpenTransaction(producer_id, first_offset, timestamp))
        return found

    @property
    def snapshot_paths(self) -> list[str]:
        """The snapshots in the folder, the oldest first."""
        return [snapshot_path(self._directory, offset) for offset in self._snapshots]

    def write_snapshot(self, offset: int, *, is_synced: bool = False) -> None:
        """Write the state as that before `offset`, the log end; nothing if there is one for it.

        With `is_synced` its bytes are on the device when this returns; its name gets there with the
        folder's. After a crash a snapshot that is torn or lost costs a longer start.

        Raises:
            OSError: the device is full or failing; the state can be rebuilt, and the call repeated.
        """
        if offset > self._snapshot_offset:
            path = snapshot_path(self._directory, offset)
            write_snapshot(self._files, path, producers=self._producers, is_synced=is_synced)
            self._snapshots.append(offset)
            self._snapshot_offset = offset
        elif is_synced:
            self.sync_snapshot(offset)

    def move_to(self, directory: str) -> None:
        """Note that the folder has another name now."""
        self._directory = directory

    def offer_snapshot(self, offset: int) -> None:
        """Write a snapshot as `write_snapshot` does; a device that refuses is told, no more.

        For whoever wants a shorter start, and can do without.
        """
        try:
            self.write_snapshot(offset)
        except OSError as error:
            logger.warning("producer_snapshot_not_written offset=%d reason=%s", offset, error)

    def sync_snapshot(self, offset: int) -> None:
        """Return when the snapshot for `offset`, if there is one, is on the device; any thread.

        Raises:
            OSError: the device failed.
        """
        try:
            file = self._files.open(snapshot_path(self._directory, offset))
        except FileNotFoundError:
            return  # None was due, or it has left service meanwhile.
        try:
            file.sync()
        finally:
            file.close()

    def remove_snapshots_before(self, offset: int) -> list[str]:
        """Take the snapshots below `offset` out of service; the files there are, for the caller."""
        return self._retire(each for each in self._snapshots if each < offset)

    def remove_snapshots_at(self, offsets: Iterable[int]) -> list[str]:
        """Take the snapshots for these offsets out of service; the files there are, for the caller.

        For segments that go in the middle of a log: without them no start begins at their offset.
        """
        return self._retire(each for each in sorted(offsets) if each in self._snapshots)

    def reload(self, segments: Segments, *, log_start: int, log_end: int) -> None:
        """Bring the state to that at the log end, from the newest sound snapshot and the batches.

        For a start, and after the log was cut: `segments` end at `log_end` already. Of each
        producer that comes from the snapshot only the last batch is known. Transactions that ended
        behind the snapshot count as unreplicated until `advance_high_watermark` is called; those
        that ended before it count as replicated, as in Kafka, whose snapshots do not have them.

            snapshots 10, 20, 30   reload(log_start=10, log_end=25)   20, and a replay of 20 to 24

        Snapshots that are damaged, behind the log end, or not behind the log start are removed,
        and those that are neither the newest nor at a segment's base offset. Where the replay comes
        by the start of one of the last two segments, it gets one, as in Kafka. A segment that is
        damaged is replayed up to the damage, and the operator is told.

        Raises:
            OSError: a file cannot be read or removed; call again, or open the log anew.
        """
        bases = {segment.base_offset for segment in segments}
        found: dict[int, KnownProducer] | None = None
        start = log_start
        kept = []
        is_tail_lost = False
        for offset in reversed(list_snapshots(self._files, self._directory)):
            path = snapshot_path(self._directory, offset)
            is_of_log = log_start < offset <= log_end
            if is_of_log and found is None:
                try:
                    found, start = _read_state(self._files, path, offset=offset), offset
                    kept.append(offset)
                    continue
                except CorruptionError as error:
                    logger.warning("producer_snapshot_removed reason=%s", error)
            elif is_of_log and offset in bases:
                kept.append(offset)
                continue
            self._files.remove(path)
            is_tail_lost = is_tail_lost or offset > log_end
        if is_tail_lost:
            # Should its name come back after a crash, it would pass for the state of other batches
            # that have got its offsets by then.
            self._files.sync_directory(self._directory)
        self._reset(found or {}, snapshots=sorted(kept), start=start)
        due = sorted(bases)[-2:]
        for segment in segments.from_offset(start):
            if segment.base_offset >= log_end:
                break
            if segment.base_offset in due:
                self.offer_snapshot(segment.base_offset)
            self._replay(segment, start, log_end=log_end)

    def truncate_fully(self, offset: int) -> None:
        """Forget everything and remove all snapshots: the log begins anew at `offset`.

        Raises:
            OSError: a snapshot cannot be removed; call again.
        """
        self._reset({}, snapshots=self._snapshots, start=offset)
        for each in list_snapshots(self._files, self._directory):
            self._files.remove(snapshot_path(self._directory, each))
        self._files.sync_directory(self._directory)
        self._snapshots = []

    def _reset(
        self, producers: dict[int, KnownProducer], *, snapshots: list[int], start: int
    ) -> None:
        self._producers = producers
        self._open = dict(
            sorted(
                (known.transaction_start, producer_id)
                for producer_id, known in producers.items()
                if known.has_open_transaction
            )
        )
        self._unreplicated = []
        self._snapshots = snapshots
        self._snapshot_offset = start

    def _replay(self, segment: Segment, offset: int, *, log_end: int) -> None:
        """Note the batches of a segment from `offset` on, without any check of sequences.

        Of data batches only the header is read.
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
            # A segment that was trusted. Its readers will meet the damage; writers can go on.
            logger.warning("producers_incomplete path=%s reason=%s", segment.log.path, error)

    def _retire(self, offsets: Iterable[int]) -> list[str]:
        going = list(offsets)
        self._snapshots = [each for each in self._snapshots if each not in going]
        paths = [snapshot_path(self._directory, each) for each in going]
        return [path for path in paths if self._files.exists(path)]


def open_producers(
    files: Files,
    directory: str,
    *,
    segments: Segments,
    log_start: int,
    log_end: int,
    expiration_ms: int = EXPIRATION_MS,
) -> ProducerStates:
    """The state at the log end, as `ProducerStates.reload` finds it.

    Raises:
        OSError: a file cannot be read or removed.
    """
    states = ProducerStates(files, directory, expiration_ms=expiration_ms)
    states.reload(segments, log_start=log_start, log_end=log_end)
    return states


def _read_state(files: Files, path: str, *, offset: int) -> dict[int, KnownProducer]:
    """The producers of a snapshot that can be the state just before `offset`."""
    found = read_snapshot(files, path)
    starts = [known.transaction_start for known in found.values() if known.has_open_transaction]
    newest = max((known.last_offset for known in found.values()), default=NONE)
    if max([newest, *starts]) >= offset:
        raise CorruptionError(f"it knows of offsets from {offset} on", path=path)
    if len(set(starts)) < len(starts):
        raise CorruptionError("two transactions begin at one offset", path=path)
    return found


def _check_sequence(batch: Batch, known: KnownProducer) -> KnownBatch | None:
    """The batch that a client repeats, or None if this one follows on the last."""
    first, epoch = batch.base_sequence, batch.producer_epoch
    expected = 0
    if epoch == known.epoch:
        expected = (known.last_sequence + 1) & SEQUENCE_MAX
    if epoch >= known.epoch and first == expected:
        return None
    _check_epoch(batch, known, AppendOrigin.CLIENT)
    if epoch == known.epoch and first >= 0:
        last = batch.last_sequence
        for each in known.batches:
            if each.last_sequence == last and each.first_sequence == first:
                return each
    raise OutOfOrderSequenceError(batch.producer_id, sequence=first, expected=expected)


def _check_epoch(batch: Batch, known: KnownProducer, origin: AppendOrigin) -> None:
    if batch.producer_epoch < known.epoch:
        error = InvalidProducerEpochError(
            batch.producer_id, epoch=batch.producer_epoch, known_epoch=known.epoch
        )
        _refuse(error, origin)


def _check_marker(batch: Batch, known: KnownProducer, origin: AppendOrigin) -> None:
    marker = end_transaction_marker_or_none(batch)
    if marker is None:
        return
    _check_epoch(batch, known, origin)
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
