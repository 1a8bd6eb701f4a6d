"""Lives of a simulated cluster: clients go on while a seed makes faults.

    tailrace.testing.SimulatedCluster      the machines, the links, our own controller, on a
        machine of its own or in the process of a broker
    ScriptedWorld                          the same with a controller that also has a script:
        restarts, loses what is not committed, commits late, snapshots; requests are lost
    producers, readers, groups             `clients`

A seed chooses a `Life`: some kinds of faults and of clients, and what a loss of power takes. At the
end everything is healed, and what clients were told is looked for in the logs (`check`). No node
may have met an error that nobody foresaw (`Tracebacks`).

Under our own controller someone creates topics and asks for producer ids meanwhile (`Answered`):
nothing that it has answered is forgotten. Under the other one an operator may reassign replicas,
cancel that, and have preferred leaders elected.

Not here: lives in which all replicas in sync lose power without `tailrace.durability=sync`. What
was acknowledged is gone then, as in Kafka. `RandomFaults.may_go` keeps them out.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

from tailrace.cluster.control.reassignments import is_reassigning
from tailrace.cluster.control.settings import ControlConfig
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import records_of
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.testing import SimulatedCluster
from tailrace.testing.controller import ScriptedController
from tailrace.testing.machines import CONTROLLER
from tailrace.testing.random_faults import CLOCKS, DISKS, LINKS, PROCESSES, RandomFaults
from tailrace.testing.random_faults import CONTROLLERS as OWN_CONTROLLERS
from tailrace.testing.simulated import HEAL_S, SESSION_MS, bytes_of
from tests.simulation.clients import (
    CLERK,
    PARTITIONS,
    TX_GROUP,
    Clients,
    Outcome,
    Told,
    commit_offsets,
    committed_offset,
    produce,
    read,
    read_committed,
    transact,
    watch_ends,
)

BROKERS: Final = (1, 2, 3)
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
TRANSACTIONS: Final = TopicPartition("__transaction_state", 0)

CONNECTIONS: Final = (*LINKS, "lose requests")
CONTROLLERS: Final = ("restart", "slow commits", "hold commits", "snapshot")
MOVES: Final = ("reassign", "cancel", "elect")
"""Changes that an operator makes; not in `KINDS`, for which seeds are known that find bugs."""
KINDS: Final = (*PROCESSES, *DISKS, *CONNECTIONS, *CONTROLLERS, *CLOCKS)
Role = Literal["scripted", "alone", "in a broker"]
"""The controller of a life: one with a script, or ours, as a node of its own or in a broker."""
OWN_KINDS: Final = (*PROCESSES, *DISKS, *LINKS, *OWN_CONTROLLERS, *CLOCKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The choices of a seed."""

    is_durable: bool
    """Whether acks=all waits for the devices (`tailrace.durability=sync`)."""
    kinds: tuple[str, ...]
    """Faults that may happen."""
    delay_s: float
    unevenness_s: float
    """The longest time by which a connection is slower than others."""
    has_transactions: bool
    group: str
    """`consumer` or `classic`, the protocol of the group that reads; or `clerk`; or none."""
    watches_ends: bool
    controller: Role = "scripted"
    controller_id: int = CONTROLLER
    """The node that has it."""


def choose_life(chance: random.Random, *, controller: Role = "scripted") -> Life:
    """A life of few kinds of faults: all at once would hide what two of them can do."""
    possible = KINDS if controller == "scripted" else OWN_KINDS
    kinds = chance.sample(possible, chance.choice([3, 5, 8, len(possible)]))
    return Life(
        is_durable=chance.random() < 0.4,
        kinds=tuple(kinds),
        delay_s=chance.choice([0.0, 0.001, 0.02, 0.05]),
        unevenness_s=chance.choice([0.0, 0.0, 0.05]),
        has_transactions=chance.random() < 0.4,
        group=chance.choice(["", "", "clerk", "classic", "consumer"]),
        watches_ends=chance.random() < 0.3,
        controller=controller,
        controller_id=chance.choice(BROKERS) if controller == "in a broker" else CONTROLLER,
    )


class World(SimulatedCluster):
    """A simulated cluster with a life."""

    def __init__(self, seed: int, chance: random.Random, life: Life) -> None:
        super().__init__(
            seed,
            controller_id=life.controller_id,
            settings={
                "tailrace.durability": "sync" if life.is_durable else "page-cache",
                "log.index.size.max.bytes": 1000,
                "log.initial.task.delay.ms": 500,
                "log.flush.offset.checkpoint.interval.ms": 1000,
            },
            # Snapshots and their removal are among what a crash may cut.
            controller_settings={
                "metadata.log.max.record.bytes.between.snapshots": 3000,
                "metadata.max.retention.bytes": 5000,
                "metadata.log.segment.ms": 500,
            },
        )
        self.chance = chance
        self.life = life
        self.story.append(str(life))
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        """The broker that was seen to lead a partition in an epoch."""

    def clients(self, told: Told, *, until_s: float) -> Clients:
        """The things that clients share, with `told` to be filled."""
        return Clients(
            runtime=self.client_runtime,
            bootstrap=self.bootstrap_servers,
            chance=self.chance,
            told=told,
            until_s=until_s,
            note=self.note,
            pass_time=self.outside.pass_time,
            # Without, `RandomFaults.may_go` keeps such losses out.
            may_lose_read=self.life.is_durable,
        )

    def delay_of_connection(self) -> float:
        """One of the life."""
        unevenness = self.life.unevenness_s
        return self.chance.uniform(0, unevenness) if unevenness else 0.0

    async def start_all(self) -> None:
        """Start everything, and create the topics."""
        await super().start_all()
        self.outside.network.delay_s = self.life.delay_s
        # As brokers would make them, when all are there to have a replica.
        if self.life.has_transactions or self.life.group:
            await self._add(OFFSETS.topic, [[2, 3, 1]], {"cleanup.policy": "compact"})
        if self.life.has_transactions:
            await self._add(TRANSACTIONS.topic, [[3, 1, 2]], {"cleanup.policy": "compact"})
        await self._add("t", [[1, 2, 3], [2, 3, 1]], {})

    async def _add(self, name: str, replicas: list[list[int]], configs: dict[str, str]) -> None:
        configs = {"min.insync.replicas": "2", **configs}
        request = CreateTopicsRequest(topics=(creatable(name, replicas, configs),))
        answer = await self.connect(CONTROLLER).ask(
            ApiKey.CREATE_TOPICS, request, CreateTopicsResponse
        )
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    def faults(self) -> RandomFaults:
        """The faults of the life."""
        return RandomFaults(self, self.life.kinds)

    async def settle(self) -> None:
        """Wait until all replicas have the same ends, and nothing is above the watermark."""
        await self._until(self._is_settled, "the replicas do not become the same")

    def _is_settled(self) -> bool:
        if not self._is_in_sync():
            return False
        for name in PARTITIONS:
            logs = [self.log(each, name) for each in BROKERS]
            ends = {log.end_offset for log in logs}
            if len(ends | {log.positions.high_watermark for log in logs}) > 1:
                return False
        return True

    async def watch_leaders(self) -> None:
        """Look again and again who leads: there is one leader in an epoch."""
        while True:
            for name in self.partitions():
                for each in BROKERS:
                    found = self.partition(each, name)
                    if found is None or not found.is_leader:
                        continue
                    first = self._leaders.setdefault((name, found.leader_epoch), each)
                    assert first == each, (
                        f"{name}: brokers {first} and {each} lead in epoch {found.leader_epoch}"
                    )
            await self.pass_time(0.05)


def creatable(
    name: str, replicas: Sequence[Sequence[int]], configs: dict[str, str]
) -> CreatableTopic:
    """A topic in a request."""
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(each))
            for number, each in enumerate(replicas)
        ),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
        ),
    )


@dataclass(slots=True)
class Answered:
    """The answers of our own controller, and the state that brokers have seen of it."""

    topics: dict[str, UUID] = field(default_factory=dict)
    """Ids of the topics that were created."""
    producer_ids: list[int] = field(default_factory=list)
    """Each that was given."""
    watermark: int = 0
    broker_epochs: dict[int, int] = field(default_factory=dict)
    leader_epochs: dict[TopicPartition, int] = field(default_factory=dict)

    def check(self, world: World) -> None:
        """The controller that runs has all of it; notes what it has.

        Raises:
            AssertionError: it has not.
        """
        node = world.controller_node
        if node is None:
            return
        assert node.watermark >= self.watermark, (
            f"the controller's log ends at {node.watermark}, and {self.watermark} was seen"
        )
        for name, topic_id in self.topics.items():
            topic = node.image.topic(name)
            assert topic is not None, f"topic {name} was created, and is gone"
            assert topic.topic_id == topic_id, f"topic {name} has another id"
        for broker_id, broker in node.image.brokers.items():
            known = self.broker_epochs.get(broker_id, -1)
            assert broker.broker_epoch >= known, f"broker {broker_id} was in epoch {known}"
            self.broker_epochs[broker_id] = broker.broker_epoch
        for partition in world.partitions():
            epoch = world.state(partition).leader_epoch
            known = self.leader_epochs.get(partition, -1)
            assert epoch >= known, f"{partition} was in epoch {known}, and is in {epoch}"
            self.leader_epochs[partition] = epoch
        self.watermark = node.watermark

    async def watch(self, world: World) -> None:
        """Look again and again."""
        while True:
            self.check(world)
            for each in world.machines.values():
                metadata = (
                    None if each.running is None else each.running._quorum.metadata_statistics()
                )
                # What a broker has applied must be there after any crash of the controller.
                if metadata is not None:
                    self.watermark = max(self.watermark, metadata.applied_offset)
            await world.pass_time(0.1)

    async def ask(self, world: World, clients: Clients) -> None:
        """Create topics and ask for producer ids through brokers, and note the answers."""
        number = 0
        while not clients.is_over:
            number += 1
            broker_id = world.chance.choice(BROKERS)
            # A lost answer says nothing: the next round has another name.
            with suppress(TailraceError, OSError, EOFError, TimeoutError):
                async with asyncio.timeout(2):
                    await self._ask(world, broker_id, f"n{number}")
            await world.pass_time(world.chance.choice([0.1, 0.5]))

    async def _ask(self, world: World, broker_id: int, name: str) -> None:
        peer = world.connect(broker_id)
        try:
            given = await peer.ask(
                ApiKey.INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
                InitProducerIdResponse,
            )
            if given.error_code == ErrorCode.NONE:
                assert given.producer_id not in self.producer_ids, (
                    f"producer id {given.producer_id} was given twice"
                )
                self.producer_ids.append(given.producer_id)
            request = CreateTopicsRequest(topics=(creatable(name, [[broker_id]], {}),))
            answer = await peer.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)
            if answer.topics[0].error_code == ErrorCode.NONE:
                self.topics[name] = answer.topics[0].topic_id
        finally:
            peer.socket.close()


# -- the controller with a script -------------------------------------------------------------


class ScriptedWorld(World):
    """A life whose controller is a `ScriptedController`."""

    controller: ScriptedController

    async def _start_controller(self) -> None:
        self.controller = ScriptedController(
            self.outside, config=ControlConfig(session_timeout_ms=SESSION_MS)
        )
        self.controller.start()
        self.unheard: set[int] = set()
        """Brokers whose requests to the controller are lost."""

    @property
    def controller_bootstrap(self) -> str:
        """The address of the controller."""
        return self.controller.bootstrap

    async def _wait_for_brokers(self) -> None:
        await self.controller.until(
            lambda image: sum(not each.fenced for each in image.brokers.values()) == len(BROKERS)
        )

    async def _add(self, name: str, replicas: list[list[int]], configs: dict[str, str]) -> None:
        configs = {"min.insync.replicas": "2", **configs}
        self.controller.add_topic(name, assignments=replicas, configs=configs)

    @property
    def image(self) -> MetadataImage:
        """The state of the cluster, committed or not."""
        return self.controller.image

    def state(self, name: TopicPartition) -> PartitionRecord:
        """A partition, as the controller has it."""
        found: PartitionRecord = self.controller.partition(name)
        return found

    def isr(self, name: TopicPartition) -> frozenset[int]:
        """The replicas in sync that are so also if the controller loses what is not committed."""
        found, log = frozenset(self.state(name).isr), self.controller.log
        if log.watermark == log.end_offset:
            return found
        topic = log.replay(is_committed=True).image.topic(name.topic)
        assert topic is not None, "it is made at the start"
        return found & frozenset(topic.partitions[name.partition].isr)

    def faults(self) -> "ScriptedFaults":
        """The faults of the life."""
        return ScriptedFaults(self, self.life.kinds)

    def reassign(self, name: TopicPartition, replicas: Sequence[int] | None) -> None:
        """Move a partition to other replicas; None: cancel a move."""
        self.note(f"reassign {name} to {replicas}")
        wanted = ReassignablePartition(
            partition_index=name.partition,
            replicas=None if replicas is None else tuple(replicas),
        )
        topic = ReassignableTopic(name=name.topic, partitions=(wanted,))
        self.controller.do(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            AlterPartitionReassignmentsRequest(topics=(topic,)),
        )

    def reconnect(self) -> None:
        """Lose no requests any more."""
        self.note("the controller gets all requests")
        self.unheard.clear()
        self.controller.reconnect()

    def _mend(self) -> None:
        super()._mend()
        self.controller.commit_delay_s = 0.0
        self.controller.release_commits()
        self.reconnect()

    async def heal(self) -> None:
        """Mend and start everything, and wait until each partition is on all brokers again."""
        self.note("heal")
        self._mend()
        await self._until(self._are_all_back, "the replicas do not come back")
        await super().heal()

    def _are_all_back(self) -> bool:
        """Whether each partition is on all brokers again; moves those that are not."""
        states = {name: self.state(name) for name in self.partitions()}
        for name, state in states.items():
            # Not while they move: replicas that are being removed would still be (Kafka's rule).
            if not is_reassigning(state) and set(state.replicas) != set(BROKERS):
                self.reassign(name, BROKERS)
        return all(
            not is_reassigning(state) and set(state.replicas) == set(BROKERS)
            for state in states.values()
        )

    async def close(self) -> None:
        """Stop everything."""
        await super().close()
        await self.controller.close()


class ScriptedFaults(RandomFaults):
    """With those that the script can make, and an operator's moves."""

    cluster: ScriptedWorld
    more_kinds = ("lose requests", *CONTROLLERS, *MOVES)

    def is_heard(self, broker_id: int) -> bool:
        """Whether the controller gets what the broker sends, and answers it."""
        return broker_id not in self.cluster.unheard and super().is_heard(broker_id)

    def more(self, kind: str, broker_id: int) -> None:
        """Make a fault of `more_kinds`."""
        cluster = self.cluster
        match kind:
            case "lose requests" if self.may_go(broker_id):
                cluster.controller.cut_off(broker_id)
                cluster.unheard.add(broker_id)
                cluster.note(f"requests of {broker_id} to the controller are lost")
            case "reassign" | "cancel" | "elect":
                self._move(kind, cluster.chance.choice(cluster.partitions()))
            case _:
                self._break_controller(kind)

    def _move(self, kind: str, name: TopicPartition) -> None:
        cluster = self.cluster
        # A replica that is away may have lost what it has, and is in sync until the controller
        # knows: it must not be all that a reassignment leaves.
        if not all(cluster.machines[each].is_serving and self.is_heard(each) for each in BROKERS):
            return
        if kind == "elect":
            partitions = (TopicPartitions(topic=name.topic, partitions=(name.partition,)),)
            request = ElectLeadersRequest(election_type=0, topic_partitions=partitions)
            cluster.controller.do(ApiKey.ELECT_LEADERS, request)
            cluster.note(f"elect the preferred leader of {name}")
            return
        replicas: list[int] | None = None
        if kind == "reassign":
            replicas = cluster.chance.sample(BROKERS, cluster.chance.choice([2, 3]))
        cluster.reassign(name, replicas)

    def _break_controller(self, kind: str) -> None:
        controller, chance = self.cluster.controller, self.cluster.chance
        match kind:
            case "restart":
                controller.restart(loses_uncommitted=chance.random() < 0.5)
                controller.release_commits()
            case "slow commits":
                controller.commit_delay_s = chance.choice([0.0, 0.05, 1.0])
                kind = f"commits after {controller.commit_delay_s} s"
            case "hold commits":
                if controller.log.watermark < controller.log.end_offset:
                    controller.release_commits()
                    kind = "release commits"
                else:
                    controller.hold_commits()
            case "snapshot" if controller.log.watermark == controller.log.end_offset:
                controller.snapshot()
            case _:
                return
        self.cluster.note(f"controller: {kind}")

    def broken(self) -> list[Callable[[], None]]:
        """With the requests that are lost."""
        found = super().broken()
        return [*found, self.cluster.reconnect] if self.cluster.unheard else found


# -- claims -----------------------------------------------------------------------------------


def check(cluster: World, told: Told) -> None:
    """The replicas are the same, and have what clients were told.

    Raises:
        AssertionError: a claim does not hold.
    """
    views = {}
    for name in PARTITIONS:
        texts = {bytes_of(cluster.log(each, name)) for each in BROKERS}
        assert len(texts) == 1, f"{name}: the replicas differ"
        batches = [each for _, each in read_batches(memoryview(texts.pop()))]
        _check_records(name, batches, told)
        views[name] = _committed(name, batches)
        seen = told.committed_read[name]
        wrong = {offset for offset, value in seen.items() if views[name].get(offset) != value}
        assert not wrong, f"{name}: a reader of committed records has got others: {wrong}"
        if cluster.life.group in {"classic", "consumer"}:
            skipped = views[name].keys() - seen.keys()
            assert not skipped, f"{name}: the group has skipped {skipped}"
    _check_transactions(views, told)


def _check_records(name: TopicPartition, batches: list[Batch], told: Told) -> None:
    data: dict[int, bytes] = {
        record.offset: bytes(record.value or b"")
        for each in batches
        if not each.is_control
        for record in records_of(each)
    }
    values = list(data.values())
    assert len(set(values)) == len(values), f"{name}: a record is there twice"
    sent = told.acknowledged[name]
    missing = {value for _, value in sent} - set(values)
    assert not missing, f"{name}: {len(missing)} of {len(sent)} records are lost: {missing}"
    # A producer that repeats a batch may not know its place any more (-1).
    moved = {offset for offset, value in sent if offset >= 0 and data.get(offset) != value}
    assert not moved, f"{name}: other records are at {moved}"
    numbers = [int(each[1:]) for each in values if each.startswith(b"p")]
    assert numbers == sorted(numbers), f"{name}: records are out of order"
    offsets = [offset for offset, _ in told.read[name]]
    assert offsets == sorted(set(offsets)), f"{name}: the reader went back"
    assert told.read[name] == [*data.items()][: len(offsets)], f"{name}: what was read is not there"


def _committed(name: TopicPartition, batches: list[Batch]) -> dict[int, bytes]:
    """The records that a reader of committed ones may see, by offset."""
    seen: dict[int, bytes] = {}
    opened: dict[int, dict[int, bytes]] = {}
    for each in batches:
        if each.is_control:
            marker = end_transaction_marker_or_none(each)
            records = opened.pop(each.producer_id, {})
            if marker is not None and marker.type is ControlType.COMMIT:
                seen |= records
            continue
        place = opened.setdefault(each.producer_id, {}) if each.is_transactional else seen
        place.update((record.offset, bytes(record.value or b"")) for record in records_of(each))
    assert not any(opened.values()), f"{name}: a transaction is open for ever: {opened}"
    return seen


def _check_transactions(views: dict[TopicPartition, dict[int, bytes]], told: Told) -> None:
    visible = [set(view.values()) for view in views.values()]
    for number, outcome in told.transactions.items():
        found = [b"x%d" % number in values for values in visible]
        expected = {
            Outcome.COMMITTED: [[True, True]],
            Outcome.ABORTED: [[False, False]],
            Outcome.UNKNOWN: [[True, True], [False, False]],
        }[outcome]
        assert found in expected, (
            f"transaction {number} is {outcome.name} for its producer, and visible: {found}"
        )


def last_visible(cluster: World) -> int:
    """The number of the last transaction that is visible; 0: none is."""
    log = cluster.log(BROKERS[0], PARTITIONS[0])
    batches = [each for _, each in read_batches(memoryview(bytes_of(log)))]
    values = _committed(PARTITIONS[0], batches).values()
    return max((int(each[1:]) for each in values if each.startswith(b"x")), default=0)


# -- lives ------------------------------------------------------------------------------------


def play(
    seed: int, *, seconds: float = 20.0, life: Life | None = None, controller: Role = "scripted"
) -> World:
    """Live through the faults of a seed, and check every claim.

    Raises:
        AssertionError: a claim does not hold; the message has the story.
    """
    chance = random.Random(seed)
    if life is None:
        life = choose_life(chance, controller=controller)
    world = (ScriptedWorld if life.controller == "scripted" else World)(seed, chance, life)
    logged, logger = Tracebacks(), logging.getLogger("tailrace")
    logger.addHandler(logged)
    try:
        world.run(lambda _: _live(world, seconds=seconds))
        assert not logged.found, logged.found[0]
    except BaseException as error:
        story = "\n".join(world.story)
        name = f"play({seed}, seconds={seconds}, controller={life.controller!r})"
        raise AssertionError(f"{name}: {error!r}\n{story}") from error
    finally:
        logger.removeHandler(logged)
    return world


class Tracebacks(logging.Handler):
    """Lines with a traceback: brokers and controllers log one for what they do not expect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line if it has a traceback."""
        if record.exc_info:
            self.found.append(self.format(record))


async def _live(cluster: World, *, seconds: float) -> None:
    life, faults = cluster.life, cluster.faults()
    told, answered = Told(), Answered()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    clients = cluster.clients(told, until_s=end_s)
    ending: list[Coroutine[Any, Any, None]] = [produce(clients)]
    endless: list[Coroutine[Any, Any, None]] = [read(clients), cluster.watch_leaders()]
    if life.has_transactions:
        ending.append(transact(clients))
    if life.controller != "scripted":
        ending.append(answered.ask(cluster, clients))
        endless.append(answered.watch(cluster))
    if life.watches_ends:
        ending.append(watch_ends(clients))
    if life.group == "clerk":
        ending.append(commit_offsets(clients))
    elif life.group:
        endless.append(read_committed(clients, protocol=life.group))
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(each) for each in endless]
        working = [group.create_task(each) for each in ending]
        while loop.time() < end_s:
            await cluster.pass_time(cluster.chance.expovariate(2.0))
            faults.fault()
        await cluster.heal()
        async with asyncio.timeout(HEAL_S):
            await asyncio.gather(*working)
        await cluster.settle()
        await _finish_reading(cluster, told)
        for task in watching:
            task.cancel()
    await _check_groups(cluster, clients, told)
    answered.check(cluster)
    check(cluster, told)


async def _finish_reading(cluster: World, told: Told) -> None:
    """Wait until the reader, and a group that reads, have read everything.

    Raises:
        TimeoutError: they do not come to the end.
    """
    is_grouped = cluster.life.group in {"classic", "consumer"}
    last, visible = {}, {}
    for name in PARTITIONS:
        batches = [
            each for _, each in read_batches(memoryview(bytes_of(cluster.log(BROKERS[0], name))))
        ]
        last[name] = max((each.last_offset for each in batches if not each.is_control), default=-1)
        visible[name] = max(_committed(name, batches), default=-1)

    def is_read(name: TopicPartition) -> bool:
        has_all = max((offset for offset, _ in told.read[name][-1:]), default=-1) >= last[name]
        return has_all and (
            not is_grouped or max(told.committed_read[name], default=-1) >= visible[name]
        )

    async with asyncio.timeout(HEAL_S):
        while not all(map(is_read, PARTITIONS)):
            await cluster.outside.pass_time(0.2)


async def _check_groups(cluster: World, clients: Clients, told: Told) -> None:
    if cluster.life.group == "clerk":
        found = await committed_offset(clients, CLERK)
        assert found >= told.clerk, f"the clerk's offset is {found}, {told.clerk} was committed"
    if cluster.life.has_transactions:
        found, last = await committed_offset(clients, TX_GROUP), last_visible(cluster)
        assert found == last, f"the last visible transaction is {last}, and its offset is {found}"
