"""What one log knows of its idempotent producers, in memory and in snapshots (KIP-98).

A producer numbers its records per partition. By the last five batches of each producer the log
tells a batch that was sent again, which it acknowledges and does not append, from one that leaves
a gap, which it refuses. Five, since a client has at most that many requests under way.

    00000000000000000170.snapshot       the state just before offset 170; big endian

     0   2  version             1
     2   4  CRC-32C             of everything from byte 6 on
     6   4  number of entries
    10  46  for each producer:
             0   8  producer id
             8   2  epoch
            10   4  last sequence       of the last batch; -1 if there is none
            14   8  last offset         -1 if there is none
            22   4  offset delta        from the first offset of that batch to its last
            26   8  timestamp           largest of that batch, or of the last marker, in ms
            34   4  coordinator epoch   -1 without transactions
            38   8  first offset of the open transaction, or -1

What is not here: transactions. Their two fields are kept as a snapshot of Kafka's has them.

Invariant: a snapshot is a shortcut. All state follows from the batches in the log, so a snapshot
that is missing or torn costs a longer start and nothing else.
"""

import logging
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from tailrace.errors import CorruptionError, FatalError
from tailrace.records.batch import Batch
from tailrace.records.layout import SEQUENCE_MAX
from tailrace.runtime.files import Files
from tailrace.storage.names import (
    SNAPSHOT_SUFFIX,
    parse_segment_file_name,
    segment_file_name,
)
from tailrace.storage.segments import Segments

logger = logging.getLogger(__name__)

BATCHES_KEPT: Final = 5
"""Of each producer."""

EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
"""For how long an idle producer is remembered: Kafka's default of `producer.id.expiration.ms`."""

SNAPSHOT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Five million producers; a larger file is not read, and the state is rebuilt from the log."""

_VERSION: Final = 1
_HEADER: Final = Struct(">hIi")
_CRC_START: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")
_NONE: Final = -1


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


class KnownBatch(NamedTuple):
    """A batch of a producer that is in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """From the first offset to the last."""
    timestamp: int
    """Largest timestamp in milliseconds; the broker's on a topic with LogAppendTime."""

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record; a batch may run across 2147483647, to 0."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class KnownProducer(NamedTuple):
    """What the log knows of one producer id."""

    epoch: int
    batches: tuple[KnownBatch, ...]
    """At most five, the newest last; none if only a marker is known."""
    timestamp: int
    """Of the newest batch or marker, in milliseconds."""
    coordinator_epoch: int = _NONE
    transaction_start: int = _NONE
    seen_ms: int = _NONE
    """The broker's clock at the last append; -1 for a producer that was read at the start."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, or -1."""
        return self.batches[-1].last_sequence if self.batches else _NONE


class ProducerStates:
    """The producers of one log; `open_producers` makes it.

    To check changes nothing: the caller notes a batch once it is in the log.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        producers: dict[int, KnownProducer],
        snapshot_offset: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._producers = producers
        self._snapshot_offset = snapshot_offset

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> KnownProducer | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def check(self, batch: Batch) -> KnownBatch | None:
        """The batch of the log that `batch` repeats, or None if it may be appended.

        For batches of idempotent producers only. One of an unknown producer may begin anywhere,
        since the log may have forgotten it.

        Raises:
            InvalidProducerEpochError: the log has a newer epoch of the producer.
            OutOfOrderSequenceError: it does not follow on the last batch, or does not begin at
                sequence 0 in a new epoch.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:
            return None
        first, epoch = batch.base_sequence, batch.producer_epoch
        expected = 0
        if epoch == known.epoch:
            expected = (known.last_sequence + 1) & SEQUENCE_MAX
        if epoch >= known.epoch and first == expected:
            return None
        if epoch < known.epoch:
            raise InvalidProducerEpochError(batch.producer_id, epoch=epoch, known_epoch=known.epoch)
        if epoch == known.epoch:
            last = batch.last_sequence
            for each in known.batches:
                if each.last_sequence == last and each.first_sequence == first:
                    return each
        raise OutOfOrderSequenceError(batch.producer_id, sequence=first, expected=expected)

    def note(self, batch: Batch, *, last_offset: int, timestamp: int, now_ms: int = _NONE) -> None:
        """Remember a batch that is in the log now, under the offset and timestamp it got."""
        added = KnownBatch(batch.last_sequence, last_offset, batch.last_offset_delta, timestamp)
        known = self._producers.get(batch.producer_id)
        batches: tuple[KnownBatch, ...] = (added,)
        coordinator_epoch = transaction_start = _NONE
        if known is not None:
            coordinator_epoch = known.coordinator_epoch
            transaction_start = known.transaction_start
            if known.epoch == batch.producer_epoch:
                batches = (*known.batches[1 - BATCHES_KEPT :], added)
        self._producers[batch.producer_id] = KnownProducer(
            batch.producer_epoch, batches, timestamp, coordinator_epoch, transaction_start, now_ms
        )

    def expire(self, now_ms: int) -> None:
        """Forget producers without an append for a day, unless they have a transaction open.

        Kafka takes the age from the record timestamps, which would forget a producer of old data
        between two of its batches. Here it is the broker's clock; for producers that were known
        at the start it begins with the first call.
        """
        self._producers = {
            producer_id: known if known.seen_ms != _NONE else known._replace(seen_ms=now_ms)
            for producer_id, known in self._producers.items()
            if known.seen_ms == _NONE
            or now_ms - known.seen_ms < EXPIRATION_MS
            or known.transaction_start != _NONE
        }

    def write_snapshot(self, offset: int, *, is_synced: bool = False) -> None:
        """Write the state as that before `offset`, the log end; nothing if there is one for it.

        A device that refuses is reported in the log only, since the state can be rebuilt.
        """
        if offset == self._snapshot_offset:
            return
        path = f"{self._directory}/{segment_file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            file = self._files.open(path, create=True)
            try:
                file.resize(0)
                file.write(0, encode_snapshot(self._producers))
                if is_synced:
                    file.sync()
            finally:
                file.close()
        except OSError as error:
            logger.warning("producer_snapshot_failed path=%s reason=%s", path, error)
            return
        self._snapshot_offset = offset


def open_producers(
    files: Files, directory: str, *, segments: Segments, log_start: int, log_end: int
) -> ProducerStates:
    """The state at the log end: from the newest sound snapshot and the batches behind it.

    Snapshots that are damaged or outside of the log are removed, and those that are neither the
    newest nor at a segment's base offset.

    Raises:
        OSError: a file cannot be read or removed.
    """
    bases = {segment.base_offset for segment in segments}
    found: dict[int, KnownProducer] | None = None
    start = log_start
    is_tail_lost = False
    for offset in sorted(_snapshot_offsets(files, directory), reverse=True):
        path = f"{directory}/{segment_file_name(offset, SNAPSHOT_SUFFIX)}"
        is_of_log = log_start <= offset <= log_end
        if is_of_log and found is None:
            try:
                found, start = read_snapshot(files, path), offset
                continue
            except CorruptionError as error:
                logger.warning("producer_snapshot_removed reason=%s", error)
        elif is_of_log and offset in bases:
            continue
        files.remove(path)
        is_tail_lost = is_tail_lost or offset > log_end
    if is_tail_lost:
        # Should its name come back after a crash, it would pass for the state of other batches
        # that have got its offsets by then.
        files.sync_directory(directory)
    states = ProducerStates(files, directory, producers=found or {}, snapshot_offset=start)
    if start < log_end:
        _replay(states, segments, start)
    return states


def read_snapshot(files: Files, path: str) -> dict[int, KnownProducer]:
    """The producers in a snapshot, each with its last batch only.

    Raises:
        CorruptionError: the file is not a whole snapshot of version 1.
        OSError: it cannot be read.
    """
    file = files.open(path, read_only=True)
    try:
        size = file.size()
        if size > SNAPSHOT_BYTES_MAX:
            raise CorruptionError(f"{size} bytes are too many for a snapshot", path=path)
        return decode_snapshot(file.read(0, size))
    except CorruptionError as error:
        raise error.located(path=path) from error
    finally:
        file.close()


def decode_snapshot(data: bytes) -> dict[int, KnownProducer]:
    """The producers in the bytes of a snapshot.

    Raises:
        CorruptionError: another version or size, a CRC that does not hold, a negative number.
    """
    if len(data) < _HEADER.size:
        raise CorruptionError(f"{len(data)} bytes are too few for a snapshot")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptionError(f"the snapshot has version {version}, not {_VERSION}")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptionError(f"{count} entries do not make {len(data)} bytes")
    computed = crc32c.crc32c(memoryview(data)[_CRC_START:])
    if computed != crc:
        raise CorruptionError(f"the stored CRC-32C is {crc}, the bytes have {computed}")
    producers = {}
    for entry in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, transaction = entry
        if producer_id < 0 or delta < 0 or sequence < _NONE:
            raise CorruptionError(f"producer {producer_id}: sequence {sequence}, delta {delta}")
        last = KnownBatch(sequence, offset, delta, timestamp)
        producers[producer_id] = KnownProducer(
            epoch, (last,) if offset >= 0 else (), timestamp, coordinator, transaction
        )
    return producers


def encode_snapshot(producers: dict[int, KnownProducer]) -> bytes:
    """The bytes of a snapshot."""
    nothing = KnownBatch(_NONE, _NONE, 0, _NONE)
    entries = []
    for producer_id, known in producers.items():
        last = known.batches[-1] if known.batches else nothing
        entries.append(
            _ENTRY.pack(
                producer_id,
                known.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                known.timestamp,
                known.coordinator_epoch,
                known.transaction_start,
            )
        )
    data = bytearray(_HEADER.pack(_VERSION, 0, len(entries)) + b"".join(entries))
    _HEADER.pack_into(data, 0, _VERSION, crc32c.crc32c(memoryview(data)[_CRC_START:]), len(entries))
    return bytes(data)


def _snapshot_offsets(files: Files, directory: str) -> list[int]:
    parsed = [parse_segment_file_name(name) for name in files.list(directory)]
    return [each[0] for each in parsed if each is not None and each[1] == SNAPSHOT_SUFFIX]


def _replay(states: ProducerStates, segments: Segments, offset: int) -> None:
    """Note the batches from `offset` on, by their headers and without any check."""
    for segment in segments.from_offset(offset):
        try:
            for _, batch in segment.batches(offset):
                if batch.producer_id >= 0 and batch.base_sequence >= 0 and not batch.is_control:
                    states.note(batch, last_offset=batch.last_offset, timestamp=batch.max_timestamp)
        except CorruptionError as error:
            # A segment that was trusted. Its readers will meet the damage; writers can go on.
            logger.warning("producers_incomplete path=%s reason=%s", segment.log.path, error)
