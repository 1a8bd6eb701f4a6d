cimport cython
from tailrace.kernels.memory cimport int64

cdef class Receipt:
    cdef readonly object _outcome
    cdef readonly int64 _index

@cython.locals(made=Receipt)
cpdef Receipt receipt_of(object outcome, int64 index)
@cython.locals(index=int64)
cpdef list receipts_of(object outcome, int64 count)
