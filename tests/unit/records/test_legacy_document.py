"""docs/formats/legacy-messages.md says what the code does: its bytes, tables and positions."""

import re
from pathlib import Path

from tailrace.records import legacy
from tailrace.records.batch import LegacyEntry
from tailrace.records.builder import records_of
from tailrace.records.legacy import converted

TEXT = (Path(__file__).parents[3] / "docs" / "formats" / "legacy-messages.md").read_text()
EXAMPLES = [
    bytes.fromhex(block) for block in re.findall(r"```hex\n(.*?)```", TEXT, re.DOTALL)
]  # fmt: skip


def table(columns: str) -> list[list[str]]:
    """The cells of the table with this header line."""
    body = TEXT.split(f"{columns}\n", 1)[1].split("\n\n", 1)[0]
    rows = [row.strip("|").split("|") for row in body.strip().splitlines()[1:]]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def test_the_fields_of_the_first_example() -> None:
    """Bytes stand where the table says, without a gap, and are read as the value it says."""
    entry = converted(memoryview(EXAMPLES[0])).legacy
    assert entry is not None
    end = 0
    for position, encoded, field, value in table("| Position | Bytes | Field | Value |"):
        raw = bytes.fromhex(encoded)
        assert int(position) == end
        assert EXAMPLES[0][end : end + len(raw)] == raw
        end += len(raw)
        if field in LegacyEntry._fields:
            read = getattr(entry, field)
            assert value == (bytes(read).decode() if isinstance(read, memoryview) else str(read))
        else:
            assert int(value) == int.from_bytes(raw, "big")
    assert end == len(EXAMPLES[0]) == entry.size


def test_the_drawings_of_page_and_module_are_one() -> None:
    """Page and module have the same position, size and name of every field."""
    drawing = r"^ *(\d+ or \d+|\d+|\.\.) +(\d+|\.\.) +([a-z ]+?)(?:  |$)"
    drawn = re.findall(drawing, TEXT, re.MULTILINE)
    assert len(drawn) == 10
    assert drawn == re.findall(drawing, legacy.__doc__ or "", re.MULTILINE)


def test_the_records_are_those_of_the_table() -> None:
    """A reader gives the rows of the last table."""
    rows = [
        [
            str(record.offset),
            str(record.timestamp),
            "null" if record.key is None else record.key.decode(),
            "null" if record.value is None else record.value.decode(),
        ]
        for data in EXAMPLES
        for record in records_of(converted(memoryview(data)))
    ]
    assert rows == table("| Offset | Timestamp | Key | Content |")
