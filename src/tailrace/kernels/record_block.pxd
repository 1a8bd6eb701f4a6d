cimport cython
from tailrace.kernels.memory cimport (
    Octets, Output, copy_bytes, int64, octets_of, uint8, varint_size, write_varint,
)

cdef int64 _NO_ROOM, _NOW, _INT64_MAX, _NS_PER_MS

cdef class RecordBlock:
    cdef readonly bytearray block
    cdef readonly object times
    cdef readonly int64 position, limit, record_count, base_timestamp, max_timestamp
    cdef uint8[::1] _octets
    cdef int64[::1] _times

    cpdef set_room(self, bytearray block, object times, int64 limit)
    cpdef close(self)
    @cython.locals(index=int64, base=int64, latest=int64, delta=int64, value_size=int64,
        key_size=int64, headers_size=int64, size=int64, position=int64, octets=Output)
    cpdef int64 append(self, bytes value, bytes key, bytes headers, int64 timestamp,
        int64 now_ns)
