"""Replicas that come, go, move and change their roles in a cluster, and what clients hear of it."""

import asyncio
from functools import partial
from uuid import UUID

import pytest

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.metadata_records import PartitionChangeRecord
from tailrace.testing import Outside
from tests.unit.broker.brokers import batch, fetch, fetch_request, produce
from tests.unit.broker.clusters import T_0, Cluster, running_cluster
from tests.unit.broker.test_moves import COUNT, SMALL, alter, stored, values
from tests.unit.broker.transactional import Client
from tests.unit.storage.test_manager import offsets_in

UNASSIGNED, LOST = UUID(int=1), UUID(int=2)


def change(cluster: Cluster, **given: object) -> None:
    """Change the partition as the controllers do of their own accord."""
    record = PartitionChangeRecord(
        topic_id=cluster.state().topic_id,
        partition_id=0,
        **given,  # type: ignore[arg-type]
    )
    cluster.controller.append([RecordToWrite(record, 2)])


@pytest.mark.parametrize("gone", [1, 2])
async def test_a_replica_that_is_taken_away_is_closed(outside: Outside, gone: int) -> None:
    """Leader or follower: who waits there goes to the leader, and the new replica has all."""
    async with running_cluster(outside, 1, 2, 3) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster.peer(1), "t", batch(b"a"))
        await cluster.until(lambda: cluster.watermark(2) == 1)
        waiting = asyncio.ensure_future(
            fetch(cluster.peer(gone), fetch_request("t", 1, max_wait_ms=60_000))
        )
        await outside.pass_time(0.1)
        kept = 3 - gone
        part = ReassignablePartition(partition_index=0, replicas=(kept, 3))
        cluster.controller.do(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            AlterPartitionReassignmentsRequest(
                topics=(ReassignableTopic(name="t", partitions=(part,)),)
            ),
        )
        await cluster.until(lambda: cluster.end(gone) == -1)
        assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        late = await fetch(cluster.peer(gone), fetch_request("t", 0))
        assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (cluster.state().replicas, cluster.state().leader) == ((kept, 3), kept)
        assert (cluster.end(kept), cluster.end(3)) == (1, 1)
        assert not outside.files.exists(f"data-{gone}/t-0")


async def test_a_deleted_topic_leaves_leader_and_follower(outside: Outside) -> None:
    """Clients that wait on leader and follower get an error at once; both folders are deleted."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        waiting = [
            asyncio.ensure_future(
                fetch(cluster.peer(each), fetch_request("t", 0, max_wait_ms=60_000))
            )
            for each in (1, 2)
        ]
        await outside.pass_time(0.1)
        cluster.controller.do(
            ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        )
        codes = {(await each).error_code for each in waiting}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (cluster.end(1), cluster.end(2)) == (-1, -1)
        assert not outside.files.exists("data-1/t-0")
        assert not outside.files.exists("data-2/t-0")


async def test_a_folder_without_a_topic_id_is_set_aside(outside: Outside) -> None:
    """Its records may be those of a deleted topic of the name; the replica is fetched again."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster.peer(1), "t", batch(b"a"))
        await cluster.stop(2)
        inside = outside.files.list("data-2/t-0")
        outside.files.remove("data-2/t-0/partition.metadata")
        await cluster.start(2)
        await cluster.until(lambda: cluster.end(2) == 1)
        (aside,) = [each for each in outside.files.list("data-2") if each.endswith("-stray")]
        assert aside.startswith("t-0.")
        kept = set(outside.files.list(f"data-2/{aside}"))
        assert kept == set(inside) - {"partition.metadata"}
        assert outside.files.exists("data-2/t-0/partition.metadata")


@pytest.mark.parametrize("inside", [(), ("partition.metadata.tmp",)])
async def test_a_folder_without_a_file_goes(outside: Outside, inside: tuple[str, ...]) -> None:
    """A crash has cut the making of a log short before it had an id; nobody has to clean up."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.stop(2)
        outside.files.make_directory("data-2/gone-0")
        for name in inside:
            outside.files.open(f"data-2/gone-0/{name}", create=True).write(0, b"version")
        await cluster.start(2)
        assert not [each for each in outside.files.list("data-2") if "gone" in each]


@pytest.mark.parametrize("assigned", [UNASSIGNED, LOST])
async def test_the_controllers_hear_where_a_log_was_made(outside: Outside, assigned: UUID) -> None:
    """They leave the choice to the broker, or do not know where the log was (KIP-858)."""
    async with running_cluster(outside) as cluster:
        for each in (1, 2):
            await cluster.start(each, {"log.dirs": f"a-{each},b-{each}"})
        cluster.controller.hold_commits()
        cluster.controller.add_topic("t", assignments=[[1, 2]])
        change(cluster, directories=(assigned, assigned))
        assert cluster.state().directories == (assigned, assigned)
        cluster.controller.release_commits()
        await cluster.until(lambda: assigned not in cluster.state().directories)
        assert cluster.state().directories == tuple(
            home.directory.directory_id
            for each in (1, 2)
            if (home := cluster.brokers[each].logs.directory_of(T_0)) is not None
        )


async def test_an_orderly_stop_saves_the_high_watermarks(outside: Outside) -> None:
    """The next start knows what is committed, however short the broker has run."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster.peer(1), "t", batch(b"a", b"b"))
        await cluster.stop(1)
        found = offsets_in(outside.files, "data-1/replication-offset-checkpoint")
        assert found == {"t 0": 2}


@pytest.mark.parametrize("epochs", [1, 10])
async def test_a_move_goes_on_in_new_leader_epochs(outside: Outside, epochs: int) -> None:
    """The copy is of the same log; it ends up there, and can be moved again."""
    async with running_cluster(outside) as cluster:
        limit = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
        broker = await cluster.start(1, {"log.dirs": "one,two", **limit})
        cluster.controller.add_topic("t", assignments=[[1]], configs=SMALL)
        await cluster.until(lambda: cluster.end(1) == 0)
        peer = cluster.peer(1)
        for number in range(COUNT):
            await produce(peer, "t", batch(b"%d" % number))
        first = "one" if outside.files.is_directory("one/t-0") else "two"
        for source, target in ((first, "onetwo".replace(first, "")), ("", first)):
            assert await alter(peer, target) == ErrorCode.NONE
            for _ in range(epochs if source else 0):
                change(cluster, leader=1)
                await outside.pass_time(0.05)
            assert not outside.files.is_directory(f"{target}/t-0")
            await cluster.until(partial(outside.files.is_directory, f"{target}/t-0"))
            assert stored(broker) == values(COUNT)
        assert broker.replicas.find(T_0).leader_epoch == epochs


async def test_a_transaction_begins_at_the_leader_only(outside: Outside) -> None:
    """A follower asks no coordinator: nothing is to be added for what others lead."""
    async with running_cluster(outside, 1, 2) as cluster:
        cluster.controller.add_topic("d", assignments=[[1, 2]])
        await cluster.until(lambda: cluster.end(2, T_0._replace(topic="d")) == 0)
        for version in (11, 12):
            codes = []
            for each in (1, 2):
                client = Client(cluster.peer(each), producer_id=7, epoch=0)
                codes.append((await client.send(b"a", version=version)).error_code)
            # No coordinator has this transaction: the leader has asked for one.
            assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_broker_that_stops_fetches_nothing_out_of_the_isr(outside: Outside) -> None:
    """Its leader would have it in the ISR again, which is refused until the broker is gone."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        # Something to hand over: else the controllers let it go at once.
        await cluster.add_topic("u", replicas=(2, 1))
        await produce(cluster.peer(1), "t", batch(b"a"))
        stopping = cluster.brokers[2]
        task = asyncio.ensure_future(stopping.stop())

        def is_let_go() -> bool:
            state = stopping.cluster.partition(T_0)
            return task.done() or (state is not None and state.isr == (1,))

        await cluster.until(is_let_go)
        # The controllers approve of the stop only later.
        cluster.controller.cut_off(2)
        assert (await produce(cluster.peer(1), "t", batch(b"b"))).error_code == ErrorCode.NONE
        await outside.pass_time(1)
        assert not task.done()
        assert (cluster.end(1), cluster.end(2)) == (2, 1)
        cluster.controller.reconnect(2)
        del cluster.brokers[2]
        await task
