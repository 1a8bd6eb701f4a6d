cimport cython
from tailrace.kernels.memory cimport (
    Octets, Output, address, copy_bytes, int64, is_equal, output_address, uint8,
)
from tailrace.kernels.records cimport can_hold, read_record, wrapping_sum

cdef int64 _LEFTOVER, _RECORD_COUNT, _NO_ROOM, _UINT32_MAX, _TAG_MASK, _MULTIPLIER
cdef int64 _SECOND_MULTIPLIER, _LONG_KEY, _LONG_KEY_OVERHEAD, _BATCH_ROW_SIZE, _GROUP_RECORDS
cdef int64 _GROUP_SIZE, _STATE_SIZE, _PRIME, _SECRET_MASK, _HASH_SECRET

@cython.locals(word=int64, place=int64)
cdef int64 read_word(Octets data, int64 position) noexcept nogil
@cython.locals(mixed=int64, whole=int64, end=int64, word=int64, place=int64)
cdef int64 hash_key(Octets data, int64 position, int64 size, int64 first, int64 second) noexcept nogil
cdef int64 entry_size(int64 size) noexcept nogil
@cython.locals(stored=int64)
cdef bint is_key_at(Octets data, int64 position, int64 size, Octets arena, int64 place) noexcept nogil
@cython.locals(tag=int64, word=int64)
cdef int64 find_slot(Octets data, int64 position, int64 size, int64 mixed, int64 slot,
    const int64[::1] slots, Octets arena) noexcept nogil
@cython.locals(slot_count=int64, first=int64, second=int64, index=int64, read=int64, touched=int64, row=int64, mixed=int64,
    slot=int64, tag=int64, word=int64, end=int64, timestamp_delta=int64, offset_delta=int64,
    key_at=int64, key_size=int64, _=int64, value_size=int64)
cdef (int64, int64) read_group(Octets data, int64 position, int64 limit, int64 count,
    const int64[::1] slots, Octets arena, const int64[::1] state, int64[::1] group) noexcept nogil
cdef int64 store_key(Octets data, int64 position, int64 size, Output arena, int64 used) noexcept nogil
@cython.locals(octets=Octets, keys=Output, batch=int64, row=int64, position=int64, records=int64,
    walked=int64, index=int64, read=int64, fault=int64, offset=int64, size=int64, needed=int64,
    key_at=int64, mixed=int64, slot=int64)
cpdef int64 put_keys(const uint8[::1] data, int64 start_offset, int64[::1] batches,
    int64[::1] slots, uint8[::1] arena, int64[::1] state, int64[::1] group)
@cython.locals(octets=Octets, keys=Octets, first=int64, batch=int64, row=int64, position=int64,
    records=int64, kept=int64, unkeyed=int64, tombstones=int64, timestamp_first=int64,
    timestamp_max=int64, size_kept=int64, walked=int64, index=int64, read=int64, fault=int64,
    timestamp_delta=int64, offset=int64, key_size=int64, value_size=int64, stays=int64,
    slot=int64)
cpdef int64 choose_records(const uint8[::1] data, int64[::1] batches, const int64[::1] slots,
    const uint8[::1] arena, int64[::1] state, int64[::1] group, uint8[::1] keeps)
