"""docs/reading.md: its examples are run, and its tables are whole."""

import doctest
from pathlib import Path

import pytest

from tailrace.model import TopicPartition
from tailrace.reading.columns import DEFAULT_COLUMNS
from tailrace.records.builder import Record
from tailrace.spark.options import names
from tests.spark.directories import batch_of, write_numbered, write_segment
from tests.unit.records.batches import record_at

PAGE = Path(__file__).parents[3] / "docs" / "reading.md"
MIDNIGHT = 1_735_689_600_000


def flight(offset: int) -> Record:
    """One every half second."""
    return record_at(offset, MIDNIGHT + 500 * offset, b"B6 %d" % (offset + 1), b'{"from": "JFK"}')


def test_the_examples_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The examples run on a directory with `flights` of two partitions and a damaged `weather`."""
    data = tmp_path / "data"
    batches = [[flight(base + n) for n in range(10)] for base in range(0, 100, 10)]
    write_segment(data, TopicPartition("flights", 0), 0, b"".join(map(batch_of, batches)))
    write_numbered(data, TopicPartition("flights", 1), limit=50)
    damaged = write_numbered(data, TopicPartition("weather", 0), limit=3, per_batch=1)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 20
    assert not failed


def test_every_column_is_named() -> None:
    """The page names every column of the Spark source and of the readers."""
    text = PAGE.read_text()
    for name in (*names.COLUMNS, *names.HEADERS, *names.METADATA, *DEFAULT_COLUMNS):
        assert f"`{name}`" in text, name
