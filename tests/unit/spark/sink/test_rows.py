"""Tests of a task of the sink, with a real broker and without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace import Broker
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.spark.sink.options import SinkOptions
from tailrace.spark.sink.rows import REASONS_SHOWN, WINDOW_SIZE, RowsNotWrittenError, write_rows
from tests.spark.topics import batches as logged
from tests.spark.topics import records

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that makes topics of one partition when they are first written to."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.bootstrap_servers


def options(bootstrap: str, topic: str | None = None, **settings: str) -> SinkOptions:
    """The sink's options with these settings of the producer."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return SinkOptions(topic=topic, producer={"bootstrap.servers": bootstrap} | named)


def split(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    """The table as Spark hands it over, in batches of so many rows."""
    return list(table.to_batches(max_chunksize=rows))


def test_rows_go_to_the_topics_that_they_name_in_their_order(bootstrap: str) -> None:
    """Order is kept even if topics alternate in a batch; the message has their last offsets."""
    count = 9_000
    table = pa.table(
        {
            "value": [b"%d" % number for number in range(count)],
            "topic": [f"turn-{number % 3}" for number in range(count)],
            "offset": [0] * count,
        }
    )
    written = write_rows(split(table, 1000), options(bootstrap))
    for which in range(3):
        values = [int(record.value or b"") for record in records(bootstrap, f"turn-{which}")]
        assert values == list(range(which, count, 3))
    assert written.row_count == count
    assert written.last_offsets == {
        TopicPartition(f"turn-{n}", 0): count // 3 - 1 for n in range(3)
    }
    assert (written.attempt.query_id, written.attempt.batch_id) == (None, None)


def test_no_rows_are_written_without_a_word(bootstrap: str) -> None:
    """A task of an empty partition needs no broker."""
    empty = pa.table({"value": pa.array([], pa.binary())})
    assert write_rows(empty.to_batches(), options(bootstrap, "none")).row_count == 0


def test_a_null_topic_is_an_error_that_says_which_row(bootstrap: str) -> None:
    """The number counts all rows of the task, also those of windows that were written."""
    count = WINDOW_SIZE // 1000 + 1
    first = pa.record_batch({"value": [bytes(1000)] * count, "topic": ["before"] * count})
    second = pa.record_batch({"value": [b"x", b"x"], "topic": ["before", None]})
    with pytest.raises(FatalError, match=r"\[KAFKA_NULL_TOPIC_IN_DATA\]") as caught:
        write_rows([first, second], options(bootstrap))
    assert f"row {count + 1} of the task has null" in str(caught.value)
    assert "Use the topic option" in str(caught.value)
    assert len(records(bootstrap, "before")) == count


def test_rows_that_cannot_be_records_are_named_and_the_others_are_written(bootstrap: str) -> None:
    """Each with its number in the task, its topic and the rule that it breaks."""
    table = pa.table(
        {
            "value": [b"x", bytes(5000), b"x", b"x"],
            "topic": ["odd", "even", "odd", "even"],
            "partition": pa.array([None, None, 7, 0], pa.int32()),
        }
    )
    with pytest.raises(RowsNotWrittenError) as caught:
        write_rows(split(table, 10), options(bootstrap, max_request_size="1000"))
    assert sorted(caught.value.errors) == [1, 2]
    assert caught.value.errors[1].topic == "even"
    assert caught.value.sent_count == 4
    message = str(caught.value)
    assert "2 of 4 rows were not written" in message
    assert "1 to even, the first is row 1 of the task: it takes up to" in message
    assert "to odd, the first is row 2 of the task: its partition is 7, of 1 from 0" in message
    assert len(records(bootstrap, "odd")) == len(records(bootstrap, "even")) == 1


def test_a_header_without_a_key_is_an_error_that_says_which_row(bootstrap: str) -> None:
    """By its number in the task; the other rows are written."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    bad = [{"key": None, "value": b"1"}]
    table = pa.table(
        {
            "value": [b"x"] * 4,
            "topic": ["plain", "headed", "plain", "headed"],
            "headers": pa.array([None, None, None, bad], kind),
        }
    )
    with pytest.raises(RowsNotWrittenError) as caught:
        write_rows(split(table, 10), options(bootstrap))
    assert "1 to headed, the first is row 3 of the task: a header has no key" in str(caught.value)
    assert len(records(bootstrap, "plain")) == 2
    assert len(records(bootstrap, "headed")) == 1


def test_big_rows_go_through_a_producer_with_a_tiny_buffer(bootstrap: str) -> None:
    """`buffer.memory` of one row makes the task wait, not fail."""
    table = pa.table({"value": [bytes([number % 256]) * 15_000 for number in range(1000)]})
    wanted = options(bootstrap, "tiny", buffer_memory="16384", batch_size="16384")
    assert write_rows(split(table, 100), wanted).row_count == 1000
    firsts = [(record.value or b"")[0] for record in records(bootstrap, "tiny")]
    assert firsts == [number % 256 for number in range(1000)]


def test_a_producer_is_kept_for_the_next_task_with_the_same_settings(bootstrap: str) -> None:
    """The broker gives each producer an id; the tasks share one, until the settings differ."""
    table = pa.table({"value": [b"x"]})
    for linger_ms in ("1", "1", "2"):
        write_rows(table.to_batches(), options(bootstrap, "kept", linger_ms=linger_ms))
    first, second, third = [batch.producer_id for batch in logged(bootstrap, "kept")[0]]
    assert first == second != third


def test_a_broker_that_dies_in_the_middle_is_one_clear_error(tmp_path: Path) -> None:
    """The rows that were acknowledged are not among those that the error counts."""
    with Broker(tmp_path / "data") as broker:
        rows = pa.record_batch({"value": [bytes(1000)] * (WINDOW_SIZE // 1000 + 1)})

        def dying() -> Iterator[pa.RecordBatch]:
            yield rows
            broker.stop()
            yield rows

        wanted = options(
            broker.bootstrap_servers,
            "gone",
            delivery_timeout_ms="3000",
            request_timeout_ms="2900",
            linger_ms="0",
        )
        with pytest.raises(RowsNotWrittenError) as caught:
            write_rows(dying(), wanted)
    assert min(caught.value.errors) == rows.num_rows
    assert caught.value.failed_count == rows.num_rows
    message = str(caught.value)
    assert "delivery.timeout.ms" in message
    assert f"the first is row {rows.num_rows} of the task" in message
    assert len(message.splitlines()) <= REASONS_SHOWN + 3
