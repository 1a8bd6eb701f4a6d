"""Clients, partitions and a coordinator in trouble, at random from a seed and in virtual time.

Replies get lost, clients crash or are too slow, markers fail before and after they are written, the
log refuses appends, commits are late, and leaders change: with them, records that nobody was told
of may be gone.
"""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.markers import BACKOFF_S_MAX, Marker
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.outside import Outside
from tests.unit.coordinator.transactions.stage import Answer, Stage

PARTITIONS = [TopicPartition("flights", number) for number in range(5)]
CALM_S = 300
"""Time without trouble at the end: more than any timeout."""


@dataclass(eq=False)
class Sent:
    """The records of one transaction, as its client knows it."""

    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions that have accepted records."""
    answer: bool | None = None
    """Whether the client was told that it is committed or aborted; None: of neither."""
    ends: dict[TopicPartition, bool] = field(default_factory=dict)
    """The ends of its records at each partition."""


class TroubledPartitions:
    """Leaders that accept records and markers by the rules of producer epochs."""

    backoff_s_max = BACKOFF_S_MAX

    def __init__(self, outside: Outside, chance: random.Random) -> None:
        self.is_calm = False
        self.outcomes: dict[tuple[TopicPartition, int, int], set[bool]] = defaultdict(set)
        """The ends of transactions of KIP-890, by partition, producer id and epoch."""
        self.counts: Counter[str] = Counter()
        self._outside = outside
        self._chance = chance
        self._epochs: dict[tuple[TopicPartition, int], int] = {}
        self._open: dict[tuple[TopicPartition, int], Sent] = {}

    def accept(
        self, partition: TopicPartition, producer: TransactionalProducer, sent: Sent
    ) -> bool:
        """Take records, unless a newer epoch is known; returns whether they are taken."""
        place = partition, producer.producer_id
        if producer.producer_epoch < self._epochs.get(place, 0):
            return False
        self._epochs[place] = producer.producer_epoch
        assert self._open.setdefault(place, sent) is sent, "two transactions of one producer"
        sent.partitions.add(partition)
        return True

    async def write(self, partition: TopicPartition, marker: Marker) -> None:
        """Take a marker, after a while; or not; or take it and say no."""
        await self._outside.pass_time(self._chance.random() * 0.05)
        if not self.is_calm and self._chance.random() < 0.2:
            raise RetriableError("the marker was not written")
        place = partition, marker.producer_id
        assert marker.producer_epoch >= self._epochs.get(place, 0), "a marker of an older epoch"
        self._epochs[place] = marker.producer_epoch
        self.counts["markers"] += 1
        if marker.transaction_version == 2:
            self.outcomes[(*place, marker.producer_epoch)].add(marker.is_commit)
        sent = self._open.pop(place, None)
        if sent is not None:
            assert partition not in sent.ends, "the records of a transaction have ended twice"
            sent.ends[partition] = marker.is_commit
        if not self.is_calm and self._chance.random() < 0.1:
            raise RetriableError("the reply to the marker was lost")


@dataclass
class Client:
    """A client that sends transactions, one after the other, and starts anew when it is fenced."""

    stage: Stage
    partitions: TroubledPartitions
    chance: random.Random
    transactional_id: str
    sent: list[Sent] = field(default_factory=list)

    async def live(self) -> None:
        """Send transactions until there is calm."""
        while not self.partitions.is_calm:
            producer: TransactionalProducer | None = (await self._init()).producer
            while producer is not None and not self.partitions.is_calm:
                producer = await self._send(producer)

    async def _init(self) -> Answer:
        while True:
            timeout_ms = self.chance.choice([1_000, 30_000])
            answer = await self.stage.init(self.transactional_id, timeout_ms=timeout_ms)
            if answer.error is ErrorCode.NONE and not self._is_lost():
                return answer
            await self._back_off()

    async def _send(self, producer: TransactionalProducer) -> TransactionalProducer | None:
        """Send a transaction; returns the next producer, or None to start anew."""
        sent = Sent()
        self.sent.append(sent)
        version = self.chance.choice([4, 5])
        for partition in self.chance.sample(PARTITIONS, self.chance.randint(1, 4)):
            if not await self._add(producer, partition, version):
                return None
            if not self.partitions.accept(partition, producer, sent):
                return None
            await self.stage.outside.pass_time(self.chance.choice([0, 0, 0.01, 2]))
        if self.chance.random() < 0.1:
            return None  # It has crashed.
        is_commit = self.chance.random() < 0.7
        while True:
            answer = await self.stage.end(
                producer,
                is_commit=is_commit,
                transactional_id=self.transactional_id,
                version=version,
            )
            if answer.error is ErrorCode.NONE and not self._is_lost():
                sent.answer = is_commit
                self.partitions.counts[f"answered {is_commit}"] += 1
                return answer.producer
            if not (answer.error.is_retriable or answer.error is ErrorCode.NONE):
                return None
            await self._back_off()

    async def _add(
        self, producer: TransactionalProducer, partition: TopicPartition, version: int
    ) -> bool:
        while True:
            error = await self.stage.add(
                producer,
                [partition],
                transactional_id=self.transactional_id,
                client_version=2 if version == 5 else 0,
            )
            if error is ErrorCode.NONE and not self._is_lost():
                return True
            if not (error.is_retriable or error is ErrorCode.NONE):
                return False
            await self._back_off()

    def _is_lost(self) -> bool:
        return not self.partitions.is_calm and self.chance.random() < 0.1

    async def _back_off(self) -> None:
        await self.stage.outside.pass_time(self.chance.random() * 0.2)


async def trouble(stage: Stage, partitions: TroubledPartitions, chance: random.Random) -> None:
    """Make trouble for the log and the leader for a while, then leave them in order."""
    for _ in range(40):
        await stage.outside.pass_time(chance.random() * 4)
        kind = chance.choice(["refuse", "hold", "lose", "restart"])
        partitions.counts[kind] += 1
        if kind == "refuse":
            stage.log.refusal = OSError(28, "no space left on device")
            await stage.outside.pass_time(chance.random())
            stage.log.refusal = None
            continue
        committed = len(stage.log.content)
        if kind != "restart":
            stage.log.hold_commits()
            await stage.outside.pass_time(chance.random())
        if kind == "hold":
            stage.log.commit()
            continue
        await stage.shards.stop()
        if kind == "lose":
            del stage.log.content[committed:]
            stage.log.lose(OSError(5, "another broker leads the partition"))
        stage.log.seconds_per_read = chance.random()
        await stage.load()
