"""Hot loops, compiled ahead of time: buffers and integers in, buffers, integers and objects out.

Each module is Python, with the C types of its functions and variables beside it in a .pxd file, and
Cython makes an extension of the two (decision 66). The sources run without a compiler too, which
the tests use to compare the two. Not here: errors with words.

The import of this room fails if it was not compiled: uncompiled it would be forty times slower.
"""

try:
    from tailrace.kernels import memory

    # One module says it for all: setup.py builds them together or fails.
    _is_compiled = not memory.__file__.endswith(".py")
except ModuleNotFoundError:  # The sources import Cython, which only a build needs.
    _is_compiled = False
if not _is_compiled:
    raise ImportError(
        "tailrace.kernels is not compiled; in a checkout run `make setup` or `pip install -e .`, "
        "elsewhere install tailrace again"
    )

from tailrace.kernels.arrays import int64s
from tailrace.kernels.cleaning import RECORD_GROWTH_MAX, copy_records
from tailrace.kernels.key_map import (
    BATCH_ROW_SIZE,
    GROUP_SIZE,
    STATE_SIZE,
    BatchRow,
    MapState,
    choose_records,
    new_hash_secret,
    put_keys,
)
from tailrace.kernels.produces import ENTRY_WIDTH, Taking, take_produces
from tailrace.kernels.records import (
    PAYLOAD_WIDTH,
    RECORD_SIZE_MIN,
    REFUSED_WIDTH,
    Payload,
    RecordFault,
    Refusal,
    Total,
    decode_headers,
    decode_records,
    find_timestamp,
    list_payloads,
    list_refused,
    walk_records,
    walk_run,
)
from tailrace.kernels.runs import RunFact, scan_run

__all__ = [
    "BATCH_ROW_SIZE",
    "ENTRY_WIDTH",
    "GROUP_SIZE",
    "PAYLOAD_WIDTH",
    "RECORD_GROWTH_MAX",
    "RECORD_SIZE_MIN",
    "REFUSED_WIDTH",
    "STATE_SIZE",
    "BatchRow",
    "MapState",
    "Payload",
    "RecordFault",
    "Refusal",
    "RunFact",
    "Taking",
    "Total",
    "choose_records",
    "copy_records",
    "decode_headers",
    "decode_records",
    "find_timestamp",
    "int64s",
    "list_payloads",
    "list_refused",
    "new_hash_secret",
    "put_keys",
    "scan_run",
    "take_produces",
    "walk_records",
    "walk_run",
]
