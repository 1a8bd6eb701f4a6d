"""One broker accepts connections and answers nothing; what others can answer is answered soon."""

from typing import Any

import pytest

from tailrace.client.admin import AsyncAdmin, NewTopic, OperationTimeoutError
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.nodes.pool import SILENT_S
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerResponse
from tailrace.testing.cluster import ScriptedNode
from tests.simulation.stage import Stage, play
from tests.unit.client.admin.stage import AdminStage, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

BROKERS = DescribeClusterResponse(
    cluster_id="ID", brokers=(DescribeClusterBroker(broker_id=1, host="node", port=1),)
)


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_question_that_any_broker_answers_waits_for_none(*, is_connected: bool) -> None:
    """The first of the list is silent from the start, or once it has a connection."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.DESCRIBE_CLUSTER, BROKERS)
        if is_connected:
            await admin.describe_cluster()
        at.cluster.nodes[1].is_paused = True
        began = at.outside.loop.time()
        assert (await admin.describe_cluster()).cluster_id == "ID"
        first_s, began = at.outside.loop.time() - began, at.outside.loop.time()
        # The next call knows who is silent.
        await admin.describe_cluster()
        return first_s, at.outside.loop.time() - began

    (first_s, next_s), at = on_stage(scene)
    assert SILENT_S <= first_s < SILENT_S + 0.1
    assert next_s < 0.1
    assert at.asked_nodes()[-2:] == [2, 2]


def test_a_change_is_not_repeated_at_another_broker() -> None:
    """The second one could answer that there is no such broker any more."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.DESCRIBE_CLUSTER, BROKERS)
        at.on(ApiKey.UNREGISTER_BROKER, UnregisterBrokerResponse())
        await admin.describe_cluster()
        at.cluster.nodes[1].is_paused = True
        text = r"broker 7: not done within .* \(10000 ms\); .*bootstrap server .* silent for 10 s"
        with pytest.raises(OperationTimeoutError, match=text):
            await admin.within(10_000).unregister_broker(7)

    _, at = on_stage(scene)
    assert at.cluster.count(ApiKey.UNREGISTER_BROKER) == 0
    assert at.asked_nodes() == [1]


def deleted(body: Any, code: int) -> Message:
    """The answer of a leader with this code for each partition."""
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index, low_watermark=7, error_code=code
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def test_what_others_refuse_is_asked_again_while_one_is_silent() -> None:
    """The item of the silent leader alone fails, and its error says who was silent for how long."""
    codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Outcomes[TopicPartition, int]:
        def answer(_: ScriptedNode, body: Any) -> Message:
            return deleted(body, codes.pop(0))

        at.on(ApiKey.DELETE_RECORDS, answer)
        await admin.describe_topics(["t"])
        at.cluster.nodes[1].is_paused = True
        return await admin.within(5_000).delete_records({T0: 5, T1: 6})

    found, at = on_stage(scene)
    assert found[T1] == 7
    error = found[T0]
    assert isinstance(error, TailraceError)
    assert "node:20001" in str(error)
    assert "silent for" in str(error)
    assert at.outside.loop.time() < 5.5


def test_a_controller_that_is_silent_is_named() -> None:
    """A change that was sent once says that nobody knows whether it was made, and who knows."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        created = CreateTopicsResponse(topics=(CreatableTopicResult(name="new"),))
        at.on(ApiKey.CREATE_TOPICS, created)
        await admin.create_topics([NewTopic("new", 1)])
        at.cluster.nodes[1].is_paused = True
        return await admin.within(8_000).create_topics([NewTopic("new", 1)])

    found, _ = on_stage(scene)
    assert "may have been changed or not" in str(found["new"])
    assert "no answer to CreateTopics in time; it has been silent for 8 s" in str(found["new"])


@pytest.mark.parametrize("seed", range(6))
def test_a_producer_learns_of_a_topic_while_a_broker_is_silent(seed: int) -> None:
    """Whichever broker is asked for metadata, a record to another one is there within seconds."""

    async def main(stage: Stage) -> None:
        stage.cluster.create_topic("t", partitions=3)
        silent = stage.cluster.nodes[1 + seed % 3]
        async with stage.producer() as producer:
            # A connection to each.
            for partition in range(3):
                await stage.send(producer, partition=partition)[0]
            silent.is_paused = True
            began = stage.now
            for topic in ("u", "v", "w"):
                stage.cluster.create_topic(topic, partitions=3)
                for partition in {0, 1, 2} - {silent.id - 1}:
                    await stage.send(producer, topic=topic, partition=partition)[0]
            assert stage.now - began < 5

    play(main, nodes=3, seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_client_begins_while_a_broker_is_silent(seed: int) -> None:
    """Whichever broker of the list it connects to first, a record is there within seconds."""

    async def main(stage: Stage) -> None:
        silent = stage.cluster.nodes[1 + seed % 3]
        silent.is_paused = True
        stage.cluster.move(T0, 1 + (seed + 1) % 3)
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            assert stage.now < 5

    play(main, nodes=3, seed=seed)
