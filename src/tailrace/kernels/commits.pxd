cimport cython
from tailrace.kernels.batch_header cimport (
    ATTRIBUTES_AT, CRC_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT, LENGTH_AT, LOG_OVERHEAD, MAGIC,
    MAGIC_AT, RECORD_COUNT_AT,
)
from tailrace.kernels.checksums cimport crc32c
from tailrace.kernels.key_map cimport hash_key
from tailrace.kernels.memory cimport (
    Octets, Output, address, copy_bytes, int64, is_equal, output_address, read_integer, uint8,
)
from tailrace.kernels.records cimport is_sound_batch, read_record, wrapping_sum
from tailrace.kernels.utf8 cimport is_utf8

cdef int64 _STATE_SIZE, _COLUMNS, _NAME_WIDTH, _NAMES_PER_RECORD, _GROUP, _TOPIC, _PARTITION
cdef int64 _OFFSET, _LEADER_EPOCH, _METADATA, _COMMIT_MS, _EXPIRE_MS, _TOPIC_ID, _RECORD_OFFSET
cdef int64 _HISTORY, _IS_COMMITTED, _WAS_DROPPED, _WAS_COMMITTED, _POSITION, _GENERATION, _ROWS
cdef int64 _NAMES, _ARENA_USED, _SCRATCH, _SPECIAL, _COMMIT_TYPE, _EXPIRING_VERSION
cdef int64 _EPOCH_VERSION, _FLEXIBLE_VERSION, _UUID_SIZE, _STRING_MAX, _UINT32_MAX, _MULTIPLIER
cdef int64 _SECOND_MULTIPLIER, _HASH_SECRET, _SECRET_MASK

@cython.locals(size=int64, end=int64, stored=int64)
cdef int64 plain_batch_end(Octets data, int64 position, int64 limit) noexcept nogil
@cython.locals(group_size=int64, topic_size=int64)
cdef (int64, int64) read_commit_key(Octets data, int64 at, int64 size) noexcept nogil
@cython.locals(limit=int64, version=int64, tags=int64, metadata_size=int64, rest=int64)
cdef (int64, int64, int64, int64) read_commit_value(Octets data, int64 at, int64 size) noexcept nogil
@cython.locals(_=int64, topic_at=int64, key_at=int64, key_size=int64, value_at=int64,
    value_size=int64, group_size=int64, topic_size=int64, version=int64, metadata_at=int64,
    metadata_size=int64)
cdef bint are_commits(Octets data, int64 position, int64 end, int64 records) noexcept nogil
@cython.locals(slot=int64, name=int64)
cdef int64 find_name_slot(Octets data, int64 at, int64 size, int64 mixed, int64 generation,
    int64[::1] names, int64[::1] name_slots, Octets arena) noexcept nogil
@cython.locals(name=int64)
cdef int64 store_name(Octets data, int64 at, int64 size, int64 mixed, int64[::1] names,
    Output arena, int64[::1] state) noexcept nogil
@cython.locals(mixed=int64, slot=int64, row=int64)
cdef int64 find_row_slot(int64 group, int64 topic, int64 partition, int64 generation,
    int64 count, int64[::1] columns, int64[::1] row_slots) noexcept nogil
@cython.locals(epoch=int64, expire=int64)
cdef void put_values(Octets data, int64 at, int64 version, int64 metadata_end, int64 row,
    int64 count, int64[::1] columns) noexcept nogil
@cython.locals(group=int64, topic=int64, generation=int64, slot=int64, row=int64, history=int64)
cdef void put_record(Octets data, int64 partition, int64 value_at, int64 version,
    int64 metadata_end, int64 offset, int64 count, int64[::1] state, int64[::1] columns,
    int64[::1] row_slots) noexcept nogil
@cython.locals(octets=Octets, name_bytes=Output, first=int64, second=int64, generation=int64, position=int64, end=int64,
    records=int64, base_offset=int64, _=int64, topic_at=int64, version=int64, metadata_at=int64,
    metadata_size=int64, id_at=int64, part=int64, partition=int64, offset=int64, delta=int64,
    key_at=int64, key_size=int64, value_at=int64, value_size=int64, group_size=int64,
    topic_size=int64, at=int64, size=int64, mixed=int64, slot=int64, index=int64)
cpdef int64 take_commits(const uint8[::1] data, int64 count, int64[::1] state,
    int64[::1] columns, int64[::1] row_slots, int64[::1] names, int64[::1] name_slots,
    uint8[::1] arena)
