"""Records are added and batches are closed by many threads: nothing is lost or moved."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from tailrace.client.producer.base_producer import BaseProducer
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.intake.encoding import BatchFields
from tailrace.client.producer.intake.plugins import Plugins
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.outcome import DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.queue.accumulator import QueuedBatch
from tailrace.client.producer.queue.gate import Gate
from tailrace.client.producer.queue.in_flight_batch import InFlightBatch
from tailrace.client.producer.queue.sealed_batch import EncodedRecords, SealedBatch
from tailrace.records.batch import read_batches
from tailrace.records.builder import records_of
from tailrace.testing.network import MemoryNetwork
from tests.unit.client.producer.transaction_life import T0, NobodyWaits

if TYPE_CHECKING:
    from tailrace.client.producer.receipts import Receipt

THREADS, COUNT = 4, 3000


class Batches(BaseProducer):
    """A producer that knows one partition of topic `t`, and sends nothing."""

    def __init__(self) -> None:
        config = parse_producer_config({"bootstrap_servers": "b:1", "buffer_memory": 1 << 30})
        waiting = NobodyWaits()
        engine = Engine(
            config,
            Plugins(),
            network=MemoryNetwork(),
            now_ns=lambda: 10**9,
            monotonic=lambda: 0.0,
            chance=Random(0),
            waiting=waiting,
            stirred=lambda: None,
        )
        self._settle(engine)

    @property
    def engine(self) -> Engine:
        """The engine of this producer."""
        return self._engine

    @property
    def batches(self) -> list[QueuedBatch]:
        """All batches, oldest first."""
        return list(self._engine.accumulator.incomplete.values())

    def close_batch(self) -> None:
        """Have the open batch take no more."""
        with self._engine.lock:
            if self._engine.gate.open.get("t") is not None:
                self._engine.accumulator.take(T0, 0.0)

    def end(self) -> None:
        """End all batches."""
        with self._engine.lock:
            self._engine.closed_error = None
            while T0 in self._engine.accumulator.queues:
                self._engine.accumulator.take(T0, 0.0)
            self._engine.begin_close()

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        engine = self._engine
        prepared = engine.preparation.prepare(record)
        with engine.lock:
            placed = engine.append(prepared, T0.partition, now=0.0, now_ns=10**9)
            assert placed is not None
            batch = engine.accumulator.open_batch(T0)
            assert batch is not None
            engine.gate.open["t"] = batch
            engine.gate.show(batch, 1)
            self._placed(*placed, on_delivery)
            return placed

    def _dropped(self) -> None:
        self.end()


@contextmanager
def switching_often() -> Iterator[None]:
    """Threads take turns after a few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def values_of(batch: SealedBatch) -> list[bytes | None]:
    """The values of the records of a batch, from its bytes."""
    assert isinstance(batch.records, EncodedRecords)
    [(_, found)] = read_batches(batch.records.encode(BatchFields()))
    found.check()
    return [record.value for record in records_of(found)]


def places(batches: list[SealedBatch]) -> dict[tuple[int, int], bytes | None]:
    """Every value by its batch's outcome and place."""
    return {
        (id(each.outcome), at): value
        for each in batches
        for at, value in enumerate(values_of(each))
    }


def test_threads_that_add_and_one_that_closes_lose_nothing() -> None:
    """Each record is in one batch, where its receipt says, and each thread's stand in order.

    Each callback belongs to the batch of its record.
    """
    producer = Batches()
    receipts: list[list[tuple[bytes, Receipt]]] = [[] for _ in range(THREADS)]
    is_over = threading.Event()
    told: list[bytes] = []

    def hear(value: bytes, *_: object) -> None:
        told.append(value)

    def add(thread: int) -> None:
        for number in range(COUNT):
            value = b"%d %d" % (thread, number)
            key = b"key" if number % 97 == 0 else None
            heard: DeliveryCallback | None = None
            if number % 31 == 0:
                heard = partial(hear, value)
            receipt = producer.send("t", value, key, on_delivery=heard)
            receipts[thread].append((value, receipt))
            if number % 100 == 0:
                producer.close_batch()

    def close() -> None:
        while not is_over.is_set():
            producer.close_batch()

    with switching_often():
        closing = threading.Thread(target=close)
        adding = [threading.Thread(target=add, args=(thread,)) for thread in range(THREADS)]
        for each in (closing, *adding):
            each.start()
        for each in adding:
            each.join()
        is_over.set()
        closing.join()
    producer.end()
    batches = [each.sealed for each in producer.batches if isinstance(each, InFlightBatch)]
    assert len(batches) == len(producer.batches) >= COUNT // 100
    for batch in batches:
        assert len(batch.outcome.timestamps) == batch.record_count
        batch.outcome.run_callbacks()
    assert len(told) == THREADS * len(range(0, COUNT, 31)) == len(set(told))
    found = places(batches)
    assert len(found) == THREADS * COUNT
    for thread, own in enumerate(receipts):
        for value, receipt in own:
            assert found[id(receipt._outcome), receipt._index] == value
        prefix = b"%d " % thread
        numbers = [
            int(each.split()[1]) for each in found.values() if each and each.startswith(prefix)
        ]
        assert numbers == list(range(COUNT))


def test_entering_a_held_gate_fails_at_once() -> None:
    """While another caller holds the gate, plain records take the slow path."""
    producer = Batches()
    producer.send("t", b"first")
    gate = producer.engine.gate
    gate.wait()
    with pytest.raises(IndexError):
        gate.enter()
    gate.leave(None)
    producer.send("t", b"second")
    producer.end()
    (batch,) = producer.batches
    assert isinstance(batch, InFlightBatch)
    assert values_of(batch.sealed) == [b"first", b"second"]


def test_a_reset_gate_is_free_and_empty() -> None:
    """After a reset nobody holds the gate, and no batch is open."""
    gate = Gate()
    gate.wait()
    gate.reset()
    gate.wait()
    gate.leave(None)
    assert not gate.open
