cimport cython
from tailrace.kernels.memory cimport Octets, Output, address, copy_bytes, int64, is_equal, output_address, uint8
from tailrace.kernels.records cimport can_hold, read_record, read_varint, wrapping_sum
from tailrace.kernels.utf8 cimport read_utf8

cdef int64 _GROWTH_MAX, _ROOM_MIN, _THIS_KEY, _NO_RECORD, _ESCAPE_WIDTH, _PRINTABLE_CODES
cdef int64 _TIMESTAMP_MAX, _NONE, _JSON, _HEX, _ENOUGH, _FULL, _UNSHOWN, _RECORD_COUNT, _NO_ROOM
cdef int64 _BOUNDS, _CURSORS, _LITERALS, _PLAIN_BLOCK, _LEFTOVER, _INT64_MAX, _DAY_MS

@cython.locals(start=int64, size=int64)
cdef int64 put_literal(Octets literals, const int64[::1] literal_ends, int64 number, Output out,
    int64 end) noexcept nogil
@cython.locals(place=int64, following=int64)
cdef int64 put_digits(Output out, int64 end, int64 number, int64 width) noexcept nogil
@cython.locals(rest=int64, last=int64, width=int64, probe=int64)
cdef int64 put_number(Output out, int64 end, int64 number) noexcept nogil
@cython.locals(days=int64, rest=int64, era=int64, years=int64, month=int64, day=int64,
    year=int64, seconds=int64, minutes=int64, hours=int64)
cdef int64 put_time(Output out, int64 end, int64 timestamp) noexcept nogil
@cython.locals(odd=uint8, place=int64, byte=uint8)
cdef bint is_plain(Octets data, int64 at, uint8 quote, uint8 backslash) noexcept nogil
@cython.locals(quote=int64, backslash=int64, start=int64, size=int64, code=int64)
cdef int64 put_characters(Octets data, int64 at, int64 limit, int64 form, Octets escapes,
    Octets printable, Output out, int64 end) noexcept nogil
@cython.locals(place=int64, high=int64, low=int64)
cdef int64 put_hex(Octets data, int64 at, int64 limit, Output out, int64 end) noexcept nogil
@cython.locals(start=int64)
cdef int64 put_field(Octets data, int64 at, int64 size, int64 form, bint is_name,
    Octets literals, const int64[::1] literal_ends, Octets escapes, Octets printable, Output out,
    int64 end) noexcept nogil
@cython.locals(field=int64, limit=int64, _=int64, key_at=int64, key_size=int64, value_at=int64,
    value_size=int64, headers_at=int64, headers=int64, is_name=bint, at=int64, size=int64,
    before=int64, after=int64)
cdef int64 put_record(Octets data,
    (int64, int64, int64, int64, int64, int64, int64, int64, int64) frame, int64 offset,
    int64 timestamp, int64 form, Octets literals, const int64[::1] literal_ends, Octets escapes,
    Octets printable, Output out, int64 end) noexcept nogil
@cython.locals(octets=Octets, wanted=Octets, out_bytes=Output, words=Octets, escaped=Octets,
    shown=Octets, position=int64, index=int64,
    frame=(int64, int64, int64, int64, int64, int64, int64, int64, int64), offset=int64,
    timestamp=int64, is_chosen=bint, end=int64, room=int64)
cpdef int64 show_records(const uint8[::1] data, int64 count, int64 base_offset,
    int64 base_timestamp, int64 keeps_deltas, const int64[::1] bounds, const uint8[::1] key,
    int64 form, const uint8[::1] literals, const int64[::1] literal_ends,
    const uint8[::1] escapes, const uint8[::1] printable, int64[::1] cursors, uint8[::1] out)
