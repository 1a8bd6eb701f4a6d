"""Three brokers and their controllers, of which any is killed, cut off or slow at any time.

All are real but for the machine: brokers, their connections, their logs, and the controller's
rules (`ScriptedController`). The world is doubles, so a seed gives the same course again.

Processes end at once, but the disk keeps what was written, as the page cache of a machine does.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.records.builder import build_batch
from tailrace.testing import Outside, virtual_runtime
from tests.examples import examples
from tests.unit.broker.clusters import Cluster
from tests.unit.storage.builders import values

BROKERS: Final = (1, 2, 3)
TOPIC: Final = "t"
PARTITIONS: Final = 3
PRODUCERS: Final = 9
DELAY_S: Final = 0.1
"""Time that bytes take: a leader is killed while its followers do not have its last records."""
EVENTS: Final = 16
SECONDS_MAX: Final = 300
"""Virtual time in which a cluster without faults is whole again."""


class Acknowledged(NamedTuple):
    """A record that all replicas in sync had, as its producer was answered."""

    partition: int
    offset: int
    value: bytes


class Course:
    """A cluster, its producers, and what happens to them."""

    def __init__(self, outside: Outside, seed: int) -> None:
        self.outside = outside
        self.chance = Random(seed)
        self.cluster = Cluster(outside)
        self.starting: dict[int, asyncio.Task[object]] = {}
        self.acknowledged: list[Acknowledged] = []
        self.sent = 0
        self.is_over = False
        self.trace: list[str] = []
        """The events so far, with their times; shown where a course fails."""

    async def run(self) -> None:
        """Disturb the cluster, let it recover, and check it."""
        controller = self.cluster.controller
        controller.start()
        for each in BROKERS:
            await self.cluster.start(each)
        controller.add_topic(
            TOPIC,
            assignments=[(1, 2, 3), (2, 3, 1), (3, 1, 2)],
            configs={"min.insync.replicas": "2"},
        )
        # Several at once: a leader that ends always has records that nobody else has.
        producers = [
            asyncio.ensure_future(self.produce(each % PARTITIONS)) for each in range(PRODUCERS)
        ]
        self.outside.network.delay_s = DELAY_S
        events: list[Callable[[], None]] = [
            self.kill, self.kill, self.kill, self.revive, self.revive, self.stop, self.cut_off,
            self.reconnect, self.restart_controller, self.hold_commits, self.slow, self.snapshot,
        ]  # fmt: skip
        for _ in range(EVENTS):
            await self.outside.pass_time(self.chance.choice([0.05, 0.3, 1, 4, 12]))
            event = self.chance.choice(events)
            self.trace.append(f"{self.outside.loop.time():.2f} {event.__name__}")
            event()
        await self.heal()
        self.is_over = True
        await asyncio.gather(*producers)
        await self.settle()
        self.check()
        for each in BROKERS:
            await self.cluster.stop(each)
        await controller.close()

    # -- producers ----------------------------------------------------------------------------

    async def produce(self, partition: int) -> None:
        """Send one record after the other to the leader that the controller has."""
        while not self.is_over:
            self.sent += 1
            value = b"%d" % self.sent
            with suppress(OSError, EOFError, TimeoutError, KeyError):
                async with asyncio.timeout(3):
                    offset = await self.send(partition, value)
                if offset >= 0:
                    self.acknowledged.append(Acknowledged(partition, offset, value))
            await self.outside.pass_time(0.02)

    async def send(self, partition: int, value: bytes) -> int:
        """The offset of a record that was acknowledged; -1: it was not."""
        topic = self.cluster.controller.image.topic(TOPIC)
        assert topic is not None
        leader = topic.partitions[partition].leader
        peer = self.cluster.peer(leader)
        batch = build_batch([(b"k", value)], timestamp=self.outside.clock.now_ms())
        part = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=2000,
            topic_data=(
                TopicProduceData(name="", topic_id=topic.topic_id, partition_data=(part,)),
            ),
        )
        try:
            answer = await peer.ask(ApiKey.PRODUCE, request, ProduceResponse)
        finally:
            peer.socket.close()
        [found] = answer.responses[0].partition_responses
        return -1 if found.error_code else found.base_offset

    # -- events -------------------------------------------------------------------------------

    def kill(self) -> None:
        """A broker ends at once."""
        running = [*self.cluster.brokers]
        if running:
            self.cluster.kill(self.chance.choice(running))

    def stop(self) -> None:
        """A broker stops in order, and comes back."""
        running = [*self.cluster.brokers]
        if running and not self.starting:
            broker_id = self.chance.choice(running)
            broker = self.cluster.brokers.pop(broker_id)

            async def again() -> None:
                await broker.stop()
                await self.cluster.start(broker_id)

            self.spawn(broker_id, again())

    def revive(self) -> None:
        """A broker that is down is started."""
        down = [
            each
            for each in BROKERS
            if each not in self.cluster.brokers and each not in self.starting
        ]
        if down:
            broker_id = self.chance.choice(down)
            self.spawn(broker_id, self.cluster.start(broker_id))

    def spawn(self, broker_id: int, work: Coroutine[Any, Any, object]) -> None:
        """Start a broker beside all else."""
        task = asyncio.ensure_future(work)
        self.starting[broker_id] = task
        task.add_done_callback(lambda _: self.starting.pop(broker_id))

    def cut_off(self) -> None:
        """A broker does not reach the controllers."""
        self.cluster.controller.cut_off(self.chance.choice(BROKERS))

    def reconnect(self) -> None:
        """All brokers reach the controllers."""
        self.cluster.controller.reconnect()

    def restart_controller(self) -> None:
        """Another epoch begins, maybe without what was not committed."""
        loses = self.chance.random() < 0.5
        self.cluster.controller.restart(loses_uncommitted=loses)
        self.cluster.controller.release_commits()

    def hold_commits(self) -> None:
        """The quorum has no majority, or has it again."""
        controller = self.cluster.controller
        if controller.log.watermark < controller.log.end_offset:
            controller.release_commits()
        else:
            controller.hold_commits()

    def slow(self) -> None:
        """Bytes and commits take their time."""
        self.outside.network.delay_s = self.chance.choice([0, DELAY_S, 0.3])
        self.cluster.controller.commit_delay_s = self.chance.choice([0, 0.05, 1])

    def snapshot(self) -> None:
        """The controller shortens its log."""
        log = self.cluster.controller.log
        if log.watermark == log.end_offset:
            self.cluster.controller.snapshot()

    # -- end ----------------------------------------------------------------------------------

    async def heal(self) -> None:
        """No more faults, and all brokers are started."""
        controller = self.cluster.controller
        controller.release_commits()
        controller.reconnect()
        controller.commit_delay_s = self.outside.network.delay_s = 0
        for _ in range(10):
            await self.outside.pass_time(0.1)
            for each in BROKERS:
                if each not in self.cluster.brokers and each not in self.starting:
                    self.spawn(each, self.cluster.start(each))
        async with asyncio.timeout(SECONDS_MAX):
            while self.starting:
                await asyncio.wait([*self.starting.values()])

    def partitions(self) -> dict[int, PartitionRecord]:
        """The state of each partition."""
        return {each: self.cluster.state(TopicPartition(TOPIC, each)) for each in range(PARTITIONS)}

    async def settle(self) -> None:
        """Until all replicas are in sync and have the same log."""

        def is_whole() -> bool:
            for number, state in self.partitions().items():
                name = TopicPartition(TOPIC, number)
                ends = {self.cluster.end(each, name) for each in BROKERS}
                marks = {self.cluster.watermark(each, name) for each in BROKERS}
                if len(state.isr) < len(BROKERS) or len(ends | marks) > 1:
                    return False
            return True

        async with asyncio.timeout(SECONDS_MAX):
            await self.cluster.until(is_whole)

    def check(self) -> None:
        """All replicas are the same, with every record that was acknowledged."""
        for number in range(PARTITIONS):
            name = TopicPartition(TOPIC, number)
            logs = []
            for each in BROKERS:
                found = self.cluster.brokers[each].replicas.get(name)
                assert found is not None
                logs.append(values(found.log))
            assert logs[0] == logs[1] == logs[2]
            for promised in self.acknowledged:
                if promised.partition == number:
                    assert logs[0][promised.offset] == promised.value


def play(seed: int) -> None:
    """One course, from its seed."""
    with virtual_runtime(seed=seed) as outside:
        course = Course(outside, seed)
        try:
            outside.run(course.run())
        except BaseException as error:
            error.add_note("\n".join(course.trace))
            raise


@settings(max_examples=examples(2))
@given(st.integers(0, 2**32))
@example(1)
@example(4915441)
def test_what_was_acknowledged_survives_any_faults(seed: int) -> None:
    """Every record that acks=all has promised is on every replica, at its offset."""
    play(seed)
