"""Completes batches, and says how large records are in them.

Records are written as they are in the log when they come (`kernels.record_block`). What is left for
the moment at which a batch is sent is its header (`seal`), and the compression.

Not here: records that come as Arrow or other columns (`columns`), and numpy.
"""

from typing import Final, NamedTuple

from tailrace.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, Codec
from tailrace.records import layout, packages
from tailrace.records.builder import RECORD_OVERHEAD_MAX
from tailrace.records.codecs import compress

BATCH_OVERHEAD: Final = layout.HEADER_SIZE
"""Bytes of a batch in addition to its records."""

RECORD_OVERHEAD: Final = 14
"""Most bytes that a record without key, headers and timestamp adds to its value.

One each for the attributes, the null key and the number of headers; three each for the length, the
value size and the timestamp delta; two for the offset delta. An offset delta takes three bytes only
after 8192 records, and that many records in one batch are so small that their length or value size
takes two at most, which makes up for it. This holds in batches of at most 1 MiB whose timestamps
are less than 2**20 ms (17 minutes) from the first one.
"""

BATCH_SIZE_TIGHT: Final = 1 << 20
"""Largest batch for which `RECORD_OVERHEAD` is stated."""

KEY_OVERHEAD: Final = 2
"""Bytes that a key adds to its own length."""

TIMESTAMP_OVERHEAD: Final = 7
"""Bytes that a timestamp given by the caller adds, since it may be far from the first one."""


class BatchFields(NamedTuple):
    """Fields of a batch header that do not follow from its records."""

    codec: Codec = Codec.NONE
    level: int | None = None
    """Kafka's compression level; None for the codec's default. Not part of the header."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


def record_size_bound(
    key: bytes | None,
    value: bytes | None,
    headers: bytes = b"",
    *,
    has_timestamp: bool = False,
) -> int:
    """Upper bound of the record's bytes in a batch; see `RECORD_OVERHEAD` for the conditions.

    It holds for the first record of every batch.

    `headers` are encoded. `has_timestamp` says that the caller has given a timestamp, which may be
    far from the others.
    """
    size = RECORD_OVERHEAD + (0 if value is None else len(value))
    if key is not None:
        size += KEY_OVERHEAD + len(key)
    size += len(headers)
    if has_timestamp:
        size += TIMESTAMP_OVERHEAD
    if size > BATCH_SIZE_TIGHT:
        size += RECORD_OVERHEAD_MAX - RECORD_OVERHEAD
    return size


def with_room(block: bytearray | memoryview, size: int) -> memoryview:
    """A view of `block` if it has at least `size` bytes, else of new memory."""
    return memoryview(block if len(block) >= size else bytearray(size))


def seal(
    view: memoryview,
    end: int,
    *,
    fields: BatchFields,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    keeps_records: bool = False,
) -> memoryview:
    """Compress the records in `view[BATCH_OVERHEAD:end]`, add the header, and return the batch.

    With `keeps_records`, compressed records do not overwrite those in `view`.
    """
    # Kafka's format compresses the records alone; header and checksum stay readable.
    if fields.codec:
        packed = compress(fields.codec, view[BATCH_OVERHEAD:end], fields.level)
        end = BATCH_OVERHEAD + len(packed)
        view = with_room(bytearray() if keeps_records else view, end)
        view[BATCH_OVERHEAD:end] = packed
    layout.HEADER.pack_into(
        view,
        0,
        0,
        end - layout.LOG_OVERHEAD,
        NO_LEADER_EPOCH,
        layout.MAGIC,
        0,
        fields.codec | (layout.TRANSACTIONAL_FLAG if fields.is_transactional else 0),
        count - 1,
        base_timestamp,
        max_timestamp,
        fields.producer_id,
        fields.producer_epoch,
        fields.base_sequence,
        count,
    )
    # The checksum covers what no broker changes: base offset and leader epoch come before it.
    crc = packages.crc32c.crc32c(view[layout.ATTRIBUTES_POSITION : end])
    layout.CRC.pack_into(view, layout.CRC_POSITION, crc)
    return view[:end]
