cimport cython
from tailrace.kernels.batch_header cimport (
    ATTRIBUTES_AT, CRC_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT, LEADER_EPOCH_AT, LENGTH_AT,
    LOG_OVERHEAD, MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_ID_AT, RECORD_COUNT_AT,
)
from tailrace.kernels.checksums cimport crc32c
from tailrace.kernels.memory cimport Octets, address, int64, read_integer, uint8

cdef int64 _MAGIC, _CODEC, _RECORD_SIZE_MIN, _INT64_MAX, _UINT32_MAX, _RUN_FACTS

@cython.locals(octets=Octets, at=int64, batches=int64, records=int64, last_at=int64, due=int64,
    next_offset=int64, epoch=int64, is_dense=bint, has_producers=bint, is_disordered=bint,
    base=int64, length=int64, delta=int64, count=int64, end=int64, leader_epoch=int64,
    max_timestamp=int64, max_timestamp_offset=int64, timestamp=int64)
cpdef int64 scan_run(const uint8[::1] data, int64 position, int64 limit, int64 single,
    int64[::1] facts)
