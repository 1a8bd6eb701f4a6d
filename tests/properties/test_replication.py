"""Leaders, followers and a controller of one partition, whose messages are late, lost and doubled.

No broker and no network: a partition in its roles (`partition`), what a follower does with its log
(`follower_log`) and what a controller decides (`partition_change`), against each other. Brokers
stop, and lose what was not flushed, while others have it.
"""

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.cluster.partition_change import Rules, Wanted, change_partition
from tailrace.errors import OffsetOutOfRangeError
from tailrace.model import LeaderEpoch, Offset
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.follower_log import (
    FetchedPartition,
    FetchPosition,
    MisplacedAnswerError,
    append_fetched,
    cut_diverged,
    position_of,
    settle_range,
)
from tailrace.replication.leadership import (
    IsrChange,
    NotReplicaError,
    Rejection,
    StaleFollowerError,
)
from tailrace.replication.partition import (
    ClusterView,
    NotEnoughReplicasError,
    NotLeaderError,
    Partition,
)
from tailrace.storage.epochs import EpochEnd, EpochEntry
from tailrace.storage.log import Log
from tailrace.storage.positions import ReadLimit
from tailrace.storage.shrink import take_steps
from tailrace.testing import MemoryFiles, virtual_runtime
from tailrace.values import replace
from tests.unit.storage.builders import NOW, SetClock, batch, open_at, settings, values

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

NODES = (1, 2, 3)
LAG_MS, INSYNC_MIN = 1000, 2
CONFIG = settings(segment_bytes=4000, min_insync_replicas=INSYNC_MIN)
STEPS = 1000


class Image(NamedTuple):
    """The state that the controller has published at one moment."""

    state: PartitionRecord
    alive: dict[int, int]
    """Broker epochs of those that are not fenced."""

    def alive_epoch(self, broker_id: int) -> int | None:
        return self.alive.get(broker_id)


class Sent(NamedTuple):
    """A record that a producer with acks=all waits for, or that was acknowledged."""

    value: bytes
    offset: int
    acknowledged: "asyncio.Future[None] | None"


class Node:
    """A broker: it leads or follows as the last image that it has seen says."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.disk = MemoryFiles()
        self.broker_epoch = 0
        self.asked = self.answered = 0
        """Numbers of the last AlterPartition that it has sent, and that the controller has seen."""
        self.noted = 0
        """The high watermark in its checkpoint."""
        self._start()

    def _start(self) -> None:
        self.image: Image | None = None
        self.waiting: list[Sent] = []
        self.fallback = Offset(0)
        self.partition = Partition(
            open_at(self.disk, config=CONFIG, high_watermark=self.noted),
            on_failure=_fail,
            cluster=ClusterView(
                node_id=self.node_id,
                brokers=self,
                has_partition=lambda _: True,
                clock=SetClock(),
                lag_ms=LAG_MS,
            ),
        )
        # As a start does before new records get these offsets.
        self.noted = min(self.noted, self.log.end_offset)

    @property
    def log(self) -> Log:
        return self.partition.log

    @property
    def proposed(self) -> IsrChange | None:
        leadership = self.partition.leadership
        return None if leadership is None else leadership.proposed

    # The image may be replaced while a leadership lasts.
    def alive_epoch(self, broker_id: int) -> int | None:
        return None if self.image is None else self.image.alive_epoch(broker_id)

    def is_shutting_down(self, broker_id: int) -> bool:  # noqa: ARG002 - nobody shuts down here
        return False

    def see(self, image: Image, now_ms: int) -> None:
        self.image, state = image, image.state
        if state.leader == self.node_id:
            self.partition.lead(state, now_ms=now_ms)
        elif self.partition.follow(state):
            self.fallback = self.log.positions.high_watermark

    def flush(self) -> None:
        """Put the log on the device, and its high watermark into the checkpoint."""
        self.log.sync()
        self.noted = self.log.positions.high_watermark

    def restart(self, *, loses_unsynced: bool) -> None:
        """The process ends at once, and begins again; the machine may lose what is not synced."""
        self.disk = self.disk.crash(keep_unsynced=not loses_unsynced)
        self._start()


def _fail(error: OSError) -> None:
    raise error


class World:
    """The partition, its brokers, and the messages that are under way."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now_ms = NOW
        self.nodes = {each: Node(each) for each in NODES}
        self.epochs = iter(range(1, 10_000))
        self.has_elr = self.chance.random() < 0.5
        self.alive = {each: next(self.epochs) for each in NODES}
        for each, epoch in self.alive.items():
            self.nodes[each].broker_epoch = epoch
        self.state = PartitionRecord(
            partition_id=0,
            topic_id=UUID(int=1),
            replicas=NODES,
            isr=NODES,
            removing_replicas=(),
            adding_replicas=(),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=(),
        )
        self.messages: list[Callable[[], None]] = []
        self.acknowledged: list[Sent] = []
        self.count = 0

    @property
    def image(self) -> Image:
        return Image(self.state, dict(self.alive))

    # -- the controller -----------------------------------------------------------------------

    def decide(self, wanted: Wanted) -> None:
        rules = Rules(
            metadata_version=25,
            has_elr=self.has_elr,
            may_lead=lambda broker_id, _: broker_id in self.alive,
            default_directory=lambda _: UUID(int=9),
        )
        changes = change_partition(
            replace(self.state, directories=(UUID(int=9),) * 3),
            wanted,
            rules,
            insync_min=INSYNC_MIN,
        )
        changes.pop("directories", None)
        if not changes:
            return
        if "leader" in changes:
            changes["leader_epoch"] = self.state.leader_epoch + 1
        self.state = replace(self.state, partition_epoch=self.state.partition_epoch + 1, **changes)

    def fence(self) -> None:
        """A broker is taken for dead, and may live all the same."""
        if len(self.alive) > 1:
            gone = self.chance.choice(sorted(self.alive))
            del self.alive[gone]
            self.decide(Wanted(isr=tuple(each for each in self.state.isr if each != gone)))

    def unfence(self) -> None:
        """It is back: after a restart under another broker epoch, or as it was."""
        gone = sorted(set(NODES) - self.alive.keys())
        if gone:
            node = self.nodes[self.chance.choice(gone)]
            if self.chance.random() < 0.5:
                self.restart(node)
            self.alive[node.node_id] = node.broker_epoch
            self.decide(Wanted())

    def crash(self) -> None:
        """A broker stops and registers again, before anybody has missed it or after."""
        node = self.nodes[self.chance.choice(NODES)]
        self.alive.pop(node.node_id, None)
        self.restart(node)
        self.alive[node.node_id] = node.broker_epoch
        self.decide(Wanted())

    def restart(self, node: Node) -> None:
        """A broker stops, in order or not, and begins again in another broker epoch."""
        state, gone = self.state, node.node_id
        # One of these stops in order: if all lose records, nobody has them (KIP-966).
        keepers = {*state.isr, *(state.eligible_leader_replicas or ())} - {gone}
        is_unclean = bool(keepers) and self.chance.random() < 0.7
        self.decide(
            Wanted(
                isr=tuple(each for each in state.isr if each != gone),
                unclean=frozenset({gone} if is_unclean else ()),
            )
        )
        assert self.state.leader_recovery_state == 0
        node.restart(loses_unsynced=is_unclean)
        node.broker_epoch = next(self.epochs)

    def alter(self, node: Node, change: IsrChange, *, number: int) -> None:
        """An AlterPartition at the controller, and its answer on the way back."""
        # A broker has one of them in flight, on a connection that keeps its order, and repeats it
        # on another. Kafka relies on it: after a refusal nobody makes this change any more.
        if number <= node.answered:
            return
        node.answered = number
        state, code = self.state, ErrorCode.NONE
        if change.leader_epoch < state.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif change.partition_epoch < state.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            each not in self.alive or epoch not in (-1, self.alive[each])
            for each, epoch in change.isr.items()
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.decide(Wanted(isr=tuple(change.isr)))
        answered, epoch = self.state, self.state.leader_epoch

        def answer() -> None:
            # Nobody reads an answer on a connection that was given up.
            if number != node.asked:
                return
            if code is not ErrorCode.NONE:
                rejection = node.partition.reject(change, code, now_ms=self.now_ms)
                assert rejection is not Rejection.AGAIN
            else:
                node.partition.confirm(
                    change,
                    answered.isr,
                    leader_epoch=epoch,
                    partition_epoch=answered.partition_epoch,
                    now_ms=self.now_ms,
                )

        self.messages.append(answer)

    # -- brokers ------------------------------------------------------------------------------

    def publish(self) -> None:
        node = self.nodes[self.chance.choice(NODES)]
        image = self.image
        # Images come in their order.
        before = node.image
        if before is None or image.state.partition_epoch >= before.state.partition_epoch:
            node.see(image, self.now_ms)

    def produce(self) -> None:
        node = self.nodes[self.chance.choice(NODES)]
        self.count += 1
        value = b"value %d" % self.count
        with suppress(NotLeaderError, NotEnoughReplicasError):
            node.partition.check_replicas()
            appended = node.partition.append(memoryview(batch(value)), now_ms=self.now_ms)
            acknowledged = node.partition.acknowledged(Offset(appended.last_offset + 1))
            node.waiting.append(Sent(value, appended.base_offset, acknowledged))

    def flush(self) -> None:
        self.nodes[self.chance.choice(NODES)].flush()

    def acknowledge(self) -> None:
        for node in self.nodes.values():
            waiting, node.waiting = node.waiting, []
            for sent in waiting:
                future = sent.acknowledged
                if future is None or (future.done() and future.exception() is None):
                    self.acknowledged.append(sent)
                elif not future.done():
                    node.waiting.append(sent)

    def fetch(self, node: Node | None = None) -> None:
        node = node or self.nodes[self.chance.choice(NODES)]
        if node.partition.is_leader or node.image is None:
            return
        leader = self.nodes.get(node.image.state.leader)
        if leader is None or leader is node:
            return
        position, broker_epoch = position_of(node.log), node.broker_epoch
        epoch = node.partition.leader_epoch
        self.messages.append(
            lambda: self.serve(leader, node, position, epoch=epoch, broker_epoch=broker_epoch)
        )

    def serve(
        self, leader: Node, node: Node, position: FetchPosition, *, epoch: int, broker_epoch: int
    ) -> None:
        """A fetch at the leader, and its answer on the way back."""
        partition, log = leader.partition, leader.log
        if not partition.is_leader or partition.leader_epoch != epoch:
            return
        diverging = None
        with suppress(OffsetOutOfRangeError):
            diverging = partition.divergence(position.offset, position.last_epoch)
        if diverging is not None:
            self.messages.append(lambda: self.cut(node, diverging, position, epoch=epoch))
            return
        if not log.start_offset <= position.offset <= log.end_offset:
            bounds = log.start_offset, log.end_offset
            self.messages.append(lambda: self.settle(node, bounds, position, epoch=epoch))
            return
        try:
            partition.note_fetch(
                node.node_id,
                broker_epoch=broker_epoch,
                offset=position.offset,
                log_start=position.log_start,
                log_end=log.end_offset,
                now_ms=self.now_ms,
            )
        except (NotReplicaError, StaleFollowerError):
            return
        found = log.read(
            position.offset,
            bytes_max=self.chance.randint(1, 300),
            is_first_whole=True,
            limit=ReadLimit.LOG_END,
        )
        data = b"" if found.records is None else found.records.read()
        fetched = FetchedPartition(memoryview(data), log.positions.high_watermark, log.start_offset)
        self.messages.append(lambda: self.take(node, fetched, position, epoch=epoch))

    def follows(self, node: Node, epoch: int) -> bool:
        partition = node.partition
        is_follower = node.image is not None and not partition.is_leader
        return is_follower and partition.leader_epoch == epoch

    def take(
        self, node: Node, fetched: FetchedPartition, asked: FetchPosition, *, epoch: int
    ) -> None:
        if self.follows(node, epoch):
            with suppress(MisplacedAnswerError):
                append_fetched(
                    node.log, fetched, asked=asked, epoch=LeaderEpoch(epoch), now_ms=self.now_ms
                )

    def cut(self, node: Node, end: EpochEnd, asked: FetchPosition, *, epoch: int) -> None:
        if self.follows(node, epoch):
            with suppress(MisplacedAnswerError):
                take_steps(cut_diverged(node.log, end, asked=asked, fallback=node.fallback))
                node.flush()

    def settle(
        self, node: Node, bounds: tuple[int, int], asked: FetchPosition, *, epoch: int
    ) -> None:
        if self.follows(node, epoch):
            start, end = bounds
            with suppress(MisplacedAnswerError):
                steps = settle_range(node.log, leader_start=start, leader_end=end, asked=asked)
                if steps is not None:
                    take_steps(steps)
                    node.flush()

    def ask_for_isr(self) -> None:
        """The leader looks for members that are late, and sends what it proposes, also again."""
        node = self.nodes[self.chance.choice(NODES)]
        node.partition.check_followers(self.now_ms)
        change = node.proposed
        if change is not None:
            node.asked += 1
            number = node.asked
            self.messages.append(lambda: self.alter(node, change, number=number))

    # -- time ---------------------------------------------------------------------------------

    def deliver(self) -> None:
        """One message, whichever comes first; some are lost, and some come twice."""
        if self.messages:
            number = self.chance.randrange(len(self.messages))
            fate = self.chance.random()
            message = self.messages[number]
            if fate > 0.05:
                del self.messages[number]
            if fate > 0.1:
                message()

    def step(self) -> None:
        actions = (
            (self.produce, 4), (self.fetch, 8), (self.deliver, 16), (self.publish, 4),
            (self.ask_for_isr, 2), (self.fence, 0.4), (self.unfence, 1), (self.crash, 0.1),
            (self.flush, 1),
        )  # fmt: skip
        [action] = self.chance.choices(
            [each for each, _ in actions], [weight for _, weight in actions]
        )
        action()
        self.now_ms += self.chance.choice((0, 0, 0, 10, 100))
        self.acknowledge()

    def settle_down(self) -> Node:
        """All are back and see each other, until nothing changes; the leader."""
        self.messages.clear()
        while len(self.alive) < len(NODES):
            self.unfence()
        for _ in range(100):
            for node in self.nodes.values():
                node.see(self.image, self.now_ms)
            for node in self.nodes.values():
                self.fetch(node)
            while self.messages:
                self.messages.pop(0)()
            self.now_ms += 10
            leader = self.nodes[self.state.leader]
            if leader.proposed is not None:
                leader.asked += 1
                self.alter(leader, leader.proposed, number=leader.asked)
            ends = {each.log.positions.high_watermark for each in self.nodes.values()}
            if len(self.state.isr) == len(NODES) and ends == {leader.log.end_offset}:
                return leader
        raise AssertionError("the replicas do not come together")


def epochs_of(log: Log) -> list[EpochEntry]:
    """The epochs that have records; a leader also keeps those in which nothing was written."""
    ends = [*(each.start_offset for each in log.epochs.entries[1:]), log.end_offset]
    return [
        each for each, end in zip(log.epochs.entries, ends, strict=False) if each.start_offset < end
    ]


@given(st.integers(0, 2**32))
@example(0)
def test_what_was_acknowledged_is_on_every_replica(seed: int) -> None:
    """Logs become equal, with every record that acks=all has promised, under any leaders."""

    # Acknowledgements are futures, and need a loop.
    async def play() -> None:
        world = World(seed)
        for each in world.nodes.values():
            each.see(world.image, world.now_ms)
        for _ in range(STEPS):
            world.step()
        leader = world.settle_down()
        held = values(leader.log)
        for node in world.nodes.values():
            assert values(node.log) == held
            assert epochs_of(node.log) == epochs_of(leader.log)
        for sent in world.acknowledged:
            assert held[sent.offset] == sent.value

    with virtual_runtime() as outside:
        outside.run(play())
