cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize

ctypedef int64_t int64
ctypedef int32_t int32
ctypedef uint8_t uint8
ctypedef const uint8_t *Octets
ctypedef uint8_t *Output

cdef Octets address(const uint8[::1] data) noexcept nogil
cdef Output output_address(uint8[::1] data) noexcept nogil
cdef Octets octets_of(bytes data) noexcept
cdef bytes new_octets(int64 size)
cdef Output new_output(bytes data) noexcept
@cython.locals(size=Py_ssize_t)
cdef int64 utf8_size(str text) except -1
cdef Octets utf8_of(str text) except NULL
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
