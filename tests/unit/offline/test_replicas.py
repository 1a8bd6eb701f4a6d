"""Two logs of one partition: where they are the same, and the first place where they are not."""

import crc32c
import pytest

from tailrace.offline.replicas import Comparison, compare_logs
from tailrace.records.batch import stamp
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import FOLDER, NOW, batch, filled, flip, path, stop_cleanly

SIZE = len(batch(b"value 0"))
OTHER = "other/flights-0"


def replicas(count: int = 20) -> MemoryFiles:
    """A log in several segments, and the same batches in one segment elsewhere."""
    files = MemoryFiles()
    stop_cleanly(filled(files, count))
    names = sorted(name for name in files.list(FOLDER) if name.endswith(".log"))
    whole = b"".join(files.content(f"{FOLDER}/{name}") for name in names)
    files.make_directory(OTHER)
    put(files, 0, whole)
    return files


def put(files: MemoryFiles, base_offset: int, content: bytes) -> str:
    """A segment of the other replica."""
    name = f"{OTHER}/{base_offset:020d}.log"
    files.open(name, create=True)
    files.overwrite(name, content)
    return name


def compared(files: MemoryFiles) -> Comparison:
    """The first one held against the other."""
    return compare_logs(files, FOLDER, OTHER)


def test_logs_that_are_cut_into_other_segments_are_the_same() -> None:
    """What is compared are batches, from the first offset to the last."""
    files = replicas()
    found = compared(files)
    assert found.difference is None
    assert (found.start, found.limit, found.batches) == (0, 20, 20)


def test_only_what_both_have_is_compared() -> None:
    """A follower that lags, and whose log begins later, is no difference."""
    files = replicas()
    data = files.content(f"{OTHER}/{0:020d}.log")
    files.remove(f"{OTHER}/{0:020d}.log")
    put(files, 7, data[7 * SIZE : 12 * SIZE])
    found = compared(files)
    assert found.difference is None
    assert (found.start, found.batches) == (7, 4)


def test_a_field_of_a_header_is_named_with_both_values() -> None:
    """The leader epoch, which no checksum covers."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = bytearray(files.content(name))
    stamp(memoryview(data)[3 * SIZE :], base_offset=3, leader_epoch=9)
    files.overwrite(name, bytes(data))
    difference = compared(files).difference
    assert difference is not None
    assert (difference.offset, difference.path, difference.position) == (
        3, path(0, ".log"), 3 * SIZE,
    )  # fmt: skip
    assert (difference.other_path, difference.other_position) == (name, 3 * SIZE)
    assert difference.sentence == "leader epoch 0 and 9"


def test_a_record_is_named_with_both_values() -> None:
    """Where both checksums are right, the records tell."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = bytearray(files.content(name))
    changed = batch(b"valve 1", timestamps=[NOW + 1])
    stamp(memoryview(changed), base_offset=1, leader_epoch=0)
    data[SIZE : 2 * SIZE] = changed
    files.overwrite(name, bytes(data))
    difference = compared(files).difference
    assert difference is not None
    assert difference.offset == 1
    assert "record 1: value b'value 1' and b'valve 1'" in difference.sentence
    assert "damaged" not in difference.sentence
    assert f"crc {crc32c.crc32c(bytes(changed[21:]))}" not in difference.sentence.split(" and ")[0]


@pytest.mark.parametrize(
    ("which", "name"), [("first", path(0, ".log")), ("second", f"{OTHER}/{0:020d}.log")]
)
def test_the_damaged_one_is_named(which: str, name: str) -> None:
    """A difference does not say who is right, a checksum does."""
    files = replicas()
    flip(files, name, 5 * SIZE + 70)
    difference = compared(files).difference
    assert difference is not None
    assert difference.offset == 5
    assert f"the {which} is damaged: the stored CRC-32C" in difference.sentence


def test_a_missing_batch_is_a_difference() -> None:
    """With the offsets at which the two go on."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = files.content(name)
    files.overwrite(name, data[: 2 * SIZE] + data[3 * SIZE :])
    found = compared(files)
    assert found.limit == 2
    assert found.difference is not None
    assert found.difference.sentence == "the next batch begins at offset 2 and at 3"


def test_a_log_that_cannot_be_read_on_is_a_difference() -> None:
    """With the place where the bytes stop to be batches."""
    files = replicas()
    name = f"{OTHER}/{0:020d}.log"
    data = bytearray(files.content(name))
    data[4 * SIZE + 8 : 4 * SIZE + 12] = b"\xff\xff\xff\xff"
    files.overwrite(name, bytes(data))
    difference = compared(files).difference
    assert difference is not None
    assert (difference.offset, difference.other_position) == (4, 4 * SIZE)
    assert difference.sentence.startswith("the second cannot be read on: the batch length is -1")
