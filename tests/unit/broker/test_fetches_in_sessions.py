"""Fetches of a client that keeps a session: what the broker answers, and when."""

import asyncio
import itertools
from uuid import UUID

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import BY_NAME_FETCH, batch, connect, create_topic, produce, running

BY_ID_FETCH = 17


def topic_of(name: str, *numbers: int, offset: int = 0, topic_id: UUID = NO_UUID) -> FetchTopic:
    """Partitions of a topic in a request."""
    return FetchTopic(
        topic=name,
        topic_id=topic_id,
        partitions=tuple(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number in numbers
        ),
    )


async def ask(
    peer: Peer,
    session_id: int,
    epoch: int,
    *topics: FetchTopic,
    forget: tuple[ForgottenTopic, ...] = (),
    max_wait_ms: int = 0,
    version: int = BY_NAME_FETCH,
) -> FetchResponse:
    """The broker's answer to a request of a session."""
    request = FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=forget,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
    )
    return await peer.ask(ApiKey.FETCH, request, FetchResponse, version=version)


def told(found: FetchResponse) -> list[tuple[str, int, int]]:
    """Topic, partition and bytes of records of each partition in an answer."""
    assert found.error_code == ErrorCode.NONE
    return [
        (topic.topic, each.partition_index, len(each.records or b""))
        for topic in found.responses
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", [7, 11, BY_NAME_FETCH])
async def test_a_session_is_told_of_news_only(outside: Outside, version: int) -> None:
    """All partitions at first, then those with records, and none if nothing has come."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=3)
        found = await ask(peer, 0, 0, topic_of("t", 0, 1, 2), version=version)
        session_id = found.session_id
        assert told(found) == [("t", 0, 0), ("t", 1, 0), ("t", 2, 0)]
        assert session_id > 0
        assert told(await ask(peer, session_id, 1, version=version)) == []
        size = len(batch(b"x"))
        await produce(peer, "t", batch(b"x"), partition=1)
        assert told(await ask(peer, session_id, 2, version=version)) == [("t", 1, size)]
        moved = topic_of("t", 1, offset=1)
        assert told(await ask(peer, session_id, 3, moved, version=version)) == []
        figures = broker.statistics().fetch_sessions
        assert (figures.session_count, figures.partition_count) == (1, 3)


async def test_a_session_names_topics_by_id(outside: Outside) -> None:
    """An id that nobody has is told each time, until a topic has it; one that goes is told too."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        topic_id = broker.controller.image.topics["t"].topic_id
        known = topic_of("", 0, topic_id=topic_id)
        unknown = topic_of("", 0, topic_id=UUID(int=77))
        found = await ask(peer, 0, 0, known, unknown, version=BY_ID_FETCH)
        for epoch in range(1, 4):
            found = await ask(peer, found.session_id, epoch, version=BY_ID_FETCH)
            (topic,) = found.responses
            assert (topic.topic_id, topic.partitions[0].error_code) == (
                UUID(int=77), ErrorCode.UNKNOWN_TOPIC_ID,
            )  # fmt: skip
        forget = (ForgottenTopic(topic="", topic_id=UUID(int=77), partitions=(0,)),)
        found = await ask(peer, found.session_id, 4, forget=forget, version=BY_ID_FETCH)
        assert found.responses == ()
        wrong = await ask(peer, found.session_id, 5)
        assert wrong.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_session_knows_the_name_of_an_id_that_is_gone(outside: Outside) -> None:
    """The partition is unknown then, and the id is inconsistent once another topic has the name.

    Only where the id has never been a topic's for the session it is the id that is unknown.
    """
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=3)
        topic_id = broker.controller.image.topics["t"].topic_id
        first = await ask(peer, 0, 0, topic_of("", 0, topic_id=topic_id), version=BY_ID_FETCH)
        # Of a full request, and added later.
        later = topic_of("", 1, 2, topic_id=topic_id)
        await ask(peer, first.session_id, 1, later, version=BY_ID_FETCH)
        epochs = itertools.count(2)

        async def codes() -> dict[int, int]:
            found = await ask(peer, first.session_id, next(epochs), version=BY_ID_FETCH)
            return {
                each.partition_index: each.error_code
                for topic in found.responses
                for each in topic.partitions
            }

        delete = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000)
        await peer.ask(ApiKey.DELETE_TOPICS, delete, DeleteTopicsResponse)
        assert await codes() == dict.fromkeys(range(3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await create_topic(peer, "t", partitions=2)
        inconsistent = ErrorCode.INCONSISTENT_TOPIC_ID
        assert await codes() == {
            0: inconsistent, 1: inconsistent, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }  # fmt: skip
        again = await ask(peer, 0, 0, topic_of("", 0, topic_id=topic_id), version=BY_ID_FETCH)
        assert again.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_topic_that_comes_later_is_found_by_its_session(outside: Outside) -> None:
    """The session keeps a partition that does not exist, and tells when it does."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        found = await ask(peer, 0, 0, topic_of("t", 0))
        (topic,) = found.responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await create_topic(peer, "t")
        found = await ask(peer, found.session_id, 1)
        assert told(found) == [("t", 0, 0)]
        assert found.responses[0].partitions[0].high_watermark == 0


async def test_a_lost_session_has_an_error_for_the_whole_answer(outside: Outside) -> None:
    """The client begins another one with all of its partitions."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        found = await ask(peer, 123, 4, topic_of("t", 0))
        assert (found.error_code, found.session_id, found.responses) == (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, (),
        )  # fmt: skip
        begun = await ask(peer, 0, 0, topic_of("t", 0))
        found = await ask(peer, begun.session_id, 5)
        assert (found.error_code, found.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
        assert told(await ask(peer, begun.session_id, -1)) == []
        assert broker.statistics().fetch_sessions.session_count == 0


async def test_a_request_of_no_session_leaves_none(outside: Outside) -> None:
    """Versions before 7 have no sessions, and epoch -1 asks for none."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for version, epoch in ((4, -1), (6, -1), (7, -1), (BY_NAME_FETCH, -1)):
            found = await ask(peer, 0, epoch, topic_of("t", 0), version=version)
            assert (told(found), found.session_id) == ([("t", 0, 0)], 0)
        assert broker.statistics().fetch_sessions.session_count == 0


async def test_settings_bound_the_sessions(outside: Outside) -> None:
    """Without slots each answer is full; with one a second client has to do without."""
    for slots in (0, 1):
        async with running(
            outside, {"max.incremental.fetch.session.cache.slots": str(slots)}
        ) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, f"t{slots}")
            ids = [(await ask(peer, 0, 0, topic_of(f"t{slots}", 0))).session_id for _ in range(2)]
            assert [each > 0 for each in ids] == [slots == 1, False]


def test_a_fetch_of_a_session_waits_for_records_of_any_partition() -> None:
    """It names nothing, wakes when one of its partitions gets a record, and has that one only."""

    async def scenario(outside: Outside) -> None:
        async with running(outside) as broker:
            reader, writer = connect(outside, broker), connect(outside, broker)
            await create_topic(writer, "t", partitions=4)
            begun = await ask(reader, 0, 0, topic_of("t", 0, 1, 2, 3))
            waiting = asyncio.ensure_future(ask(reader, begun.session_id, 1, max_wait_ms=60_000))
            await outside.pass_time(0.1)
            await produce(writer, "t", batch(b"late"), partition=2)
            assert told(await waiting) == [("t", 2, len(batch(b"late")))]

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        assert outside.loop.time() < 1


async def test_a_waiting_fetch_is_refused_when_its_session_has_gone_on(outside: Outside) -> None:
    """The next request of the session came on another connection."""
    async with running(outside) as broker:
        first, second = connect(outside, broker), connect(outside, broker)
        await create_topic(first, "t")
        begun = await ask(first, 0, 0, topic_of("t", 0))
        waiting = asyncio.ensure_future(ask(first, begun.session_id, 1, max_wait_ms=500))
        await outside.pass_time(0.1)
        await ask(second, begun.session_id, 2)
        found = await waiting
        assert (found.error_code, found.session_id) == (
            ErrorCode.INVALID_FETCH_SESSION_EPOCH, begun.session_id,
        )  # fmt: skip


async def test_answers_of_one_topic_stay_together_in_the_order_of_turns(outside: Outside) -> None:
    """A partition that had records comes last, in a group of its own behind another topic."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        for name in ("a", "b"):
            await create_topic(peer, name, partitions=2)
        begun = await ask(peer, 0, 0, topic_of("a", 0, 1), topic_of("b", 0, 1))
        await produce(peer, "a", batch(b"x"))
        await ask(peer, begun.session_id, 1)
        for name, number in (("a", 1), ("b", 0), ("b", 1)):
            await produce(peer, name, batch(b"x"), partition=number)
        found = await ask(peer, begun.session_id, 2)
        assert [(each.topic, len(each.partitions)) for each in found.responses] == [
            ("a", 1), ("b", 2), ("a", 1),
        ]  # fmt: skip
        assert [name for name, _, _ in told(found)] == ["a", "b", "b", "a"]


async def test_many_partitions_have_a_session_too(outside: Outside) -> None:
    """A request that is read in slices begins one, and so do its changes."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=300)
        begun = await ask(peer, 0, 0, topic_of("t", *range(300)))
        assert len(told(begun)) == 300
        await produce(peer, "t", batch(b"x"), partition=299)
        size = len(batch(b"x"))
        assert told(await ask(peer, begun.session_id, 1)) == [("t", 299, size)]
        forget = (ForgottenTopic(topic="t", topic_id=NO_UUID, partitions=tuple(range(290))),)
        assert told(await ask(peer, begun.session_id, 2, forget=forget)) == [("t", 299, size)]
        assert broker.statistics().fetch_sessions.partition_count == 10
