cimport cython
from tailrace.kernels.memory cimport int64
from tailrace.kernels.record_block cimport RecordBlock

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
