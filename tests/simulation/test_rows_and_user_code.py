"""Rows of `send_many` go through the program's own code as the records of `send` do."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tailrace.client.producer.errors import (
    RejectedRecordError,
    SerializationError,
    TransactionAbortableError,
)
from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.producer.partitioners import RoundRobinPartitioner
from tailrace.client.producer.plugins import (
    ProducerInterceptor,
    ProducerRecord,
    serialize_json,
    serialize_long,
)
from tailrace.client.producer.results import ERRORS_KEPT_MAX, SendSummary
from tests.simulation.stage import T0, Stage, play

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    """A row as an application may have it."""

    key: object
    value: object
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    partition: int | None = None


class Tracing(ProducerInterceptor):
    """Adds a header and keeps the records and the outcomes."""

    def __init__(self) -> None:
        self.records: list[ProducerRecord] = []
        self.outcomes: list[tuple[RecordMetadata, Exception | None]] = []
        self.change: Callable[[ProducerRecord], ProducerRecord] = lambda record: record

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.records.append(record)
        traced = record._replace(headers=(*record.headers, ("trace", b"7")))
        return self.change(traced)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.outcomes.append((metadata, error))


def sent(rows: object, **settings: Any) -> tuple[Stage, SendSummary]:
    """The cluster after the rows were sent to its one partition, and their summary."""
    found: list[tuple[Stage, SendSummary]] = []

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=500, **settings) as producer:
            found.append((stage, await producer.send_many("t", rows)))

    play(main, partitions=1)
    return found[0]


def values(stage: Stage) -> list[bytes | None]:
    """The values in the log."""
    return stage.cluster.partitions[T0].log.values()


ROWS = [Row(number, {"n": number}) for number in range(100)]
FORMS: dict[str, Callable[[], object]] = {
    "named tuples": lambda: ROWS,
    "pairs": lambda: [(row.key, row.value) for row in ROWS],
    "columns": lambda: {"key": [row.key for row in ROWS], "value": [row.value for row in ROWS]},
    "table": lambda: pa.table(
        {"key": [row.key for row in ROWS], "value": [row.value for row in ROWS]}
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_serializers_make_the_same_bytes_as_in_send(form: str) -> None:
    """Numbers and structs of Arrow reach the serializers as Python objects."""
    stage, summary = sent(
        FORMS[form](), key_serializer=serialize_long, value_serializer=serialize_json
    )
    assert (summary.acknowledged_count, summary.errors) == (len(ROWS), {})
    log = stage.cluster.partitions[T0].log
    assert [(record.key, record.value) for record in log.records] == [
        (serialize_long(number), b'{"n":%d}' % number) for number in range(len(ROWS))
    ]


def test_rows_may_be_objects_if_a_serializer_takes_them() -> None:
    """An iterable of mappings is one of values, and None stays the value that deletes a key."""
    stage, summary = sent([{"n": 1}, None, {"n": 2}], value_serializer=serialize_json)
    assert summary.errors == {}
    assert values(stage) == [b'{"n":1}', None, b'{"n":2}']


def test_a_serializer_fails_one_row_alone() -> None:
    """The error names the row and has the serializer's own as its cause."""
    stage, summary = sent(
        {"value": [1.5, float("nan"), 2.5], "key": ["a", "b", "c"]}, value_serializer=serialize_json
    )
    assert values(stage) == [b"1.5", b"2.5"]
    assert list(summary.errors) == [1]
    error = summary.errors[1]
    assert isinstance(error, SerializationError)
    assert str(error).startswith("row 1: value_serializer failed on a float")
    assert isinstance(error.__cause__, ValueError)
    assert (summary.row_count, summary.acknowledged_count) == (3, 2)


def test_a_call_whose_rows_all_fail_keeps_few_errors() -> None:
    """All rows are counted and named by number; the exceptions of the first are kept."""
    count = ERRORS_KEPT_MAX + 500
    rows = [float("nan")] * count + [1.0]
    _, summary = sent({"value": rows}, value_serializer=serialize_json)
    assert (summary.error_count, summary.acknowledged_count) == (count, 1)
    assert summary.failed_rows.tolist() == [*range(count)]
    assert [*summary.errors] == [*range(ERRORS_KEPT_MAX)]
    with pytest.raises(SerializationError) as raised:
        summary.raise_errors()
    assert raised.value.__notes__ == [
        "row 0, the first of 1,500 that were not written: 1,500 SerializationError"
    ]


def test_interceptors_see_timestamps_before_1970() -> None:
    """-1 comes as it was given, and null as None; both are sent as `send` does."""
    tracing = Tracing()
    stage, _ = sent({"value": ["a", "b", "c"], "timestamp": [-1, -5, None]}, interceptors=[tracing])
    assert [record.timestamp for record in tracing.records] == [-1, -5, None]
    first, second, third = (each.timestamp for each in stage.cluster.partitions[T0].log.records)
    assert (first, second) == (-1, -5)
    assert third > 0


@pytest.mark.parametrize("is_arrow", [False, True], ids=["tuples", "table"])
def test_interceptors_see_each_row_and_its_outcome(is_arrow: bool) -> None:  # noqa: FBT001
    """All fields come as `send` gives them, and what the interceptor adds is written."""
    tracing = Tracing()
    rows = [Row(b"k", b"v", [("a", b"1"), ("b", None)], 5, 0), Row(None, b"w")]
    table = pa.table(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array([b"v", b"w"]),
            "headers": pa.array(
                [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None], HEADERS
            ),
            "timestamp": pa.array([5, None], pa.timestamp("ms")),
            "partition": pa.array([0, None]),
        }
    )
    stage, summary = sent(table if is_arrow else rows, interceptors=[tracing])
    assert summary.errors == {}
    assert tracing.records == [
        ProducerRecord("t", b"v", b"k", (("a", b"1"), ("b", None)), 5, 0),
        ProducerRecord("t", b"w"),
    ]
    written = stage.cluster.partitions[T0].log.records
    assert [record.headers for record in written] == [
        (("a", b"1"), ("b", None), ("trace", b"7")),
        (("trace", b"7"),),
    ]
    assert written[0].timestamp == 5
    assert tracing.outcomes == [
        (RecordMetadata("t", 0, record.offset, record.timestamp), None) for record in written
    ]


def test_a_row_that_an_interceptor_spoils_is_refused_alone() -> None:
    """Wrong types, numbers and topics are errors of their rows, which the interceptor hears of."""
    tracing = Tracing()
    spoiled: dict[object, dict[str, Any]] = {
        b"1": {"key": 3.5},
        b"2": {"timestamp": 2**70},
        b"3": {"topic": "other"},
        b"4": {"headers": (("\ud800", b""),)},
        b"5": {"timestamp": -(2**62) - 1},
        b"6": {"value": "\ud800"},
    }
    tracing.change = lambda record: record._replace(**spoiled.get(record.value, {}))
    stage, summary = sent([b"%d" % number for number in range(8)], interceptors=[tracing])
    assert values(stage) == [b"0", b"7"]
    words = ["key is a float", "64 bits", "'other'", "surrogates", f"before {1 - 2**62}", "UTF-8"]
    assert sorted(summary.errors) == [*range(1, 7)]
    for row, word in enumerate(words, 1):
        error = summary.errors[row]
        assert isinstance(error, RejectedRecordError | SerializationError)
        assert f"row {row}: " in str(error)
        assert word in str(error)
    failed = [error for _, error in tracing.outcomes if error is not None]
    assert sorted(map(str, failed)) == sorted(map(str, summary.errors.values()))
    assert len(tracing.outcomes) == 8


def test_a_custom_partitioner_places_each_row() -> None:
    """It gets serialized keys and values of rows without a partition; its failure is a row's."""
    calls: list[tuple[bytes | None, bytes | None]] = []

    class Picky(RoundRobinPartitioner):
        def partition(self, topic: str, key: bytes | None, value: bytes | None, **more: Any) -> int:
            calls.append((key, value))
            if value == b"2":
                raise LookupError("no place")
            return super().partition(topic, key, value, **more)

    async def main(stage: Stage) -> None:
        async with stage.producer(partitioner=Picky(), value_serializer=serialize_json) as producer:
            rows = [
                Row(None if n % 2 else "k", n, partition=2 if n == 1 else None) for n in range(5)
            ]
            summary = await producer.send_many("t", rows)
        assert calls == [(b"k", b"0"), (b"k", b"2"), (None, b"3"), (b"k", b"4")]
        assert list(summary.errors) == [2]
        assert "the partitioner failed: LookupError('no place')" in str(summary.errors[2])
        logs = {
            place.partition: led.log.values() for place, led in stage.cluster.partitions.items()
        }
        assert logs == {0: [b"0"], 1: [b"3"], 2: [b"1", b"4"]}

    play(main, partitions=3)


def test_a_refused_row_fails_its_transaction() -> None:
    """A transaction is not committed without one of its rows."""

    async def main(stage: Stage) -> None:
        async with stage.producer(transactional_id="x") as producer:
            await producer.begin_transaction()
            summary = await producer.send_many("t", {"value": [b"a"], "timestamp": [-(2**63)]})
            assert list(summary.errors) == [0]
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction()
            await producer.abort_transaction()
        assert values(stage) == []

    play(main, partitions=1)
