cimport cython
from tailrace.kernels.memory cimport (
    Octets, Output, address, copy_bytes, int64, output_address, uint8, varint_size, write_varint,
)
from tailrace.kernels.records cimport can_hold, read_varint, read_varlong, wrapping_sum

cdef int64 _TRUNCATED, _RECORD_COUNT, _NO_ROOM, _BATCH_ROW_SIZE

@cython.locals(index=int64, start=int64, delta=int64, size=int64, length=int64, body=int64,
    rest=int64)
cdef int64 copy_kept(Octets data, int64 position, int64 limit, int64 count, Octets keeps,
    int64 first, int64 timestamp_shift, Output output, int64 room, int64 written) noexcept nogil
@cython.locals(octets=Octets, kept=Octets, copied=Output, room=int64, first=int64, written=int64,
    batch=int64, row=int64, position=int64, limit=int64, records=int64)
cpdef int64 copy_records(const uint8[::1] data, int64[::1] batches, const uint8[::1] keeps,
    int64 gap, uint8[::1] output)
