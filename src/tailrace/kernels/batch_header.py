"""Positions of the fields of a batch's header; `tailrace.records.layout` has the drawing.

The .pxd file has them as C constants, for compiled modules; these here are for uncompiled ones. A
test compares the two with the layout.
"""

from typing import Final

import cython

if not cython.compiled:
    # Cython would take these for objects, and each use would be a look-up by name.
    LENGTH_AT: Final = 8
    LEADER_EPOCH_AT: Final = 12
    MAGIC_AT: Final = 16
    CRC_AT: Final = 17
    ATTRIBUTES_AT: Final = 21
    LAST_OFFSET_DELTA_AT: Final = 23
    BASE_TIMESTAMP_AT: Final = 27
    MAX_TIMESTAMP_AT: Final = 35
    PRODUCER_ID_AT: Final = 43
    PRODUCER_EPOCH_AT: Final = 51
    BASE_SEQUENCE_AT: Final = 53
    RECORD_COUNT_AT: Final = 57

    HEADER_SIZE: Final = 61
    LOG_OVERHEAD: Final = 12
    MAGIC: Final = 2
    LOG_APPEND_TIME_FLAG: Final = 8
