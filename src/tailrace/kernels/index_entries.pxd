cimport cython
from tailrace.kernels.batch_header cimport (
    ATTRIBUTES_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT, LENGTH_AT, LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD, MAX_TIMESTAMP_AT,
)
from tailrace.kernels.memory cimport Octets, address, int64, read_integer, uint8

cdef int64 _OFFSET_ENTRY_SIZE, _TIME_ENTRY_SIZE, _OFFSET_MAX

@cython.locals(base=int64, size=int64, last_delta=int64)
cdef (int64, int64, int64) read_frame(Octets data, int64 at, int64 limit, int64 segment_base) noexcept nogil
@cython.locals(this_offset=int64, this_position=int64)
cdef bint offset_entry_rises(Octets entries, int64 at, int64 limit, int64 offset, int64 position,
    int64 is_last) noexcept nogil
@cython.locals(this_timestamp=int64, this_offset=int64)
cdef bint time_entry_rises(Octets entries, int64 at, int64 limit, int64 timestamp, int64 offset,
    int64 is_last) noexcept nogil
@cython.locals(octets=Octets, index=Octets, at=int64, _=int64, position=int64,
    segment_base=int64, entry=int64, is_last=int64, offset_before=int64, position_before=int64,
    open_offset=int64, open_entry=int64, size=int64, last_offset=int64, points_at=int64)
cpdef int64 check_offset_entries(const uint8[::1] data, int64 count, const uint8[::1] entries,
    int64[::1] state)
@cython.locals(octets=Octets, index=Octets, at=int64, _=int64, segment_base=int64, entry=int64,
    is_last=int64, timestamp_before=int64, offset_before=int64, newest=int64, newest_base=int64,
    newest_is_create_time=int64, largest=int64, size=int64, first_offset=int64,
    last_offset=int64, is_late=bint, timestamp=int64, offset=int64)
cpdef int64 check_time_entries(const uint8[::1] data, int64 count, const uint8[::1] entries,
    int64[::1] state)
