"""Machine code of kernels: made from LLVM's assembly as object files, called as builtin functions.

    compile once    Numba's assembly + an entry for Python  ->  object file (`build_object`)
    every process   object file  ->  builtin function (`open_object`)

Opening needs LLVM (`llvmlite`) and neither Numba nor numpy, whose imports take five times as long
as everything here. The entry is the C function of a builtin (METH_FASTCALL). It takes the buffers
of the arguments, gives up the interpreter lock, calls the kernel, and gives the buffers back; so a
call costs less than the arrays that Numba's own wrapper would have to be given.

    for each argument  ->  take its buffer, or its value as int64
    release the lock   ->  kernel   ->  take the lock
    for each buffer    ->  give it back
    an int             ->  or NULL with an exception, after the buffers so far were given back

Invariants:

* A buffer is held while the kernel runs, so that nobody can resize it meanwhile.
* An output is writable, and aligned for its integers; compiled code may rely on it.
* An object file calls nothing but Python's C interface and what a compiler's own code calls
  (memcpy), so that it can be opened without Numba.
* What a builtin points at (definition, its name, machine code) is never freed. CPython holds none
  of it by reference, and looks at the builtin until the process has ended: modules are cleared
  before the last search for garbage, which reads the definition.
"""

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from llvmlite import binding as llvm  # type: ignore[import-untyped]

Untyped: TypeAlias = Any

_ITEM_SIZES: Final = {
    "bytes": 1, "key": 1, "uint8[:]": 1, "int32[:]": 4, "int64[:]": 8, "list": 8
}  # fmt: skip
_READ_ONLY: Final = ("bytes", "key")
_INTEGER: Final = "int64"
_LIST: Final = "list"
_OBJECT: Final = "object"
_LOCKED: Final = ("key", _LIST, _OBJECT)
"""A kernel that takes one of these keeps the interpreter lock."""

_TUPLE_ITEMS_POSITION: Final = tuple.__basicsize__
"""Position of the items in a `PyTupleObject`."""
_TUPLE_ITEMS_POSITION_MAX: Final = 24
"""The same up to Python 3.13. Since 3.14 a tuple keeps its hash before them, and one that machine
code makes has 0 there, so that it is not equal to others in sets and dictionaries."""

_LIST_ITEMS_POSITION: Final = 24
"""Position of the field `ob_item` in a `PyListObject`, in every Python since 3.11."""

_BUFFER_SIZE: Final = 80
"""Bytes of a `Py_buffer` where a pointer has 8, in every Python since 3.11."""
_LENGTH_POSITION: Final = 16
"""Position of the field `len` in a `Py_buffer`; `buf` is the first field."""
_SIMPLE, _WRITABLE = 0, 1
_METH_FASTCALL: Final = 0x80

_DECLARED: Final = """
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare void @PyBuffer_Release(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @PyErr_BadArgument()
declare ptr @PyErr_Occurred()
declare i64 @PyList_Size(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
"""


class _MethodDefinition(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("document", ctypes.c_char_p),
    )


def _keep_for_good(kept: object) -> None:
    """Let an object outlive its module, and everything else in the process."""
    # A global would not do: modules are cleared while builtins are alive.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def build_object(assembly: str, function: str, *, name: str, parameters: Sequence[str]) -> bytes:
    """The object file of a kernel.

    Args:
        assembly: a module in LLVM's assembly that defines `function` as Numba calls it.
        function: the name of the kernel's function there.
        name: what the kernel is called; `open_object` needs it again.
        parameters: the types of the kernel's arguments, as in `kernel`.
    """
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    entry = _entry_name(name)
    lines = "\n".join(_entry(entry, function, parameters))
    module = llvm.parse_assembly(f"{assembly}{_DECLARED}{lines}\n")
    taken = [str(each.type) for each in module.get_function(function).arguments]
    assert taken == _passed_types(parameters), f"Numba passes {name} other arguments: {taken}"
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != entry:
            each.linkage = "internal"  # Nothing may meet a symbol of another kernel.
    module.verify()
    code: bytes = _target_machine().emit_object(module)
    return code


def open_object(code: bytes, *, name: str) -> Callable[..., int]:
    """The kernel in an object file of `build_object`, as a builtin function.

    It takes contiguous buffers, ints, lists and objects, in the order of the parameters.

    Raises (the function):
        SystemError: an argument is no list where one is due.
        MemoryError: there is no memory for an object that the kernel makes.
        BufferError: an output that is read-only, or a buffer that is not contiguous.
        TypeError: another number of arguments, an argument that is no buffer or no int, or an
            output that is not aligned for its integers.
        OverflowError: an int beyond int64.

    Raises (this call):
        LookupError: the object file has no entry of that name.
    """
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(_entry_name(name))
    if not address:
        raise LookupError(f"the object file has no function {_entry_name(name)}")
    definition = _MethodDefinition(name.encode(), address, _METH_FASTCALL, None)
    _keep_for_good(definition)  # And with it the bytes of the name.
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(_MethodDefinition), ctypes.c_void_p, ctypes.c_void_p)
    made: Callable[..., int] = make(ctypes.byref(definition), None, None)
    return made


def refused_kinds() -> frozenset[str]:
    """The types of parameters whose kernels have to stay plain code in this interpreter.

    That is so without an interpreter lock, which these kernels count on, where a list has its
    items elsewhere than they look for them, and where a tuple has a field that they do not fill.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return frozenset(_LOCKED)
    refused = {_OBJECT} if _TUPLE_ITEMS_POSITION > _TUPLE_ITEMS_POSITION_MAX else set()
    item = object()
    holder = [item]
    items = ctypes.c_uint64.from_address(id(holder) + _LIST_ITEMS_POSITION).value
    is_known = ctypes.string_at(items, 8) == id(item).to_bytes(8, sys.byteorder)
    if not is_known:
        refused.add(_LIST)
    return frozenset(refused)


def _entry_name(name: str) -> str:
    return f"tailrace_{name}"


@cache
def _target_machine() -> Untyped:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=1,
        reloc="static" if triple.startswith("x86") else "default",  # As Numba does.
        codemodel="jitdefault",
        jit=True,
    )


@cache
def _engine() -> Untyped:
    target_machine = _target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine)
    _keep_for_good(engine)  # It unmaps the pages of all machine code when it goes.
    return engine


def _entry(entry: str, function: str, parameters: Sequence[str]) -> Iterator[str]:
    """The lines of the function that Python calls; see the module."""
    held: list[int] = []  # Arguments whose buffers are taken at this point.
    passed = ["ptr %result", "ptr %exception"]
    yield f"define ptr @{entry}(ptr %self, ptr %arguments, i64 %count) {{"
    yield "  %result = alloca i64"
    yield "  %exception = alloca ptr"
    for number, kind in enumerate(parameters):
        if kind not in {_INTEGER, _LIST, _OBJECT}:
            yield f"  %view{number} = alloca [{_BUFFER_SIZE} x i8], align 8"
    yield f"  %is_right = icmp eq i64 %count, {len(parameters)}"
    yield "  br i1 %is_right, label %argument0, label %refuse0"
    for number, kind in enumerate(parameters):
        yield f"argument{number}:"
        yield f"  %place{number} = getelementptr ptr, ptr %arguments, i64 {number}"
        yield f"  %object{number} = load ptr, ptr %place{number}"
        if kind == _INTEGER:
            yield from _take_integer(number, failed=f"release{len(held)}")
            passed.append(f"i64 %value{number}")
        elif kind == _OBJECT:
            yield f"  %value{number} = ptrtoint ptr %object{number} to i64"
            yield f"  br label %argument{number + 1}"
            passed.append(f"i64 %value{number}")
        else:
            if kind == _LIST:
                yield from _take_list(number, held=len(held))
            else:
                yield from _take_buffer(number, kind, held=len(held))
                held.append(number)
            # Numba passes an array as: owner, parent, items, size of an item, data, shape, strides.
            items, size = f"i64 %items{number}", f"i64 {_ITEM_SIZES[kind]}"
            passed += ["ptr null", "ptr null", items, size, f"ptr %data{number}", items, size]
    yield f"argument{len(parameters)}:"
    is_locked = any(each in _LOCKED for each in parameters)
    if not is_locked:
        yield "  %thread = call ptr @PyEval_SaveThread()"
    yield f"  %status = call i32 @{function}({', '.join(passed)})"
    if not is_locked:
        yield "  call void @PyEval_RestoreThread(ptr %thread)"
    for number in held:
        yield f"  call void @PyBuffer_Release(ptr %view{number})"
    yield "  %is_done = icmp eq i32 %status, 0"
    yield "  br i1 %is_done, label %done, label %refuse0"
    yield "done:"
    if _LIST in parameters:
        yield "  %failure = call ptr @PyErr_Occurred()"
        yield "  %is_made = icmp eq ptr %failure, null"
        yield "  br i1 %is_made, label %made, label %release0"
        yield "made:"
    yield "  %value = load i64, ptr %result"
    yield "  %returned = call ptr @PyLong_FromLongLong(i64 %value)"
    yield "  ret ptr %returned"
    for count in range(len(held), -1, -1):
        yield f"refuse{count}:"
        yield f"  %refused{count} = call i32 @PyErr_BadArgument()"
        yield f"  br label %release{count}"
    for count in range(len(held), 0, -1):
        yield f"release{count}:"
        yield f"  call void @PyBuffer_Release(ptr %view{held[count - 1]})"
        yield f"  br label %release{count - 1}"
    yield "release0:"
    yield "  ret ptr null"
    yield "}"


def _passed_types(parameters: Sequence[str]) -> list[str]:
    """Return LLVM's names of the types of the arguments that `_entry` passes."""
    types = ["ptr", "ptr"]
    for kind in parameters:
        types += (
            ["i64"]
            if kind in {_INTEGER, _OBJECT}
            else ["ptr", "ptr", "i64", "i64", "ptr", "i64", "i64"]
        )
    return types


def _take_integer(number: int, *, failed: str) -> Iterator[str]:
    yield f"  %value{number} = call i64 @PyLong_AsLongLong(ptr %object{number})"
    yield f"  %is_minus_one{number} = icmp eq i64 %value{number}, -1"
    yield f"  br i1 %is_minus_one{number}, label %doubt{number}, label %argument{number + 1}"
    yield f"doubt{number}:"
    yield f"  %error{number} = call ptr @PyErr_Occurred()"
    yield f"  %is_value{number} = icmp eq ptr %error{number}, null"
    yield f"  br i1 %is_value{number}, label %argument{number + 1}, label %{failed}"


def _take_list(number: int, *, held: int) -> Iterator[str]:
    """A list as an array of the addresses of its items; nobody changes its size meanwhile."""
    yield f"  %items{number} = call i64 @PyList_Size(ptr %object{number})"
    yield f"  %is_list{number} = icmp sge i64 %items{number}, 0"
    yield f"  br i1 %is_list{number}, label %taken_list{number}, label %release{held}"
    yield f"taken_list{number}:"
    yield (
        f"  %data_place{number} = getelementptr i8, ptr %object{number}, i64 {_LIST_ITEMS_POSITION}"
    )
    yield f"  %data{number} = load ptr, ptr %data_place{number}"
    yield f"  br label %argument{number + 1}"


def _take_buffer(number: int, kind: str, *, held: int) -> Iterator[str]:
    """`held` is the number of buffers that were taken before this one."""
    flags, size = (_SIMPLE if kind in _READ_ONLY else _WRITABLE), _ITEM_SIZES[kind]
    view = f"ptr %view{number}"
    yield (
        f"  %taken{number} = call i32 @PyObject_GetBuffer(ptr %object{number}, {view}, i32 {flags})"
    )
    yield f"  %is_taken{number} = icmp eq i32 %taken{number}, 0"
    yield f"  br i1 %is_taken{number}, label %taken_buffer{number}, label %release{held}"
    yield f"taken_buffer{number}:"
    yield f"  %data{number} = load ptr, {view}"
    yield f"  %length_place{number} = getelementptr i8, {view}, i64 {_LENGTH_POSITION}"
    yield f"  %length{number} = load i64, ptr %length_place{number}"
    yield f"  %items{number} = udiv i64 %length{number}, {size}"
    yield f"  %address{number} = ptrtoint ptr %data{number} to i64"
    yield f"  %excess{number} = and i64 %address{number}, {size - 1}"
    yield f"  %is_aligned{number} = icmp eq i64 %excess{number}, 0"
    yield f"  %is_empty{number} = icmp eq i64 %items{number}, 0"
    yield f"  %is_usable{number} = or i1 %is_aligned{number}, %is_empty{number}"
    yield f"  br i1 %is_usable{number}, label %argument{number + 1}, label %refuse{held + 1}"
