"""`batches_across_damage`: where sound batches begin again, and what is not taken for one."""

import random
import struct

import pytest

from tailrace.model import Offset
from tailrace.records import layout
from tailrace.storage import resync
from tailrace.storage.damage import DamagedRange, batches_across_damage
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


def walked(content: bytes, *, base: int = 0) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets of the sound batches, and the damaged ranges."""
    offsets: list[int] = []
    ranges: list[tuple[int, int]] = []
    for found in batches_across_damage(
        CountedFile(content),  # type: ignore[arg-type]
        PATH,
        base_offset=Offset(base),
        size=len(content),
    ):
        if isinstance(found, DamagedRange):
            ranges.append((found.position, found.end))
        else:
            offsets.append(found[1].base_offset)
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
        each[1].base_offset
        for each in batches_across_damage(
            file,  # type: ignore[arg-type]
            PATH,
            base_offset=Offset(0),
            size=len(content),
        )
        if not isinstance(each, DamagedRange)
    ]
    assert found == list(range(5, 15))
    # Quadratic time would be 1500 times the file.
    assert file.bytes_read < 60 * len(content)


def test_a_long_chain_is_believed_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is not that long, so a file of a gigabyte is not read twice."""
    monkeypatch.setattr(resync, "_PROVEN_BYTES", 5 * len(SMALL[0]))
    content = wiped(SMALL[0], 0, 20) + b"".join(SMALL[1:])
    assert walked(content)[0] == list(range(1, 40))


def test_zeros_up_to_the_end_are_room_for_appends() -> None:
    """They are one range that says so; a few zeros inside of the file are damage."""
    content = b"".join(SMALL[:3]) + bytes(5000)
    last = list(
        batches_across_damage(
            CountedFile(content),  # type: ignore[arg-type]
            PATH,
            base_offset=Offset(0),
            size=len(content),
        )
    )[-1]
    assert isinstance(last, DamagedRange)
    assert last.is_blank
    assert not isinstance(walked(content + SMALL[5])[0][-1], DamagedRange)
    assert walked(content + SMALL[5])[0] == [0, 1, 2, 5]
