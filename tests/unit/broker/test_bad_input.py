"""A broker of a cluster against controllers and brokers whose answers cannot be right.

docs/cluster.md lists the cases, and where the tests of the others are.
"""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.following import REFUSALS_MAX
from tailrace.errors import TailraceError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    PartitionData,
)
from tailrace.testing import Outside
from tailrace.testing.controller import FIRST_ID, ScriptedController
from tailrace.values import replace
from tests.unit.broker.brokers import batch, fetch, fetch_request, produce
from tests.unit.broker.clusters import T_0, Cluster, running_cluster
from tests.unit.broker.hostile import GARBAGE, HostileNode
from tests.unit.broker.leaders import Follower, ScriptedLeader, id_of
from tests.unit.storage.builders import values

MEMORY_MAX = 40 << 20
"""Most bytes of Python objects that a course of garbage may take. Several connections may each have
the memory of a frame that has begun."""


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Check the most memory that is in use at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()


def stored(broker: RunningBroker) -> list[bytes | None]:
    partition = broker.replicas.get(T_0)
    assert partition is not None
    return values(partition.log)


@pytest.mark.parametrize("answers_versions", [True, False])
async def test_a_broker_serves_on_whatever_its_controllers_answer(
    outside: Outside, *, answers_versions: bool
) -> None:
    """With bounded memory, and few requests; it is back in its cluster when they are themselves."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        port = cluster.controller.nodes[FIRST_ID].port
        cluster.controller.kill()
        with bounded_memory():
            hostile = HostileNode(outside, port, answers_versions=answers_versions)
            for number in range(20):
                await outside.pass_time(2)
                answer = await produce(cluster.peer(1), "t", batch(b"%d" % number))
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
        # Two brokers, each of which follows the log, sends heartbeats and asks for producer ids.
        assert 20 < hostile.request_count < 2500
        found = await fetch(cluster.peer(1), fetch_request("t", 0))
        assert found.high_watermark == 20
        assert stored(cluster.brokers[2]) == stored(cluster.brokers[1])
        assert [each.end_reason for each in cluster.brokers.values()] == [None, None]
        hostile.close()
        cluster.controller.move(FIRST_ID)
        await cluster.add_topic("u", replicas=(2, 1))
        await cluster.controller.until(
            lambda image: not any(each.fenced for each in image.brokers.values())
        )


@pytest.mark.parametrize("kind", GARBAGE)
async def test_a_follower_serves_on_whatever_its_leader_answers(
    outside: Outside, kind: str
) -> None:
    """Nothing of it is in the log, and the broker leads when it is elected."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster.peer(1), "t", batch(b"a"))
        port = cluster.brokers[1].endpoint[1]
        cluster.kill(1)
        with bounded_memory():
            hostile = HostileNode(outside, port, [GARBAGE[kind]])
            await cluster.until(lambda: cluster.state().leader == 2)
        assert 0 < hostile.request_count < 100
        assert stored(cluster.brokers[2]) == [b"a"]
        answer = await produce(cluster.peer(2), "t", batch(b"b"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
        hostile.close()


@pytest.mark.parametrize("end", [(0, 2), (0, 1 << 40), (9, 2)])
async def test_a_leader_whose_log_does_not_differ_is_not_asked_for_ever(
    outside: Outside, end: tuple[int, int]
) -> None:
    """Nothing is cut, and so the same is answered again: after three times that is an error."""
    leader, follower = ScriptedLeader(outside), Follower(outside)
    leader.lead()
    leader.write(b"a", b"b")
    follower.write(b"a", b"b")
    part = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=0,
        diverging_epoch=EpochEndOffset(epoch=end[0], end_offset=end[1]),
        records=b"",
    )
    topic = FetchableTopicResponse(topic_id=id_of("flights"), partitions=(part,))
    leader.spoil = lambda _, answer: replace(answer, responses=(topic,))
    follower.follow(leader)
    await outside.pass_time(10)
    assert len(leader.requests) == REFUSALS_MAX
    assert follower.log().end_offset == 2
    assert follower.following.statistics().failed_count == 1
    await follower.following.close()
    await leader.close()


@pytest.mark.parametrize("versions", [(4, 12), (19, 25)])
async def test_a_leader_without_a_common_version_is_named(
    outside: Outside, versions: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Before version 13 topics have no ids. It is asked again: brokers are upgraded in turn."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        port = cluster.brokers[1].endpoint[1]
        cluster.kill(1)
        hostile = HostileNode(outside, port, versions={ApiKey.FETCH: versions})
        await outside.pass_time(5)
        assert hostile.request_count == 0
        assert f"leader_unreachable leader=node 1 (memory:{port})" in caplog.text
        assert "Fetch" in caplog.text.partition("leader_unreachable")[2]
        await cluster.until(lambda: cluster.state().leader == 2)
        hostile.close()


@pytest.mark.parametrize("versions", [(4, 16), (19, 25)])
async def test_a_controller_without_a_common_version_is_named(
    outside: Outside, versions: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka before 3.9, or a later one that has dropped what this release has: serve on, say so."""
    async with running_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        port = cluster.controller.nodes[FIRST_ID].port
        cluster.controller.kill()
        hostile = HostileNode(outside, port, versions={ApiKey.FETCH: versions})
        await outside.pass_time(20)
        assert "metadata_not_fetched" in caplog.text
        assert "Fetch" in caplog.text.partition("metadata_not_fetched")[2]
        answer = await produce(cluster.peer(1), "t", batch(b"a"))
        assert answer.error_code == ErrorCode.NONE
        hostile.close()
        cluster.controller.move(FIRST_ID)


async def test_a_leader_of_another_cluster_is_not_followed(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topic of the same name has another id, so none of its records gets here."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        await produce(cluster.peer(1), "t", batch(b"a"))
        port = cluster.brokers[1].endpoint[1]
        other = Cluster(outside)
        other.controller.start()
        cluster.kill(1)
        caplog.set_level("INFO")
        await other.start(1, {"listeners": f"memory:{port}", "log.dirs": "other-1"})
        await other.add_topic(replicas=(1,))
        await produce(other.peer(1), "t", batch(b"b", b"c"))
        assert other.state().topic_id != cluster.state().topic_id
        await outside.pass_time(5)
        assert cluster.state().leader == 1
        assert stored(cluster.brokers[2]) == [b"a"]
        # It is asked each second.
        assert caplog.text.count("fetch_refused partition=t-0") == 1
        assert stored(other.brokers[1]) == [b"b", b"c"]
        await other.stop(1)
        await other.controller.close()
        await cluster.until(lambda: cluster.state().leader == 2)


async def test_a_directory_of_another_cluster_is_refused(outside: Outside) -> None:
    """The error names both, and the directory is as it was."""
    async with running_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        await produce(cluster.peer(1), "t", batch(b"a"))
        await cluster.stop(1)
        kept = {
            path: outside.files.content(path)
            for path in ("data-1/meta.properties", f"data-1/t-0/{0:020}.log")
        }
        other = Cluster(outside)
        other.controller = ScriptedController(outside, cluster_id="another")
        other.controller.start()
        with pytest.raises(TailraceError, match=r"another (cluster|id).*meta\.properties"):
            await other.start(1)
        await other.controller.close()
        assert {path: outside.files.content(path) for path in kept} == kept
        await cluster.start(1)
        assert stored(cluster.brokers[1]) == [b"a"]
