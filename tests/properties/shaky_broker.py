"""A broker behind a network that loses things, and random events for it and its clients."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.machine import Decision
from tests.unit.coordinator.groups.stage import Broker

T = TypeVar("T")
Step = tuple[str, Any]
"""An event, and a number: its client, how often it happens, or its seconds."""
REQUEST_TIMEOUT = 40.0
SECONDS = (0.001, 0.3, 1.0, 2.9, 3.1, 7.0, 12.0, 25.0)
FAULTS_OF_BROKERS = ("refuse", "hold", "lose requests", "lose replies", "broker")
"""Events of a broker; `broker` is a restart, which each test checks in its own way."""


class LostError(Exception):
    """A request or its reply did not come through."""


class ShakyBroker(Broker):
    """A broker behind a network that loses things."""

    requests_lost = 0
    """Number of the next requests that are lost."""
    replies_lost = 0
    """Number of the next replies that are lost."""
    starts = 0

    async def run(self, decide: Callable[[GroupMachine, int], Decision[T]]) -> T:
        """The reply, if it comes.

        Raises:
            LostError: the request or its reply is lost, or takes longer than a client waits.
            TailraceError: from the shard.
        """
        if self.requests_lost:
            self.requests_lost -= 1
            raise LostError
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                reply = await super().run(decide)
        except TimeoutError as error:
            raise LostError from error
        if self.replies_lost:
            self.replies_lost -= 1
            raise LostError
        return reply

    async def restart(self, *, records: int | None = None) -> None:
        """Stop and start again."""
        self.starts += 1
        await super().restart(records=records)

    async def suffer(self, step: Step) -> None:
        """Have a fault, or let time pass; other events are none of the broker's."""
        match step:
            case ("lose requests", count):
                self.requests_lost = count
            case ("lose replies", count):
                self.replies_lost = count
            case ("refuse", seconds):
                self.log.refusal = OSError(28, "no space left on device")
                await self.passes(seconds)
                self.log.refusal = None
            case ("hold", seconds):
                self.log.hold_commits()
                await self.passes(seconds)
                self.log.commit()
            case ("pass", seconds):
                await self.passes(seconds)
            case _:
                pass


def steps_of(
    seed: int, *, starts: Sequence[str], clients: int, faults: Sequence[str]
) -> Iterator[Step]:
    """Events, one after the other: clients start, time passes, and things go wrong.

    `starts` are the events by which a client starts.
    """
    chance = random.Random(seed)
    for _ in range(chance.randrange(10, 60)):
        number = chance.randrange(clients)
        match chance.choices(("start", "pass", "fault"), (3, 4, 3))[0]:
            case "start":
                yield chance.choice(starts), number
            case "pass":
                yield "pass", chance.choice(SECONDS)
            case _:
                fault = chance.choice(faults)
                if fault in {"refuse", "hold"}:
                    yield fault, chance.choice(SECONDS)
                else:
                    yield fault, number
