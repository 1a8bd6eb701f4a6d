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
    list_payloads,
    list_refused,
    walk_records,
    walk_run,
)
from tailrace.kernels.rows import place_records, put_octets, put_records

CHECKING: Final = (walk_records, walk_run)
"""The kernels that look at records and keep none."""

DECODING: Final = (decode_records, decode_headers, list_payloads)
"""The kernels that make columns of records."""

CONSUMING: Final = (*DECODING, place_records, put_octets, put_records)
"""The kernels that make columns or objects of records."""

COMPACTING: Final = (put_keys, choose_records, copy_records)
"""The kernels of a compaction."""

__all__ = [
    "BATCH_ROW_SIZE",
    "CHECKING",
    "COMPACTING",
    "CONSUMING",
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
    "list_payloads",
    "list_refused",
    "load",
    "place_records",
    "plain_records",
    "put_keys",
    "put_octets",
    "put_records",
    "take_produces",
    "walk_records",
    "walk_run",
    "worth_loading",
]
