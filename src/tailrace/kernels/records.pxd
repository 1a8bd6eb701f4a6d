cimport cython
from tailrace.kernels.batch_header cimport (
    ATTRIBUTES_AT, BASE_TIMESTAMP_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT, LEADER_EPOCH_AT,
    LENGTH_AT, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD, MAX_TIMESTAMP_AT, RECORD_COUNT_AT,
)
from tailrace.kernels.memory cimport (
    Octets, Output, address, copy_bytes, int32, int64, output_address, read_integer, uint8,
)

cdef int64 _TRUNCATED, _OVERLONG_VARINT, _RECORD_LENGTH, _KEY_LENGTH, _VALUE_LENGTH
cdef int64 _HEADER_COUNT, _NULL_HEADER_KEY, _HEADER_LENGTH, _NOT_CONSUMED, _LEFTOVER
cdef int64 _AT_LEADER_EPOCH, _RECORD_COUNT, _NO_ROOM, _OFFSET_DELTA, _RECORD_SIZE_MIN
cdef int64 _BODY_SIZE_MIN, _HEADER_SIZE_MIN, _INT64_MAX, _INT64_MIN, _UINT32_MAX, _WANT_KEY
cdef int64 _WANT_VALUE, _WANT_OFFSET, _WANT_TIMESTAMP, _PAYLOAD_WIDTH, _AT_POSITION, _AT_LIMIT
cdef int64 _AT_RECORD_COUNT, _AT_BASE_OFFSET, _AT_BASE_TIMESTAMP, _AT_KEEPS_DELTAS, _AT_ROWS
cdef int64 _OFFSET_REFUSED, _NO_KEY_REFUSED, _TIMESTAMP_REFUSED, _NO_TIMESTAMP, _REFUSED_WIDTH

cdef bint can_hold(int64 position, int64 limit, int64 size, int64 count) noexcept nogil
@cython.locals(byte=int64, value=int64, shift=int64)
cdef (int64, int64) read_varint(Octets data, int64 position, int64 limit) noexcept nogil
@cython.locals(value=int64, shift=int64, byte=int64)
cdef (int64, int64) read_varlong(Octets data, int64 position, int64 limit) noexcept nogil
cpdef int64 wrapping_sum(int64 left, int64 right) noexcept nogil
@cython.locals(_=int64, size=int64)
cdef int64 skip_headers(Octets data, int64 position, int64 limit, int64 count) noexcept nogil
cdef (int64, int64, int64, int64, int64, int64, int64, int64, int64) refused(int64 fault) noexcept nogil
@cython.locals(end=int64, byte=int64, headers=int64, headers_position=int64, length=int64,
    timestamp_delta=int64, offset_delta=int64, key_size=int64, key_position=int64,
    value_size=int64, value_position=int64)
cdef (int64, int64, int64, int64, int64, int64, int64, int64, int64) read_record(Octets data,
    int64 position, int64 limit) noexcept nogil
cpdef tuple record_at(const uint8[::1] data, int64 position, int64 limit)
cpdef tuple varint_at(const uint8[::1] data, int64 position, int64 limit)
@cython.locals(octets=Octets, fault=int64, walked=int64, is_consecutive=bint,
    last_offset_delta=int64, null_keys=int64, timestamp_min=int64, timestamp_max=int64,
    index=int64, end=int64, timestamp_delta=int64, offset_delta=int64, _=int64, key_size=int64)
cpdef int64 walk_records(const uint8[::1] data, int64 position, int64 limit, int64 count,
    int64[::1] totals)
@cython.locals(is_create_time=bint, last_delta=int64, base=int64, largest=int64, count=int64,
    last=int64, _=int64, after=int64, delta=int64)
cdef bint is_sound_batch(Octets data, int64 position, int64 end) noexcept nogil
cdef bint is_later(int64 base, int64 delta, int64 limit) noexcept nogil
@cython.locals(octets=Octets, position=int64, size=int64)
cpdef int64 walk_run(const uint8[::1] data, int64 count)
@cython.locals(octets=Octets, position=int64, records=int64, index=int64, size=int64,
    is_create_time=bint, time_at=int64, record_count=int64, at=int64)
cpdef int64 list_payloads(const uint8[::1] data, int64 count, int64[::1] payloads)
@cython.locals(timestamp=int64)
cdef bint is_outside(int64 base, int64 delta, int64 earliest, int64 latest) noexcept nogil
@cython.locals(octets=Octets, room=int64, listed=int64, total=int64, timestamps=int64,
    index=int64, detail=int64, end=int64, delta=int64, offset_delta=int64, _=int64,
    key_size=int64, reason=int64)
cpdef int64 list_refused(const uint8[::1] data, int64 position, int64 limit, int64 count,
    int64 needs_keys, int64 base_timestamp, int64 keeps_deltas, int64 earliest, int64 latest,
    int64[::1] totals, int64[::1] refused_records)
@cython.locals(octets=Octets, keys=Output, values=Output, row=int64, key_end=int64,
    value_end=int64, header_count=int64, left=int64, batch=int64, appended=int64, at=int64,
    position=int64, limit=int64, record_count=int64, base_offset=int64, base_timestamp=int64,
    keeps_deltas=int64, rows=int64, first_row=int64, _=int64, offset=int64, end=int64,
    delta=int64, offset_delta=int64, key_at=int64, key_size=int64, value_at=int64,
    value_size=int64, headers=int64)
cpdef int64 decode_records(const uint8[::1] data, int64[::1] payloads, int64 count,
    int64 start_offset, int64 limit_offset, int64 wanted, int64[::1] cursors, int64[::1] offsets,
    int64[::1] timestamps, int32[::1] key_ends, uint8[::1] key_valid, uint8[::1] key_data,
    int32[::1] value_ends, uint8[::1] value_valid, uint8[::1] value_data)
@cython.locals(octets=Octets, keys=Output, values=Output, row=int64, header=int64, key_end=int64,
    value_end=int64, _=int64, appended=int64, offset=int64, end=int64, offset_delta=int64,
    at=int64, headers=int64, size=int64)
cpdef int64 decode_headers(const uint8[::1] data, int64 position, int64 limit, int64 count,
    int64 base_offset, int64 start_offset, int64 limit_offset, int64[::1] cursors,
    int32[::1] row_ends, uint8[::1] row_valid, int32[::1] key_ends, uint8[::1] key_data,
    int32[::1] value_ends, uint8[::1] value_valid, uint8[::1] value_data)
@cython.locals(octets=Octets, _=int64, offset=int64, time=int64, end=int64, delta=int64,
    offset_delta=int64)
cpdef int64 find_timestamp(const uint8[::1] data, int64 position, int64 limit, int64 count,
    int64 base_offset, int64 base_timestamp, int64 keeps_deltas, int64 timestamp,
    int64 start_offset, int64[::1] found)
