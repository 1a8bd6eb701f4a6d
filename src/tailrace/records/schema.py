"""`Column`: the columns of records, each declared once: its name, its type, and what it has.

The readers' Arrow schema, the schema and the options of the Spark source, and the tables in
docs/reading.md and docs/spark.md follow from this table.

Not here: how a column is filled. A column of a batch has a row in `batch_columns` too, and one of a
place is known to `tailrace.reading.columns`.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final, Self


class ColumnType(Enum):
    """The type of a column, as Arrow writes it."""

    BINARY = "binary"
    STRING = "string"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    TIMESTAMP = "timestamp[us, tz=UTC]"
    HEADERS = "list<struct<key: string, value: binary>>"


class ColumnOrigin(Enum):
    """Origin of a column's values."""

    RECORD = auto()
    BATCH = auto()
    PLACE = auto()
    """Not from bytes, but from where they are stored."""


class DeclaredColumn(Enum):
    """A column and its declaration; the value is its name."""

    _value_: str
    type: ColumnType
    origin: ColumnOrigin
    text: str
    """Description of the column, for the reference."""
    option: str | None
    """The option of the Spark source that adds it; None: it is always there."""

    def __new__(cls, *row: Any) -> Self:  # noqa: ANN401 - the fields above, in their order
        """A row of the table as a member: its name, then the fields; `option` may be left out."""
        column = object.__new__(cls)
        column._value_, column.type, column.origin, column.text, *options = row
        column.option = options[0] if options else None
        return column


_RECORD, _BATCH, _PLACE = ColumnOrigin
_METADATA = "includeMetadata"


class Column(DeclaredColumn):
    """A column of records; all may be null."""

    KEY = "key", ColumnType.BINARY, _RECORD, "null where the record has none"
    VALUE = "value", ColumnType.BINARY, _RECORD, "null for a tombstone"
    TOPIC = "topic", ColumnType.STRING, _PLACE, "the topic's name"
    PARTITION = "partition", ColumnType.INT32, _PLACE, "the partition's number"
    OFFSET = "offset", ColumnType.INT64, _RECORD, "the record's offset"
    TIMESTAMP = (
        "timestamp", ColumnType.TIMESTAMP, _RECORD,
        "Kafka's milliseconds times 1000; what int64 cannot hold becomes its nearest value",
    )  # fmt: skip
    TIMESTAMP_TYPE = (
        "timestampType", ColumnType.INT32, _BATCH, "0 set by the producer, 1 by the broker, -1 none"
    )  # fmt: skip
    HEADERS = (
        "headers", ColumnType.HEADERS, _RECORD, "null where the record has none", "includeHeaders"
    )  # fmt: skip
    CODEC = "codec", ColumnType.STRING, _BATCH, "the codec of its batch", _METADATA
    PRODUCER_ID = "producerId", ColumnType.INT64, _BATCH, "-1 without idempotence", _METADATA
    PRODUCER_EPOCH = "producerEpoch", ColumnType.INT32, _BATCH, "-1 without idempotence", _METADATA
    SEQUENCE = (
        "sequence", ColumnType.INT32, _BATCH,
        "the record's sequence number; -1 without idempotence", _METADATA,
    )  # fmt: skip
    LEADER_EPOCH = (
        "leaderEpoch", ColumnType.INT32, _BATCH, "of the leader that appended its batch", _METADATA
    )  # fmt: skip
    IS_TRANSACTIONAL = (
        "isTransactional", ColumnType.BOOL, _BATCH, "whether it is of a transaction", _METADATA
    )  # fmt: skip
    FILE = (
        "file",
        ColumnType.STRING,
        _PLACE,
        "its segment's log file; null from a broker",
        _METADATA,
    )
    POSITION = (
        "position", ColumnType.INT64, _PLACE,
        "bytes from the start of the file to its batch; null from a broker", _METADATA,
    )  # fmt: skip


COLUMN_NAMED: Final = {column.value: column for column in Column}


def names_added_by(
    option: str | None, columns: Iterable[DeclaredColumn] = Column
) -> tuple[str, ...]:
    """The names of the columns that an option adds; with None those that are always there."""
    return tuple(column.value for column in columns if column.option == option)


def describe_columns(columns: Iterable[DeclaredColumn] = Column) -> str:
    """A Markdown table of the columns."""
    lines = ["| column | type | what it has | added by |", "|---|---|---|---|"]
    lines += [
        f"| `{column.value}` | `{column.type.value}` | {column.text} "
        f"| {f'`{column.option}`' if column.option else ''} |"
        for column in columns
    ]
    return "\n".join(lines)
