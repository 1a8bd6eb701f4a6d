"""Brokers of one cluster: who leads, who follows, and what is acknowledged."""

from tailrace.testing import Outside
from tests.unit.broker.clusters import running_cluster


async def test_a_broker_joins_and_leaves_a_cluster(outside: Outside) -> None:
    """It registers, is unfenced, and hands over what it leads before it stops."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        assert cluster.state().leader == 1
        await cluster.stop(1)
        state = cluster.state()
        assert (state.leader, state.isr) == (2, (2,))
        assert cluster.controller.image.brokers[1].fenced
