"""A scripted cluster, producers on its virtual clock, and what a log must hold of what was sent."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.client.producer.aio import AsyncProducer
from tailrace.client.producer.receipts import Receipt
from tailrace.model import TopicPartition
from tailrace.protocol.messages.produce import ProduceResponse
from tailrace.testing import Outside, virtual_runtime
from tailrace.testing.cluster import ScriptedCluster

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)

transaction_version: ContextVar[int] = ContextVar("transaction_version", default=0)
"""Level of that feature in new clusters."""

Main = Callable[["Stage"], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Sent:
    """A record that was handed to a producer."""

    value: bytes
    receipt: Receipt


@dataclass(slots=True)
class Stage:
    """One test's cluster."""

    outside: Outside
    cluster: ScriptedCluster
    sent: list[Sent] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.outside.loop.time()

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time go by."""
        await self.outside.pass_time(seconds)

    def producer(self, **settings: Any) -> AsyncProducer:
        """A producer of this cluster, whose small batches do not linger unless told so."""
        given: dict[str, Any] = {
            "bootstrap_servers": self.cluster.bootstrap,
            "linger_ms": 0,
            "batch_size": 16384,
        }
        given |= settings
        return AsyncProducer(runtime=self.outside.runtime, **given)

    def send(
        self,
        producer: AsyncProducer,
        count: int = 1,
        *,
        topic: str = "t",
        partition: int | None = 0,
        size: int = 0,
    ) -> list[Receipt]:
        """Send records with values that tell them apart, each to be a batch of its own if large."""
        receipts = []
        for _ in range(count):
            value = b"%d" % len(self.sent)
            value += b"." * (size - len(value))
            receipt = producer.send(topic, value, partition=partition)
            self.sent.append(Sent(value, receipt))
            receipts.append(receipt)
        return receipts

    def check_log(self, *, may_repeat: bool = False, may_reorder: bool = False) -> None:
        """Each acknowledged record is there once and in order; others at most once."""
        copies: dict[bytes | None, int] = {}
        for led in self.cluster.partitions.values():
            for record in led.log.records:
                copies[record.value] = copies.get(record.value, 0) + 1
        if not may_repeat:
            assert all(count == 1 for count in copies.values()), "a record is there twice"
        values = {
            place: {record.offset: record.value for record in led.log.records}
            for place, led in self.cluster.partitions.items()
        }
        assert set(copies) <= {each.value for each in self.sent}, "a record that nobody sent"
        for each in self.sent:
            assert each.receipt.done(), "a receipt did not end"
            if each.receipt.exception() is None:
                found = each.receipt.result()
                assert each.value in copies, "an acknowledged record is not there"
                if found.offset >= 0:
                    at = values[TopicPartition(found.topic, found.partition)]
                    assert at[found.offset] == each.value, "it is somewhere else"
        if not may_reorder:
            self._check_order()

    def _check_order(self) -> None:
        place = {each.value: number for number, each in enumerate(self.sent)}
        for led in self.cluster.partitions.values():
            numbers = [place[each.value] for each in led.log.records if each.value is not None]
            assert numbers == sorted(numbers), "records changed their order"


def check_empty(producer: AsyncProducer) -> None:
    """Check that nothing waits in the producer, and that all of its memory was given back."""
    metrics = producer.metrics()
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert metrics["batches-in-flight"] == 0
    assert producer.held() == 0


def outcomes(receipts: list[Receipt]) -> list[str]:
    """The names of what became of records; empty: written."""
    return [
        "" if (error := each.exception()) is None else type(error).__name__ for each in receipts
    ]


async def deliver(stage: Stage, count: int, **settings: Any) -> None:
    """Send a batch for each record; every one is written once and in order."""
    async with stage.producer(batch_size=100, **settings) as producer:
        receipts = stage.send(producer, count, size=90)
        await producer.flush()
        assert outcomes(receipts) == [""] * count
        check_empty(producer)
    stage.check_log()


def with_fields(answer: ProduceResponse, **fields: Any) -> ProduceResponse:
    """The answer with other fields for each partition."""
    topics = (
        replace(
            topic,
            partition_responses=tuple(
                replace(each, **fields) for each in topic.partition_responses
            ),
        )
        for topic in answer.responses
    )
    return replace(answer, responses=tuple(topics))


@contextmanager
def stage(*, nodes: int = 1, partitions: int = 2, seed: int = 0) -> Iterator[Stage]:
    """A cluster with a topic `t`."""
    with virtual_runtime(seed=seed) as outside:
        cluster = ScriptedCluster(outside, nodes=nodes)
        cluster.set_transaction_version(transaction_version.get())
        cluster.start()
        cluster.create_topic("t", partitions=partitions)
        yield Stage(outside, cluster)


def play(main: Main, *, nodes: int = 1, partitions: int = 2, seed: int = 0) -> Stage:
    """Run a scene on a stage of its own, and return what is left of it."""
    with stage(nodes=nodes, partitions=partitions, seed=seed) as found:
        found.outside.run(main(found))
        return found
