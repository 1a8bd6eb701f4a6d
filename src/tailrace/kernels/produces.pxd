cimport cython
from tailrace.kernels.batch_header cimport (
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CRC_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT, LENGTH_AT, LOG_OVERHEAD, MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT, RECORD_COUNT_AT,
)
from tailrace.kernels.checksums cimport crc32c
from tailrace.kernels.memory cimport (
    Octets, Output, address, copy_bytes, int64, is_equal, output_address, read_integer, uint8,
    write_integer,
)
from tailrace.kernels.records cimport is_later, is_outside, read_record

cdef int64 _IS_FLEXIBLE, _OFFSET_AT, _FRAME_BYTES_MAX, _BATCH_BYTES_MAX, _EARLIEST, _LATEST
cdef int64 _NEEDS_KEYS, _LEADER_EPOCH, _PRODUCER_ID, _PRODUCER_EPOCH, _SEQUENCE
cdef int64 _INDEX_INTERVAL_BYTES, _BYTES_BEFORE_ENTRY, _NEXT_OFFSET, _POSITION, _BATCHES_SIZE
cdef int64 _ANSWERS_SIZE, _MAX_TIMESTAMP, _MAX_TIMESTAMP_OFFSET, _ENTRY_COUNT, _ENTRY_WIDTH
cdef int64 _RECORD_SIZE_MIN, _STATE_SIZE, _SIZE_BYTES, _ID_AT, _ID_END, _VARINT_BYTES_MAX
cdef int64 _UINT32_MAX, _SEQUENCE_MAX

@cython.locals(size=int64, shift=int64, is_open=bint)
cdef (int64, int64) find_records(Octets data, int64 position, int64 limit, int64 is_flexible) noexcept nogil
@cython.locals(attributes=int64, count=int64, stored=int64)
cdef bint is_usual_batch(Octets data, int64 start, int64 end, int64[::1] state) noexcept nogil
@cython.locals(count=int64, base=int64, largest=int64, position=int64, has_largest=bint,
    index=int64, after=int64, delta=int64, offset_delta=int64, _=int64, key_size=int64)
cdef bint has_usual_records(Octets data, int64 start, int64 end, int64[::1] state) noexcept nogil
@cython.locals(taken=int64, size=int64, answered=int64, next_offset=int64, max_timestamp=int64,
    max_timestamp_offset=int64, octets=Octets, first=Octets, last=Octets, reply=Octets,
    copies=Output, replies=Output, frame=int64, frame_size=int64, end=int64, tail_at=int64,
    records=int64, timestamp=int64, start=int64, records_end=int64, due=int64,
    bytes_before_entry=int64)
cpdef int64 take_produces(const uint8[::1] data, int64 position, int64 limit,
    const uint8[::1] head, const uint8[::1] tail, const uint8[::1] answer, int64[::1] state,
    uint8[::1] batches, uint8[::1] answers, int64[::1] starts, int64[::1] entries,
    int64 count)
