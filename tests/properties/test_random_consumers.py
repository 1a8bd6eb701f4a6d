"""Two members of a group that are called at random while the broker goes and comes.

Each is given every record once from its position on, in order; what was committed does not come
again, and no call takes longer than its timeout says.
"""

import asyncio
import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.testing import virtual_runtime
from tests.examples import IS_EVERY_CHANGE
from tests.properties.reading_members import PLACES, Reader, World

STEPS = 30
SEEDS = 20 if IS_EVERY_CHANGE else settings().max_examples
SETTLE_S = 300
"""Longest time until all is read after the last disturbance: a session and some rebalances."""


@example(seed=2, protocol="classic")  # left the group while the broker was away
@example(seed=22254, protocol="classic")  # asked the bootstrap list for paused brokers
@settings(max_examples=SEEDS)
@given(seed=st.integers(0, 2**32), protocol=st.sampled_from(["classic", "consumer"]))
def test_members_get_each_record_from_their_position_on(seed: int, protocol: str) -> None:
    """Writes, transactions, polls, commits, seeks, pauses, rebalances and restarts in any order."""
    with virtual_runtime(seed=seed) as outside:
        outside.run(_Play(World(outside, is_committed=seed % 3 > 0), seed, protocol).run())


class _Play:
    """One sequence of calls."""

    def __init__(self, world: World, seed: int, protocol: str) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self._settings = {
            "group_protocol": protocol,
            "enable_auto_commit": self._chance.random() < 0.4,
            "auto_commit_interval_ms": 500,
        }
        if protocol == "classic":
            self._settings["partition_assignment_strategy"] = self._chance.choice(
                ("range", "cooperative-sticky", "roundrobin")
            )
        self._readers: list[Reader] = []

    async def run(self) -> None:
        """Do it, and have everything read in the end."""
        await self._world.start()
        await self._world.create_topics()
        self._readers = [self._reader(), self._reader()]
        for _ in range(STEPS):
            await self._step(self._chance.choice(self._readers))
        await self._settle()
        for each in self._readers:
            await each.close()
        await self._world.stop()

    def _reader(self) -> Reader:
        found = Reader(self._world, self._chance, **self._settings)
        found.subscribe(is_by_pattern=self._chance.random() < 0.5)
        return found

    async def _step(self, reader: Reader) -> None:
        chance, world = self._chance, self._world
        if world.broker is None and chance.random() < 0.3:
            await world.start()
        place = chance.choice(PLACES)
        is_up, is_own = world.broker is not None, place in reader.positions
        match chance.randrange(15):
            case 0 | 1 if is_up:
                ends = chance.choice(("plain", "plain", "commit", "abort"))
                await world.write(place, chance.randrange(1, 30), ends=ends)
            case 2:
                await reader.commit()
            case 3:
                await reader.begin_commit()
            case 4 if is_own:
                offset = chance.choice([0, *world.written[place]])
                reader.seek(place, offset)
            case 5 if is_own:
                reader.consumer.pause(place)
            case 6 if is_own:
                reader.consumer.resume(place)
            case 7 if is_up:
                await reader.end_commits()
                await reader.check_committed(place)
            case 8 if is_up:
                await reader.check_positions()
            case 9 if chance.random() < 0.3:
                await reader.unsubscribe()
                reader.subscribe(is_by_pattern=chance.random() < 0.5)
            case 10 if chance.random() < 0.3:
                self._readers.remove(reader)
                await reader.close()
                self._readers.append(self._reader())
            case 11 if chance.random() < 0.3:
                await world.stop()
            case 12:
                await asyncio.gather(*(each.poll(chance.random()) for each in self._readers))
            case _:
                await reader.poll(chance.choice((0.0, 0.1, 1.0)))

    async def _settle(self) -> None:
        """Have everything read."""
        world = self._world
        if world.broker is None:
            await world.start()
        until = world.outside.loop.time() + SETTLE_S
        while not self._is_settled():
            assert world.outside.loop.time() < until, "records are missing: " + str(
                [each.positions for each in self._readers]
            )
            for each in self._readers:
                each.consumer.resume(*each.consumer.paused())
            await asyncio.gather(*(each.poll(0.5) for each in self._readers))

    def _is_settled(self) -> bool:
        return all(any(each.is_at_end(place) for each in self._readers) for place in PLACES)
