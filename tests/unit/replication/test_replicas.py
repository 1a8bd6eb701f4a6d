"""The roles of a broker's partitions, as the images of its cluster assign them."""

import errno
from uuid import UUID

import pytest

from tailrace.errors import StorageError
from tailrace.model import Offset, TopicPartition
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.new_logs import RETRY_S
from tailrace.replication.partition import ClusterView, NotLeaderError, UnknownPartitionError
from tailrace.replication.replicas import Replicas, ReplicaStatistics
from tailrace.testing import DiskFault, Outside
from tests.unit.storage.builders import settings
from tests.unit.storage.test_manager import manager

ME, SECOND = 1, 2
UNASSIGNED = UUID(int=1)
TOPIC_ID = UUID(int=1)
FIRST = TopicPartition("t", 0)


class Cluster:
    """Two brokers, of which this is the first, with partitions 0 to 9 of one topic."""

    def __init__(self, outside: Outside) -> None:
        self.logs = manager(outside.files, "data", "other")
        self.replicas = Replicas(
            self.logs,
            outside.threads,
            cluster=ClusterView(
                node_id=ME,
                brokers=self,
                has_partition=lambda name: name.partition < 10,
                clock=outside.clock,
                lag_ms=30_000,
            ),
        )
        self.logs.on_failure = self.replicas.directory_failed
        self.events: list[tuple[str, int]] = []
        self.replicas.on_led = lambda name: self.events.append(("led", name.partition))
        self.replicas.on_gone = lambda name: self.events.append(("gone", name.partition))
        self.replicas.on_followed = lambda each: self.events.append(
            ("followed", each.name.partition)
        )
        self.epoch = 0

    def alive_epoch(self, broker_id: int) -> int | None:
        return 100 * broker_id

    def is_shutting_down(self, broker_id: int) -> bool:  # noqa: ARG002 - nobody shuts down here
        return False

    def assign(
        self, leader: int, name: TopicPartition = FIRST, *, directory: UUID = UNASSIGNED
    ) -> None:
        """The next image, in which the leader of a partition is another one."""
        self.epoch += 1
        state = PartitionRecord(
            partition_id=name.partition,
            topic_id=TOPIC_ID,
            replicas=(ME, SECOND),
            isr=(ME, SECOND),
            removing_replicas=(),
            adding_replicas=(),
            leader=leader,
            leader_epoch=self.epoch,
            partition_epoch=self.epoch,
            directories=(directory, UNASSIGNED),
        )
        self.replicas.assign(name, TOPIC_ID, state, config=settings())

    def taken(self) -> list[tuple[str, int]]:
        events, self.events = self.events, []
        return events


async def test_a_partition_takes_its_role_when_its_log_is_made(outside: Outside) -> None:
    """The newest of the images that come meanwhile counts."""
    cluster = Cluster(outside)
    cluster.assign(SECOND)
    assert not cluster.replicas.is_led(FIRST)
    cluster.assign(ME)
    assert cluster.replicas.is_led(FIRST)
    assert not cluster.taken()
    await cluster.replicas.new_logs.wait_for(FIRST)
    assert cluster.taken() == [("led", 0)]
    assert cluster.replicas.find(FIRST).leader_epoch == 2


async def test_leadership_goes_and_comes_back(outside: Outside) -> None:
    """Each new epoch is reported, and `find` gives only what this broker leads."""
    cluster = Cluster(outside)
    cluster.assign(ME)
    await cluster.replicas.new_logs.wait_for(FIRST)
    cluster.assign(ME)
    cluster.assign(SECOND)
    assert cluster.taken() == [("led", 0), ("led", 0), ("gone", 0), ("followed", 0)]
    with pytest.raises(NotLeaderError, match="led by broker 2 in leader epoch 3"):
        cluster.replicas.find(FIRST)
    assert cluster.replicas.find_replica(FIRST).leader_epoch == 3
    cluster.assign(-1)
    assert cluster.taken() == [("followed", 0)]
    with pytest.raises(NotLeaderError, match="led by no broker"):
        cluster.replicas.find(FIRST)
    cluster.assign(ME)
    assert cluster.taken() == [("led", 0)]
    assert cluster.replicas.is_led(FIRST)


async def test_a_partition_of_others_has_a_leader_elsewhere(outside: Outside) -> None:
    """A client with old metadata has to refresh it; a partition of nobody is unknown."""
    cluster = Cluster(outside)
    with pytest.raises(NotLeaderError, match="not on this broker"):
        cluster.replicas.find(TopicPartition("t", 9))
    with pytest.raises(UnknownPartitionError):
        cluster.replicas.find(TopicPartition("t", 10))


async def test_a_failed_directory_ends_what_waits_in_it(outside: Outside) -> None:
    """A producer that waits for followers gets a storage error; no image makes it lead again."""
    cluster = Cluster(outside)
    cluster.assign(ME)
    await cluster.replicas.new_logs.wait_for(FIRST)
    partition = cluster.replicas.find(FIRST)
    waiting = partition.acknowledged(Offset(1))
    assert waiting is not None
    cluster.logs.fail(cluster.logs.directories[0], OSError("gone"))
    with pytest.raises(StorageError, match="offline"):
        await waiting
    cluster.assign(ME)
    assert cluster.taken() == [("led", 0), ("gone", 0)]
    with pytest.raises(StorageError):
        cluster.replicas.find(FIRST)


@pytest.mark.parametrize(
    ("name", "error"),
    [(FIRST, NotLeaderError), (TopicPartition("t", 10), UnknownPartitionError)],
)
async def test_a_partition_that_leaves_ends_what_waits_for_it(
    outside: Outside, name: TopicPartition, error: type[Exception]
) -> None:
    """The producer has to look for its leader if other brokers have it."""
    cluster = Cluster(outside)
    cluster.assign(ME, name)
    await cluster.replicas.new_logs.wait_for(name)
    partition = cluster.replicas.find(name)
    waiting = partition.acknowledged(Offset(1))
    assert waiting is not None
    cluster.replicas.close(name, unique_id="0" * 32)()
    with pytest.raises(error):
        await waiting
    assert cluster.taken() == [("led", name.partition), ("gone", name.partition)]


async def test_a_log_is_made_where_the_controllers_have_it(outside: Outside) -> None:
    """A directory that failed keeps its partitions: they are offline, and not made elsewhere."""
    cluster = Cluster(outside)
    for number, home in enumerate(cluster.logs.directories * 2):
        name = TopicPartition("t", number)
        cluster.assign(ME, name, directory=home.directory.directory_id)
        await cluster.replicas.new_logs.wait_for(name)
        assert cluster.logs.directory_of(name) is home
    gone = cluster.logs.directories[0]
    cluster.logs.fail(gone, OSError("gone"))
    name = TopicPartition("t", 5)
    cluster.assign(ME, name, directory=gone.directory.directory_id)
    await outside.pass_time(60)
    assert cluster.replicas.is_offline(name)
    assert cluster.logs.directory_of(name) is None
    name = TopicPartition("t", 6)
    cluster.assign(ME, name)
    await cluster.replicas.new_logs.wait_for(name)
    assert cluster.replicas.is_led(name)


async def test_statistics_count_what_this_broker_leads(outside: Outside) -> None:
    """A partition that it follows is served, and not counted as lacking replicas."""
    cluster = Cluster(outside)
    for number, leader in enumerate((ME, ME, SECOND)):
        cluster.assign(leader, TopicPartition("t", number))
    await cluster.replicas.new_logs.wait_for_all()
    assert cluster.replicas.statistics() == ReplicaStatistics(
        partition_count=3,
        offline_count=0,
        leader_count=2,
        under_replicated_count=0,
        at_min_count=0,
        under_min_count=0,
    )


@pytest.mark.parametrize("leader", [ME, SECOND])
async def test_a_new_log_has_the_id_of_its_topic(outside: Outside, leader: int) -> None:
    """In either role, before anything is served."""
    cluster = Cluster(outside)
    cluster.assign(leader)
    await cluster.replicas.new_logs.wait_for(FIRST)
    home = cluster.logs.directory_of(FIRST)
    assert home is not None
    path = f"{home.path}/t-0/partition.metadata"
    assert b"topic_id: AAAAAAAAAAAAAAAAAAAAAQ" in outside.files.content(path)


async def test_a_leader_takes_appends_when_its_cut_is_on_the_device(outside: Outside) -> None:
    """It was cut as a follower: until the checkpoints are there its producers wait."""
    cluster = Cluster(outside)
    cluster.assign(SECOND)
    await cluster.replicas.new_logs.wait_for(FIRST)
    partition = cluster.replicas.find_replica(FIRST)
    partition.hold_appends()
    assert FIRST not in cluster.replicas.held
    cluster.assign(ME)
    assert FIRST in cluster.replicas.held
    partition.take_appends()
    assert FIRST not in cluster.replicas.held


async def test_the_end_of_a_move_does_not_end_the_wait_for_a_cut(outside: Outside) -> None:
    """Nothing is appended before the checkpoints of the cut, nor while the last records move."""
    cluster = Cluster(outside)
    cluster.assign(SECOND)
    await cluster.replicas.new_logs.wait_for(FIRST)
    partition = cluster.replicas.find_replica(FIRST)
    partition.hold_appends()
    with cluster.replicas.holding(FIRST):
        assert FIRST in cluster.replicas.held
    assert not partition.takes_appends.is_set()
    with cluster.replicas.holding(FIRST):
        partition.take_appends()
        assert not partition.takes_appends.is_set()
    assert partition.takes_appends.is_set()
    assert FIRST not in cluster.replicas.held


@pytest.mark.parametrize("leader", [ME, SECOND])
async def test_a_partition_whose_log_cannot_be_made_is_offline(
    outside: Outside, leader: int
) -> None:
    """In either role, until a directory takes the log; then the newest image counts."""
    cluster = Cluster(outside)
    outside.files.faults.append(
        DiskFault(operation="make_directory", path_part="t-0", error=errno.ENOSPC)
    )
    cluster.assign(leader)
    await outside.pass_time(1)
    assert cluster.replicas.is_offline(FIRST)
    with pytest.raises(StorageError):
        cluster.replicas.find_replica(FIRST)
    cluster.assign(leader)
    assert not cluster.taken()
    outside.files.faults.clear()
    await outside.pass_time(RETRY_S)
    found = cluster.replicas.find_replica(FIRST)
    assert (found.is_leader, found.leader_epoch) == (leader == ME, 2)
    assert cluster.taken() == [("led" if leader == ME else "followed", 0)]
