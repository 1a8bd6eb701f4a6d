cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

ctypedef int64_t int64
ctypedef int32_t int32
ctypedef uint8_t uint8
ctypedef const uint8_t *Octets
ctypedef uint8_t *Output

cdef Octets address(const uint8[::1] data) noexcept nogil
cdef Output output_address(uint8[::1] data) noexcept nogil
cdef Octets octets_of(bytes data) noexcept
cdef void copy_bytes(Octets source, int64 position, Output target, int64 start, int64 size) noexcept nogil
cdef bint is_equal(Octets data, int64 position, Octets other, int64 start, int64 size) noexcept nogil
@cython.locals(value=int64, index=int64)
cdef int64 read_integer(Octets data, int64 position, int64 size) noexcept nogil
@cython.locals(index=int64)
cdef void write_integer(Output data, int64 position, int64 size, int64 value) noexcept nogil
@cython.locals(sign=int64, byte=int64)
cdef int64 write_varint(Output output, int64 position, int64 number) noexcept nogil
@cython.locals(size=int64)
cdef int64 varint_size(int64 number) noexcept nogil
