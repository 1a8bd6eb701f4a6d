cimport cython
from tailrace.kernels.memory cimport (
    Octets, Output, address, copy_bytes, int64, octets_of, output_address, uint8, varint_size,
    write_varint,
)

cdef int64 _UINT32_MAX, _INT32_MAX, _SIZE_BYTES_MAX, _MURMUR_SEED, _MURMUR_FACTOR

@cython.locals(end=int64, start=int64)
cdef (int64, int64) row_of(const int64[::1] ends, int64 row, int64 limit) noexcept nogil
@cython.locals(value_data=Octets, key_data=Octets, header_data=Octets, out=Output, room=int64,
    index=int64, row=int64, delta=int64, size=int64, key_at=int64, key_size=int64,
    value_at=int64, value_size=int64, headers_at=int64, headers_size=int64)
cpdef int64 encode_records(const uint8[::1] values, const int64[::1] value_ends,
    const uint8[::1] keys, const int64[::1] key_ends, const uint8[::1] headers,
    const int64[::1] header_ends, const int64[::1] timestamps, int64 base_timestamp,
    const int64[::1] rows, int64 start, int64 count, uint8[::1] output, int64 position)
@cython.locals(key_data=Octets, value_data=Octets, out=Output, position=int64, row=int64,
    index=int64, header=int64, header_count=int64, rest=int64, at=int64, size=int64,
    value_at=int64, value_size=int64)
cpdef int64 encode_headers(const uint8[::1] keys, const int64[::1] key_ends,
    const uint8[::1] values, const int64[::1] value_ends, const int64[::1] row_ends, int64 count,
    uint8[::1] output, int64[::1] output_ends)
@cython.locals(digest=int64, whole=int64, at=int64, rest=int64, word=int64, place=int64)
cdef int64 hash_key(Octets data, int64 position, int64 size) noexcept nogil
@cython.locals(runs=int64, total=int64, partition=int64, place=int64, row=int64, own=int64,
    size=int64)
cpdef int64 cut_rows(const int64[::1] sizes, const int64[::1] rows, const int64[::1] partitions,
    int64 count, int64 room, int64[::1] cuts, int64[::1] cut_sizes)
@cython.locals(key_data=Octets, left=int64, row=int64, at=int64, size=int64)
cpdef int64 choose_partitions(const uint8[::1] keys, const int64[::1] key_ends, int64 count,
    int64 partition_count, int64[::1] partitions)
@cython.locals(mixed=int64)
cpdef int64 murmur2(bytes key)
cpdef int64 choose_partition(bytes key, int64 partition_count)
