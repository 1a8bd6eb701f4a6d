"""The records of a start: those of a new log, and those that make this node lead."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from tailrace.cluster import bootstrap
from tailrace.cluster.beginning import Beginning
from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.records import FoundLog, Node, election_records, placement_records
from tailrace.model import TopicPartition
from tailrace.protocol.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from tailrace.storage.checkpoints import write_whole
from tailrace.testing import MemoryFiles
from tests.unit.cluster import metadata_logs

ID, HERE, ELSEWHERE = (uuid.UUID(int=number) for number in (100, 500, 501))
NODE = Node(node_id=1, directories={"data": HERE})
PARTITION = TopicPartition("flights", 0)


@pytest.mark.parametrize(
    ("level", "is_one", "names"),
    [
        (8, False, {"metadata.version"}),
        (13, True, {"metadata.version"}),
        (25, True, {"metadata.version", "group.version", "transaction.version"}),
        (
            30,
            True,
            {
                "metadata.version", "group.version", "transaction.version", "share.version",
                "streams.version", "eligible.leader.replicas.version",
            },
        ),
    ],
)  # fmt: skip
def test_a_new_log_begins_with_the_levels_of_its_features(
    level: int, names: set[str], *, is_one: bool
) -> None:
    """The level of the metadata comes first; from 3.6 on all of it is one transaction."""
    files = MemoryFiles()
    log = metadata_logs.Node(files).open()
    files.make_directory("first")
    data = bootstrap.bootstrap_file(bootstrap.new_image(level), now_ms=0)
    write_whole(files, f"first/{bootstrap.FILE}", data, is_synced=True)
    first = bootstrap.first_image(files, "first", min_insync_replicas="1")
    beginning = Beginning(log, NODE, first=lambda: first, defaults={}, new_id=lambda: ID)
    written = list(beginning.records({}, was_clean=True, largest_producer_id=-1))
    kinds = [type(each.record).__name__ for each in written]
    features = [each for each in kinds if each == "FeatureLevelRecord"]
    assert (kinds[0] == "BeginTransactionRecord") is is_one
    assert (kinds[-1] == "EndTransactionRecord") is is_one
    assert ("ConfigRecord" in kinds) is (level == 30)
    image = log.append(written)
    assert image.features.keys() == names
    assert len(features) == len(names)
    assert next(iter(image.features.items())) == ("metadata.version", level)


def with_partition(**state: Any) -> MetadataImage:
    """A cluster with one partition, led by node 1 in epoch 4 unless told otherwise."""
    fields = {
        "replicas": (1,), "isr": (1,), "leader": 1, "leader_epoch": 4, "directories": (HERE,),
        **state,
    }  # fmt: skip
    delta = MetadataDelta(bootstrap.new_image())
    delta.replay(TopicRecord(name="flights", topic_id=ID))
    delta.replay(PartitionRecord(topic_id=ID, partition_id=0, **fields))
    return delta.image()


@pytest.mark.parametrize(
    ("state", "log_epoch", "was_clean", "wanted"),
    [
        ({}, 4, True, None),
        ({}, 0, True, None),
        ({}, 4, False, {"leader_epoch": 5}),
        ({"leader": -1}, 4, True, {"leader_epoch": 5}),
        ({}, 7, True, {"leader_epoch": 7}),
        ({"isr": ()}, 4, True, {"isr": (1,), "leader_epoch": 5}),
        ({"leader": -1, "isr": (), "eligible_leader_replicas": (1,)}, 4, True, {"isr": (1,)}),
        ({"leader": -1, "isr": (), "last_known_elr": (1,)}, 4, True, {"last_known_elr": None}),
        ({"directories": (ELSEWHERE,)}, 4, True, {"directories": (HERE,), "leader_epoch": 4}),
        ({"replicas": (2, 1), "isr": (1, 2), "directories": (ELSEWHERE, HERE), "leader": 2},
         4, True, {"isr": (1,), "replicas": (2, 1), "directories": (ELSEWHERE, HERE)}),
        ({"replicas": (2, 1), "isr": (2,), "directories": (ELSEWHERE, HERE), "leader": 2},
         4, True, None),
        ({"replicas": (2, 1), "isr": (), "leader": -1, "directories": (ELSEWHERE, HERE),
          "eligible_leader_replicas": (1, 2)}, 4, True, {"leader": 1, "isr": (1,)}),
    ],
)  # fmt: skip
def test_this_node_leads_what_it_may_lead(
    state: Mapping[str, Any],
    log_epoch: int,
    wanted: Mapping[str, Any] | None,
    *,
    was_clean: bool,
) -> None:
    """In a new epoch where the leader, the others in sync or the stop ask for one; else as it was.

    A replica that is out of sync beside others leads nothing.
    """
    image = with_partition(**state)
    made = list(
        election_records(image, NODE, {PARTITION: FoundLog(log_epoch, HERE)}, was_clean=was_clean)
    )
    if wanted is None:
        assert not made
        return
    found = after(image, [each.record for each in made])
    assert found.leader == 1
    assert found.leader_recovery_state == 0
    for name, value in wanted.items():
        assert getattr(found, name) == value


def test_a_log_that_moves_is_told_and_one_that_stays_is_not() -> None:
    """The replicas, their leader and its epoch stay."""
    image = with_partition()
    assert not list(placement_records(image, NODE, {PARTITION: HERE}))
    [(record, _)] = placement_records(image, NODE, {PARTITION: ELSEWHERE})
    assert isinstance(record, PartitionChangeRecord)
    found = after(image, [record])
    assert (found.directories, found.leader_epoch, found.isr) == ((ELSEWHERE,), 4, (1,))


def after(image: MetadataImage, made: list[Any]) -> PartitionRecord:
    """The partition after some records."""
    delta = MetadataDelta(image)
    for each in made:
        delta.replay(each)
    return delta.image().topics[ID].partitions[0]
