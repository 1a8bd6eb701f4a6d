"""Brokers that ask controllers which are killed, move, lose requests and answers, and lie low.

A quorum of three, two brokers without logs, and random faults. Afterwards the faults end, and
everything that a broker has asked for must have come about, once.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.broker.kraft.channel import ControllerChannel, Controllers
from tailrace.broker.kraft.directory_reports import DirectoryReports
from tailrace.broker.kraft.forwarding import Forwarding
from tailrace.broker.kraft.isr_changes import IsrAnswer, IsrChanges
from tailrace.broker.kraft.lifecycle import (
    BrokerState,
    Lifecycle,
    Registration,
)
from tailrace.broker.kraft.producer_ids import ProducerIds
from tailrace.broker.kraft.settings import LifecycleConfig
from tailrace.client.config import ClientConfig
from tailrace.client.nodes import Node
from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.errors import TailraceError
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.broker_registration import Listener
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.protocol.metadata_records import PartitionChangeRecord
from tailrace.replication.leadership import IsrChange
from tailrace.testing import Outside, virtual_runtime
from tailrace.testing.controller import ScriptedController
from tailrace.testing.script import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENT = RequestHeader(ApiKey.METADATA, 12, 1, "client")
BROKERS = (1, 2)
PARTITIONS = 3
STEPS = 40
CALM_S = 90.0
"""Time without faults: a session, the longest pauses, and the longest attempt."""
ASKED = (
    ApiKey.BROKER_HEARTBEAT, ApiKey.BROKER_REGISTRATION, ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.ENVELOPE,
    ApiKey.API_VERSIONS,
)  # fmt: skip
FAULTS = (
    FaultKind.LOSE, FaultKind.LOSE_REPLY, FaultKind.CUT, FaultKind.CUT_AFTER, FaultKind.GARBAGE,
    FaultKind.DELAY, FaultKind.TWICE,
)  # fmt: skip


class Broker:
    """The parts of a broker that ask, and the results of what they were asked for."""

    def __init__(self, outside: Outside, quorum: ScriptedController, number: int) -> None:
        self.number = number
        self.quorum = quorum
        self.given: list[int] = []
        """Producer ids."""
        self.submitted = 0
        self.answered: list[tuple[TopicPartition, IsrAnswer]] = []
        self.reported: dict[TopicPartition, UUID] = {}
        self.failures: list[str] = []
        self.directories = [UUID(int=number * 1000), UUID(int=number * 1000 + 1)]
        self.controllers = Controllers(
            [Node(-n, quorum.host, each.port) for n, each in enumerate(quorum.nodes.values(), 1)]
        )
        config = ClientConfig(client_id=str(number), request_timeout_ms=4000)
        self.channels = [
            ControllerChannel(self.controllers, config, outside.runtime) for _ in range(4)
        ]
        self.lifecycle = Lifecycle(
            self.channels[0],
            Registration(
                broker_id=number,
                cluster_id=quorum.cluster_id,
                incarnation=UUID(int=number),
                listeners=[Listener(name="PLAINTEXT", host="broker", port=9000 + number)],
                directories=self.directories,
            ),
            LifecycleConfig(),
            applied_offset=lambda: quorum.log.watermark - 1,
        )
        self.lifecycle.on_failed = self.failures.append
        self.forwarding = Forwarding(self.controllers, self.channels[1], outside.runtime.threads)
        self.ids = ProducerIds(self.channels[1], broker_id=number, broker_epoch=self.epoch)
        self.isr = IsrChanges(self.channels[2], broker_id=number, broker_epoch=self.epoch)
        self.reports = DirectoryReports(
            self.channels[3],
            broker_id=number,
            broker_epoch=self.epoch,
            is_replica=lambda _, __: True,
            chance=outside.runtime.chance,
        )

    def epoch(self) -> int:
        """The epoch of its registration, as it knows it."""
        return self.lifecycle.broker_epoch

    async def start(self) -> None:
        """Register, and ask to be unfenced."""
        self.forwarding.start()
        await self.lifecycle.start()
        self.lifecycle.ready_to_unfence()

    async def close(self) -> None:
        """End all that asks."""
        for part in (self.forwarding, self.ids, self.isr, self.reports):
            part.close()
        await self.lifecycle.close()
        for channel in self.channels:
            channel.close()

    async def take_ids(self, count: int) -> None:
        """Take producer ids, as clients that ask again do."""
        while count:
            try:
                self.given.append(await self.ids.next())
                count -= 1
            except CoordinatorLoadInProgressError:
                continue

    def change_isr(self, name: TopicPartition, chance: Random) -> None:
        """Propose a random ISR for a partition, by the newest state or an older one."""
        state = self.quorum.partition(name)
        topic = self.quorum.image.topic(name.topic)
        assert topic is not None, "the topic is there before the faults begin"
        members = {self.number, *chance.sample(BROKERS, chance.randint(0, 2))}
        change = IsrChange(
            isr=dict.fromkeys(sorted(members), -1),
            leader_epoch=LeaderEpoch(state.leader_epoch),
            partition_epoch=state.partition_epoch - chance.choice((0, 0, 0, 1)),
            joining=None,
        )
        self.submitted += 1
        self.isr.submit(
            name,
            topic.topic_id,
            change,
            answered=lambda result: self.answered.append((name, result)),
        )

    def report(self, name: TopicPartition, chance: Random) -> None:
        """Report a random directory for a partition."""
        topic = self.quorum.image.topic(name.topic)
        assert topic is not None, "the topic is there before the faults begin"
        self.reported[name] = chance.choice(self.directories)
        self.reports.assign(name, topic.topic_id, self.reported[name])


class World:
    """The quorum, its brokers, and the faults between them."""

    def __init__(self, outside: Outside, seed: int) -> None:
        self.outside = outside
        self.chance = Random(seed)
        self.quorum = ScriptedController(
            outside, nodes=3, partition_count=PARTITIONS, replication_factor=2
        )
        self.created: list[str] = []
        """Topics whose creation a client has seen."""
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Faults first, then none, then what must hold."""
        self.quorum.start()
        self.brokers = [Broker(self.outside, self.quorum, number) for number in BROKERS]
        try:
            await asyncio.gather(*(each.start() for each in self.brokers))
            await asyncio.gather(*(each.lifecycle.unfenced.wait() for each in self.brokers))
            self.quorum.add_topic("t")
            for _ in range(STEPS):
                self.step()
                await self.outside.pass_time(self.chance.choice((0, 0.01, 0.3, 2, 12)))
            await self.calm()
            self.check()
            stops = (each.lifecycle.controlled_shutdown(timeout_s=300) for each in self.brokers)
            assert await asyncio.gather(*stops) == [True, True]
            assert all(each.fenced for each in self.quorum.image.brokers.values())
        finally:
            for each in self.brokers:
                await each.close()
            for task in self.tasks:
                task.cancel()
            await self.quorum.close()

    def step(self) -> None:
        """One thing that happens."""
        broker = self.chance.choice(self.brokers)
        name = TopicPartition("t", self.chance.randrange(PARTITIONS))
        steps: list[Callable[[], object]] = [
            self.fault, self.fault, self.fault, self.move, self.move, self.kill,
            lambda: self.quorum.cut_off(broker.number), self.quorum.reconnect,
            lambda: self.spawn(broker.take_ids(self.chance.choice((1, 30, 1500)))),
            lambda: broker.change_isr(name, self.chance),
            lambda: broker.change_isr(name, self.chance),
            lambda: broker.report(name, self.chance),
            lambda: self.spawn(self.create(broker)),
            lambda: self.spawn(self.unregister(broker)),
        ]  # fmt: skip
        self.chance.choice(steps)()

    def fault(self) -> None:
        """Disturb the next requests of one API."""
        self.quorum.script.add(
            self.chance.choice(ASKED),
            self.chance.choice(FAULTS),
            times=self.chance.randint(1, 3),
            delay_s=self.chance.choice((0.1, 3, 8)),
        )

    def move(self) -> None:
        """Another controller is elected, or the same one again."""
        self.quorum.move(
            self.chance.choice(list(self.quorum.nodes)),
            loses_uncommitted=self.chance.random() < 0.5,
        )

    def kill(self) -> None:
        """The active controller ends, if there is one."""
        if self.quorum.leader_id != -1:
            self.quorum.kill()

    def spawn(self, work: object) -> None:
        """Have a client do something beside."""
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self.tasks.add(task)

    async def create(self, broker: Broker) -> None:
        """Create a topic for a client, which may get an error instead."""
        name = f"n{self.chance.randrange(10**9)}"
        request = CreateTopicsRequest(
            topics=(CreatableTopic(name=name, num_partitions=1, replication_factor=1),)
        )
        try:
            answer = await broker.forwarding.ask(request, CreateTopicsResponse, client=CLIENT)
        except TailraceError:
            return
        # A request whose answer was lost has created it already.
        if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.created.append(name)

    async def unregister(self, broker: Broker) -> None:
        """An operator takes a broker for dead that is alive."""
        try:
            await broker.forwarding.ask(
                UnregisterBrokerRequest(broker_id=broker.number),
                UnregisterBrokerResponse,
                client=CLIENT,
            )
        except TailraceError:
            return

    async def calm(self) -> None:
        """End all faults, and wait until nobody waits."""
        self.quorum.script.heal()
        self.quorum.reconnect()
        self.quorum.move(self.chance.choice(list(self.quorum.nodes)))
        await self.outside.pass_time(CALM_S)
        if self.tasks:
            _, waiting = await asyncio.wait(self.tasks, timeout=CALM_S)
            assert not waiting, "clients wait without an end"
            for task in self.tasks:
                task.result()

    def check(self) -> None:
        """Everything that was asked for has come about, once."""
        image = self.quorum.image
        given = [each for broker in self.brokers for each in broker.given]
        assert len(set(given)) == len(given)
        names = {each.name for each in image.topics.values()}
        assert set(self.created) <= names
        states = self._recorded_states()
        for broker in self.brokers:
            registered = image.brokers[broker.number]
            assert broker.failures == []
            assert broker.lifecycle.state is BrokerState.RUNNING
            assert not registered.fenced
            assert not broker.lifecycle.is_fenced
            assert broker.epoch() == registered.broker_epoch
            assert registered.incarnation_id == UUID(int=broker.number)
            assert broker.isr.pending_count == broker.reports.pending_count == 0
            assert len(broker.answered) == broker.submitted
            for name, result in broker.answered:
                if not isinstance(result, ErrorCode):
                    assert (name.partition, result.partition_epoch) in states
            for name, directory in broker.reported.items():
                state = self.quorum.partition(name)
                placed = dict(zip(state.replicas, state.directories, strict=True))
                assert placed[broker.number] == directory

    def _recorded_states(self) -> set[tuple[int, int]]:
        """Partitions of the topic, and each partition epoch that they ever had."""
        topic = self.quorum.image.topic("t")
        assert topic is not None, "nobody deletes it"
        epochs = dict.fromkeys(range(PARTITIONS), 0)
        found = set(epochs.items())
        for _, record in self.quorum.records:
            if isinstance(record, PartitionChangeRecord) and record.topic_id == topic.topic_id:
                epochs[record.partition_id] += 1
                found.add((record.partition_id, epochs[record.partition_id]))
        return found


@given(st.integers(0, 2**32))
@example(0)
def test_brokers_get_what_they_ask_for_once_the_faults_end(seed: int) -> None:
    """Registered, unfenced, with ids of their own, and every change answered."""
    with virtual_runtime(seed=seed) as outside:
        outside.run(World(outside, seed).run())
