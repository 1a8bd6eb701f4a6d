"""Find where sound batches begin again in a log file, with no index and whatever the bytes are.

    | sound | #### damage ####  | B1 | B2 | B3 | ## more damage ## | C1 | C2 | C3 | ... end
              every position      <- a chain ->                      <- a chain ->

Every position is tried, in all three formats: a header whose offset and length are possible here,
then its checksum. A batch with the right checksum and those that follow it directly are a chain.
What a producer has sent as the value of a record may be a chain too, of another log. So

1.  a chain is believed if it leads to the end of the file (or `_PROVEN_BYTES` far): a record's
    value ends inside of the batch around it;
2.  any other chain has to lie, as a whole, above the offset that is due, since the damaged bytes
    before it had at least one record; and where a header at the start of the damage is still
    plausible and claims the bytes of the chain, above the offsets that it claims;
3.  no chain counts that is as long as the size before it says, which is how a value is stored;
4.  of two chains whose offsets contradict each other, the one that leads to the end counts, else
    the longer one.

A value that meets all of these is taken for what it claims to be. Nothing inside of a sound batch
is ever looked at.

Checksums of overlapping ranges are worked out from those of blocks (`records.range_checksums`), and
a chain is read once for each decision: the time is linear in the bytes, also in hostile ones.
"""

import re
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from tailrace.config.settings import INT32_MAX
from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.records import layout, packages
from tailrace.records.batch import BATCH_SIZE_MAX
from tailrace.records.range_checksums import RangeChecksums
from tailrace.runtime.files import File
from tailrace.storage.set_aside import is_blank
from tailrace.storage.walk import WINDOW_BYTES, walk_batches

# No record is believed to be that large, so a chain of this length is no value.
_PROVEN_BYTES: Final = 64 * 1024 * 1024

_CODECS: Final = 5
_VARINT_SIZE_MAX: Final = 5
_LENGTH_FIELD_LIMIT: Final = layout.LENGTH_POSITION + layout.LENGTH.size
_NOT_ZERO: Final = re.compile(rb"[^\x00]")


class Claim(NamedTuple):
    """The fields of a plausible header of a batch, whose checksum nobody has looked at."""

    position: Position
    end: Position
    base_offset: Offset
    next_offset: Offset
    records: int | None
    """None if the header does not tell, as that of a wrapper of format v0 or v1."""
    magic: int
    crc: int
    is_compressed: bool


class _Chain(NamedTuple):
    """Batches with right checksums that follow each other directly."""

    position: Position
    end: Position
    base_offset: Offset
    next_offset: Offset
    due_position: Position | None
    """Position of the first batch that is not below the offset that is due; None without one."""
    is_proven: bool


def find_resumption(
    file: File, path: str, *, start: Position, size: int, offsets: range, claim: Claim | None
) -> Position:
    """Position of the next batch that counts, from `start` on; `size` if there is none.

    `offsets` begins with the offset that is due and ends where the next segment begins. `claim` is
    the header at the start of the damage, if it is plausible.

    Raises:
        OSError: the file cannot be read.
    """
    held: _Chain | None = None
    for chain in _chains(file, path, start=start, size=size, offsets=offsets):
        if _is_value(file, path, chain, size=size):
            continue
        if chain.is_proven:
            if held is not None and held.next_offset <= chain.base_offset:
                return held.position
            if chain.due_position is not None:
                return chain.due_position
            continue
        is_claimed = claim is not None and chain.end <= claim.end
        least = claim.next_offset if claim is not None and is_claimed else offsets.start + 1
        if chain.base_offset < least:
            continue
        if held is not None and held.next_offset <= chain.base_offset:
            return held.position
        if held is None or chain.end - chain.position > held.end - held.position:
            held = chain
    return Position(size) if held is None else held.position


def read_claim(file: File, position: int, *, size: int, offsets: range) -> Claim | None:
    """The header at a position, if it is plausible there.

    Raises:
        OSError: the file cannot be read.
    """
    data = file.read(position, min(layout.HEADER_SIZE, size - position))
    return _claim_in(data, 0, position=position, size=size, offsets=offsets)


def is_sound_at(file: File, path: str, claim: Claim) -> bool:
    """Whether the batch that a header claims is there, with the right checksum.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        for _, batch in walk_batches(file, path, start=claim.position, limit=claim.end):
            batch.check()
            return True
    except CorruptionError:
        pass
    return False


def _chains(
    file: File, path: str, *, start: Position, size: int, offsets: range
) -> Iterator[_Chain]:
    """Every chain from a position on, in the order of the file; none is inside of another."""
    # A chain of another log may begin below what is due and reach beyond: it is looked at whole.
    wanted = range(offsets.start >> 32 << 32, offsets.stop)
    of_v2 = RangeChecksums(file.read, packages.crc32c.crc32c, start=start)
    of_older = RangeChecksums(file.read, zlib.crc32, start=start)
    position = start
    while True:
        for claim in _claims(file, start=position, size=size, offsets=wanted):
            if claim.magic == layout.MAGIC:
                crc = of_v2.checksum(claim.position + layout.ATTRIBUTES_POSITION, claim.end)
            else:
                crc = of_older.checksum(claim.position + layout.MAGIC_POSITION, claim.end)
            if crc == claim.crc and is_sound_at(file, path, claim):
                break
        else:
            return
        chain = _chain_at(file, path, claim, size=size, offsets=offsets)
        yield chain
        position = chain.end


def _chain_at(file: File, path: str, first: Claim, *, size: int, offsets: range) -> _Chain:
    end, next_offset, before = first.end, first.next_offset, 0
    base_offset: Offset | None = None
    due_position: Position | None = None
    try:
        for at, batch in walk_batches(file, path, start=first.position, limit=size):
            batch.check()
            base_offset = batch.base_offset if base_offset is None else base_offset
            end = Position(at + batch.size)
            if due_position is None and batch.base_offset >= offsets.start:
                due_position = at
            # No checksum covers an offset, so a single one that does not fit is no end.
            if batch.base_offset >= next_offset:
                before, next_offset = next_offset, batch.next_offset
            elif batch.base_offset >= before:
                next_offset = batch.next_offset
            if end - first.position >= _PROVEN_BYTES:
                break
    except CorruptionError:
        pass
    is_proven = (
        end == size
        or end - first.position >= _PROVEN_BYTES
        # The few zeros at the end of a record may be the last bytes of the file.
        or (size - end >= layout.FRAME_SIZE and is_blank(file, path, start=end, limit=size))
    )
    base = first.base_offset if base_offset is None else base_offset
    return _Chain(first.position, end, base, next_offset, due_position, is_proven)


def _is_value(file: File, path: str, chain: _Chain, *, size: int) -> bool:
    """Whether the bytes before a chain are its own size, as the size of a record's value is stored.

    A value may end with zeros, as a preallocated segment does.
    """
    before = file.read(
        max(chain.position - _VARINT_SIZE_MAX, 0), min(_VARINT_SIZE_MAX, chain.position)
    )
    for stored in _sizes_before(before):
        rest = stored - (chain.end - chain.position)
        if rest == 0:
            return True
        limit = chain.end + rest
        if (
            0 < rest < size - chain.end
            and is_blank(file, path, start=chain.end, limit=limit)
            and any(file.read(limit, min(layout.FRAME_SIZE, size - limit)))
        ):
            return True
    return False


def _sizes_before(data: bytes) -> Iterator[int]:
    """Sizes that end with the last of these bytes: zigzag varints, and the 4 bytes of v0 and v1."""
    if len(data) >= layout.LENGTH.size:
        yield layout.LENGTH.unpack_from(data, len(data) - layout.LENGTH.size)[0]
    if not data or data[-1] >= 0x80:
        return
    number = 0
    for count, byte in enumerate(reversed(data)):
        if count and byte < 0x80:
            return
        number = number << 7 | byte & 0x7F
        if not number & 1:
            yield number >> 1


def _claims(file: File, *, start: Position, size: int, offsets: range) -> Iterator[Claim]:
    """Every plausible header from a position on."""
    pattern = _header_pattern(offsets.start >> 32, max(offsets.start, offsets.stop - 1) >> 32)
    position = start
    while size - position >= layout.FRAME_SIZE:
        data = file.read(position, min(WINDOW_BYTES, size - position))
        # At the end of the file a header may be shorter: that of an older format.
        is_last = position + len(data) >= size or len(data) < layout.HEADER_SIZE
        limit = len(data) - (layout.FRAME_SIZE if is_last else layout.HEADER_SIZE) + 1
        at = 0
        while at < limit:
            used = _NOT_ZERO.search(data, at)
            if used is None:
                break
            # The length of a batch is not 0, so a row of zeros is stepped over.
            at = max(at, used.start() - _LENGTH_FIELD_LIMIT + 1)
            match = pattern.search(data, at)
            if match is None or match.start() >= limit:
                break
            at = match.start()
            claim = _claim_in(data, at, position=position + at, size=size, offsets=offsets)
            if claim is not None:
                yield claim
            at += 1
        if is_last:
            return
        position = Position(position + limit)


@cache
def _header_pattern(first: int, last: int) -> re.Pattern[bytes]:
    """Matches the frame of a batch whose offset has one of two upper halves."""
    halves = {layout.CRC.pack(half) for half in (first, last)}
    starts = b"|".join(map(re.escape, sorted(halves)))
    # The length is neither negative nor less than the smallest, and the magic is one of three.
    return re.compile(
        rb"(?s)(?:" + starts + rb").{4}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{7}[\x00-\x02]"
    )


def _claim_in(data: bytes, at: int, *, position: int, size: int, offsets: range) -> Claim | None:
    """The header at `at` in `data`, where the file has it at `position`, if it is plausible."""
    if len(data) - at < layout.FRAME_SIZE:
        return None
    base, length, _, magic = layout.FRAME.unpack_from(data, at)
    end = position + length + layout.LOG_OVERHEAD
    if (
        base not in offsets
        or not layout.LENGTH_MIN <= length <= BATCH_SIZE_MAX
        or end > size
        or magic > layout.MAGIC
    ):
        return None
    if magic < layout.MAGIC:
        return _older_claim_in(data, at, position=position, end=end)
    if length < layout.HEADER_SIZE - layout.LOG_OVERHEAD or len(data) - at < layout.HEADER_SIZE:
        return None
    fields = layout.HEADER.unpack_from(data, at)
    crc, attributes, delta, count = fields[4], fields[5], fields[6], fields[12]
    if (
        not 0 <= delta <= INT32_MAX
        or base + delta not in offsets
        or count < 0
        or attributes & layout.CODEC_MASK >= _CODECS
    ):
        return None
    records = count if count <= delta + 1 else None
    return Claim(
        Position(position), Position(end), Offset(base), Offset(base + delta + 1),
        records, magic, crc, bool(attributes & layout.CODEC_MASK),
    )  # fmt: skip


def _older_claim_in(data: bytes, at: int, *, position: int, end: int) -> Claim | None:
    """A header of format v0 or v1, if the sizes of key and value add up to its length."""
    base, _, _, magic = layout.FRAME.unpack_from(data, at)
    (crc,) = layout.CRC.unpack_from(data, at + layout.LOG_OVERHEAD)
    sizes_at = at + layout.FRAME_SIZE + 1 + (8 if magic else 0)
    if sizes_at + layout.LENGTH.size > len(data):
        return None
    has_codec = bool(data[at + layout.FRAME_SIZE] & layout.CODEC_MASK)
    (key_size,) = layout.LENGTH.unpack_from(data, sizes_at)
    value_size_at = sizes_at + layout.LENGTH.size + max(key_size, 0)
    # Key and value are preceded by their sizes.
    rest = end - position - (value_size_at - at) - layout.LENGTH.size
    if key_size < -1 or rest < 0:
        return None
    if value_size_at + layout.LENGTH.size <= len(data):
        (value_size,) = layout.LENGTH.unpack_from(data, value_size_at)
        if value_size < -1 or max(value_size, 0) != rest:
            return None
    # Otherwise it is in the next window, and the checksum decides.
    return Claim(
        Position(position), Position(end), Offset(base), Offset(base + 1),
        None if has_codec else 1, magic, crc, has_codec,
    )  # fmt: skip
