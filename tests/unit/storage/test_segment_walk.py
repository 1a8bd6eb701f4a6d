"""`walk_segment`: what damage is, and where sound batches begin again."""

import random
import struct

import crc32c
import pytest

from tailrace.model import Offset
from tailrace.records import layout
from tailrace.storage import resync
from tailrace.storage.segment_walk import Damage, Fault, Sound, walk_segment
from tailrace.testing import MemoryFiles
from tests.naive import LegacyMessage, write_legacy
from tests.unit.storage.builders import NOW, batch

PATH = "00000000000000000000.log"


def stamped(offset: int, *values: bytes) -> bytes:
    """A batch that begins at an offset."""
    data = batch(*values)
    layout.BASE_OFFSET.pack_into(data, 0, offset)
    return bytes(data)


class CountedFile:
    """A log file in memory that counts the bytes that are read of it."""

    def __init__(self, content: bytes) -> None:
        files = MemoryFiles()
        self._file = files.open(PATH, create=True)
        self._file.write(0, content)
        self.bytes_read = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read(self, position: int, size: int) -> bytes:
        """Read as the file does."""
        data = self._file.read(position, size)
        self.bytes_read += len(data)
        return data


def walk(
    content: bytes, *, base: int = 0, following: int | None = None, reads_records: bool = True
) -> list[Sound | Damage]:
    """The walk over a whole file."""
    files = MemoryFiles()
    files.open(PATH, create=True).write(0, content)
    return list(
        walk_segment(
            files.open(PATH),
            PATH,
            base_offset=Offset(base),
            size=len(content),
            following=None if following is None else Offset(following),
            reads_records=reads_records,
        )
    )


def with_bad_records(data: bytes) -> bytes:
    """The batch with a wrong size of its first record, under the right checksum."""
    changed = bytearray(data)
    changed[layout.RECORDS_POSITION] ^= 0x02
    crc = crc32c.crc32c(bytes(changed[layout.ATTRIBUTES_POSITION :]))
    layout.CRC.pack_into(changed, layout.CRC_POSITION, crc)
    return bytes(changed)


def walked(content: bytes, *, base: int = 0) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets of the sound batches, and the damaged ranges."""
    offsets: list[int] = []
    ranges: list[tuple[int, int]] = []
    for found in walk(content, base=base):
        if isinstance(found, Damage):
            ranges.append((found.position, found.end))
        else:
            offsets += [batch.base_offset for _, batch in found.batches()]
    return offsets, ranges


def wiped(data: bytes, first: int, limit: int) -> bytes:
    """The same with zeros in a range."""
    return data[:first] + bytes(limit - first) + data[limit:]


SMALL = [stamped(each, b"value %d" % each) for each in range(40)]


def test_sound_batches_between_two_damages_are_found() -> None:
    """Nothing plausible need follow them: the next header may be gone as well."""
    size = len(SMALL[0])
    content = b"".join(SMALL[:9])
    content = wiped(content, 2 * size, 2 * size + 61)
    content = wiped(content, 5 * size, 5 * size + 61)
    content = content[: 7 * size] + random.Random(3).randbytes(61) + content[7 * size + 61 :]
    assert walked(content)[0] == [0, 1, 3, 4, 6, 8]


@pytest.mark.parametrize("magic", [0, 1])
def test_an_older_format_behind_a_newer_one_is_found(magic: int) -> None:
    """All formats are searched for, whatever the file has had so far."""
    older = [write_legacy(LegacyMessage(magic, each, b"k", b"v", NOW)) for each in (2, 3)]
    content = SMALL[0] + wiped(SMALL[1], 0, 30) + b"".join(older) + SMALL[4]
    assert walked(content)[0] == [0, 2, 3, 4]


NESTED = [stamped(each, b"forged", b"forged", b"forged") for each in range(0, 90, 3)]
"""A segment of another log, which begins at offset 0 as this one does."""


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("prefix", [b"", b"\0magic"])
@pytest.mark.parametrize("suffix", [b"", bytes(500), b"end"])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_segment_that_was_sent_as_a_value_is_not_read_as_the_log(
    first: int,
    prefix: bytes,
    suffix: bytes,
    is_last: bool,  # noqa: FBT001
) -> None:
    """Whatever is left of the header of the batch around it."""
    before = [stamped(each, b"v") for each in range(first)]
    value = prefix + b"".join(NESTED) + suffix
    outer = stamped(first, b"before", value, b"after")
    behind = [] if is_last else [stamped(first + 3, b"v")]
    start = sum(map(len, before))
    content = b"".join([*before, outer, *behind])
    expected = [*range(first), *([] if is_last else [first + 3])]
    for damage in (
        wiped(content, start, start + 61),
        wiped(content, start + 8, start + 12),
        wiped(content, start + 17, start + 21),
        content[: start + 62] + b"\xff" * 3 + content[start + 65 :],
    ):
        assert walked(damage)[0] == expected


def test_what_is_inside_of_a_sound_batch_is_never_read_as_the_log() -> None:
    """Damage right before and right after it changes nothing."""
    outer = stamped(5, b"".join(stamped(each, b"forged") for each in range(6, 20)))
    content = wiped(SMALL[0], 0, 30) + outer + wiped(SMALL[1], 0, 30) + stamped(25, b"v")
    assert walked(content)[0] == [5, 25]


def test_a_region_of_false_headers_takes_linear_time() -> None:
    """Each claims a batch that reaches to the end of the file, and no checksum is right."""
    count = 3000
    header = layout.HEADER.pack(1, 0, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1)
    false = bytearray(header * count)
    size = len(false) + 10 * len(SMALL[0])
    for number in range(count):
        at = number * len(header)
        struct.pack_into(">i", false, at + 8, size - at - 12 - len(SMALL[0]))
    content = wiped(SMALL[0], 0, 20) + bytes(false) + b"".join(SMALL[5:15])
    file = CountedFile(content)
    found = [
        batch.base_offset
        for each in walk_segment(
            file,  # type: ignore[arg-type]
            PATH,
            base_offset=Offset(0),
            size=len(content),
        )
        if isinstance(each, Sound)
        for _, batch in each.batches()
    ]
    assert found == list(range(5, 15))
    # Quadratic time would be 1500 times the file.
    assert file.bytes_read < 60 * len(content)


def test_a_long_chain_is_believed_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is not that long, so a file of a gigabyte is not read twice."""
    monkeypatch.setattr(resync, "_PROVEN_BYTES", 5 * len(SMALL[0]))
    content = wiped(SMALL[0], 0, 20) + b"".join(SMALL[1:])
    assert walked(content)[0] == list(range(1, 40))


@pytest.mark.parametrize(
    ("following", "fault"), [(None, Fault.PADDING), (3, Fault.PADDING), (4, Fault.ZEROS)]
)
def test_zeros_up_to_the_end_are_padding_if_no_offset_is_missing(
    following: int | None, fault: Fault
) -> None:
    """Otherwise they stand where batches are lost; zeros inside of the file are damage."""
    content = b"".join(SMALL[:3]) + bytes(5000)
    last = walk(content, following=following)[-1]
    assert isinstance(last, Damage)
    assert last.fault is fault
    assert last.end == len(content)
    assert not last.is_hole
    assert walked(content + SMALL[5])[0] == [0, 1, 2, 5]


def test_each_rule_that_a_batch_breaks_has_its_fault() -> None:
    """Frame, checksum, records, offsets, and a file that ends before the batch does."""
    flipped = bytearray(SMALL[5])
    flipped[-1] ^= 1
    content = b"".join(
        [
            SMALL[0],
            wiped(SMALL[1], 0, 61),
            with_bad_records(SMALL[2]),
            SMALL[3],
            SMALL[1],
            SMALL[4],
            bytes(flipped),
            SMALL[6],
            SMALL[7][:-1],
        ]
    )
    faults = [each.fault for each in walk(content) if isinstance(each, Damage)]
    assert faults == [
        Fault.FRAME,
        Fault.RECORDS,
        Fault.OFFSETS,
        Fault.CHECKSUM,
        Fault.NOT_WHOLE,
    ]
    assert walked(content)[0] == [0, 3, 4, 6]


def test_without_records_a_batch_of_a_faulty_writer_is_sound() -> None:
    """Its checksum holds; a start reads no records, and neither does this walk then."""
    content = with_bad_records(SMALL[0])
    (found,) = walk(content, reads_records=False)
    assert isinstance(found, Sound)
    assert walked(content)[0] == []


@pytest.mark.parametrize("next_offset", [1, 5, 9])
def test_of_two_offsets_that_contradict_each_other_the_one_after_a_gap_is_wrong(
    next_offset: int,
) -> None:
    """It could have begun lower; the next batch, at what is due, leaves it no room below."""
    content = SMALL[0] + stamped(5, b"a", b"b", b"c", b"d", b"e") + stamped(next_offset, b"v")
    expected = {1: [0, 5], 5: [0, 5], 9: [0, 9]}
    assert walked(content)[0] == expected[next_offset]


def test_a_walk_that_stops_at_damage_does_not_search_for_its_end() -> None:
    """A start that asks for the sound batches before it must not read the file several times."""
    content = b"".join(SMALL[:3]) + random.Random(1).randbytes(4 << 20)
    file = CountedFile(content)
    found = walk_segment(
        file,  # type: ignore[arg-type]
        PATH,
        base_offset=Offset(0),
        size=len(content),
        stops_at_damage=True,
    )
    sound = [each for each in found if isinstance(each, Sound)]
    assert [batch.base_offset for each in sound for _, batch in each.batches()] == [0, 1, 2]
    assert file.bytes_read < 200_000
