"""docs/formats/record-batch.md says what the code does: its bytes, tables and positions."""

import re
from pathlib import Path

import pytest

from tailrace.records import layout
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.checks import check_records

DOCUMENT = Path(__file__).parents[3] / "docs" / "formats" / "record-batch.md"
TEXT = DOCUMENT.read_text()
EXAMPLE = bytes.fromhex(re.findall(r"```hex\n(.*?)```", TEXT, re.DOTALL)[0])


def table(first_column: str, last_column: str) -> list[list[str]]:
    """The cells of the table whose header starts and ends with these columns."""
    lines = TEXT.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(f"| {first_column} ") and line.endswith(f" {last_column} |"):
            rows = []
            for row in lines[number + 2 :]:
                if not row.startswith("|"):
                    break
                rows.append([cell.strip().strip("`") for cell in row.strip("|").split("|")])
            return rows
    raise AssertionError(f"no table from {first_column} to {last_column}")


def example() -> Batch:
    """The batch of the example."""
    [(_, batch)] = read_batches(memoryview(EXAMPLE))
    batch.check()
    return batch


@pytest.mark.parametrize(
    ("position", "encoded", "field", "value"),
    table("Position", "Value"),
    ids=lambda cell: cell.replace(" ", "-"),
)
def test_header_fields(position: str, encoded: str, field: str, value: str) -> None:
    """Bytes stand where the table says, and the code reads the value that it says."""
    start, raw = int(position), bytes.fromhex(encoded)
    assert EXAMPLE[start : start + len(raw)] == raw
    name = field.replace(" ", "_")
    assert getattr(example(), name) == int(value)
    assert getattr(layout, f"{name.upper()}_POSITION") == start


def test_the_drawing_has_the_positions_of_the_layout() -> None:
    """Position and size in the drawing add up, and are those of the constants."""
    drawn = re.findall(r"^ ?(\d+) +(\d+|\.\.) +([a-z ]+?)(?:  |$)", TEXT, re.MULTILINE)
    assert len(drawn) == 14
    end = 0
    for position, size, name in drawn:
        assert int(position) == end
        short = name.replace("batch length", "length").replace("partition leader", "leader")
        assert getattr(layout, f"{short.upper().replace(' ', '_')}_POSITION") == end
        end += 0 if size == ".." else int(size)
    assert end == layout.HEADER_SIZE


def test_the_first_record_is_its_fields_in_a_row() -> None:
    """The fields of the table are contiguous and are the record."""
    position = layout.RECORDS_POSITION
    for start, encoded, _ in table("Position", "Field"):
        raw = bytes.fromhex(encoded)
        assert int(start) == position
        assert EXAMPLE[position : position + len(raw)] == raw
        position += len(raw)
    assert position == layout.RECORDS_POSITION + 1 + 24


def test_the_records_are_those_of_the_table() -> None:
    """A reader gives the rows of the last table."""
    rows = [
        [
            str(record.offset),
            str(record.timestamp),
            "null" if record.key is None else record.key.decode(),
            "null" if record.value is None else record.value.decode(),
            ",".join(f"{key}={value.decode()}" for key, value in record.headers if value),
        ]
        for record in records_of(example())
    ]
    assert rows == table("Offset", "Headers")
    assert check_records(example()).records == len(rows)


def test_our_builder_writes_the_example() -> None:
    """Byte for byte, once the leader has stamped it."""
    builder = BatchBuilder(producer_id=4000, producer_epoch=2, base_sequence=17)
    for record in records_of(example()):
        builder.append(record.key, record.value, timestamp=record.timestamp, headers=record.headers)
    assert builder.build()[16:] == EXAMPLE[16:]
