"""Records go into open batches, compiled as uncompiled, and whatever threads do nothing is lost."""

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from random import Random
from typing import Any, NamedTuple, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.producer.calls import ProducerCalls
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.engine import Engine
from tailrace.client.producer.intake.encoding import BatchFields
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.partitioners import KEY_RULES, NO_PARTITION
from tailrace.client.producer.plugins import Plugins, ProducerRecord
from tailrace.client.producer.queue import open_batches
from tailrace.client.producer.queue.accumulator import QueuedBatch
from tailrace.client.producer.queue.batches import EncodedRecords, InFlightBatch, SealedBatch
from tailrace.client.producer.receipts import Receipt
from tailrace.kernels.record_block import NOW
from tailrace.model import TopicPartition
from tailrace.records.batch import read_batches
from tailrace.records.builder import Record, records_of
from tailrace.testing.network import MemoryNetwork
from tests.examples import examples
from tests.kernels.plain import PLAIN
from tests.unit.client.producer.transaction_life import NobodyWaits

THREADS, COUNT = 4, 3000
PARTITIONS = 3
NOW_NS = 1_700_000_000_250_999_999
KINDS = {
    "compiled": (open_batches.OpenBatches, open_batches.OpenBatch),
    "plain": (PLAIN[open_batches.__name__].OpenBatches, PLAIN[open_batches.__name__].OpenBatch),
}


# -- one thread: which records are taken, and where they go ------------------------------------


class Text(str):
    """A text that may run its own code."""

    __slots__ = ()


def called(*_: object) -> None:
    """A callback."""


class Given(NamedTuple):
    """The arguments of `take`."""

    topic: Any
    value: Any = None
    key: Any = None
    headers: Any = None
    timestamp: Any = None
    partition: Any = None
    on_delivery: Any = None
    wants_receipt: bool = True


WRONG_TEXT = "\ud800"
FIELDS = st.sampled_from(
    (None, b"", b"value", b"v" * 70, "text", "é", WRONG_TEXT, bytearray(b"v"), 7, Text("x"))
)
HEADERS = st.sampled_from(
    (
        None, [], (), {}, [("a", b"1")], (("é", None), ("b", b"")), {"c": b"x" * 200, "": None},
        [(WRONG_TEXT, b"")], "ab", [["a", b""]], [("a",)], [("a", "b")], {"a": 1}, 3,
        [(Text("x"), b"")],
    )
)  # fmt: skip
TIMES = st.sampled_from((None, None, 0, -1, 5, NOW + 1, NOW, 2**63 - 1, 2**63, 10**30, True, 1.0))
RECORD = st.builds(
    Given,
    st.sampled_from(("t", "t", "t", "u", Text("t"), b"t", None)),
    FIELDS,
    FIELDS,
    HEADERS,
    TIMES,
    st.sampled_from((None, None, None, 0, 1, 2, 3, -1, 2**70, True, 1.0)),
    st.sampled_from((None, None, called, "no callback")),
    st.booleans(),
)
STEP = RECORD | st.sampled_from(
    ("open", "stick", "resize", "shut", "clear", "close", "hide", "halt")
)


class Content(NamedTuple):
    """A batch that is closed: its records, and what its outcome was given."""

    records: list[Record]
    callbacks: list[Any]
    is_forgotten: bool


class Bench:
    """Open batches of one kind, and what they were given."""

    def __init__(self, kind: str, config: dict[str, object], plugins: Plugins) -> None:
        self._all, self._batch = KINDS[kind]
        settings = parse_producer_config({"bootstrap_servers": "b:1"} | config)
        self.open = self._all(settings, plugins, lambda: NOW_NS)
        self.made: list[open_batches.OpenBatch] = []
        self.answers: list[tuple[Given, object]] = []
        self.hidden: list[bool] = []
        self._numbers: dict[int, int] = {}

    def begin(self, partition: int, *, is_sticky: bool) -> None:
        """Open a batch of topic `t` with room for some records."""
        batch = self._batch(
            BatchOutcome(TopicPartition("t", partition), NobodyWaits()),
            created_at=0.0, size_limit=300, size_max=300, count_limit=4, reserved=0,
        )  # fmt: skip
        self._numbers[id(batch.outcome)] = len(self.made)
        self.made.append(batch)
        self.open.show(batch, PARTITIONS, is_sticky=is_sticky)

    def do(self, step: Given | str, number: int) -> None:
        """Take a record, or change what is open; notes what comes of it."""
        match step:
            case "open":
                self.begin(number % PARTITIONS, is_sticky=False)
            case "stick":
                self.begin(number % PARTITIONS, is_sticky=True)
            case "resize":
                self.open.forget_partitions("t")
            case "shut":
                self.open.shut("t")
            case "clear":
                self.open.clear()
            case "halt":
                self.open.halt()
            case "close":
                # Another thread may have found it before.
                self.made[-1].close()
            case "hide":
                self.hidden += [self.open.hide(batch) for batch in self.made[-2:]]
            case Given():
                found = self.open.take(*step)
                if not isinstance(found, bool):
                    found = self._numbers[id(found._outcome)], found._index
                self.answers.append((step, found))

    def contents(self) -> "list[Content]":
        """The batches in the end."""
        found = []
        for batch in self.made:
            sealed = batch.seal()
            outcome = batch.outcome
            assert list(outcome.timestamps) == [each.timestamp for each in records_in(sealed)]
            found.append(Content(records_in(sealed), outcome.callbacks, outcome.is_forgotten))
        return found


def records_in(batch: SealedBatch) -> list[Record]:
    """The records of a batch, from its bytes."""
    if not batch.record_count:
        return []
    assert isinstance(batch.records, EncodedRecords)
    [(_, found)] = read_batches(batch.records.encode(BatchFields()))
    found.check()
    return list(records_of(found))


def octets(data: Any) -> bytes | None:
    """A field as it has to be in the log."""
    return data.encode() if isinstance(data, str) else data


def is_in(record: Record, step: Given) -> bool:
    """Whether a record in the log is the one that was given."""
    headers = step.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    time = NOW_NS // 1_000_000 if step.timestamp is None else step.timestamp
    fields = octets(step.value), octets(step.key), tuple(pairs), time
    return (record.value, record.key, record.headers, record.timestamp) == fields


@settings(max_examples=examples(300))
@given(
    st.lists(STEP, max_size=30),
    st.sampled_from([*KEY_RULES, *["murmur2_random"] * 5]),
    st.booleans(),
    st.sampled_from((Plugins(), Plugins(), Plugins(key_serializer=str))),
)
def test_compiled_and_plain_take_the_same_records(
    steps: list[Given | str],
    rule: str,
    ignores_keys: bool,  # noqa: FBT001
    plugins: Plugins,
) -> None:
    """Each answer is the same, and each record that was taken stands where its receipt says."""
    config: dict[str, object] = {"partitioner": rule, "partitioner_ignore_keys": ignores_keys}
    benches = [Bench(kind, config, plugins) for kind in KINDS]
    for bench in benches:
        bench.begin(0, is_sticky=True)
        for number, step in enumerate(steps):
            bench.do(step, number)
    compiled, plain = benches
    assert (compiled.answers, compiled.hidden) == (plain.answers, plain.hidden)
    contents = compiled.contents()
    assert contents == plain.contents()
    for step, answer in compiled.answers:
        if isinstance(answer, tuple):
            batch, index = answer
            assert is_in(contents[batch].records[index], step)
            assert contents[batch].callbacks.count(index) == (step.on_delivery is not None)
        elif answer is True:
            assert any(is_in(each, step) for content in contents for each in content.records)
            assert any(content.is_forgotten for content in contents)


@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_of_records_come_before_those_of_receipts(kind: str) -> None:
    """They are called in the order of records, whichever way a record came."""
    heard: list[str] = []

    def hearing(name: str) -> DeliveryCallback:
        return lambda *_: heard.append(name)

    for is_late in (False, True):
        bench = Bench(kind, {}, Plugins())
        bench.begin(0, is_sticky=True)
        (batch,) = bench.made
        batch.append(b"on the slow path", None, b"", 5)
        batch.outcome.add_callback(0, hearing("first"))
        for name in ("second", "third"):
            bench.do(Given("t", b"v", on_delivery=hearing(name)), 0)
        if is_late:
            batch.outcome.add_callback(1, hearing("late"))
        batch.close()
        batch.close()
        batch.outcome.run_callbacks()
    assert heard == ["first", "second", "third", "first", "second", "late", "third"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_time_is_that_of_the_clock_rounded_down(kind: str) -> None:
    """Nanoseconds become milliseconds as Python divides, before 1970 too; or it is the system's."""
    made, _ = KINDS[kind]
    clocks: list[Callable[[], int]] = [lambda: -1, lambda: 1_999_999, time.time_ns]
    before = time.time_ns() // 1_000_000
    found = []
    for clock in clocks:
        bench = Bench(kind, {}, Plugins())
        bench.open = made(parse_producer_config({"bootstrap_servers": "b:1"}), Plugins(), clock)
        bench.begin(0, is_sticky=True)
        bench.do(Given("t", b"v"), 0)
        found.append(bench.made[0].seal().outcome.timestamps[0])
    assert found[:2] == [-1, 1]
    assert before <= found[2] <= time.time_ns() // 1_000_000


def test_a_callback_has_no_reference_too_many() -> None:
    """Records, their callbacks and their receipts are freed when nobody has them."""
    value, heard = bytes(50), partial(called)
    before = sys.getrefcount(value), sys.getrefcount(heard)
    bench = Bench("compiled", {}, Plugins())
    bench.begin(0, is_sticky=True)
    for number in range(3):
        bench.do(Given("t", value, value, [("h", value)], on_delivery=heard), number)
    assert sys.getrefcount(heard) > before[1]
    del bench
    gc.collect()
    assert (sys.getrefcount(value), sys.getrefcount(heard)) == before


def test_send_says_its_types() -> None:
    """Tools that look at a running program find them, though the function is compiled."""
    hints = get_type_hints(ProducerCalls.send)
    assert hints["receipt"] is bool
    assert hints["return"] == Receipt | None
    assert str(signature(ProducerCalls.send)).endswith(
        "receipt: 'bool' = True) -> 'Receipt | None'"
    )


# -- many threads ------------------------------------------------------------------------------


class Batches(ProducerCalls):
    """A producer that knows topic `t`, and sends nothing."""

    def __init__(self) -> None:
        config = parse_producer_config({"bootstrap_servers": "b:1", "buffer_memory": 1 << 30})
        engine = Engine(
            config,
            Plugins(),
            network=MemoryNetwork(),
            now_ns=lambda: 10**9,
            monotonic=lambda: 0.0,
            chance=Random(0),
            waiting=NobodyWaits(),
            wake=lambda: None,
        )
        self._attach(engine, None, None)

    @property
    def batches(self) -> list[QueuedBatch]:
        """All batches, oldest first."""
        return list(self._engine.accumulator.incomplete.values())

    def close_batch(self, partition: int) -> None:
        """Have the open batch of a partition take no more."""
        place = TopicPartition("t", partition)
        with self._engine.lock:
            if self._engine.accumulator.open_batch(place) is not None:
                self._engine.accumulator.take(place, 0.0)

    def end(self) -> None:
        """End all batches."""
        for partition in range(PARTITIONS):
            self.close_batch(partition)
        with self._engine.lock:
            self._engine.closed_error = None
            self._engine.begin_close()

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> tuple[DeliveryOutcome, int]:
        engine = self._engine
        prepared = engine.preparation.prepare(record)
        chosen = KEY_RULES["murmur2_random"](prepared.key, PARTITIONS)
        partition = max(0, chosen)
        with engine.lock:
            placed = engine.append(prepared, partition, now=0.0, now_ns=10**9)
            assert placed is not None
            batch = engine.accumulator.open_batch(TopicPartition("t", partition))
            assert batch is not None
            engine.open_batches.show(batch, PARTITIONS, is_sticky=chosen == NO_PARTITION)
            self._add_callbacks(*placed, on_delivery)
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


class Threads:
    """Threads that add records of all kinds, and what they were told."""

    def __init__(self, producer: Batches) -> None:
        self.told: list[bytes] = []
        self._producer = producer
        self.receipts: list[list[tuple[bytes, Receipt | None]]] = [[] for _ in range(THREADS)]

    def _hear(self, value: bytes, *_: object) -> None:
        self.told.append(value)

    def add(self, thread: int) -> None:
        """Add `COUNT` records."""
        for number in range(COUNT):
            value = b"%d %d" % (thread, number)
            # Batches grow while records come.
            value += b" " * (number % 7 * 100)
            receipt = self._producer.send(
                "t",
                value.decode() if number % 3 == 0 else value,
                b"key %d" % (number % 5) if number % 2 else None,
                headers=[("thread", b"%d" % thread)] if number % 11 == 0 else None,
                on_delivery=partial(self._hear, value) if number % 4 == 0 else None,
                receipt=number % 13 != 0,
            )  # type: ignore[call-overload]
            self.receipts[thread].append((value, receipt))
            if number % 100 == 0:
                self._producer.close_batch(number % PARTITIONS)


def test_threads_that_add_and_one_that_closes_lose_nothing() -> None:
    """Each record is in one batch, where its receipt says, and each thread's stand in order.

    Each callback belongs to the batch of its record, and no batch forgets a failure to log.
    """
    producer = Batches()
    threads = Threads(producer)
    is_over = threading.Event()

    def close() -> None:
        while not is_over.is_set():
            for partition in range(PARTITIONS):
                producer.close_batch(partition)

    with switching_often():
        closing = threading.Thread(target=close)
        adding = [threading.Thread(target=threads.add, args=(thread,)) for thread in range(THREADS)]
        for each in (closing, *adding):
            each.start()
        for each in adding:
            each.join()
        is_over.set()
        closing.join()
    producer.end()
    batches = [each.sealed for each in producer.batches if isinstance(each, InFlightBatch)]
    assert len(batches) == len(producer.batches) >= COUNT // 100
    placed: dict[tuple[int, int], Record] = {}
    for batch in batches:
        found = records_in(batch)
        assert [each.timestamp for each in found] == list(batch.outcome.timestamps)
        placed |= {(id(batch.outcome), at): record for at, record in enumerate(found)}
        numbers = [int((each.value or b"").split()[1]) for each in found]
        assert batch.outcome.is_forgotten == any(each % 13 == 0 for each in numbers)
        # Callbacks are told by their own batch, in the order of its records.
        before = len(threads.told)
        batch.outcome.run_callbacks()
        assert threads.told[before:] == [
            each.value for each, number in zip(found, numbers, strict=True) if number % 4 == 0
        ]
    assert len(placed) == THREADS * COUNT
    assert len(threads.told) == THREADS * len(range(0, COUNT, 4)) == len(set(threads.told))
    for thread, own in enumerate(threads.receipts):
        for value, receipt in own:
            if receipt is not None:
                assert placed[id(receipt._outcome), receipt._index].value == value
        for key in (None, *(b"key %d" % number for number in range(5))):
            stand = [
                int(each.value.split()[1])
                for each in placed.values()
                if each.value and each.value.startswith(b"%d " % thread) and each.key == key
            ]
            assert stand == sorted(stand)


def test_a_producer_that_is_given_up_calls_the_callbacks_of_open_batches() -> None:
    """Each is called, also if its record came on the fast path."""
    told: list[Exception | None] = []
    producer = Batches()
    for _ in range(3):
        producer.send("t", b"v", on_delivery=lambda _, error: told.append(error))
    producer._engine.give_up(KeyboardInterrupt())
    for call in producer._engine.sender.calls:
        call()
    assert [str(error)[:24] for error in told] == ["the producer was stopped"] * 3
    producer.end()
