cimport cython
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec
from tailrace.client.producer.receipts cimport receipt_of
from tailrace.kernels.encoding cimport choose_partition
from tailrace.kernels.memory cimport int64
from tailrace.kernels.record_block cimport RecordBlock, pack_headers

cdef int64 _NS_PER_MS, _NO_PARTITION

cdef inline int64 system_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64>now.tv_sec * 1000 + now.tv_nsec // 1000000

cdef class OpenBatch(RecordBlock):
    cdef readonly object outcome
    cdef public double created_at
    cdef public int64 size_max, reserved
    cdef list _callbacks
    cdef bint _is_forgotten

    @cython.locals(index=int64)
    cpdef int64 add(self, bytes value, bytes key, bytes headers, int64 timestamp,
        object on_delivery, bint is_forgotten)
    @cython.locals(added=list, later=list, none=list)
    cpdef close(self)

cdef class OpenBatches:
    cdef dict _sticky, _by_partition
    cdef bint _takes_records, _takes_keys
    cdef object _rule, _now_ns

    @cython.locals(batch=OpenBatch, octets=bytes, key_octets=bytes, encoded=bytes, index=int64,
        time=int64)
    cpdef take(self, object topic, object value, object key, object headers, object timestamp,
        object partition, object on_delivery, bint wants_receipt)
    @cython.locals(batches=list, chosen=int64)
    cdef OpenBatch _batch_for(self, str topic, bytes key, object partition)
    cdef int64 _now_ms(self) except? -1

cdef bytes octets_of(object data)

cdef class SendCall:
    cdef OpenBatches _batches
