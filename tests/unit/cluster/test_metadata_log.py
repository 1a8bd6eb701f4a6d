"""`MetadataLog`: what it keeps, what damage costs, and what it refuses."""

import json
import random
from contextlib import suppress
from itertools import product

import pytest

from tailrace.cluster.metadata.batches import BatchPlace, RecordToWrite, data_batch
from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.log import MetadataLog
from tailrace.cluster.metadata.proof import LostMetadataError
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot
from tailrace.cluster.metadata.snapshot_files import save_snapshot
from tailrace.errors import DirectoryError, StorageError
from tailrace.protocol.metadata_records import (
    BeginTransactionRecord,
    RemoveTopicRecord,
    VotersRecord,
    VotersRecordVoter,
)
from tailrace.records.batch import read_batches, stamp
from tailrace.records.builder import BatchBuilder
from tailrace.storage.checkpoints import read_epoch_checkpoint, write_whole
from tailrace.testing import DiskFault, MemoryFiles
from tailrace.testing.files import ProcessKilledError
from tests.unit.cluster.metadata_logs import (
    DIRECTORY,
    FOLDER,
    GOLDEN,
    LEVEL,
    Node,
    setting,
    value_in,
)

FIRST = "00000000000000000000.log"


def filled(**config: int) -> Node:
    """A node that has written values 0 to 4, each in a batch of its own, and has stopped."""
    node = Node(None, **config)
    log = node.open()
    log.append([LEVEL])
    for value in range(5):
        log.append([setting(value)])
    log.close()
    return node


def with_golden() -> Node:
    """A node on the directory that Kafka 4.3.1 wrote."""
    node = Node()
    node.files.make_directory(FOLDER)
    for each in GOLDEN.iterdir():
        write_whole(node.files, f"{FOLDER}/{each.name}", each.read_bytes(), is_synced=True)
    return node


def test_each_start_has_the_state_and_a_higher_epoch() -> None:
    """The image is that of before, and `quorum-state` names the leader of the new epoch."""
    node = filled()
    for epoch in (2, 3):
        log = node.open()
        assert value_in(log.image) == 4
        assert log.epoch == epoch
        state = json.loads(node.files.open(f"{FOLDER}/quorum-state").read(0, 1000))
        assert (state["leaderId"], state["leaderEpoch"]) == (1, epoch)
        assert state["currentVoters"] == [{"voterId": 1}]
        log.close()
    assert node.told == []


def test_the_log_of_kafka_goes_on() -> None:
    """The directory of a Kafka 4.3.1 is opened with its state, and Kafka's own files stay."""
    node = with_golden()
    before = set(node.files.list(FOLDER))
    log = node.open()
    topics = set(log.image.topic_ids)
    assert topics
    assert log.epoch > 1
    log.append([setting(7, "new")])
    log.close()
    assert before <= set(node.files.list(FOLDER))
    log = node.open()
    assert set(log.image.topic_ids) == topics
    assert value_in(log.image, "new") == 7
    assert node.told == []


def test_records_that_contradict_the_state_are_not_written() -> None:
    """The log is as it was, and takes the next records."""
    node = filled()
    log = node.open()
    end = log.end_offset
    with pytest.raises(MetadataFaultError):
        log.append([setting(9), RecordToWrite(RemoveTopicRecord(), 0)])
    assert (log.end_offset, value_in(log.image)) == (end, 4)
    log.append([setting(10)])
    log.close()
    assert value_in(node.open().image) == 10


def test_a_snapshot_by_size_and_time_stands_for_the_log_below_it() -> None:
    """It is written when so many bytes or so much time have passed since the last one."""
    node = Node(snapshot_bytes=1000, snapshot_ms=60_000)
    log = node.open()
    log.append([LEVEL])
    log.tidy()
    assert node.names(".checkpoint") == []
    node.clock.pause(60)
    log.tidy()
    assert len(node.names(".checkpoint")) == 1
    node.clock.pause(60)
    log.tidy()
    assert len(node.names(".checkpoint")) == 1, "nothing was written since"
    log.append([setting(value, f"t{value}") for value in range(40)])
    log.tidy()
    assert len(node.names(".checkpoint")) == 2


def test_old_snapshots_go_with_the_segments_below_the_next_one() -> None:
    """By size: the newest snapshot and what follows it stay, and the state with them."""
    node = Node(segment_bytes=2000, snapshot_bytes=2000, retention_bytes=3000)
    log = node.open()
    log.append([LEVEL])
    for value in range(100):
        log.append([setting(value)])
        log.tidy()
    log.close()
    assert FIRST not in node.files.list(FOLDER)
    snapshots = node.names(".checkpoint")
    assert len(snapshots) >= 1
    log = node.open()
    assert value_in(log.image) == 99
    assert node.told == []


def test_an_old_snapshot_goes_by_the_time_of_its_records() -> None:
    """Not by the time of its file, which a copy of the directory changes."""
    node = Node(snapshot_ms=1, retention_ms=3_600_000)
    log = node.open()
    log.append([LEVEL])
    for value in range(2):
        node.clock.pause(60)
        log.append([setting(value)])
        log.write_snapshot()
    log.tidy()
    assert len(node.names(".checkpoint")) == 2
    node.clock.pause(3600)
    log.tidy()
    assert len(node.names(".checkpoint")) == 1


def test_a_damaged_snapshot_is_put_aside_where_the_log_has_all() -> None:
    """The state is proven by the batches, and the sentence names the file."""
    node = filled()
    log = node.open()
    log.write_snapshot()
    log.close()
    [name] = node.names(".checkpoint")
    node.damage(name)
    log = node.open()
    assert value_in(log.image) == 4
    assert any(name in each for each in node.told)
    assert node.names(".damaged") == [name + ".damaged"]


def test_damage_below_a_snapshot_costs_nothing() -> None:
    """The batches behind the snapshot count, although a batch in front of it is damaged."""
    node = filled()
    log = node.open()
    log.write_snapshot()
    log.append([setting(5)])
    log.append([setting(6)])
    log.close()
    node.damage(FIRST, position=150)
    log = node.open()
    assert value_in(log.image) == 6
    log.append([setting(7)])
    log.close()
    assert value_in(node.open().image) == 7


def test_damage_behind_a_snapshot_ends_the_log_there() -> None:
    """The state is that in front of it; what was cut is told, and its bytes are kept."""
    node = filled()
    node.damage(FIRST)
    log = node.open()
    assert value_in(log.image) == 3
    assert any("bytes cut" in each for each in node.told)
    assert node.names(".bytes")
    log.append([setting(9)])
    log.close()
    assert value_in(node.open().image) == 9


def test_a_snapshot_without_a_log_is_enough() -> None:
    """The log goes on at its offset, as Kafka's does; that it is missing is told."""
    node = filled()
    log = node.open()
    log.write_snapshot()
    end = log.end_offset
    log.close()
    for each in node.names(".log") + node.names("index") + node.names(".snapshot"):
        node.files.remove(f"{FOLDER}/{each}")
    log = node.open()
    assert value_in(log.image) == 4
    assert log.end_offset > end
    assert node.names(".log") == [f"{end:020}.log"]
    assert node.told == [f"{FOLDER} has no log; the state is that of the snapshot, at {end}"]


def test_a_state_that_cannot_be_proven_is_refused_untouched() -> None:
    """Without the first segment and without a whole snapshot nothing is opened nor changed."""
    node = Node(segment_bytes=2000, snapshot_bytes=2000, retention_bytes=3000)
    log = node.open()
    log.append([LEVEL])
    for value in range(100):
        log.append([setting(value)])
        log.tidy()
    log.close()
    for each in node.names(".checkpoint"):
        node.damage(each)
    before = {each: node.files.open(f"{FOLDER}/{each}").size() for each in node.files.list(FOLDER)}
    with pytest.raises(LostMetadataError, match=r"cannot be proven.*backup"):
        node.open()
    after = {each: node.files.open(f"{FOLDER}/{each}").size() for each in node.files.list(FOLDER)}
    assert after == before


def test_records_of_a_later_release_are_refused_untouched() -> None:
    """The sentence says from which offset, and what to start instead."""
    node = filled()
    log = node.open()
    end = log.end_offset
    log.close()
    builder = BatchBuilder()
    builder.append(None, bytes([1, 99, 0]), timestamp=0)
    batch = bytearray(builder.build())
    stamp(memoryview(batch), base_offset=end, leader_epoch=5)
    file = node.files.open(f"{FOLDER}/{FIRST}")
    size = file.size()
    file.write(size, bytes(batch))
    file.close()
    with pytest.raises(LostMetadataError, match=rf"offset {end} on.*release that wrote it"):
        node.open()
    assert node.files.open(f"{FOLDER}/{FIRST}").size() > size


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"currentVoters": [{"voterId": 1}, {"voterId": 2}]}, "voters 1, 2"),
        ({"currentVoters": [{"voterId": 7}]}, "voters 7; this node, 1,"),
        ({"leaderId": 2}, "follows the quorum that node 2 leads; start.*process.roles=broker"),
        ({"leaderEpoch": 2**31 - 1}, "no epoch can follow"),
        ({"data_version": 7}, "quorum-state.*version is 7.*restore"),
    ],
)
def test_a_quorum_that_this_node_cannot_lead_is_refused_untouched(
    state: dict[str, object], sentence: str
) -> None:
    """The torn end of the log stays, whatever the reason is."""
    node = filled()
    text = json.dumps({"leaderId": 1, "leaderEpoch": 9, "data_version": 0, **state})
    write_whole(node.files, f"{FOLDER}/quorum-state", text.encode(), is_synced=True)
    node.files.overwrite(f"{FOLDER}/{FIRST}", node.files.content(f"{FOLDER}/{FIRST}")[:-5])
    before = node.files.state()
    with pytest.raises(DirectoryError, match=sentence):
        node.open()
    assert node.files.state() == before


def test_a_quorum_whose_voters_are_in_its_snapshot_keeps_them_there() -> None:
    """The log that begins behind the snapshot names them again, and `quorum-state` does not."""
    node = Node()
    node.files.make_directory(FOLDER)
    image = MetadataImage(features={"metadata.version": 30})
    voters = VotersRecord(voters=(VotersRecordVoter(voter_id=1),))
    kept = Snapshot(image=image, log_timestamp=0, voters=voters)
    save_snapshot(node.files, FOLDER, kept, next_offset=7, epoch=2, now_ms=0)
    for _ in range(2):
        node.open().close()
        state = json.loads(node.files.content(f"{FOLDER}/quorum-state"))
        assert (state["data_version"], "currentVoters" in state) == (1, False)
    replay = MetadataReplay(image, next_offset=7)
    for _, batch in read_batches(memoryview(node.files.content(f"{FOLDER}/{7:020}.log"))):
        replay.see(batch)
    assert (replay.kraft_version, replay.voters) == (1, voters)


def test_an_open_transaction_is_aborted_by_the_next_leader() -> None:
    """Its records do not count, and the next ones do."""
    node = filled()
    log = node.open()
    log.append([RecordToWrite(BeginTransactionRecord(), 0), setting(50)])
    log.close()
    log = node.open()
    assert value_in(log.image) == 4
    log.append([setting(60)])
    assert value_in(log.image) == 60


def test_a_device_that_refuses_leaves_the_state_as_it_was() -> None:
    """The image is that in front of the append, and the next start agrees with it or has both."""
    node = filled()
    log = node.open()
    node.files.faults.append(DiskFault(operation="sync"))
    with pytest.raises(OSError, match=r".+"):
        log.append([setting(20)])
    assert value_in(log.image) == 4
    with pytest.raises(OSError, match=r".+"):
        log.append([setting(21)])
    assert value_in(Node(node.files.crash(keep_unsynced=False)).open().image) == 4


def first_refused(log: MetadataLog) -> int:
    """Write rising values until the device refuses one, which is returned."""
    for value in range(100):
        try:
            log.append([setting(value)])
        except OSError:
            return value
    pytest.fail("nothing was refused")


def test_nothing_is_written_behind_a_batch_that_was_refused_and_is_there() -> None:
    """A device that fails behind the sync has the batch: the next start shows it, no other does."""
    node = Node(segment_bytes=500, snapshot_bytes=300, retention_bytes=900)
    log = node.open()
    log.append([LEVEL])
    # The name of a new segment is synced behind its first batch.
    node.files.faults.append(DiskFault(operation="sync_directory", path_part=FOLDER))
    refused = first_refused(log)
    node.files.faults.clear()
    with pytest.raises(StorageError, match="does not change until then"):
        log.append([setting(refused + 1)])
    assert value_in(log.image) == refused - 1
    assert value_in(Node(node.files.crash(keep_unsynced=True)).open().image) == refused


def saving(changes: int) -> MemoryFiles:
    """A disk that lost its power at this change, in saves of four batches each."""
    node = Node(segment_bytes=500)
    log = node.open()
    log.append([LEVEL])
    node.files.stop_at = len(node.files.operations) + changes
    with suppress(ProcessKilledError):
        for _ in range(3):
            places = [BatchPlace(log.end_offset + number, log.epoch, 0) for number in range(4)]
            log.save([data_batch([setting(each.offset)], each) for each in places], log.image)
    return node.files


def test_no_loss_of_power_in_a_save_looks_like_lost_records() -> None:
    """Whatever part of a save is on the device, the log begins again with those before it."""
    segment_counts = set()
    for changes, seed in product(range(20), range(10)):
        files = saving(changes)
        segment_counts.add(sum(each.endswith(".log") for each in files.list(FOLDER)))
        after = Node(files.crash(chance=random.Random(seed)))
        log = after.open()
        assert not log.has_lost_records, f"change {changes}, {seed}: {after.told}"
        # The change of leader of either start, and the level.
        assert (log.end_offset - 3) % 4 == 0, "a part of a save"
    assert segment_counts == {1, 2}


def test_a_killed_node_leaves_the_epochs_of_all_batches() -> None:
    """The checkpoint has each epoch from the moment that it begins."""
    node = filled()
    node.open().append([setting(7)])
    files = node.files.crash(keep_unsynced=False)
    epochs = read_epoch_checkpoint(files, f"{FOLDER}/leader-epoch-checkpoint")
    assert [epoch for epoch, _ in epochs] == [1, 2]


def test_an_empty_directory_becomes_a_log() -> None:
    """With the id that the metadata log has in every cluster."""
    node = Node()
    node.open().close()
    text = node.files.open(f"{DIRECTORY}/__cluster_metadata-0/partition.metadata").read(0, 100)
    assert b"topic_id: AAAAAAAAAAAAAAAAAAAAAQ" in text
