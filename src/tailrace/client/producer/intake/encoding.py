"""Encodes lists of records as one v2 batch, and estimates the size of batches.

Pure Python encodes a record in a third of a microsecond, which is hard to beat for few records.
From `KERNEL_RECORDS_MIN` records on, the compiled kernel is called, once it is loaded.

Not here: records that come as Arrow or other columns (`columns`). numpy is imported only where the
kernel, which needs it, is loaded.

Invariant: Python and kernel give the same bytes, those of `BatchBuilder` for the same records.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace import kernels
from tailrace.client.producer.intake.record import Header
from tailrace.kernels.encoding import encode_records
from tailrace.model import NO_LEADER_EPOCH, NO_PRODUCER_ID, Codec
from tailrace.records import layout, packages
from tailrace.records.builder import RECORD_OVERHEAD_MAX, zigzag
from tailrace.records.codecs import compress

if TYPE_CHECKING:
    from tailrace.kernels.arrays import Int64s

BATCH_OVERHEAD: Final = layout.HEADER_SIZE
"""Bytes of a batch in addition to its records."""

RECORD_OVERHEAD: Final = 14
"""Most bytes that a record without key, headers and timestamp adds to its value.

One each for the attributes, the null key and the number of headers; three each for the length, the
value size and the timestamp delta; two for the offset delta. An offset delta takes three bytes only
after 8192 records, and so many records in one batch are so small that their length or value size
takes two at most, which makes up for it. This holds in batches of at most 1 MiB whose timestamps
are less than 2**20 ms (17 minutes) from the first one.
"""

KEY_OVERHEAD: Final = 2
"""Bytes that a key adds to its own length."""

TIMESTAMP_OVERHEAD: Final = 7
"""Bytes that a timestamp given by the caller adds, since it may be far from the first one."""

KERNEL_RECORDS_MIN: Final = 20
"""From so many records on, the compiled kernel is faster than Python, its call included."""

_RECORDS_PER_WALKED: Final = 5
"""Records that Python encodes in the time in which it decodes one."""

_HEADER_NAMES: Final = 256
"""Names of headers whose encoding is kept: programs have a few."""

_TABLE_SIZE: Final = 2048
_VARINTS: Final = [zigzag(number) for number in range(_TABLE_SIZE)]
_NULL: Final = zigzag(-1)
_DELTAS: Final = [b"\0" + number for number in _VARINTS]
"""Encoded attributes and timestamp delta of a record, by the delta."""
_OFFSETS: Final = [number + _NULL for number in _VARINTS]
"""Encoded offset delta and null key of a record, by the delta."""


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

    `headers` are encoded. `has_timestamp` says that the caller has given a timestamp, which may be
    far from the others.
    """
    size = RECORD_OVERHEAD + (0 if value is None else len(value))
    if key is not None:
        size += KEY_OVERHEAD + len(key)
    size += len(headers)
    return size + TIMESTAMP_OVERHEAD if has_timestamp else size


def encode_batch(
    values: Sequence[bytes | None],
    times: Sequence[float],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Mapping[int, bytes] | None = None,
    explicit: Mapping[int, int] | None = None,
    fields: BatchFields,
    block: bytearray | memoryview,
) -> memoryview:
    """The encoded batch of at least one record.

    It is written to the start of `block` if it fits there, and else to new memory. `times` are wall
    clock seconds at `send`; `explicit` has timestamps (ms, from -1 on) that replace them, and
    `headers` the encoded headers, both by record index.
    """
    count = len(values)
    if count >= KERNEL_RECORDS_MIN and encode_records.is_compiled:
        return _encode_compiled(
            values, times, keys=keys, headers=headers, explicit=explicit, fields=fields, block=block
        )
    timestamps = [int(time * 1000) for time in times]
    for index, timestamp in (explicit or {}).items():
        timestamps[index] = timestamp
    records = _encode_plain(values, timestamps, keys=keys, headers=headers)
    if count >= KERNEL_RECORDS_MIN:
        kernels.add_plain_records(count // _RECORDS_PER_WALKED)
    end = BATCH_OVERHEAD + len(records)
    view = with_room(block, end)
    view[BATCH_OVERHEAD:end] = records
    return seal(
        view, end, fields=fields, count=count,
        base_timestamp=timestamps[0], max_timestamp=max(timestamps),
    )  # fmt: skip


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
) -> memoryview:
    """Compress the records in `view[BATCH_OVERHEAD:end]`, add the header, and return the batch."""
    if fields.codec:
        packed = compress(fields.codec, view[BATCH_OVERHEAD:end], fields.level)
        end = BATCH_OVERHEAD + len(packed)
        view = with_room(view, end)
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
    crc = packages.crc32c.crc32c(view[layout.ATTRIBUTES_POSITION : end])
    layout.CRC.pack_into(view, layout.CRC_POSITION, crc)
    return view[:end]


def encode_headers(headers: Sequence[Header]) -> bytes:
    """The encoded header count and headers of a record."""
    fields = [_varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        fields += (_varint(len(encoded)), encoded)
        fields += (_NULL,) if content is None else (_varint(len(content)), content)
    return b"".join(fields)


def encode_plain_headers(headers: object) -> bytes | None:
    """The same for headers of the common types, several times as fast; None for all others.

    These are a list, tuple or dict of names and contents, each a `str` and bytes or None.

    Raises:
        UnicodeEncodeError: a name cannot be written as UTF-8.
    """
    pairs: Any = headers
    if type(headers) is dict:
        pairs = headers.items()
    elif type(headers) is not list and type(headers) is not tuple:
        return None
    parts = [_varint(len(pairs))]
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != 2:
            return None
        name, content = pair
        if type(name) is not str:
            return None
        if type(content) is bytes:
            parts += (_header_name(name), _varint(len(content)), content)
        elif content is None:
            parts += (_header_name(name), _NULL)
        else:
            return None
    return b"".join(parts)


@lru_cache(_HEADER_NAMES)
def _header_name(name: str) -> bytes:
    encoded = name.encode()
    return _varint(len(encoded)) + encoded


def column_of(items: Sequence[bytes | None]) -> "tuple[bytes, Int64s]":
    """The data and the ends of a column of binaries; see `tailrace.kernels.encoding`.

    Raises:
        TypeError: an item is neither bytes nor None.
    """
    import numpy as np

    try:
        data = b"".join(items)  # type: ignore[arg-type]
        sizes: Iterator[int] = map(len, items)  # type: ignore[arg-type]
    except TypeError:
        data = b"".join([item for item in items if item is not None])
        sizes = (0 if item is None else len(item) for item in items)
    ends = np.fromiter(accumulate(sizes, initial=0), np.int64, len(items) + 1)
    if None in items:
        nulls = [index for index, item in enumerate(items, 1) if item is None]
        ends[nulls] = ~ends[nulls]
    return data, ends


def _encode_plain(
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    *,
    keys: Sequence[bytes | None] | None,
    headers: Mapping[int, bytes] | None,
) -> bytes:
    base = timestamps[0]
    if keys is None and not headers and min(timestamps) == base:
        try:
            return _encode_values(values, [_DELTAS[each - base] for each in timestamps])
        except (IndexError, TypeError):
            pass  # a size or a delta is larger than the tables, or a value is null
    parts: list[bytes] = []
    columns = zip(values, timestamps, keys or repeat(None), strict=False)
    for index, (value, timestamp, key) in enumerate(columns):
        body = b"".join(
            (
                b"\0",
                _varint(timestamp - base),
                _varint(index),
                *((_NULL,) if key is None else (_varint(len(key)), key)),
                *((_NULL,) if value is None else (_varint(len(value)), value)),
                headers[index] if headers and index in headers else b"\0",
            )
        )
        parts += (_varint(len(body)), body)
    return b"".join(parts)


def _encode_values(values: Sequence[bytes | None], deltas: Sequence[bytes]) -> bytes:
    """Encode records without key and headers; raises IndexError for sizes beyond the tables."""
    parts: list[bytes] = []
    offsets = _OFFSETS
    if len(values) > _TABLE_SIZE:
        offsets = [zigzag(index) + _NULL for index in range(len(values))]
    for value, delta, offset in zip(values, deltas, offsets, strict=False):
        size = _VARINTS[len(value)]  # type: ignore[arg-type]
        length = _VARINTS[len(delta) + len(offset) + len(size) + len(value) + 1]  # type: ignore[arg-type]
        parts += (length, delta, offset, size, value, b"\0")  # type: ignore[arg-type]
    return b"".join(parts)


def _encode_compiled(
    values: Sequence[bytes | None],
    times: Sequence[float],
    *,
    keys: Sequence[bytes | None] | None,
    headers: Mapping[int, bytes] | None,
    explicit: Mapping[int, int] | None,
    fields: BatchFields,
    block: bytearray | memoryview,
) -> memoryview:
    import numpy as np

    count = len(values)
    absent = np.empty(0, np.int64)
    timestamps = (np.array(times) * 1000).astype(np.int64)
    for index, timestamp in (explicit or {}).items():
        timestamps[index] = timestamp
    base = int(timestamps[0])
    value_data, value_ends = column_of(values)
    key_data, key_ends = (b"", absent) if keys is None else column_of(keys)
    header_data, header_ends = b"", absent
    if headers:
        encoded = [b""] * count
        for index, each in headers.items():
            encoded[index] = each
        header_data, header_ends = column_of(encoded)
    size = len(value_data) + len(key_data) + len(header_data) + count * RECORD_OVERHEAD_MAX
    end = -1
    view = memoryview(block)
    while end < 0:
        end = encode_records(
            value_data, value_ends, key_data, key_ends, header_data, header_ends,
            timestamps, base, absent, 0, count, view, BATCH_OVERHEAD,
        )  # fmt: skip
        if end < 0:
            view = memoryview(bytearray(BATCH_OVERHEAD + size))
    return seal(
        view, end, fields=fields, count=count,
        base_timestamp=base, max_timestamp=int(timestamps.max()),
    )  # fmt: skip


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < _TABLE_SIZE else zigzag(number)


class CompressionRatios:
    """Estimated compression ratio of each topic, computed as in Kafka's clients."""

    _BETTER_STEP: Final = 0.005
    _WORSE_STEP: Final = 0.05

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Codec], float] = {}

    def estimate(self, topic: str, codec: Codec) -> float:
        """The expected compressed size of a batch divided by its size before compression."""
        return self._ratios.get((topic, codec), 1.0)

    def observe(self, topic: str, codec: Codec, ratio: float) -> None:
        """Note the ratio of a batch.

        A worse one raises the estimate at once, by at least 0.05; a better one lowers it by at most
        0.005.
        """
        known = self.estimate(topic, codec)
        if ratio > known:
            known = max(known + self._WORSE_STEP, ratio)
        elif ratio < known:
            known = max(known - self._BETTER_STEP, ratio)
        self._ratios[topic, codec] = known

    def reset(self, topic: str, codec: Codec, ratio: float) -> None:
        """Restart at 1.0, or at `ratio` if that is more, after a batch was too large."""
        self._ratios[topic, codec] = max(1.0, ratio)
