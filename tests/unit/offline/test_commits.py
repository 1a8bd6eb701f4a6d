"""Tests of reading the commits of groups from `__consumer_offsets` partitions made by hand."""

import struct
from typing import TYPE_CHECKING

import pytest

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.offline.commits import GroupOffset, GroupsFound, find_groups
from tailrace.reading.directory import find_partitions
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import ControlType, build_end_marker
from tailrace.testing import MemoryFiles

if TYPE_CHECKING:
    from tailrace.reading.located import Skipped

TIME = 1_700_000_000_000
FLIGHTS = TopicPartition("flights", 3)


def string(text: str) -> bytes:
    """An int16 size and UTF-8."""
    return struct.pack(">h", len(text)) + text.encode()


def key(group: str, partition: int = 3) -> bytes:
    """The key of an offset commit for `flights`."""
    return b"\0\1" + string(group) + string("flights") + struct.pack(">i", partition)


def commit(offset: int, metadata: str = "") -> bytes:
    """The value of an offset commit, version 3."""
    return struct.pack(">hqi", 3, offset, 7) + string(metadata) + struct.pack(">q", TIME)


def group_value(protocol_type: str, generation: int) -> bytes:
    """The value of a group without members, version 2."""
    fields = string(protocol_type) + struct.pack(">i", generation) + b"\xff\xff\xff\xff"
    return b"\0\2" + fields + struct.pack(">qi", TIME, 0)


class OffsetsLog:
    """A `__consumer_offsets` partition that a test writes batch by batch."""

    def __init__(self, files: MemoryFiles, number: int = 0) -> None:
        self.content = bytearray()
        self._files = files
        self._offset = 0
        self._path = f"data/{OFFSETS_TOPIC}-{number}/{0:020d}.log"
        files.make_directory(f"data/{OFFSETS_TOPIC}-{number}")
        files.open(self._path, create=True).close()

    def add(self, *records: tuple[bytes, bytes | None], producer_id: int | None = None) -> None:
        """One batch, of a transaction where there is a producer."""
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0,
                   "is_transactional": True}  # fmt: skip
        builder = BatchBuilder(**({} if producer_id is None else options))  # type: ignore[arg-type]
        for record_key, value in records:
            builder.append(record_key, value, timestamp=TIME)
        self._put(bytearray(builder.build()), len(records))

    def end(self, producer_id: int, kind: ControlType) -> None:
        """The marker of a transaction."""
        data = build_end_marker(
            is_commit=kind is ControlType.COMMIT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=TIME,
        )
        self._put(bytearray(data), 1)

    def _put(self, data: bytearray, count: int) -> None:
        stamp(memoryview(data), base_offset=self._offset, leader_epoch=0)
        self._offset += count
        self.content += data
        self._files.overwrite(self._path, bytes(self.content))


@pytest.fixture
def files() -> MemoryFiles:
    """An empty data directory."""
    made = MemoryFiles()
    made.make_directory("data")
    return made


@pytest.fixture
def log(files: MemoryFiles) -> OffsetsLog:
    """Its one partition of `__consumer_offsets`."""
    return OffsetsLog(files)


def found(files: MemoryFiles) -> GroupsFound:
    """Read the groups in the directory."""
    return find_groups(files, find_partitions(files, "data"))


def only(files: MemoryFiles) -> GroupOffset:
    """The one offset that is there."""
    (offset,) = found(files).offsets
    return offset


def committed(files: MemoryFiles) -> int | None:
    """The offset that the one group has committed."""
    offset = only(files)
    return None if offset.committed is None else offset.committed.value.offset


def pending(files: MemoryFiles) -> list[int]:
    """The pending offsets of the one group."""
    return [each.value.offset for each in only(files).pending]


def test_the_last_commit_of_a_partition_counts(files: MemoryFiles, log: OffsetsLog) -> None:
    """Group, partition, offset, metadata and time are its own."""
    log.add((key("g"), commit(10)))
    log.add((key("g"), commit(30, "later")), (key("other", 1), commit(5)))
    first, second = found(files).offsets
    assert (first.group, first.partition) == ("g", FLIGHTS)
    assert first.committed is not None
    assert (first.committed.value.offset, first.committed.value.metadata) == (30, "later")
    assert first.committed.value.commit_timestamp == TIME
    assert (second.group, second.partition.partition) == ("other", 1)


def test_a_tombstone_takes_a_commit_back(files: MemoryFiles, log: OffsetsLog) -> None:
    """A tombstone takes back the pending commits of that partition too."""
    log.add((key("g"), commit(10)))
    log.add((key("g"), commit(40)), producer_id=7)
    log.add((key("g"), None))
    assert found(files).offsets == []


def test_a_commit_in_a_transaction_counts_from_its_marker_on(
    files: MemoryFiles, log: OffsetsLog
) -> None:
    """Until then it is pending, and the committed offset is the one before."""
    log.add((key("g"), commit(10)))
    log.add((key("g"), commit(40)), producer_id=7)
    assert (committed(files), pending(files)) == (10, [40])
    log.end(7, ControlType.COMMIT)
    assert (committed(files), pending(files)) == (40, [])


def test_an_aborted_commit_never_counts(files: MemoryFiles, log: OffsetsLog) -> None:
    """It is listed neither as committed nor as pending."""
    log.add((key("g"), commit(10)))
    log.add((key("g"), commit(40)), producer_id=7)
    log.add((key("g"), commit(50)), producer_id=8)
    log.end(7, ControlType.ABORT)
    assert (committed(files), pending(files)) == (10, [50])


def test_a_later_plain_commit_outlives_the_marker_of_an_earlier_one(
    files: MemoryFiles, log: OffsetsLog
) -> None:
    """The order of the records decides, as in Kafka's coordinator, not that of the markers."""
    log.add((key("g"), commit(40)), producer_id=7)
    log.add((key("g"), commit(30)))
    log.end(7, ControlType.COMMIT)
    assert (committed(files), pending(files)) == (30, [])


def test_a_group_with_nothing_but_pending_offsets_is_listed(
    files: MemoryFiles, log: OffsetsLog
) -> None:
    """It has no committed offset, and so no lag."""
    log.add((key("g"), commit(40)), producer_id=7)
    assert (committed(files), pending(files), only(files).lag) == (None, [40], None)


def test_a_commit_of_minus_one_is_no_offset(files: MemoryFiles, log: OffsetsLog) -> None:
    """Kafka stores it, and answers that nothing is committed; there is no lag of it."""
    log.add((key("g"), commit(-1)))
    assert (only(files).committed_offset, only(files).lag) == (None, None)


def test_the_lag_is_counted_to_the_log_end_in_the_same_directory(
    files: MemoryFiles, log: OffsetsLog
) -> None:
    """Negative where the log ends before the offset, None where the partition is elsewhere."""
    log.add((key("g"), commit(2)), (key("g", 4), commit(9)), (key("g", 5), commit(1)))
    content = bytearray()
    for offset in range(5):
        builder = BatchBuilder()
        builder.append(None, b"v", timestamp=TIME)
        data = bytearray(builder.build())
        stamp(memoryview(data), base_offset=offset, leader_epoch=0)
        content += data
    for number in (3, 4):
        files.make_directory(f"data/flights-{number}")
        files.open(f"data/flights-{number}/{0:020d}.log", create=True).close()
        files.overwrite(f"data/flights-{number}/{0:020d}.log", bytes(content))
    lags = [(each.partition.partition, each.log_end_offset, each.lag)
            for each in found(files).offsets]  # fmt: skip
    assert lags == [(3, 5, 3), (4, 5, -4), (5, None, None)]


def test_groups_are_those_of_the_last_record_and_go_with_a_tombstone(
    files: MemoryFiles, log: OffsetsLog
) -> None:
    """Kind and generation of a group, as of its last rebalance."""
    log.add((b"\0\2" + string("g"), group_value("consumer", 1)))
    log.add((b"\0\2" + string("gone"), group_value("consumer", 5)))
    log.add((b"\0\2" + string("g"), group_value("consumer", 2)), (b"\0\2" + string("gone"), None))
    groups = found(files).groups
    assert {name: group.value.generation for name, group in groups.items()} == {"g": 2}


def test_what_is_not_known_is_counted_and_the_rest_is_read(
    files: MemoryFiles, log: OffsetsLog
) -> None:
    """Key types, versions of values, and records that are not of their format."""
    log.add(
        (b"\0\3" + string("new"), b"\0\0"),
        (b"\0\3" + string("newer"), None),
        (key("g"), b"\0\x09"),
        (b"\0\2" + string("g"), b"\0\x09"),
        (key("g"), b"\0\3"),
        (key("g"), commit(3)),
    )
    assert committed(files) == 3
    assert found(files).unknown == {
        "key type 3": 2,
        "OffsetCommitValue version 9": 1,
        "GroupMetadataValue version 9": 1,
        "malformed record": 1,
    }


def test_all_partitions_of_the_topic_are_read(files: MemoryFiles) -> None:
    """A group is in one of them, by the hash of its name."""
    OffsetsLog(files, 0).add((key("b"), commit(1)))
    OffsetsLog(files, 7).add((key("a"), commit(2)))
    assert [each.group for each in found(files).offsets] == ["a", "b"]


def test_damage_is_an_error_unless_it_is_told(files: MemoryFiles, log: OffsetsLog) -> None:
    """With a callback the records behind the damage are read, and the damaged ones are missing."""
    log.add((key("g"), commit(1)))
    at = len(log.content)
    log.add((key("g"), commit(2)))
    log.add((key("h"), commit(3)))
    log.content[at + 70] ^= 0x55
    files.overwrite(f"data/{OFFSETS_TOPIC}-0/{0:020d}.log", bytes(log.content))
    with pytest.raises(CorruptionError):
        found(files)
    told: list[Skipped] = []
    offsets = find_groups(files, find_partitions(files, "data"), on_skip=told.append).offsets
    assert [each.committed.value.offset for each in offsets if each.committed] == [1, 3]
    assert [each.first_offset for each in told] == [1]


def test_a_directory_without_the_topic_is_refused(files: MemoryFiles) -> None:
    """One sentence says where else to look."""
    files.make_directory("data/flights-0")
    files.open(f"data/flights-0/{0:020d}.log", create=True).close()
    with pytest.raises(DirectoryError, match="another log directory"):
        found(files)
