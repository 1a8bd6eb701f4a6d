"""A controller of our own whose disk was lost: brokers serve on, and a copy of theirs heals it."""

import asyncio

import pytest

from tailrace.broker.controller.node import ControllerNode
from tailrace.errors import TailraceError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.testing import MemoryFiles, Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.controller.own_clusters import CONTROLLER, OwnCluster, own_cluster

FOLDER = "data/__cluster_metadata-0"


def copied(source: MemoryFiles, *, folder: str, onto: MemoryFiles) -> None:
    """Copy the files of a folder to another disk."""
    if not onto.is_directory(folder):
        onto.make_directory(folder)
    for name in source.list(folder):
        path = f"{folder}/{name}"
        if not source.is_directory(path):
            onto.open(path, create=True).write(0, source.content(path))


def backup(disk: MemoryFiles) -> MemoryFiles:
    """A copy of a disk of a controller."""
    found = MemoryFiles()
    copied(disk, folder="data", onto=found)
    copied(disk, folder=FOLDER, onto=found)
    return found


async def restart_on(cluster: OwnCluster, disk: MemoryFiles) -> ControllerNode:
    """Have the controller killed, and another one on this disk."""
    cluster.kill_controller()
    cluster.disks[CONTROLLER] = disk
    await cluster.start_controller()
    return cluster.controller.node


async def test_a_controller_with_an_empty_directory_ends_no_broker(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a new cluster, which the log of each broker says once; records are served meanwhile."""
    async with own_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await outside.pass_time(2)
        cluster_id = cluster.controller.cluster_id
        lost = await restart_on(cluster, MemoryFiles())
        assert lost.cluster_id != cluster_id
        await outside.pass_time(20)
        assert caplog.text.count("its cluster has another id") == 2
        assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
        healed = MemoryFiles()
        healed.make_directory("data")
        healed.open("data/meta.properties", create=True).write(
            0, f"version=1\ncluster.id={cluster_id}\nnode.id={CONTROLLER}\n".encode()
        )
        copied(cluster.disks[1], folder=FOLDER, onto=healed)
        node = await restart_on(cluster, healed)
        assert node.cluster_id == cluster_id
        await cluster.add_topic("u", replicas=(2, 1))
        assert not cluster.image.brokers[1].fenced


async def test_an_older_copy_is_refused_by_a_broker_that_starts_later(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after it has grown past what the broker has: its epoch is one of its own."""
    async with own_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        await cluster.add_topic("u", replicas=(1,))
        await outside.pass_time(1)
        older = backup(cluster.disks[CONTROLLER])
        cluster.kill_controller()
        await cluster.start_controller()
        await cluster.add_topic("v", replicas=(1,))
        await outside.pass_time(1)
        end = cluster.controller.node.watermark
        cluster.kill(1)
        node = await restart_on(cluster, older)
        await cluster.until(lambda image: image.brokers[1].fenced)
        assert node.watermark > end
        broker_end = cluster.disks[1].content(f"{FOLDER}/{0:020}.log")
        with pytest.raises((TailraceError, TimeoutError)):
            await asyncio.wait_for(cluster.start(1), timeout=120)
        assert "older copy" in caplog.text
        assert cluster.disks[1].content(f"{FOLDER}/{0:020}.log") == broker_end


async def test_an_older_copy_ends_a_broker_that_runs(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """It has followed what the copy lacks; the log has the sentence, and no traceback."""
    async with own_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        older = backup(cluster.disks[CONTROLLER])
        await cluster.add_topic("u", replicas=(1,))
        await outside.pass_time(1)
        await restart_on(cluster, older)
        await cluster.brokers[1].failed.wait()
        assert "it was restored from an older copy" in (cluster.brokers[1].end_reason or "")
        [ended] = [each for each in caplog.records if "membership_ended" in each.getMessage()]
        assert not ended.exc_info
        await cluster.stop(1)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_an_older_copy_is_refused_by_each_start_of_a_broker(
    outside: Outside, *, is_killed: bool
) -> None:
    """A supervisor starts it again: it knows what was committed, whatever epoch the copy begins."""
    async with own_cluster(outside, 1) as cluster:
        older = backup(cluster.disks[CONTROLLER])
        await cluster.add_topic(replicas=(1,))
        assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
        await outside.pass_time(1)
        if is_killed:
            cluster.kill(1)
        own = cluster.disks[CONTROLLER]
        await restart_on(cluster, older)
        if not is_killed:
            await cluster.brokers[1].failed.wait()
            await cluster.stop(1)
        for _ in range(3):
            with pytest.raises(TailraceError, match="restored from an older copy"):
                await asyncio.wait_for(cluster.start(1), timeout=120)
        await restart_on(cluster, own)
        await cluster.start(1)
        assert cluster.end(1) == 1


async def test_the_last_leader_that_lost_its_disk_is_not_elected(outside: Outside) -> None:
    """The records are on the others, which were killed before it: an operator chooses one."""
    settings = {"min.insync.replicas": "2"}
    async with own_cluster(outside, 1, 2, 3, settings=settings) as cluster:
        await cluster.add_topic()
        assert (await produce(cluster.peer(1), "t", batch(b"one"))).error_code == 0
        for each in (2, 3, 1):
            cluster.kill(each)
            await cluster.until(lambda image, each=each: image.brokers[each].fenced)  # type: ignore[misc]
        cluster.disks[1] = MemoryFiles()
        for each in (1, 3, 2):
            await cluster.start(each)
        await outside.pass_time(30)
        assert cluster.state().leader == -1
        cluster.kill(1)
        await cluster.until(lambda image: image.brokers[1].fenced)
        asked = ElectLeadersRequest(
            election_type=1,
            topic_partitions=(TopicPartitions(topic="t", partitions=(0,)),),
            timeout_ms=1000,
        )
        await cluster.peer(2).ask(ApiKey.ELECT_LEADERS, asked, ElectLeadersResponse)
        assert cluster.state().leader in (2, 3)
        await cluster.start(1)
        await cluster.until(lambda _: set(cluster.state().isr) == {1, 2, 3})
        assert cluster.end(1) == 1
