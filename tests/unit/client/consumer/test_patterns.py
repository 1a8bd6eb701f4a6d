"""Patterns beside topics that Metadata has errors for, in a cluster that answers by script."""

from collections.abc import Callable
from dataclasses import replace

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tailrace.testing import Outside
from tailrace.testing.script import FaultKind
from tests.unit.client.consumer.leaders import Leaders


def with_error(name: str) -> Callable[[Message], Message]:
    """An edit that has Metadata call a topic unknown."""
    unknown = MetadataResponseTopic(
        name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=()
    )

    def edit(answer: Message) -> Message:
        assert isinstance(answer, MetadataResponse)
        others = (each for each in answer.topics if each.name != name)
        return replace(answer, topics=(*others, unknown))

    return edit


async def test_an_error_of_a_topic_that_does_not_match_is_passed_over(outside: Outside) -> None:
    """Topics that match are subscribed to, and Metadata is not asked for again before its time."""
    cluster = Leaders(outside)
    edit = with_error("other")
    cluster.script.add(ApiKey.METADATA, FaultKind.EDIT, edit=edit, times=1000)
    async with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(pattern="t.*")
        await consumer.poll(5)
        assert consumer.subscription() == {"t"}
        before = cluster.count(ApiKey.METADATA)
        await consumer.poll(60)
        assert cluster.count(ApiKey.METADATA) == before


async def test_a_topic_that_matches_is_asked_for_until_it_is_there(outside: Outside) -> None:
    """While Metadata has an error for it, it is asked for after pauses, and subscribed to then."""
    cluster = Leaders(outside)
    cluster.script.add(ApiKey.METADATA, FaultKind.EDIT, edit=with_error("t"), times=4)
    async with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(pattern="t.*")
        await consumer.poll(10)
        assert consumer.subscription() == {"t"}
        assert cluster.count(ApiKey.METADATA) >= 5
