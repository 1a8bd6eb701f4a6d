"""The search for a timestamp in a batch: which code walks it."""

import subprocess
import sys

import pytest

SEARCH = """
import sys
from tailrace import kernels
from tailrace.model import Codec
from tailrace.records.batch import Batch
from tailrace.records.builder import BatchBuilder
from tailrace.records.search import find_timestamp

count = int(sys.argv[1])
builder = BatchBuilder(codec=Codec.GZIP)
for number in range(count):
    builder.append(None, None, timestamp=number)
batch = Batch(memoryview(builder.build()))
found = find_timestamp(batch, count - 1, start_offset=0)
is_compiled = kernels.find_timestamp.is_compiled
print(found.offset, len(batch.records_view()) > 2**20, is_compiled, kernels.plain_records())
"""


@pytest.mark.parametrize(
    ("count", "told"), [(1000, "999 False False 1000"), (150_000, "149999 True True 0")]
)
def test_plain_code_walks_a_mebibyte_of_records_at_most(count: int, told: str) -> None:
    """For more of them the kernel is loaded first, also in a process that has just started."""
    ended = subprocess.run(
        [sys.executable, "-c", SEARCH, str(count)], check=True, capture_output=True, text=True
    )
    assert ended.stdout.strip() == told
