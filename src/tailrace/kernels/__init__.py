"""Hot loops: buffers and integers in, buffers and integers out.

Importing this room imports neither numpy nor numba; see `tailrace.kernels.kernel` for when they
come. Not here: objects, I/O, errors with words.
"""

from tailrace.kernels.kernel import (
    Kernel,
    helper,
    int64s,
    is_loaded,
    kernel,
    load,
    plain_records,
    worth_loading,
)
from tailrace.kernels.records import (
    RECORD_SIZE_MIN,
    RecordFault,
    Total,
    decode_headers,
    decode_records,
    find_timestamp,
    walk_records,
)

__all__ = [
    "RECORD_SIZE_MIN",
    "Kernel",
    "RecordFault",
    "Total",
    "decode_headers",
    "decode_records",
    "find_timestamp",
    "helper",
    "int64s",
    "is_loaded",
    "kernel",
    "load",
    "plain_records",
    "walk_records",
    "worth_loading",
]
