"""A cluster of brokers in virtual time: clients go on while a seed makes faults.

    broker 1 ─┐                   kill, loss of power, orderly stop; full and slow disk; clock set
    broker 2 ─┼─ scripted         links held (both ways or one), cut, slow; requests lost
    broker 3 ─┘  controller       restarts, loses what is not committed, commits late, snapshots
    producers, readers, groups

A seed chooses a `Life`: some kinds of faults and of clients, and what a loss of power takes. All
machines share the true time and the network. At the end everything is healed, and what clients
were told is looked for in the logs (`check`).

An operator may reassign replicas, cancel that, and have preferred leaders elected.

Not here: lives in which all replicas in sync lose power without `tailrace.durability=sync`. What
was acknowledged is gone then, as in Kafka. `SimulatedCluster.may_go` keeps them out.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from tailrace.cluster.control.reassignments import is_reassigning
from tailrace.cluster.control.settings import ControlConfig
from tailrace.model import Offset, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import records_of
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.replication.partition import Partition
from tailrace.runtime.system import Runtime
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.testing import Outside, virtual_runtime
from tailrace.testing.controller import ScriptedController
from tailrace.testing.outside import InlineThreads
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
from tests.simulation.machines import (
    BROKERS,
    CLIENTS,
    CONTROLLER,
    FIRST_PORT,
    Link,
    Machine,
    NodeNetwork,
)

OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
TRANSACTIONS: Final = TopicPartition("__transaction_state", 0)
SESSION_MS: Final = 3000
HEAL_S: Final = 300
"""Virtual time in which a cluster without faults is whole again."""

PROCESSES: Final = ("kill", "power", "stop")
DISKS: Final = ("full", "slow disk")
CONNECTIONS: Final = ("hold", "hold one way", "cut", "delay", "lose requests")
CONTROLLERS: Final = ("restart", "slow commits", "hold commits", "snapshot")
CLOCKS: Final = ("clock",)
MOVES: Final = ("reassign", "cancel", "elect")
"""Changes that an operator makes; not in `KINDS`, for which seeds are known that find bugs."""
KINDS: Final = (*PROCESSES, *DISKS, *CONNECTIONS, *CONTROLLERS, *CLOCKS)
MENDED: Final = ("start", "start", "mend", "mend")
"""These are as likely as faults, so that a cluster works now and then."""

FORWARD_MS: Final = 12 * 3_600_000
BACK_MS: Final = 3_000_000
"""A clock is set by this at most: the offsets of a group and a producer's id expire after
a day, and a record is refused that is an hour ahead of its broker."""


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

    @property
    def is_careful(self) -> bool:
        """Whether an acknowledged record may be on no device, so that not all may lose power."""
        return "power" in self.kinds and not self.is_durable


def choose_life(chance: random.Random) -> Life:
    """A life of few kinds of faults: all at once would hide what two of them can do."""
    kinds = chance.sample(KINDS, chance.choice([3, 5, 8, len(KINDS)]))
    return Life(
        is_durable=chance.random() < 0.4,
        kinds=tuple(kinds),
        delay_s=chance.choice([0.0, 0.001, 0.02, 0.05]),
        unevenness_s=chance.choice([0.0, 0.0, 0.05]),
        has_transactions=chance.random() < 0.4,
        group=chance.choice(["", "", "clerk", "classic", "consumer"]),
        watches_ends=chance.random() < 0.3,
    )


class SimulatedCluster:
    """The machines, the controller and the links between them."""

    def __init__(self, outside: Outside, chance: random.Random, life: Life) -> None:
        self.outside = outside
        self.chance = chance
        self.life = life
        self.story: list[str] = [str(life)]
        """The choices and the faults so far, with their times."""
        self.controller = ScriptedController(
            outside, config=ControlConfig(session_timeout_ms=SESSION_MS)
        )
        self._links = {
            pair: Link(*pair) for pair in combinations((*BROKERS, CONTROLLER, CLIENTS), 2)
        }
        self.machines: dict[int, Machine] = {}
        self.names: tuple[TopicPartition, ...] = PARTITIONS
        """All partitions, with those of coordinators."""
        self._unheard: set[int] = set()
        """Brokers whose requests to the controller are lost."""
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        """The broker that was seen to lead a partition in an epoch."""

    def link(self, one: int, other: int) -> Link:
        """The connections between two nodes."""
        return self._links[min(one, other), max(one, other)]

    def note(self, what: str) -> None:
        """Add to the story."""
        self.story.append(f"{self.outside.loop.time():.3f} {what}")

    def network(self, node: int) -> NodeNetwork:
        """The network of a process."""
        unevenness = self.life.unevenness_s
        return NodeNetwork(
            self.outside.network,
            node,
            link=self.link,
            delay=(lambda: self.chance.uniform(0, unevenness)) if unevenness else (lambda: 0.0),
        )

    def client_runtime(self) -> Runtime:
        """The seams of a client."""
        return Runtime(
            clock=self.outside.clock,
            files=self.outside.files,
            network=self.network(CLIENTS),
            threads=InlineThreads(),
            chance=random.Random(self.chance.getrandbits(64)),
        )

    def clients(self, told: Told, *, until_s: float) -> Clients:
        """The things that clients share, with `told` to be filled."""
        return Clients(
            runtime=self.client_runtime,
            bootstrap=",".join(f"memory:{FIRST_PORT + each}" for each in BROKERS),
            chance=self.chance,
            told=told,
            until_s=until_s,
            note=self.note,
            pass_time=self.outside.pass_time,
        )

    async def start(self) -> None:
        """Start everything, and create the topics."""
        self.controller.start()
        settings = {
            "controller.quorum.bootstrap.servers": self.controller.bootstrap,
            "controller.listener.names": "CONTROLLER",
            "tailrace.durability": "sync" if self.life.is_durable else "page-cache",
            "replica.lag.time.max.ms": "2000",
            "replica.fetch.backoff.ms": "200",
            # Also the time for its answer, with a new connection: not to be below the delays.
            "broker.heartbeat.interval.ms": "800",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "100",
            "log.index.size.max.bytes": "1000",
            "log.initial.task.delay.ms": "500",
            "log.flush.offset.checkpoint.interval.ms": "1000",
        }
        for each in BROKERS:
            self.machines[each] = Machine(
                each,
                settings=settings,
                clock=self.outside.clock,
                network=self.network(each),
                chance=self.chance,
                note=self.note,
            )
            self.machines[each].start()
        async with asyncio.timeout(HEAL_S):
            await self.controller.until(
                lambda image: (
                    len([each for each in image.brokers.values() if not each.fenced])
                    == len(BROKERS)
                )
            )
        self.outside.network.delay_s = self.life.delay_s
        # As brokers would make them, when all are there to have a replica.
        if self.life.has_transactions or self.life.group:
            self._add(OFFSETS, [2, 3, 1], {"cleanup.policy": "compact"})
        if self.life.has_transactions:
            self._add(TRANSACTIONS, [3, 1, 2], {"cleanup.policy": "compact"})
        self.controller.add_topic(
            "t", assignments=[[1, 2, 3], [2, 3, 1]], configs={"min.insync.replicas": "2"}
        )

    def _add(self, name: TopicPartition, replicas: list[int], configs: dict[str, str]) -> None:
        configs = {"min.insync.replicas": "2", **configs}
        self.controller.add_topic(name.topic, assignments=[replicas], configs=configs)
        self.names = (*self.names, name)

    # -- faults -------------------------------------------------------------------------------

    def may_go(self, broker_id: int) -> bool:
        """Whether this broker may lose its power, or be taken for one that has.

        Without `tailrace.durability=sync` a replica in sync of each partition must live without it.
        One that the controller does not hear lives for nobody: it elects another, and in the end
        the last leader that it knows, with whatever that has left. Nor can it tell a kill from a
        loss of power, so both count where there is either.
        """
        return not self.life.is_careful or (
            self.machines[broker_id].is_serving
            and all(
                any(
                    self.machines[each].is_serving and self._is_heard(each)
                    for each in self.controller.partition(name).isr
                    if each != broker_id
                )
                for name in self.names
            )
        )

    def _is_heard(self, broker_id: int) -> bool:
        return broker_id not in self._unheard and not self.link(broker_id, CONTROLLER).silent

    def fault(self) -> None:
        """Make one fault, or mend something."""
        chance = self.chance
        kind = chance.choice((*self.life.kinds, *MENDED))
        broker_id = chance.choice(BROKERS)
        match kind:
            case "start":
                self.note(f"start {broker_id}")
                self.machines[broker_id].start()
            case "mend":
                self._mend()
            case "kill" | "power" | "stop" | "full" | "slow disk" | "clock":
                self._break_machine(kind, broker_id)
            case "hold" | "hold one way" | "cut":
                self._break_link(kind)
            case "delay":
                # With 0.3 s no heartbeat is answered in time, and the controller hears nobody.
                long_s = 0.1 if self.life.is_careful else 0.3
                self.outside.network.delay_s = chance.choice([0.0, 0.1, long_s])
                self.note(f"all bytes take {self.outside.network.delay_s} s")
            case "lose requests" if self.may_go(broker_id):
                self.controller.cut_off(broker_id)
                self._unheard.add(broker_id)
                self.note(f"requests of {broker_id} to the controller are lost")
            case "reassign" | "cancel" | "elect":
                self._move(kind, chance.choice(self.names))
            case _:
                self._break_controller(kind)

    def _move(self, kind: str, name: TopicPartition) -> None:
        # A replica that is away may have lost what it has, and is in sync until the controller
        # knows: it must not be all that a reassignment leaves.
        if not all(self.machines[each].is_serving and self._is_heard(each) for each in BROKERS):
            return
        if kind == "elect":
            partitions = (TopicPartitions(topic=name.topic, partitions=(name.partition,)),)
            request = ElectLeadersRequest(election_type=0, topic_partitions=partitions)
            self.controller.do(ApiKey.ELECT_LEADERS, request)
            self.note(f"elect the preferred leader of {name}")
            return
        replicas: list[int] | None = None
        if kind == "reassign":
            replicas = self.chance.sample(BROKERS, self.chance.choice([2, 3]))
        self._reassign(name, replicas)

    def _reassign(self, name: TopicPartition, replicas: Sequence[int] | None) -> None:
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

    def _break_machine(self, kind: str, broker_id: int) -> None:
        machine, chance = self.machines[broker_id], self.chance
        if machine.broker is None or (
            kind in {"kill", "power", "stop", "full"} and not self.may_go(broker_id)
        ):
            return
        match kind:
            case "kill" | "power":
                machine.kill(loses_power=kind == "power")
            case "stop":
                machine.stop()
            case "full":
                machine.fill()
            case "slow disk":
                machine.threads.seconds_per_run = chance.choice([0.0, 0.02, 0.5])
                kind = f"a disk that takes {machine.threads.seconds_per_run} s for"
            case _:
                machine.clock.ahead_ms = chance.choice(
                    [0, 1000, -1000, 60_000, -60_000, FORWARD_MS, -BACK_MS]
                )
                kind = f"the clock {machine.clock.ahead_ms} ms ahead for"
        self.note(f"{kind} {broker_id}")

    def _break_link(self, kind: str) -> None:
        one, other = self.chance.choice([*self._links])
        if kind == "cut":
            self.link(one, other).cut()
        elif other == CONTROLLER and not self.may_go(one):
            return
        elif kind == "hold":
            self.link(one, other).hold()
        else:
            sender = self.chance.choice((one, other))
            self.link(one, other).hold([sender])
            kind = f"{kind}, from {sender},"
        self.note(f"{kind} {one}-{other}")

    def _break_controller(self, kind: str) -> None:
        controller, chance = self.controller, self.chance
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
        self.note(f"controller: {kind}")

    def _mend(self) -> None:
        """Mend one of all that is broken."""
        broken: list[tuple[str, Callable[[], None]]] = [
            (f"mend {one}-{other}", link.release)
            for (one, other), link in self._links.items()
            if link.silent
        ]
        broken += [
            (f"make room for {each}", machine.make_room)
            for each, machine in self.machines.items()
            if machine.is_full
        ]
        if self._unheard:
            broken.append(("the controller gets all requests", self._reconnect))
        if broken:
            what, mend = self.chance.choice(broken)
            self.note(what)
            mend()

    def _reconnect(self) -> None:
        self._unheard.clear()
        self.controller.reconnect()

    async def heal(self) -> None:
        """Mend and start everything, and wait until all replicas are in sync and the same."""
        self.note("heal")
        self.controller.commit_delay_s = self.outside.network.delay_s = 0.0
        self.controller.release_commits()
        self._reconnect()
        for link in self._links.values():
            link.release()
        for machine in self.machines.values():
            machine.make_room()
            machine.threads.seconds_per_run = 0.0
        await self._until(self._are_all_back, "the replicas do not come back")
        await self._until(self._is_in_sync, "the cluster does not heal")

    async def settle(self) -> None:
        """Wait until all replicas have the same ends, and nothing is above the watermark."""
        await self._until(self._is_settled, "the replicas do not become the same")

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        limit = self.outside.loop.time() + HEAL_S
        while not holds():
            for machine in self.machines.values():
                machine.start()
            await self.outside.pass_time(0.5)
            if self.outside.loop.time() > limit:
                states = [str(self.controller.partition(each)) for each in self.names]
                raise AssertionError(f"{otherwise}: {states}")

    def _are_all_back(self) -> bool:
        """Whether each partition is on all brokers again; moves those that are not."""
        states = {name: self.controller.partition(name) for name in self.names}
        for name, state in states.items():
            # Not while they move: replicas that are being removed would still be (Kafka's rule).
            if not is_reassigning(state) and set(state.replicas) != set(BROKERS):
                self._reassign(name, BROKERS)
        return all(
            not is_reassigning(state) and set(state.replicas) == set(BROKERS)
            for state in states.values()
        )

    def _is_in_sync(self) -> bool:
        return all(
            set(self.controller.partition(each).isr) == set(BROKERS)
            and self.controller.partition(each).leader in BROKERS
            for each in self.names
        ) and all(machine.is_serving for machine in self.machines.values())

    def _is_settled(self) -> bool:
        if not self._is_in_sync():
            return False
        for name in PARTITIONS:
            logs = [self.log(each, name) for each in BROKERS]
            ends = {log.end_offset for log in logs}
            if len(ends | {log.positions.high_watermark for log in logs}) > 1:
                return False
        return True

    async def close(self) -> None:
        """Stop everything."""
        for machine in self.machines.values():
            await machine.rest()
            machine.stop()
            await machine.rest()
        await self.controller.close()

    # -- logs ---------------------------------------------------------------------------------

    def partition(self, broker_id: int, name: TopicPartition) -> Partition | None:
        """A replica, if its broker runs and has it."""
        broker = self.machines[broker_id].broker
        return None if broker is None else broker.replicas.get(name)

    def log(self, broker_id: int, name: TopicPartition) -> Log:
        """A replica's log."""
        found = self.partition(broker_id, name)
        assert found is not None, f"{name}: broker {broker_id} has no replica"
        return found.log

    async def watch_leaders(self) -> None:
        """Look again and again who leads: there is one leader in an epoch."""
        while True:
            for name in self.names:
                for each in BROKERS:
                    found = self.partition(each, name)
                    if found is None or not found.is_leader:
                        continue
                    first = self._leaders.setdefault((name, found.leader_epoch), each)
                    assert first == each, (
                        f"{name}: brokers {first} and {each} lead in epoch {found.leader_epoch}"
                    )
            await self.outside.pass_time(0.05)


# -- claims -----------------------------------------------------------------------------------


def check(cluster: SimulatedCluster, told: Told) -> None:
    """The replicas are the same, and have what clients were told.

    Raises:
        AssertionError: a claim does not hold.
    """
    views = {}
    for name in PARTITIONS:
        texts = {_bytes(cluster.log(each, name)) for each in BROKERS}
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


def last_visible(cluster: SimulatedCluster) -> int:
    """The number of the last transaction that is visible; 0: none is."""
    log = cluster.log(BROKERS[0], PARTITIONS[0])
    batches = [each for _, each in read_batches(memoryview(_bytes(log)))]
    values = _committed(PARTITIONS[0], batches).values()
    return max((int(each[1:]) for each in values if each.startswith(b"x")), default=0)


def _bytes(log: Log) -> bytes:
    found = bytearray()
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(
            Offset(offset), bytes_max=1 << 20, is_first_whole=True, limit=ReadLimit.LOG_END
        )
        if part.records is None:
            break
        data = bytes(part.records.read())
        found += data
        for _, each in read_batches(memoryview(data)):
            offset = each.next_offset
    return bytes(found)


# -- lives ------------------------------------------------------------------------------------


def play(seed: int, *, seconds: float = 20.0, life: Life | None = None) -> SimulatedCluster:
    """Live through the faults of a seed, and check every claim.

    Raises:
        AssertionError: a claim does not hold; the message has the story.
    """
    chance = random.Random(seed)
    chosen = choose_life(chance) if life is None else life
    with virtual_runtime(seed=seed) as outside:
        cluster = SimulatedCluster(outside, chance, chosen)
        try:
            outside.run(_live(cluster, seconds=seconds))
        except BaseException as error:
            story = "\n".join(cluster.story)
            _end_all(outside.loop)
            raise AssertionError(f"play({seed}, seconds={seconds}): {error!r}\n{story}") from error
        return cluster


def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """End the tasks of a life that failed, of which the next test would get warnings."""
    tasks = asyncio.all_tasks(loop)
    for each in tasks:
        each.cancel()
    # What cannot end any more says so by this error, and the life has failed anyway.
    with suppress(RuntimeError):
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


async def _live(cluster: SimulatedCluster, *, seconds: float) -> None:
    life = cluster.life
    await cluster.start()
    told = Told()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    clients = cluster.clients(told, until_s=end_s)
    ending: list[Coroutine[Any, Any, None]] = [produce(clients)]
    endless: list[Coroutine[Any, Any, None]] = [read(clients), cluster.watch_leaders()]
    if life.has_transactions:
        ending.append(transact(clients))
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
            await cluster.outside.pass_time(cluster.chance.expovariate(2.0))
            cluster.fault()
        await cluster.heal()
        async with asyncio.timeout(HEAL_S):
            await asyncio.gather(*working)
        await cluster.settle()
        await _finish_reading(cluster, told)
        for task in watching:
            task.cancel()
    await _check_groups(cluster, clients, told)
    check(cluster, told)
    await cluster.close()


async def _finish_reading(cluster: SimulatedCluster, told: Told) -> None:
    """Wait until the group has read everything."""
    if cluster.life.group not in {"classic", "consumer"}:
        return
    last = {}
    for name in PARTITIONS:
        batches = [
            each for _, each in read_batches(memoryview(_bytes(cluster.log(BROKERS[0], name))))
        ]
        last[name] = max(_committed(name, batches), default=-1)
    async with asyncio.timeout(HEAL_S):
        while any(max(told.committed_read[name], default=-1) < last[name] for name in PARTITIONS):
            await cluster.outside.pass_time(0.2)


async def _check_groups(cluster: SimulatedCluster, clients: Clients, told: Told) -> None:
    if cluster.life.group == "clerk":
        found = await committed_offset(clients, CLERK)
        assert found >= told.clerk, f"the clerk's offset is {found}, {told.clerk} was committed"
    if cluster.life.has_transactions:
        found, last = await committed_offset(clients, TX_GROUP), last_visible(cluster)
        assert found == last, f"the last visible transaction is {last}, and its offset is {found}"
