cimport cython
from tailrace.kernels.memory cimport Octets, int64

@cython.locals(first=int64, size=int64, code=int64, place=int64)
cdef (int64, int64) read_utf8(Octets data, int64 at, int64 limit) noexcept nogil
@cython.locals(size=int64, _=int64)
cdef bint is_utf8(Octets data, int64 at, int64 limit) noexcept nogil
