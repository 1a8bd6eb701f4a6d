"""DeleteTopics under `delete.topic.enable=false`."""

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.controller.own_clusters import own_cluster

DISABLED = ErrorCode.TOPIC_DELETION_DISABLED


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (3, DISABLED), (6, DISABLED)]
)
async def test_no_topic_is_deleted_where_that_is_disabled(
    outside: Outside, version: int, code: ErrorCode
) -> None:
    """Each topic of the request is refused with Kafka's code, and is still there."""
    async with running(outside, {"delete.topic.enable": "false"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "flights")
        names = ("flights", "absent")
        request = (
            DeleteTopicsRequest(topics=tuple(DeleteTopicState(name=each) for each in names))
            if version >= 6
            else DeleteTopicsRequest(topic_names=names)
        )
        answer = await peer.ask(
            ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, version=version
        )
        assert [(each.name, each.error_code) for each in answer.responses] == [
            (name, code) for name in names
        ]
        left = await peer.ask(ApiKey.METADATA, MetadataRequest(topics=None), MetadataResponse)
        assert [each.name for each in left.topics] == ["flights"]


async def test_a_controller_that_disables_it_refuses_for_all_brokers(outside: Outside) -> None:
    """A broker forwards the request, and the setting of the controller counts."""
    settings = {"delete.topic.enable": "false"}
    async with own_cluster(outside, 1, settings=settings) as cluster:
        await cluster.add_topic(replicas=(1,))
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),))
        answer = await cluster.peer(1).ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
        assert [each.error_code for each in answer.responses] == [DISABLED]
        assert cluster.state().leader == 1
