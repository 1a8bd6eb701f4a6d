"""Members of one group that read a broker in virtual time, and what they must have been given.

`World` has the broker and knows what was written; `Reader` is one member and checks each record
that it is given against that.
"""

import asyncio
import random
from bisect import bisect_left
from collections.abc import Awaitable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.client.consumer import AsyncConsumer, ConsumerRecord
from tailrace.client.consumer.membership.errors import CommitFailedError
from tailrace.client.producer.aio import AsyncProducer
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect, create_topic

if TYPE_CHECKING:
    from tailrace.broker.broker import RunningBroker

PLACES = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t-2", 0))
PATTERN = "t.*"
BOOTSTRAP = "memory:9092"
SLACK_S = 6.0
"""Time that a call may take beyond its timeout: for the commit before partitions are given back."""

_SETTINGS = {
    "log.dirs": "data",
    "listeners": BOOTSTRAP,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "1000",
}

T = TypeVar("T")


class _AbortError(Exception):
    """Ends a transaction without its records."""


class World:
    """A broker with three partitions, and its writers."""

    def __init__(self, outside: Outside, *, is_committed: bool) -> None:
        self.outside = outside
        self.is_committed = is_committed
        """Whether aborted records may not be seen."""
        self.broker: RunningBroker | None = None
        self.written: dict[TopicPartition, dict[int, bytes]] = {each: {} for each in PLACES}
        """The records that a reader has to see: values by their offsets, in order."""
        self.committed: dict[TopicPartition, set[int]] = {each: {0} for each in PLACES}
        """The offsets that the group may have stored."""
        self._count = 0

    async def start(self) -> None:
        """Have the broker run."""
        self.broker = await start_broker(broker_config(_SETTINGS), self.outside.runtime)

    async def stop(self) -> None:
        """Have no broker."""
        if self.broker is not None:
            broker, self.broker = self.broker, None
            await broker.stop()

    async def create_topics(self) -> None:
        """The topics of `PLACES`."""
        assert self.broker is not None, "a broker makes topics"
        peer = connect(self.outside, self.broker)
        await create_topic(peer, "t", partitions=2)
        await create_topic(peer, "t-2")

    async def write(self, place: TopicPartition, count: int, *, ends: str) -> None:
        """Write records; `ends` is plain, or how their transaction ends: commit or abort."""
        given: dict[str, Any] = {"bootstrap_servers": BOOTSTRAP, "linger_ms": 0}
        if ends != "plain":
            given["transactional_id"] = "writer"
        values = [b"%d" % (self._count + number) for number in range(count)]
        self._count += count
        async with AsyncProducer(runtime=self.outside.runtime, **given) as producer:
            with suppress(_AbortError):
                async with nullcontext() if ends == "plain" else producer.transaction():
                    receipts = [
                        producer.send(place.topic, each, partition=place.partition)
                        for each in values
                    ]
                    offsets = [(await each).offset for each in receipts]
                    if ends == "abort":
                        raise _AbortError
        if ends != "abort" or not self.is_committed:
            self.written[place].update(zip(offsets, values, strict=True))

    def next_offset(self, place: TopicPartition, offset: int) -> int | None:
        """The offset of the first record at an offset or after it; None if there is none yet."""
        offsets = list(self.written[place])
        index = bisect_left(offsets, offset)
        return offsets[index] if index < len(offsets) else None

    def may_be_committed(self, place: TopicPartition, offset: int) -> bool:
        """Whether the group may have this offset, or one with the same next record."""
        wanted = self.next_offset(place, offset)
        return any(self.next_offset(place, each) == wanted for each in self.committed[place])


class Reader:
    """A member of the group."""

    def __init__(self, world: World, chance: random.Random, **settings: Any) -> None:
        self._world = world
        self._loop = world.outside.loop
        self.commits_by_itself = bool(settings["enable_auto_commit"])
        self.consumer = AsyncConsumer(
            runtime=world.outside.runtime,
            bootstrap_servers=BOOTSTRAP,
            group_id="g",
            auto_offset_reset="earliest",
            isolation_level="read_committed" if world.is_committed else "read_uncommitted",
            request_timeout_ms=3000,
            metadata_max_age_ms=2000,
            max_poll_records=chance.randrange(1, 20),
            max_partition_fetch_bytes=chance.choice((200, 1000, 1 << 20)),
            **settings,
        )
        self.positions: dict[TopicPartition, int | None] = {}
        """The offset behind the last record of each partition; None before the first one."""
        self._commits: list[tuple[asyncio.Task[None], dict[TopicPartition, int]]] = []

    def subscribe(self, *, is_by_pattern: bool) -> None:
        """Read all of `PLACES`."""
        hooks: dict[str, Any] = {
            "on_assigned": self._assigned,
            "on_revoked": self._revoked,
            "on_lost": self._revoked,
        }
        if is_by_pattern:
            self.consumer.subscribe(pattern=PATTERN, **hooks)
        else:
            self.consumer.subscribe({each.topic for each in PLACES}, **hooks)

    async def poll(self, wait_s: float) -> int:
        """Take records and check each of them; returns how many."""
        self._note_positions()
        records = await self._in_time(self.consumer.poll(wait_s), wait_s)
        for each in records:
            self._check(each)
        self._note_positions()
        return len(records)

    async def commit(self) -> None:
        """Commit the positions, and wait."""
        await self.begin_commit()
        await self.end_commits()

    async def begin_commit(self) -> None:
        """Commit the positions that there are now, meanwhile."""
        known = {each: offset for each, offset in self.positions.items() if offset is not None}
        for each, offset in known.items():
            self._world.committed[each].add(offset)
        commit = self._loop.create_task(self.consumer.commit(timeout=5))
        task = self._loop.create_task(self._in_time(commit, 5))
        self._commits.append((task, known))
        await self._world.outside.pass_time(0)  # It begins, and so takes the positions.

    async def end_commits(self) -> None:
        """Wait for the commits that are under way; the last one counts if nothing may follow it."""
        for number, (task, known) in enumerate(self._commits, 1):
            try:
                await task
            except (RetriableError, CommitFailedError):
                continue
            if not self.commits_by_itself and number == len(self._commits):
                for each, offset in known.items():
                    if each in self.positions:
                        self._world.committed[each] = {offset}
        self._commits.clear()

    async def check_committed(self, place: TopicPartition) -> None:
        """The group has an offset that was committed.

        While it waits for another member to join, which is not called meanwhile, nobody can know:
        the coordinator answers requests of a connection in their order.
        """
        try:
            found = (await self._in_time(self.consumer.committed(place, timeout=5), 5))[place]
        except TimeoutError:
            return
        assert self._world.may_be_committed(place, 0 if found is None else found.offset)

    async def check_positions(self) -> None:
        """Each position is behind the last record, and not behind the next one."""
        for each, offset in list(self.positions.items()):
            try:
                found = await self._in_time(self.consumer.position(each, timeout=5), 5)
            except TimeoutError:
                continue
            if offset is not None:
                assert found >= offset, f"{each} went back from {offset} to {found}"
                coming = self._world.next_offset(each, offset)
                assert coming is None or found <= coming

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go to an offset."""
        self.consumer.seek(place, offset)
        self.positions[place] = offset

    async def unsubscribe(self) -> None:
        """Leave the group."""
        await self.end_commits()
        self._note_positions()
        await self._in_time(self.consumer.unsubscribe(timeout=5), 5)
        assert not self.positions
        assert not self.consumer.assignment()

    async def close(self) -> None:
        """Leave for ever."""
        await self.end_commits()
        self._note_positions()
        await self._in_time(self.consumer.close(timeout=5), 5)

    def is_at_end(self, place: TopicPartition) -> bool:
        """Whether all records of an own partition were read."""
        offset = self.positions.get(place)
        written = self._world.written[place]
        if offset is None:
            # Nothing came since it was assigned: what is committed must be the end.
            return place in self.positions and (
                not written or self._world.may_be_committed(place, max(written) + 1)
            )
        return self._world.next_offset(place, offset) is None

    def _check(self, record: ConsumerRecord) -> None:
        place = record.topic_partition
        written = self._world.written[place]
        assert place in self.positions, f"{place} was read without being assigned"
        assert place not in self.consumer.paused()
        assert written.get(record.offset) == record.value, f"{place} has no {record}"
        before = self.positions[place]
        if before is None:
            starts = {self._world.next_offset(place, each) for each in self._world.committed[place]}
            assert record.offset in starts, f"{place} began at {record.offset} and not at {starts}"
        else:
            assert record.offset == self._world.next_offset(place, before), (
                f"{place} went from {before} to {record.offset}"
            )
        self.positions[place] = record.offset + 1

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            assert each not in self.positions, f"{each} was assigned twice"
            self.positions[each] = None

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.positions[each]

    def _note_positions(self) -> None:
        """The group may have any position that it could commit by itself."""
        if self.commits_by_itself:
            for each, offset in self.positions.items():
                if offset is not None:
                    self._world.committed[each].add(offset)

    async def _in_time(self, call: Awaitable[T], limit_s: float) -> T:
        start = self._loop.time()
        try:
            return await asyncio.wait_for(call, 600)
        finally:
            spent = self._loop.time() - start
            assert spent <= limit_s + SLACK_S, f"{spent:.1f} s for a timeout of {limit_s:.1f} s"
