"""Throttled replicas in a cluster: how fast they catch up, and who is never throttled (KIP-73)."""

from tailrace.model import TopicPartition
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.errors import ErrorCode
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.clusters import T_0, Cluster, running_cluster
from tests.unit.broker.test_configs import BROKER, TOPIC, alter_all, resource

RATE = 20_000
RECORD = b"x" * 10_000
SMALL_FETCHES = {"replica.fetch.max.bytes": "12000", "replica.fetch.response.max.bytes": "12000"}


async def change(cluster: Cluster, kind: int, resource_name: str, **settings: str | None) -> None:
    """Set and delete settings of a topic or a broker; names have underscores here."""
    changes = [
        (
            name.replace("_", "."),
            ConfigOperation.DELETE if value is None else ConfigOperation.SET,
            value,
        )
        for name, value in settings.items()
    ]
    peer = cluster.peer(int(resource_name) if kind == BROKER and resource_name else 1)
    (answer,) = await alter_all(peer, resource(*changes, name=resource_name, kind=kind))
    assert answer.error_code == ErrorCode.NONE, answer.error_message


async def lag_behind(cluster: Cluster, broker_id: int, count: int) -> None:
    """Kill a broker, and write records that it does not have."""
    cluster.kill(broker_id)
    await cluster.controller.until(lambda _: broker_id not in cluster.state().isr)
    peer = cluster.peer(1)
    for _ in range(count):
        assert (await produce(peer, "t", batch(RECORD))).error_code == ErrorCode.NONE


async def test_a_leader_keeps_a_replica_that_catches_up_to_a_rate(outside: Outside) -> None:
    """Until the rate is gone; replicas in sync get all at once meanwhile."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic()
        await change(cluster, TOPIC, "t", leader_replication_throttled_replicas="0:1")
        await change(cluster, BROKER, "1", leader_replication_throttled_rate=str(RATE))
        await lag_behind(cluster, 3, 100)
        assert (cluster.end(2), cluster.watermark(1)) == (100, 100)
        # What replicas in sync have got counts too; it is past after these windows.
        await outside.pass_time(12)
        await cluster.start(3, SMALL_FETCHES)
        before = cluster.end(3)
        await outside.pass_time(10)
        assert 10 <= cluster.end(3) - before <= 25
        assert cluster.state().isr == (1, 2)
        await change(cluster, BROKER, "1", leader_replication_throttled_rate=None)
        await cluster.controller.until(lambda _: 3 in cluster.state().isr)
        assert cluster.end(3) == 100


async def test_a_replica_keeps_itself_to_a_rate(outside: Outside) -> None:
    """It leaves the partition out of its fetches; other partitions of the same leader go on."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await cluster.add_topic("other", replicas=(1, 2))
        await change(cluster, TOPIC, "t", follower_replication_throttled_replicas="*")
        await change(cluster, BROKER, "", follower_replication_throttled_rate=str(RATE))
        await lag_behind(cluster, 2, 100)
        await cluster.start(2, SMALL_FETCHES)
        await outside.pass_time(1)
        before = cluster.end(2)
        for number in range(10):
            await produce(cluster.peer(1), "other", batch(b"a"))
            await outside.pass_time(1)
            assert cluster.end(2, TopicPartition("other", 0)) == number + 1
        assert 10 <= cluster.end(2) - before <= 25
        await change(cluster, TOPIC, "t", follower_replication_throttled_replicas=None)
        await cluster.controller.until(lambda _: 2 in cluster.state().isr)
        assert cluster.end(2) == 100


async def test_replicas_in_sync_are_never_throttled(outside: Outside) -> None:
    """However low the rates are, they have what is acknowledged, and stay in the ISR."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic()
        await change(
            cluster,
            TOPIC,
            "t",
            leader_replication_throttled_replicas="*",
            follower_replication_throttled_replicas="*",
        )
        await change(
            cluster,
            BROKER,
            "",
            leader_replication_throttled_rate="0",
            follower_replication_throttled_rate="0",
        )
        await outside.pass_time(1)
        begun = outside.loop.time()
        for _ in range(50):
            answer = await produce(cluster.peer(1), "t", batch(RECORD))
            assert answer.error_code == ErrorCode.NONE
        assert outside.loop.time() - begun < 1
        await outside.pass_time(60)
        assert cluster.state(T_0).isr == (1, 2, 3)
