"""A controller of our own, with brokers of the cluster role."""

from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.controller.own_clusters import T_0, own_cluster


async def test_brokers_register_lead_and_follow(outside: Outside) -> None:
    """Three brokers are unfenced, and a record with acks=all is on all of them."""
    async with own_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic()
        assert cluster.state().leader == 1
        answer = await produce(cluster.peer(1), "t", batch(b"one"))
        assert answer.error_code == 0
        assert [cluster.end(each, T_0) for each in (1, 2, 3)] == [1, 1, 1]
