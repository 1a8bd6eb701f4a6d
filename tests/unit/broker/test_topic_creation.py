"""Topics that clients miss, asked of the active controller: `TopicCreation`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace.broker.kraft.channel import NoControllerError
from tailrace.broker.kraft.topic_creation import TopicCreation
from tailrace.cluster.topic_rules import NewTopic
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.testing import Outside

pytestmark = pytest.mark.usefixtures("outside")


class Controller:
    """The answers of the active controller, which a test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[CreateTopicsRequest, asyncio.Future[CreateTopicsResponse]]] = []

    async def ask(
        self, request: CreateTopicsRequest, client: RequestHeader | None
    ) -> CreateTopicsResponse:
        assert client is None
        answer: asyncio.Future[CreateTopicsResponse] = asyncio.get_running_loop().create_future()
        self.asked.append((request, answer))
        return await answer

    @property
    def names(self) -> list[list[str]]:
        return [[topic.name for topic in request.topics] for request, _ in self.asked]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        request, answer = self.asked.pop(0)
        answer.set_result(
            CreateTopicsResponse(
                topics=tuple(
                    CreatableTopicResult(name=topic.name, error_code=code, error_message="why")
                    for topic in request.topics
                )
            )
        )


@asynccontextmanager
async def creating(controller: Controller, **counts: Any) -> AsyncIterator[TopicCreation]:
    creation = TopicCreation(controller.ask, timeout_ms=30_000, **counts)
    yield creation
    await creation.close()


async def test_topics_are_asked_for_in_one_request(outside: Outside) -> None:
    """With the counts of this broker's settings where a topic has none; nobody waits for it."""
    controller = Controller()
    async with creating(controller, partition_count=4) as creation:
        full = NewTopic("b", partition_count=2, replication_factor=3, configs={"x": "1"})
        refused = await creation.create([NewTopic("a"), full])
        assert refused == {}
        await outside.pass_time(1)
        [(request, _)] = controller.asked
        first, second = request.topics
        assert (first.num_partitions, first.replication_factor, first.configs) == (4, -1, ())
        assert (second.num_partitions, second.replication_factor) == (2, 3)
        assert [(each.name, each.value) for each in second.configs] == [("x", "1")]
        assert request.timeout_ms == 30_000


async def test_a_topic_is_asked_for_once_at_a_time(outside: Outside) -> None:
    """However many clients miss it; after the answer the next one has it asked for again."""
    controller = Controller()
    async with creating(controller) as creation:
        for _ in range(3):
            await creation.create([NewTopic("a")])
            await creation.create([NewTopic("a"), NewTopic("b")])
        await outside.pass_time(1)
        assert controller.names == [["a"], ["b"]]
        controller.answer()
        await outside.pass_time(1)
        await creation.create([NewTopic("a"), NewTopic("b")])
        await outside.pass_time(1)
        assert controller.names == [["b"], ["a"]]


@pytest.mark.parametrize(
    ("code", "is_logged"),
    [
        (ErrorCode.NONE, False),
        (ErrorCode.TOPIC_ALREADY_EXISTS, False),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, False),
        (ErrorCode.INVALID_REPLICATION_FACTOR, True),
    ],
)
async def test_a_refusal_is_logged(
    outside: Outside, caplog: pytest.LogCaptureFixture, *, code: ErrorCode, is_logged: bool
) -> None:
    """The client cannot be told: it was answered before. Another broker may have been first."""
    controller = Controller()
    async with creating(controller) as creation:
        await creation.create([NewTopic("a")])
        await outside.pass_time(1)
        controller.answer(code)
        await outside.pass_time(1)
    assert (f"topic_not_created name=a reason=why ({code.name})" in caplog.text) is is_logged


async def test_a_lost_request_can_be_asked_again(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """When no controller answers in time, the next client that misses the topic asks."""
    controller = Controller()
    async with creating(controller) as creation:
        await creation.create([NewTopic("a")])
        await outside.pass_time(1)
        controller.asked.pop()[1].set_exception(NoControllerError("nobody"))
        await outside.pass_time(1)
        assert "topics_not_created names=a reason=nobody" in caplog.text
        await creation.create([NewTopic("a")])
        await outside.pass_time(1)
        assert controller.names == [["a"]]
