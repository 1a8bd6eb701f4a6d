"""Blocks of producer ids, from a controller that a test scripts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace.broker.kraft.producer_ids import ProducerIds
from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tailrace.testing import Outside
from tests.unit.broker.kraft.scripted import SILENCE, ScriptedController, channel_to


class ScriptedBlocks(ScriptedController):
    """Gives blocks of ten ids, with others between for other brokers."""

    def __init__(self, outside: Outside) -> None:
        super().__init__(outside)
        self.start = 1000
        self.lies: list[Any] = []
        """Answers to the next requests."""
        self.answers[AllocateProducerIdsRequest] = self._allocate

    def _allocate(self, _: AllocateProducerIdsRequest) -> Any:
        if self.lies:
            return self.lies.pop(0)
        self.start += 30
        return AllocateProducerIdsResponse(producer_id_start=self.start - 30, producer_id_len=10)


@asynccontextmanager
async def scene(outside: Outside) -> AsyncIterator[tuple[ScriptedBlocks, ProducerIds]]:
    """A controller, and ids from it."""
    controller = ScriptedBlocks(outside)
    _, channel = channel_to(outside, controller)
    ids = ProducerIds(channel, broker_id=1, broker_epoch=lambda: 50)
    yield controller, ids
    ids.close()
    channel.close()
    await outside.pass_time(0)


async def test_ids_are_those_of_the_blocks_in_order(outside: Outside) -> None:
    """A block follows the one before without a gap between requests; each id is given once."""
    async with scene(outside) as (controller, ids):
        found = [await ids.next() for _ in range(25)]
        assert found == [*range(1000, 1010), *range(1030, 1040), *range(1060, 1065)]
        request = controller.requests[0]
        assert (request.broker_id, request.broker_epoch) == (1, 50)


async def test_the_next_block_is_asked_for_before_the_end_of_one(outside: Outside) -> None:
    """At nine tenths: most producers never wait for the controllers."""
    async with scene(outside) as (controller, ids):
        for _ in range(9):
            await ids.next()
        await outside.pass_time(1)
        assert len(controller.requests) == 1
        await ids.next()
        await outside.pass_time(1)
        assert len(controller.requests) == 2
        began = outside.loop.time()
        controller.kill()
        assert await ids.next() == 1030
        assert outside.loop.time() == began


async def test_producers_that_come_together_share_one_request(outside: Outside) -> None:
    """Each gets another id."""
    async with scene(outside) as (controller, ids):
        found = await asyncio.gather(*(ids.next() for _ in range(5)))
        assert sorted(found) == [*range(1000, 1005)]
        assert len(controller.requests) == 1


async def test_more_producers_than_a_block_has_ids(outside: Outside) -> None:
    """Producers that find it empty wait for the next, or ask again."""
    async with scene(outside) as (_, ids):
        found: list[int] = []

        async def one() -> None:
            while True:
                try:
                    found.append(await ids.next())
                except CoordinatorLoadInProgressError:
                    continue
                return

        await asyncio.gather(*(one() for _ in range(35)))
        assert len(set(found)) == 35


async def test_a_client_does_not_wait_long_for_a_controller(outside: Outside) -> None:
    """It asks again after a second; the request goes on, and its block is used."""
    async with scene(outside) as (controller, ids):
        controller.kill()
        with pytest.raises(CoordinatorLoadInProgressError):
            await ids.next()
        assert 0.9 < outside.loop.time() < 1.1
        controller.revive()
        await outside.pass_time(5)
        assert await ids.next() == 1000
        assert len(controller.requests) == 1


@pytest.mark.parametrize(
    ("start", "count"),
    [(-1, 1000), (-1000, 1000), (5000, 0), (5000, -1), (2**63 - 5, 10), (1000, 10), (1009, 10)],
)
async def test_a_wrong_block_is_refused(outside: Outside, start: int, count: int) -> None:
    """Negative ids, no ids, and those that this broker has had: two producers would share one."""
    async with scene(outside) as (controller, ids):
        first = [await ids.next() for _ in range(8)]
        wrong = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=count)
        controller.lies = [wrong, wrong]
        rest = [await ids.next() for _ in range(5)]
        assert [*first, *rest] == [*range(1000, 1010), *range(1030, 1033)]


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED, -1, 999]
)
async def test_an_error_is_asked_again_after_a_pause(
    outside: Outside, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that registers meanwhile gets its block; the log has one line of it."""
    async with scene(outside) as (controller, ids):
        controller.lies = [AllocateProducerIdsResponse(error_code=code)] * 4
        assert await ids.next() == 1000
        assert 0.19 < outside.loop.time() < 0.25
        assert caplog.text.count("producer_ids_refused") == 1


async def test_a_cancelled_client_does_not_end_the_request_of_others(outside: Outside) -> None:
    """They wait for the same block."""
    async with scene(outside) as (controller, ids):
        outside.network.delay_s = 0.1
        first, second = asyncio.ensure_future(ids.next()), asyncio.ensure_future(ids.next())
        await outside.pass_time(0.2)
        first.cancel()
        assert await second == 1000
        assert len(controller.requests) == 1


async def test_nothing_is_asked_after_the_end(outside: Outside) -> None:
    """Ids that are left are lost."""
    async with scene(outside) as (controller, ids):
        controller.lies = [SILENCE]
        asking = asyncio.ensure_future(ids.next())
        await outside.pass_time(0.5)
        ids.close()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await outside.pass_time(60)
        assert len(controller.requests) == 1
