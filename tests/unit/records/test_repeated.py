"""Columns with one value for each batch, made without `pyarrow.compute`."""

import subprocess
import sys

import pyarrow as pa
import pytest

from tailrace.records.batch_columns import repeated_numbers, repeated_strings

COUNTS = [2, 0, 3, 1]
EACH = [0, 0, 2, 2, 2, 3]
"""Index of the value of each row."""


def test_text_is_repeated() -> None:
    """Each value has any length, and is not ASCII alone."""
    values = ["t", "never", "", "Straße"]
    column = repeated_strings(values, COUNTS)
    column.validate(full=True)
    assert column == pa.array([values[each] for each in EACH])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([7, 1, -1, 2**31 - 1], pa.int32()),
        ([7, 1, -1, 2**63 - 1], pa.int64()),
        ([True, False, False, True], pa.bool_()),
    ],
    ids=str,
)
def test_numbers_are_repeated(values: list[int], kind: pa.DataType) -> None:
    """With the type of the column."""
    column = repeated_numbers(values, COUNTS, kind)
    column.validate(full=True)
    assert column == pa.array([values[each] for each in EACH], kind)


def test_no_values_are_no_rows() -> None:
    """The columns of no batches."""
    assert repeated_strings([], []) == pa.array([], pa.string())
    assert repeated_numbers([], [], pa.int32()) == pa.array([], pa.int32())
    assert repeated_numbers([], [], pa.bool_()) == pa.array([], pa.bool_())


def test_more_text_than_a_column_holds_is_refused() -> None:
    """Its ends are int32."""
    with pytest.raises(OverflowError, match="2500000000 bytes in a column"):
        repeated_strings(["topic"], [500_000_000])


COLUMNS = """
import sys
from tailrace.client.consumer.columns import Collector
from tailrace.client.consumer.fetched import FetchedPart, cut_records
from tailrace.model import TopicPartition
from tailrace.records.builder import BatchBuilder
from tailrace.records.schema import Column

builder = BatchBuilder()
builder.append(b"k", b"v", headers=[("h", b"x")])
collector = Collector([each.value for each in Column if each.value not in ("file", "position")])
for partition in (1, 2):
    part = FetchedPart(TopicPartition("t", partition), offset=0)
    cut_records(part, memoryview(builder.build()), place="here", aborted=None)
    collector.append(part, 0)
print(collector.finish().num_rows, {"pyarrow.compute", "pandas"} & set(sys.modules) or "light")
"""


def test_columns_do_not_load_what_they_can_do_without() -> None:
    """`pyarrow.compute` takes 300 ms to import, and pandas longer."""
    done = subprocess.run(
        [sys.executable, "-c", COLUMNS], check=True, capture_output=True, text=True
    )
    assert done.stdout == "2 light\n"
