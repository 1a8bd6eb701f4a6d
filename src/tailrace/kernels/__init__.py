"""Hot loops: buffers and integers in, buffers and integers out.

Importing this room imports neither numpy nor numba; see `tailrace.kernels.kernel` for when they
are imported. Modules that show or produce records import `tailrace.kernels.showing` and
`tailrace.kernels.encoding` themselves, so that no other process compiles these. Not here: objects,
errors with words.
"""

from typing import Final

from tailrace.kernels.cleaning import RECORD_GROWTH_MAX, copy_records
from tailrace.kernels.kernel import (
    Kernel,
    add_plain_records,
    helper,
    int64s,
    is_loaded,
    kernel,
    load,
    plain_records,
    worth_loading,
)
from tailrace.kernels.key_map import (
    BATCH_ROW_SIZE,
    GROUP_SIZE,
    BatchRow,
    MapState,
    choose_records,
    put_keys,
)
from tailrace.kernels.produces import Taking, take_produces
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
    list_refused,
    walk_records,
    walk_run,
)

CHECKING: Final = (walk_records, walk_run)
"""The kernels that look at records and keep none."""

DECODING: Final = (decode_records, decode_headers)
"""The kernels that make columns of records."""

COMPACTING: Final = (put_keys, choose_records, copy_records)
"""The kernels of a compaction."""

__all__ = [
    "BATCH_ROW_SIZE",
    "CHECKING",
    "COMPACTING",
    "DECODING",
    "GROUP_SIZE",
    "PAYLOAD_WIDTH",
    "RECORD_GROWTH_MAX",
    "RECORD_SIZE_MIN",
    "REFUSED_WIDTH",
    "BatchRow",
    "Kernel",
    "MapState",
    "Payload",
    "RecordFault",
    "Refusal",
    "Taking",
    "Total",
    "add_plain_records",
    "choose_records",
    "copy_records",
    "decode_headers",
    "decode_records",
    "find_timestamp",
    "helper",
    "int64s",
    "is_loaded",
    "kernel",
    "list_refused",
    "load",
    "plain_records",
    "put_keys",
    "take_produces",
    "walk_records",
    "walk_run",
    "worth_loading",
]
