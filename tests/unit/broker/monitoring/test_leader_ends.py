"""The lag of groups in a cluster, also in partitions that other brokers lead."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tailrace.broker.monitoring.leader_ends import INTERVAL_S, WAIT_S, LeaderEnds
from tailrace.broker.monitoring.values import Meter, Values, of_broker
from tailrace.broker.peers import Peers
from tailrace.client.nodes import Node
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.fields import Message
from tailrace.server.request_times import RequestTimes
from tailrace.testing.simulated import SimulatedCluster

M = TypeVar("M", bound=Message)


class CountedPeers:
    """Connections to other brokers, which count the requests."""

    def __init__(self, peers: Peers) -> None:
        self.asked: list[int] = []
        self.close = peers.close
        self._peers = peers

    async def ask(self, node: Node, request: Message, answer: type[M], *, timeout_ms: int) -> M:
        """See `Peers.ask`."""
        self.asked.append(node.id)
        return await self._peers.ask(node, request, answer, timeout_ms=timeout_ms)


def lags(values: Values, name: str = "kafka_consumergroup_lag") -> dict[str, float]:
    """The lag of the group by partition, or of `name` by topic."""
    return {
        "-".join([*each.labels.values()][1:]): each.value for each in values.found.get(name, ())
    }


async def scraping(
    cluster: SimulatedCluster,
) -> tuple[int, CountedPeers, Callable[[], Awaitable[Values]]]:
    """The broker that coordinates the group `g`, its connections, and a scrape of it.

    The group lags by 3 records in each partition of `apart`, which has one replica of each, and of
    `copied`, which has three.
    """
    await cluster.create_topic("apart", replicas=[[1], [2], [3]])
    await cluster.create_topic("copied", replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    places = [TopicPartition(topic, n) for topic in ("apart", "copied") for n in range(3)]
    async with cluster.producer() as producer:
        for each in places:
            for _ in range(5):
                await producer.send(each.topic, b"v", partition=each.partition)
    async with cluster.admin() as admin:
        (await admin.alter_group_offsets("g", dict.fromkeys(places, 2))).results()
    # The followers learn the last high watermark with their next fetch.
    await cluster.pass_time(1)
    number = cluster.state(TopicPartition(OFFSETS_TOPIC, 0)).leader
    broker = cluster.machines[number].running
    assert broker is not None
    peers = broker.new_peers()
    assert peers is not None
    counted = CountedPeers(peers)
    ends = LeaderEnds(broker.cluster, counted)
    times, meter = RequestTimes(cluster.outside.clock), Meter()
    return number, counted, lambda: of_broker(broker, times, meter, ends=ends)


def test_the_coordinator_knows_the_lag_of_all_partitions() -> None:
    """By its own logs, those that it follows, and one request to each other leader."""

    async def story(cluster: SimulatedCluster) -> None:
        me, peers, scrape = await scraping(cluster)
        values = await scrape()
        expected = {f"{topic}-{n}": 3 for topic in ("apart", "copied") for n in range(3)}
        assert lags(values) == expected
        assert lags(values, "kafka_consumergroup_lag_sum") == {"apart": 9, "copied": 9}
        assert sorted(peers.asked) == sorted({1, 2, 3} - {me})
        # A second reader of the metrics costs the leaders nothing.
        assert lags(await scrape()) == expected
        assert len(peers.asked) == 2
        async with cluster.producer() as producer:
            for n in range(3):
                await producer.send("apart", b"v", partition=n)
        await cluster.pass_time(INTERVAL_S)
        assert lags(await scrape(), "kafka_consumergroup_lag_sum") == {"apart": 12, "copied": 9}
        assert len(peers.asked) == 4
        peers.close()

    SimulatedCluster().run(story)


def test_a_leader_that_does_not_answer_is_waited_for_once() -> None:
    """A scrape takes a second more; the lag of its partitions is left out, and so is their sum."""

    async def story(cluster: SimulatedCluster) -> None:
        me, peers, scrape = await scraping(cluster)
        silent, other = sorted({1, 2, 3} - {me})
        await scrape()
        cluster.hold(me, silent)
        await cluster.pass_time(INTERVAL_S)
        began = cluster.outside.loop.time()
        values = await scrape()
        assert cluster.outside.loop.time() - began < WAIT_S + 0.1
        found = lags(values)
        assert f"apart-{silent - 1}" not in found
        assert found[f"apart-{other - 1}"] == found[f"apart-{me - 1}"] == 3
        assert "apart" not in lags(values, "kafka_consumergroup_lag_sum")
        cluster.release(me, silent)
        await cluster.pass_time(2 * INTERVAL_S)
        assert lags(await scrape(), "kafka_consumergroup_lag_sum")["apart"] == 9
        peers.close()

    SimulatedCluster().run(story)
