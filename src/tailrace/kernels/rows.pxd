cimport cython
cdef extern from *:
    """
    static void tailrace_put(PyObject *made, Py_ssize_t place, PyObject *item) {
        Py_INCREF(item);
        PyTuple_SET_ITEM(made, place, item);
    }

    /* A tuple of a subclass that adds no fields. tuple.__new__ would make two tuples for one. */
    static PyObject *tailrace_tuple(PyTypeObject *kind, int is_tracked, PyObject *a, PyObject *b,
            PyObject *c, PyObject *d, PyObject *e, PyObject *f, PyObject *g, PyObject *h,
            PyObject *i) {
        PyObject *made = kind->tp_alloc(kind, 9);
        if (made == NULL) return NULL;
        tailrace_put(made, 0, a); tailrace_put(made, 1, b); tailrace_put(made, 2, c);
        tailrace_put(made, 3, d); tailrace_put(made, 4, e); tailrace_put(made, 5, f);
        tailrace_put(made, 6, g); tailrace_put(made, 7, h); tailrace_put(made, 8, i);
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)made)->ob_hash = -1;  /* not computed yet */
    #endif
        if (!is_tracked) PyObject_GC_UnTrack(made);
        return made;
    }
    """
    object tailrace_tuple(type kind, bint is_tracked, object a, object b, object c, object d, object e,
        object f, object g, object h, object i)

from tailrace.kernels.memory cimport Octets, address, int32, int64, uint8
from tailrace.kernels.records cimport can_hold, read_record, wrapping_sum

cdef int64 _PLACES_WIDTH, _PAYLOAD_WIDTH, _AT_POSITION, _AT_LIMIT, _AT_RECORD_COUNT
cdef int64 _AT_BASE_OFFSET, _AT_BASE_TIMESTAMP, _AT_KEEPS_DELTAS, _AT_ROWS, _RECORD_COUNT
cdef int64 _LEFTOVER, _NO_ROOM

@cython.locals(octets=Octets, row=int64, header_count=int64, left=int64, batch=int64, at=int64,
    position=int64, limit=int64, record_count=int64, base_offset=int64, base_timestamp=int64,
    keeps_deltas=int64, rows=int64, first_row=int64, _=int64, offset=int64, end=int64,
    delta=int64, offset_delta=int64, key_at=int64, key_size=int64, value_at=int64,
    value_size=int64, headers=int64)
cpdef int64 place_records(const uint8[::1] data, int64[::1] payloads, int64 count,
    int64 start_offset, int64[::1] offsets, int64[::1] timestamps, int32[::1] places,
    int64[::1] totals)
@cython.locals(octets=Octets, index=int64, place=int64, position=int64, size=int64)
cpdef int64 put_octets(const uint8[::1] data, const int32[::1] places, int64 which, int64 start,
    int64 count, list found)
@cython.locals(count=int64, found=list, row=int64, items=tuple)
cpdef list put_records(type kind, int64 is_tracked, list a, list b, list c, list d, list e,
    list f, list g, list h, list i)
