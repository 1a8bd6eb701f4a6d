"""The last leader of a partition comes back with other log directories, under our controller."""

from tailrace.errors import StorageError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.testing import MemoryFiles, Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.controller.own_clusters import OwnCluster, own_cluster

TWO = {"log.dirs": "data,other"}
UNCLEAN = {"unclean.leader.election.enable": "true"}


async def in_other(cluster: OwnCluster, *replicas: int) -> TopicPartition:
    """A new partition, which broker 1 has in its second directory."""
    await cluster.start(1, TWO)
    for topic in "abcdefgh":
        await cluster.add_topic(topic, replicas=replicas)
        name = TopicPartition(topic, 0)
        home = cluster.brokers[1].logs.directory_of(name)
        if home is not None and home.path == "other":
            await cluster.outside.pass_time(2)
            return name
    raise AssertionError("a broker spreads its partitions over directories")


async def append(cluster: OwnCluster, broker_id: int, name: TopicPartition) -> None:
    """Append one record, which is acknowledged."""
    answer = await produce(cluster.peer(broker_id), name.topic, batch(b"x"))
    assert answer.error_code == ErrorCode.NONE


async def alone_at_last(cluster: OwnCluster, name: TopicPartition) -> None:
    """Have broker 1 be the last leader, with a record that broker 2 does not have."""
    await append(cluster, cluster.state(name).leader, name)
    await cluster.stop(2)
    await cluster.until(lambda _: cluster.state(name).leader == 1)
    await append(cluster, 1, name)
    await cluster.stop(1)
    await cluster.until(lambda image: image.brokers[1].fenced)


async def test_a_log_from_a_disk_that_was_retired_is_served(outside: Outside) -> None:
    """Its folder was moved to the directory that stays, while the broker was stopped."""
    async with own_cluster(outside) as cluster:
        name = await in_other(cluster, 1)
        await append(cluster, 1, name)
        await cluster.stop(1)
        cluster.disks[1].rename(f"other/{name.topic}-0", f"data/{name.topic}-0")
        await cluster.start(1, {"log.dirs": "data"})
        await cluster.until(lambda _: cluster.state(name).leader == 1)
        await append(cluster, 1, name)
        assert cluster.end(1, name) == 2


async def test_a_partition_without_others_is_served_from_an_empty_disk(outside: Outside) -> None:
    """Its records are gone with the disk, and nobody else has them."""
    async with own_cluster(outside) as cluster:
        name = await in_other(cluster, 1)
        await append(cluster, 1, name)
        await cluster.stop(1)
        disk = cluster.disks[1] = MemoryFiles()
        disk.make_directory("data")
        await cluster.start(1, TWO)
        await cluster.until(lambda _: cluster.state(name).leader == 1)
        await append(cluster, 1, name)
        assert cluster.end(1, name) == 1


async def test_a_log_under_a_new_id_of_its_directory_keeps_its_records(outside: Outside) -> None:
    """A lost meta.properties is no lost log: it leads, and the one that lacks a record does not."""
    async with own_cluster(outside, 2, settings=UNCLEAN) as cluster:
        name = await in_other(cluster, 2, 1)
        await alone_at_last(cluster, name)
        cluster.disks[1].remove("other/meta.properties")
        await cluster.start(1, TWO)
        await outside.pass_time(5)
        await cluster.start(2)
        await cluster.until(lambda _: set(cluster.state(name).isr) == {1, 2})
        assert [cluster.end(each, name) for each in (1, 2)] == [2, 2]


async def test_nobody_is_elected_for_a_directory_that_fails_at_the_start(outside: Outside) -> None:
    """The other replica leads, as the topic allows, and the partition is not stuck."""
    async with own_cluster(outside, 2, settings=UNCLEAN) as cluster:
        name = await in_other(cluster, 1, 2)
        await alone_at_last(cluster, name)
        # What cannot be understood while the logs are loaded takes the directory out of service.
        path = f"other/{name.topic}-0/{0:020}.log.swap"
        cluster.disks[1].open(path, create=True).close()
        cluster.disks[1].overwrite(path, b"garbage" * 20)
        await cluster.start(1, TWO)
        await outside.pass_time(5)
        assert cluster.state(name).leader == -1
        await cluster.start(2)
        await cluster.until(lambda _: cluster.state(name).leader == 2)


async def test_a_follower_whose_directory_has_failed_stays_out_of_sync(outside: Outside) -> None:
    """Nothing is appended that it would fail at; when the leader is killed and back, it leads."""
    async with own_cluster(outside, 2) as cluster:
        name = await in_other(cluster, 2, 1)
        await append(cluster, 2, name)
        await outside.pass_time(3)
        assert set(cluster.state(name).isr) == {1, 2}
        logs = cluster.brokers[1].logs
        home = logs.directory_of(name)
        assert home is not None
        logs.fail(home, StorageError("the device is gone"))
        await cluster.until(lambda _: cluster.state(name).isr == (2,))
        # Also after other images, by which a follower looks for its leader again.
        await cluster.add_topic("z", replicas=(2, 1))
        await cluster.start(3)
        await outside.pass_time(60)
        assert cluster.state(name).isr == (2,)
        cluster.kill(2)
        await cluster.until(lambda image: image.brokers[2].fenced)
        await cluster.start(2)
        await cluster.until(lambda _: cluster.state(name).leader == 2)
        assert cluster.end(2, name) == 1
