"""Consumers that read from the replica in their rack, over connections to brokers (KIP-392)."""

from tailrace.broker.kraft.settings import RACK_AWARE
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse, PartitionData
from tailrace.testing import Outside, Peer
from tailrace.values import replace
from tests.unit.broker.brokers import BY_NAME_FETCH, batch, fetch_request, produce
from tests.unit.broker.clusters import T_0, Cluster, running_cluster

SIZE = len(batch(b"x"))


async def start(cluster: Cluster, *racks: str) -> None:
    """Start brokers, one in each of these racks."""
    for broker_id, rack in enumerate(racks, 1):
        await cluster.start(broker_id, {"broker.rack": rack, "replica.selector.class": RACK_AWARE})


async def fetch(
    peer: Peer, offset: int, rack: str, *, version: int = BY_NAME_FETCH, max_wait_ms: int = 0
) -> PartitionData:
    """The answer to a consumer of a rack."""
    request = replace(fetch_request("t", offset, max_wait_ms=max_wait_ms), rack_id=rack)
    found = await peer.ask(ApiKey.FETCH, request, FetchResponse, version=version)
    return found.responses[0].partitions[0]


async def test_a_consumer_reads_in_its_rack(outside: Outside) -> None:
    """The leader names the follower, which has what is committed, and waits for more of it."""
    async with running_cluster(outside) as cluster:
        await start(cluster, "a", "b")
        await cluster.add_topic(replicas=(1, 2))
        leader, follower = cluster.peer(1), cluster.peer(2)
        await produce(leader, "t", batch(b"x"))
        found = await fetch(leader, 0, "b", max_wait_ms=60_000)
        assert (found.preferred_read_replica, found.records) == (2, b"")
        found = await fetch(follower, 0, "b", max_wait_ms=60_000)
        assert (found.preferred_read_replica, len(found.records or b"")) == (-1, SIZE)
        old = await fetch(follower, 0, "b", version=10)
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Others stay at the leader.
        assert (await fetch(leader, 0, "a")).records
        assert (await fetch(leader, 0, "")).records


async def test_a_consumer_stays_in_its_rack_when_the_leader_has_gone(outside: Outside) -> None:
    """The follower leads then, and serves the rack without sending anybody away."""
    async with running_cluster(outside) as cluster:
        await start(cluster, "a", "b")
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster.peer(1), "t", batch(b"x"))
        await cluster.stop(1)
        await cluster.until(lambda: cluster.brokers[2].replicas.is_led(T_0))
        found = await fetch(cluster.peer(2), 0, "b")
        assert (found.preferred_read_replica, len(found.records or b"")) == (-1, SIZE)
