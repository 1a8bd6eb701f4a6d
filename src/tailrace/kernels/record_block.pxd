cimport cython
from tailrace.kernels.batch_header cimport (
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CRC_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT, LENGTH_AT, LOG_OVERHEAD, MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT, RECORD_COUNT_AT,
)
from tailrace.kernels.checksums cimport crc32c
from tailrace.kernels.memory cimport (
    Octets, Output, copy_bytes, int64, new_octets, new_output, octets_of, uint8, utf8_of,
    utf8_size, varint_size, write_integer, write_varint,
)

cdef int64 _NO_ROOM, _INT64_MAX

cdef class RecordBlock:
    cdef readonly bytearray block
    cdef readonly object times
    cdef readonly int64 position, limit, record_count, base_timestamp, max_timestamp
    cdef uint8[::1] _octets
    cdef int64[::1] _times

    @cython.locals(octets=uint8[::1], numbers=int64[::1])
    cpdef set_room(self, bytearray block, object times, int64 limit)
    cpdef close(self)
    cpdef int64 append(self, bytes value, bytes key, bytes headers, int64 timestamp)
    @cython.locals(index=int64, base=int64, latest=int64, delta=int64, value_size=int64,
        key_size=int64, headers_size=int64, size=int64, position=int64, octets=Output)
    cdef int64 put(self, bytes value, bytes key, bytes headers, int64 timestamp)
    @cython.locals(size=int64, octets=Output)
    cpdef int64 write_header(self, int64 attributes, int64 producer_id, int64 producer_epoch,
        int64 base_sequence)

@cython.locals(pairs=tuple, pair=tuple, name=str, size=int64, content_size=int64, position=int64,
    packed=bytes, output=Output)
cpdef bytes pack_headers(object headers)
