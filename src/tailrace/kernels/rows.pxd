cimport cython
from tailrace.kernels.memory cimport Octets, address, int64, uint8
from tailrace.kernels.records cimport can_hold, read_record, read_varint, wrapping_sum

cdef extern from *:
    """
    static void tailrace_put(PyObject *made, Py_ssize_t place, PyObject *item) {
        Py_INCREF(item);
        PyTuple_SET_ITEM(made, place, item);
    }

    static void tailrace_untrack(PyObject *made) {
        PyObject_GC_UnTrack(made);
    }

    /* A tuple of a subclass that adds no fields, which the garbage collector does not know. The
       caller fills it before it does anything else. tuple.__new__ would make two tuples for one. */
    static PyObject *tailrace_new(PyTypeObject *kind, Py_ssize_t size) {
        /* Not tp_alloc, which clears the items and has the collector know the tuple. */
        PyObject *made = (PyObject *)PyObject_GC_NewVar(PyTupleObject, kind, size);
        if (made == NULL) return NULL;
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)made)->ob_hash = -1;  /* not computed yet */
    #endif
        return made;
    }

    static PyObject *tailrace_nine(PyTypeObject *kind, PyObject *topic, PyObject *partition,
            int64_t offset, PyObject *timestamp, PyObject *kind_of_time, PyObject *key,
            PyObject *value, PyObject *headers, PyObject *epoch) {
        PyObject *number = PyLong_FromLongLong(offset);
        if (number == NULL) return NULL;
        PyObject *made = tailrace_new(kind, 9);
        if (made == NULL) { Py_DECREF(number); return NULL; }
        tailrace_put(made, 0, topic); tailrace_put(made, 1, partition);
        PyTuple_SET_ITEM(made, 2, number); tailrace_put(made, 3, timestamp);
        tailrace_put(made, 4, kind_of_time); tailrace_put(made, 5, key);
        tailrace_put(made, 6, value); tailrace_put(made, 7, headers); tailrace_put(made, 8, epoch);
        return made;
    }

    static PyObject *tailrace_five(PyTypeObject *kind, int64_t offset, PyObject *timestamp,
            PyObject *key, PyObject *value, PyObject *headers) {
        PyObject *number = PyLong_FromLongLong(offset);
        if (number == NULL) return NULL;
        PyObject *made = tailrace_new(kind, 5);
        if (made == NULL) { Py_DECREF(number); return NULL; }
        PyTuple_SET_ITEM(made, 0, number); tailrace_put(made, 1, timestamp);
        tailrace_put(made, 2, key); tailrace_put(made, 3, value); tailrace_put(made, 4, headers);
        return made;
    }

    /* The tuple of nine items with another key and another value; the collector knows it, since
       these may refer to anything. */
    static PyObject *tailrace_with(PyTypeObject *kind, PyObject *record, PyObject *key,
            PyObject *value) {
        PyObject *made = tailrace_new(kind, 9);
        if (made == NULL) return NULL;
        for (Py_ssize_t place = 0; place < 9; place++) {
            PyObject *item = place == 5 ? key : place == 6 ? value : PyTuple_GET_ITEM(record, place);
            tailrace_put(made, place, item);
        }
        PyObject_GC_Track(made);
        return made;
    }

    /* The text of some bytes; that of the header in the same place before, if it has the same. */
    static PyObject *tailrace_name(PyObject *before, Py_ssize_t place, const uint8_t *octets,
            Py_ssize_t size) {
        if (place < PyTuple_GET_SIZE(before)) {
            PyObject *name = PyTuple_GET_ITEM(PyTuple_GET_ITEM(before, place), 0);
            if (PyUnicode_IS_COMPACT_ASCII(name) && PyUnicode_GET_LENGTH(name) == size
                    && memcmp(PyUnicode_DATA(name), octets, size) == 0) {
                Py_INCREF(name);
                return name;
            }
        }
        return PyUnicode_DecodeUTF8((const char *)octets, size, "replace");
    }
    """
    void put_item "tailrace_put"(tuple made, Py_ssize_t place, object item)
    void untrack "tailrace_untrack"(object made)
    object tailrace_nine(type kind, object topic, object partition, int64 offset, object timestamp,
        object kind_of_time, object key, object value, object headers, object epoch)
    object tailrace_five(type kind, int64 offset, object timestamp, object key, object value,
        object headers)
    object tailrace_with(type kind, object record, object key, object value)
    object tailrace_name(tuple before, Py_ssize_t place, Octets octets, Py_ssize_t size)

cdef extern from "Python.h":
    tuple new_tuple "PyTuple_New"(Py_ssize_t size)

cdef int64 _CURSOR_SIZE, _KEY_INDEX, _VALUE_INDEX, _WIDTH, _PAYLOAD_WIDTH, _AT_POSITION, _AT_LIMIT
cdef int64 _AT_RECORD_COUNT, _AT_BASE_OFFSET, _AT_BASE_TIMESTAMP, _AT_KEEPS_DELTAS
cdef int64 _AT_LEADER_EPOCH, _RECORD_COUNT, _LEFTOVER, _NO_ROOM

@cython.locals(octets=Octets, batch=int64, position=int64, passed=int64, batches=int64, left=int64,
    status=int64, before=tuple, time=int64, time_object=object, at=int64, limit=int64,
    record_count=int64, unread=int64, base_offset=int64, base_timestamp=int64, keeps_deltas=int64,
    kind_of_time=object, epoch=object, first=int64, end=int64, delta=int64, offset_delta=int64,
    key_at=int64, key_size=int64, value_at=int64, value_size=int64, names_at=int64,
    headers=int64, offset=int64, timestamp=int64, key=object, value=object, pairs=tuple,
    is_placed=bint, topic=object, partition=object, record=object)
cpdef int64 take_records(const uint8[::1] data, const int64[::1] payloads, int64[::1] cursor,
    int64 start_offset, int64 count, type kind, tuple place, tuple types, list found) except? -1
@cython.locals(_=int64)
cdef int64 check_payload(Octets data, int64 position, int64 limit, int64 count) noexcept nogil
cdef object octets_or_none(Octets data, int64 position, int64 size)
@cython.locals(found=tuple, index=int64, size=int64, name=object, pair=tuple)
cdef tuple headers_of(Octets data, int64 position, int64 end, int64 count, tuple before)
cdef object nine(type kind, object topic, object partition, int64 offset, object timestamp,
    object kind_of_time, object key, object value, object headers, object epoch)
cdef object five(type kind, int64 offset, object timestamp, object key, object value,
    object headers)
@cython.locals(rows=list, made=list, part=int64, record=object, first=object, second=object)
cpdef tuple deserialize_records(type kind, list records, object key, object value)
