"""`ObserverLog`: records count once they are committed, and what a leader must not send."""

import errno
import json

import pytest

from tailrace.cluster.metadata.batches import BatchPlace, RecordToWrite, data_batch
from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import NOTHING_CHANGED, ConfigResource, MetadataImage
from tailrace.cluster.metadata.observer import (
    DivergedError,
    LeaderContradictionError,
)
from tailrace.cluster.metadata.proof import prove_metadata
from tailrace.cluster.metadata.snapshot import Snapshot
from tailrace.cluster.metadata.snapshot_files import find_snapshots, save_snapshot
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.protocol.errors import UnknownRecordError
from tailrace.protocol.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    VotersRecord,
    VotersRecordVoter,
)
from tailrace.records.batch import stamp
from tailrace.records.builder import BatchBuilder
from tailrace.testing import DiskFault
from tests.unit.cluster.metadata_logs import FOLDER, Node, setting, value_in
from tests.unit.cluster.observers import LEADER, NODE, Copy, follow, install, leader_of


def state_of(copy: Copy) -> dict[str, object]:
    """The content of `quorum-state`."""
    found = json.loads(copy.files.content(f"{FOLDER}/quorum-state"))
    assert isinstance(found, dict)
    return found


def test_records_count_once_they_are_committed() -> None:
    """Records above the watermark are in the log, and in the image when it has passed them."""
    copy, leader = Copy(), leader_of(1, 2)
    log = copy.open()
    assert follow(log, leader, committed=3) == NOTHING_CHANGED._replace(
        features=True, configs=frozenset({ConfigResource(2, "t")})
    )
    assert (log.end_offset, log.next_offset, log.high_watermark) == (4, 3, 3)
    assert value_in(log.image) == 1
    assert follow(log, leader, committed=-1) == NOTHING_CHANGED
    assert follow(log, leader).configs == frozenset({ConfigResource(2, "t")})
    assert value_in(log.image) == 2


def test_a_start_waits_for_the_watermark_with_the_log_that_it_has() -> None:
    """The next start fetches nothing again, and applies what the leader says is committed."""
    copy, leader = Copy(), leader_of(1, 2)
    log = copy.open()
    follow(log, leader, committed=3)
    log.close()
    log = copy.open()
    assert (log.end_offset, log.next_offset, log.high_watermark) == (4, 0, -1)
    assert (log.epoch, log.leader_id, log.last_epoch) == (1, LEADER, 1)
    assert not log.image.features
    log.commit(4)
    assert value_in(log.image) == 2
    assert copy.told == []


def test_an_epoch_that_cannot_be_is_not_kept() -> None:
    """A damaged answer would have every real leader refused from then on, also after a start."""
    copy = Copy()
    log = copy.open()
    with pytest.raises(LeaderContradictionError, match="no quorum holds that many elections"):
        log.follow(LEADER, 2**31 - 1)
    log.follow(LEADER, 5)
    assert (log.leader_id, log.epoch) == (LEADER, 5)


def test_a_new_epoch_is_on_the_device_before_it_is_acted_on() -> None:
    """`quorum-state` has the leader; an older epoch and a second leader of one are refused."""
    copy = Copy()
    log = copy.open()
    log.follow(LEADER, 7, voters=(LEADER,))
    assert state_of(copy)["currentVoters"] == [{"voterId": LEADER}]
    assert (state_of(copy)["leaderId"], state_of(copy)["leaderEpoch"]) == (LEADER, 7)
    with pytest.raises(LeaderContradictionError, match="two leaders, 100 and 101"):
        log.follow(101, 7)
    with pytest.raises(LeaderContradictionError, match="epoch 6 is over"):
        log.follow(LEADER, 6)
    log.follow(-1, 8)
    log.follow(101, 8)
    assert (log.leader_id, log.epoch) == (101, 8)
    after_crash = Copy(copy.files.crash(keep_unsynced=False)).open()
    assert (after_crash.leader_id, after_crash.epoch) == (101, 8)


def test_an_uncommitted_end_is_cut_where_another_leader_goes_on() -> None:
    """The records of the old leader vanish, and those of the new one take their offsets."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    follow(log, leader, committed=3)
    leader.lose_from(3)
    leader.lead()
    leader.write(setting(9))
    follow(log, leader)
    assert value_in(log.image) == 9
    assert log.end_offset == leader.end
    log.close()
    log = copy.open()
    log.commit(leader.end)
    assert value_in(log.image) == 9


def test_a_full_disk_leaves_nothing_of_an_append() -> None:
    """Not its epochs either: what the leader sends next may be of earlier ones."""
    copy, leader = Copy(), leader_of(1, 2)
    leader.lead()
    log = copy.open()
    copy.files.faults.append(DiskFault(operation="write", path_part=".log", error=errno.ENOSPC))
    with pytest.raises(OSError, match="space"):
        follow(log, leader)
    assert (log.end_offset, log.last_epoch) == (0, 0)
    copy.files.faults.clear()
    leader.lose_from(4)
    follow(log, leader)
    assert (log.end_offset, log.last_epoch) == (4, 1)


def test_committed_records_are_not_cut_after_a_start() -> None:
    """Also where no snapshot has them, and after a leader with less has been followed in vain."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    follow(log, leader)
    log.abandon()
    leader.lose_from(4)
    for _ in range(2):
        log = copy.open()
        with pytest.raises(DivergedError, match="committed all below 5"):
            follow(log, leader)
        assert log.end_offset == 5
        log.abandon()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"00000000000000000005",
        b"%020d %020d\n" % (5, 6),
        b"%020d %020d\n" % (1 << 63, 1 << 63),
        b"%020d %020d\n5" % (5, 5),
        b"\xff" * 42,
        bytes(42),
    ],
)
def test_a_damaged_committed_offset_is_reported_and_replaced(content: bytes) -> None:
    """A loss of power may leave anything: this start cuts the log as always, the next one knows."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    follow(log, leader)
    log.abandon()
    file = copy.files.open(f"{FOLDER}/committed")
    file.resize(0)
    file.write(0, content)
    leader.lose_from(4)
    log = copy.open()
    assert ["committed was damaged" in each for each in copy.told] == [True]
    follow(log, leader)
    assert log.end_offset == 4
    log.abandon()
    leader.lose_from(3)
    with pytest.raises(DivergedError, match="committed all below 4"):
        follow(copy.open(), leader)
    assert len(copy.told) == 1


def test_committed_records_are_never_cut() -> None:
    """Kafka's brokers end with that too; the sentence says what to do, and the log is as before."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    follow(log, leader)
    before = copy.files.state()
    with pytest.raises(
        DivergedError, match=r"differs.*offset 3.*committed all below 5.*older copy"
    ):
        log.cut(epoch=1, end_offset=3)
    assert copy.files.state() == before
    assert log.end_offset == 5


@pytest.mark.parametrize(("epoch", "end"), [(1, 9), (1, 5), (2, 3)])
def test_a_cut_that_cuts_nothing_is_a_contradiction(epoch: int, end: int) -> None:
    """A leader that answers so would be asked the same for ever."""
    log = Copy().open()
    follow(log, leader_of(1, 2, 3), committed=0)
    with pytest.raises(LeaderContradictionError, match="does not differ"):
        log.cut(epoch=epoch, end_offset=end)
    assert log.end_offset == 5


def test_the_watermark_does_not_go_back() -> None:
    """A leader that says so is not believed, and the image stays."""
    log, leader = Copy().open(), leader_of(1, 2)
    follow(log, leader)
    with pytest.raises(LeaderContradictionError, match="was 4, and is 3 now"):
        log.commit(3)
    assert value_in(log.image) == 2


def test_a_snapshot_takes_the_place_of_the_log() -> None:
    """It is the state, and the log goes on after it, also at the next start."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    follow(log, leader, committed=2)
    install(log, leader, 4)
    assert (log.next_offset, log.end_offset, log.last_epoch) == (4, 4, 1)
    assert value_in(log.image) == 2
    follow(log, leader)
    assert value_in(log.image) == 3
    log.close()
    log = copy.open()
    assert (log.next_offset, log.end_offset) == (4, 5)
    assert value_in(log.image) == 2
    follow(log, leader)
    assert value_in(log.image) == 3


@pytest.mark.parametrize("end", [0, 3])
def test_a_snapshot_that_lacks_committed_records_is_refused(end: int) -> None:
    """Offsets never go back for a broker that serves."""
    log, leader = Copy().open(), leader_of(1, 2, 3)
    follow(log, leader)
    with pytest.raises(LeaderContradictionError, match="committed"):
        log.begin_download(end_offset=end, epoch=1)
    with pytest.raises(LeaderContradictionError, match="of epoch 1 has a snapshot of epoch 2"):
        log.begin_download(end_offset=9, epoch=2)


@pytest.mark.parametrize(
    ("position", "size", "part", "sentence"),
    [
        (0, 0, b"x", "its size is 0"),
        (0, 1 << 31, b"x", "its size is 2147483648"),
        (5, 900, b"x", "begins at byte 5, not at 10"),
        (10, 901, b"x", "was 900 bytes before, and is 901"),
        (10, 900, b"", "has 0 bytes, and 890 are missing"),
        (10, 900, bytes(900), "has 900 bytes, and 890 are missing"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(
    position: int, size: int, part: bytes, sentence: str
) -> None:
    """So no snapshot is endless, and none has a hole."""
    copy, leader = Copy(), leader_of(1)
    log = copy.open()
    log.follow(LEADER, leader.epoch)
    download = log.begin_download(end_offset=9, epoch=1)
    if "its size" not in sentence:
        download.add(memoryview(bytes(10)), position=0, size=900)
    with pytest.raises(CorruptionError, match=sentence):
        download.add(memoryview(part), position=position, size=size)
    download.abandon()
    assert [each for each in copy.files.list(FOLDER) if "part" in each] == ["partition.metadata"]


def test_a_damaged_snapshot_changes_nothing() -> None:
    """Each batch is checked before the log goes."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    follow(log, leader, committed=2)
    epoch, data = leader.snapshot(5)
    for damaged in (data[:-1] + bytes([data[-1] ^ 1]), data[:-75]):
        download = log.begin_download(end_offset=5, epoch=epoch)
        download.add(memoryview(damaged), position=0, size=len(damaged))
        with pytest.raises(CorruptionError):
            log.install(download)
        download.abandon()
    assert (log.next_offset, log.end_offset) == (2, 5)
    assert find_snapshots(copy.files, FOLDER) == []
    follow(log, leader)
    assert value_in(log.image) == 3


def batch_at(offset: int, epoch: int) -> bytes:
    """A batch with this offset and epoch."""
    return data_batch([setting(7)], BatchPlace(offset, epoch, 0))


def flipped(batch: bytes) -> bytes:
    """The batch with its last byte damaged."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    "records",
    [
        batch_at(3, 1),
        batch_at(5, 1),
        batch_at(4, 0),
        batch_at(4, 2),
        flipped(batch_at(4, 1)),
        batch_at(4, 1) + batch_at(4, 1),
        batch_at(4, 1) + flipped(batch_at(5, 1)),
        b"HTTP/1.1 400 Bad Request\r\n" * 4,
    ],
    ids=["before", "gap", "old epoch", "new epoch", "damage", "twice", "damage later", "no batch"],
)
def test_batches_that_cannot_follow_are_refused_whole(records: bytes) -> None:
    """No checksum covers offsets and epochs, and all batches are checked before one is written."""
    copy, leader = Copy(), leader_of(1, 2)
    log = copy.open()
    follow(log, leader)
    before = copy.files.state()
    with pytest.raises(CorruptionError):
        log.append(memoryview(records))
    assert copy.files.state() == before
    leader.write(setting(3))
    follow(log, leader)
    assert value_in(log.image) == 3


def test_a_batch_that_is_cut_off_waits_for_its_rest() -> None:
    """A leader cuts an answer at a size, wherever that is."""
    log, leader = Copy().open(), leader_of(1, 2)
    log.follow(LEADER, 1)
    every = leader.since(0)
    assert log.append(every[:-5]) == 3
    assert log.append(every[:0]) == 0
    assert log.end_offset == 3
    follow(log, leader)
    assert value_in(log.image) == 2


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([setting(9), RecordToWrite(RemoveTopicRecord(), 0)], MetadataFaultError),
        ([RecordToWrite(FeatureLevelRecord(name="no.such", feature_level=1), 0)], DirectoryError),
        (
            [RecordToWrite(FeatureLevelRecord(name="metadata.version", feature_level=99), 0)],
            DirectoryError,
        ),
    ],
)
def test_a_committed_record_that_cannot_be_applied_leaves_the_image(
    records: list[RecordToWrite], error: type[Exception]
) -> None:
    """Not even the records before it in its batch count."""
    log, leader = Copy().open(), leader_of(1, 2)
    follow(log, leader)
    leader.write(*records)
    for _ in range(2):
        with pytest.raises(error):
            follow(log, leader)
        assert (log.next_offset, value_in(log.image)) == (4, 2)


def test_a_record_of_a_later_release_leaves_the_image() -> None:
    """Its batch is whole and in the log, and no image has it."""
    log, leader = Copy().open(), leader_of(1)
    follow(log, leader)
    builder = BatchBuilder()
    builder.append(None, bytes([1, 99, 0]), timestamp=0)
    batch = bytearray(builder.build())
    stamp(memoryview(batch), base_offset=3, leader_epoch=1)
    log.append(memoryview(bytes(batch)))
    with pytest.raises(UnknownRecordError):
        log.commit(4)
    assert log.next_offset == 3


def test_records_of_an_open_transaction_wait() -> None:
    """They count with the end of it, all together (KIP-868)."""
    log, leader = Copy().open(), leader_of(1)
    leader.write(setting(2, "before"), RecordToWrite(BeginTransactionRecord(), 0), setting(3))
    follow(log, leader)
    assert log.is_in_transaction
    assert (value_in(log.image, "before"), value_in(log.image)) == (2, 1)
    leader.write(RecordToWrite(EndTransactionRecord(), 0))
    assert follow(log, leader).configs == frozenset({ConfigResource(2, "t")})
    assert value_in(log.image) == 3
    assert not log.is_in_transaction


def test_own_snapshots_are_of_committed_records() -> None:
    """By size, and old ones go with the segments below the next one, as on a controller."""
    copy, leader = Copy(segment_bytes=600, snapshot_bytes=800, retention_bytes=2500), leader_of()
    log = copy.open()
    for value in range(100):
        leader.write(setting(value))
        follow(log, leader, committed=leader.end - 1)
        if log.is_tidying_due():
            log.tidy()
    assert all(each.next_offset <= log.next_offset for each in find_snapshots(copy.files, FOLDER))
    assert "00000000000000000000.log" not in copy.files.list(FOLDER)
    log.close()
    log = copy.open()
    assert log.next_offset > 50
    follow(log, leader)
    assert value_in(log.image) == 99
    assert copy.told == []


def test_a_damaged_log_is_cut_and_fetched_again() -> None:
    """The sentence says what is cut; the quorum has it, so nothing is lost."""
    copy, leader = Copy(), leader_of(*range(5))
    log = copy.open()
    follow(log, leader)
    log.close()
    path = f"{FOLDER}/00000000000000000000.log"
    content = bytearray(copy.files.content(path))
    content[len(content) // 2] ^= 1
    copy.files.overwrite(path, bytes(content))
    log = copy.open()
    assert 0 < log.end_offset < leader.end
    assert any("bytes cut at" in each for each in copy.told)
    follow(log, leader)
    assert value_in(log.image) == 4


def test_a_gap_that_a_crash_has_left_is_cut() -> None:
    """Whole batches can be missing between two segments, and no checksum tells."""
    copy, leader = Copy(segment_bytes=300), leader_of(*range(9))
    log = copy.open()
    follow(log, leader)
    log.close()
    second = [each for each in copy.files.list(FOLDER) if each.endswith(".log")][1]
    copy.files.remove(f"{FOLDER}/{second}")
    log = copy.open()
    assert log.end_offset < leader.end
    assert any("gap" in each or "cut" in each for each in copy.told)
    follow(log, leader)
    assert value_in(log.image) == 8


def test_without_a_whole_snapshot_all_is_fetched_again() -> None:
    """A log that begins in the middle proves nothing, and the leader has everything."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    install(log, leader, 4)
    follow(log, leader)
    log.close()
    [snapshot] = find_snapshots(copy.files, FOLDER)
    copy.files.overwrite(snapshot.path, flipped(copy.files.content(snapshot.path)))
    log = copy.open()
    assert (log.next_offset, log.end_offset) == (0, 0)
    assert [each for each in copy.told if "fetched again" in each]
    assert f"{snapshot.path}.damaged".rpartition("/")[2] in copy.files.list(FOLDER)
    follow(log, leader)
    assert value_in(log.image) == 3


def test_a_log_that_may_be_the_only_copy_is_not_followed_into() -> None:
    """The directory of a quorum of one, opened as a broker, is refused untouched."""
    node = Node()
    node.open().close()
    before = node.files.state()
    with pytest.raises(
        DirectoryError, match=r"only copy; start it with process\.roles=broker,controller"
    ):
        Copy(node.files).open(node_id=1)
    assert node.files.state() == before
    assert Copy(node.files).open(node_id=NODE).end_offset > 0


def test_a_voter_of_the_first_snapshot_does_not_observe() -> None:
    """`kafka-storage format --standalone` names the voters there, and there is no log yet."""
    copy = Copy()
    copy.files.make_directory(FOLDER)
    voters = VotersRecord(voters=(VotersRecordVoter(voter_id=NODE),))
    content = Snapshot(image=MetadataImage(), log_timestamp=0, voters=voters)
    save_snapshot(copy.files, FOLDER, content, next_offset=0, epoch=0, now_ms=0)
    with pytest.raises(DirectoryError, match="as a voter"):
        copy.open()
    log = copy.open(node_id=NODE + 1)
    follow(log, leader_of(1))
    assert (log.kraft_version, value_in(log.image)) == (1, 1)
    assert "currentVoters" not in state_of(copy)


def test_a_copy_is_not_led() -> None:
    """A node that has followed a quorum does not begin one of its own with the copy."""
    copy, leader = Copy(), leader_of(1)
    log = copy.open()
    follow(log, leader)
    log.close()
    with pytest.raises(DirectoryError, match="follows the quorum that node 100 leads"):
        Node(copy.files).open()


def test_what_was_copied_is_proven_as_any_other_log() -> None:
    """Offline tools find the state of the leader in the copy."""
    copy, leader = Copy(), leader_of(1, 2, 3)
    log = copy.open()
    follow(log, leader)
    log.close()
    told: list[str] = []
    proof = prove_metadata(copy.files, FOLDER, report=told.append)
    assert value_in(proof.replay.image) == 3
    assert told == []
