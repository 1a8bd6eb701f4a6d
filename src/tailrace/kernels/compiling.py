"""Compiles a kernel with Numba to an object file.

Importing this module imports Numba. Not here: when kernels are compiled (`kernel`), where the
machine code is kept (`caching`), and how it is called (`machine`).

Compiling is slow (half a second for each kernel), so everything is compiled once. A helper is one
function for all kernels of a process, which inline its code; nothing is made for callers of helpers
in Python or C, because only kernels call them.
"""

import contextlib
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, TypeAlias

import numba
from llvmlite import binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from tailrace.kernels.checksums import BLOCK, add_block, add_byte
from tailrace.kernels.kernel import (
    PLAIN_BLOCK,
    copy_bytes,
    count_plain,
    is_helper,
    put_bytes,
    put_tuple,
)
from tailrace.kernels.machine import build_object

Untyped: TypeAlias = Any
PlainFunction: TypeAlias = Callable[..., Any]

_TYPES: Final = {
    "bytes": numba.types.Array(numba.uint8, 1, "C", readonly=True),
    "key": numba.types.Array(numba.uint8, 1, "C", readonly=True),
    "int64": numba.int64,
    "int64[:]": numba.int64[::1],
    "int32[:]": numba.int32[::1],
    "uint8[:]": numba.uint8[::1],
    "list": numba.int64[::1],
    "object": numba.int64,
}

_OPTIONS: Final = {"no_cfunc_wrapper": True, "error_model": "numpy", "_nrt": False}
"""No wrapper for callers in C, no code that raises ZeroDivisionError (kernels never raise), and no
memory of Numba's own (kernels allocate none), whose functions only Numba could link."""


def compile_function(plain: PlainFunction, parameters: tuple[str, ...]) -> bytes:
    """The function as an object file for `machine.open_object`, under the function's name."""
    signature = numba.int64(*(_TYPES[kind] for kind in parameters))
    build: Untyped = numba.njit([signature], nogil=True, no_cpython_wrapper=True, **_OPTIONS)
    with _configured():
        compiled = build(_prepared(plain)).overloads[signature.args]
        return build_object(
            compiled.library.get_llvm_str(),
            compiled.fndesc.llvm_func_name,
            name=plain.__name__,
            parameters=parameters,
        )


@contextlib.contextmanager
def _configured() -> Iterator[None]:
    """Numba's settings for kernels; put back because the process may have other users of Numba."""
    config = numba.config
    saved = config.OPT
    # At level 1 the varint reader is twice as fast as at Numba's default of 3. The level must be of
    # Numba's own type (a plain 1 fails inside of Numba 0.68).
    config.OPT = type(config.OPT)(1)
    try:
        yield
    finally:
        config.OPT = saved


def _prepared(plain: PlainFunction) -> types.FunctionType:
    """A copy of `plain` that calls compiled helpers.

    The module keeps its plain functions, which go on serving until every kernel is ready.
    """
    scope = dict(plain.__globals__)
    for name in plain.__code__.co_names:
        called = scope.get(name)
        if called is copy_bytes:
            scope[name] = _machine_copy()
        elif called is count_plain:
            scope[name] = _machine_count()
        elif called is put_bytes:
            scope[name] = _machine_bytes()
        elif called is put_tuple:
            scope[name] = _machine_tuple()
        elif called is add_byte:
            scope[name] = _machine_checksum(1) if _has_checksum() else _compiled_helper(called)
        elif called is add_block:
            scope[name] = _machine_checksum(BLOCK) if _has_checksum() else _compiled_helper(called)
        elif isinstance(called, types.FunctionType) and is_helper(called):
            scope[name] = _compiled_helper(called)
    copy = types.FunctionType(plain.__code__, scope, plain.__name__)
    copy.__qualname__ = plain.__qualname__
    copy.__module__ = plain.__module__
    return copy


class _Helper(CPUDispatcher):  # type: ignore[misc]
    """A function that is compiled once, and not again for each integer that stands in a call."""

    def get_call_template(self, args: Untyped, kws: Untyped) -> Untyped:
        """Numba's answer for arguments of these types, literals among them taken as integers."""
        return super().get_call_template([numba.types.unliteral(each) for each in args], kws)


@cache
def _compiled_helper(plain: types.FunctionType) -> _Helper:
    return _Helper(
        _prepared(plain),
        targetoptions={
            "nopython": True,
            "boundscheck": None,
            "forceinline": True,
            "no_cpython_wrapper": True,
            **_OPTIONS,
        },
    )


@cache
def _machine_copy() -> Untyped:
    """`copy_bytes` as the machine's memcpy.

    Numba's own slice assignment looks for overlaps and then copies byte by byte; on values of 100
    bytes it takes longer than all the rest of the decoder.
    """

    def generate(
        context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
    ) -> Untyped:
        source, position, target, start, size = arguments
        pointers = [
            builder.gep(context.make_array(kind)(context, builder, value).data, [index])
            for kind, value, index in (
                (signature.args[2], target, start),
                (signature.args[0], source, position),
            )
        ]
        cgutils.raw_memcpy(builder, *pointers, size, 1)
        return context.get_dummy_value()

    # Numba matches an intrinsic's parameters by name with those of the call, so they are spelled
    # out, though only the two arrays decide the signature.
    def copy(  # noqa: PLR0917
        typing: Untyped,  # noqa: ARG001
        source: Untyped,
        position: Untyped,  # noqa: ARG001
        target: Untyped,
        start: Untyped,  # noqa: ARG001
        size: Untyped,  # noqa: ARG001
    ) -> Untyped:
        integer = numba.int64
        return numba.types.void(source, integer, target, integer, integer), generate

    return intrinsic(copy)


@cache
def _machine_count() -> Untyped:
    """`count_plain` on all bytes at once; Numba's loop over them takes ten times as long."""
    vector = ir.VectorType(ir.IntType(8), PLAIN_BLOCK)

    def generate(
        context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
    ) -> Untyped:
        data, at, *excluded = arguments
        pointer = builder.gep(
            context.make_array(signature.args[0])(context, builder, data).data, [at]
        )
        block = builder.load(builder.bitcast(pointer, vector.as_pointer()))
        block.align = 1

        def all_of(byte: Untyped) -> Untyped:
            one = builder.insert_element(vector(ir.Undefined), byte, ir.IntType(32)(0))
            lanes = ir.VectorType(ir.IntType(32), PLAIN_BLOCK)([0] * PLAIN_BLOCK)
            return builder.shuffle_vector(one, vector(ir.Undefined), lanes)

        # Unsigned bytes below 32 wrap around, so the result is above 94 too.
        moved = builder.sub(block, vector([32] * PLAIN_BLOCK))
        found = builder.icmp_unsigned(">", moved, vector([94] * PLAIN_BLOCK))
        for byte in excluded:
            equal = all_of(builder.trunc(byte, ir.IntType(8)))
            found = builder.or_(found, builder.icmp_unsigned("==", block, equal))
        bits = builder.zext(builder.bitcast(found, ir.IntType(PLAIN_BLOCK)), ir.IntType(64))
        # One bit behind the block stops the count there.
        bits = builder.or_(bits, ir.IntType(64)(1 << PLAIN_BLOCK))
        return builder.cttz(bits, ir.IntType(1)(1))

    def count(
        typing: Untyped,  # noqa: ARG001
        data: Untyped,
        at: Untyped,  # noqa: ARG001
        first: Untyped,  # noqa: ARG001
        second: Untyped,  # noqa: ARG001
    ) -> Untyped:
        integer = numba.int64
        return integer(data, integer, integer, integer), generate

    return intrinsic(count)


_ADDRESS: Final = ir.IntType(64)
_TUPLE_ITEMS_POSITION: Final = tuple.__basicsize__
_TUPLE_WIDTH: Final = 9


def _call(builder: Untyped, name: str, *arguments: Untyped, result: Untyped = _ADDRESS) -> Untyped:
    """Call a function of Python's C interface; pointers are passed as integers."""
    kind = ir.FunctionType(result, [each.type for each in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _put(builder: Untyped, place: Untyped, made: Untyped, fill: Callable[[], None]) -> Untyped:
    """Put an object that was made into a place of a list; 1, or 0 if none could be made."""
    is_made = builder.icmp_unsigned("!=", made, _ADDRESS(0))
    with builder.if_then(is_made, likely=True):
        fill()
        before = builder.load(place)
        builder.store(made, place)
        _call(builder, "Py_DecRef", before, result=ir.VoidType())
    return builder.zext(is_made, _ADDRESS)


def _place_in(
    context: Untyped, builder: Untyped, kind: Untyped, array: Untyped, at: Untyped
) -> Untyped:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


@cache
def _machine_bytes() -> Untyped:
    """`put_bytes` by Python's C interface."""

    def generate(
        context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
    ) -> Untyped:
        target, index, source, position, size = arguments
        kinds = signature.args
        octets = _place_in(context, builder, kinds[2], source, position)
        made = _call(builder, "PyBytes_FromStringAndSize", builder.ptrtoint(octets, _ADDRESS), size)
        place = _place_in(context, builder, kinds[0], target, index)
        return _put(builder, place, made, lambda: None)

    def put(  # noqa: PLR0917
        typing: Untyped,  # noqa: ARG001
        target: Untyped,
        index: Untyped,  # noqa: ARG001
        source: Untyped,
        position: Untyped,  # noqa: ARG001
        size: Untyped,  # noqa: ARG001
    ) -> Untyped:
        integer = numba.int64
        return integer(target, integer, source, integer, integer), generate

    return intrinsic(put)


@cache
def _machine_tuple() -> Untyped:
    """`put_tuple` by Python's C interface, for `_TUPLE_WIDTH` items."""

    def generate(
        context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
    ) -> Untyped:
        target, index, kind, is_tracked, *items = arguments
        made = _call(builder, "PyType_GenericAlloc", kind, _ADDRESS(_TUPLE_WIDTH))
        place = _place_in(context, builder, signature.args[0], target, index)

        def fill() -> None:
            with builder.if_then(builder.icmp_unsigned("==", is_tracked, _ADDRESS(0))):
                _call(builder, "PyObject_GC_UnTrack", made, result=ir.VoidType())
            for number, item in enumerate(items):
                _call(builder, "Py_IncRef", item, result=ir.VoidType())
                position = _ADDRESS(_TUPLE_ITEMS_POSITION + 8 * number)
                at = builder.inttoptr(builder.add(made, position), _ADDRESS.as_pointer())
                builder.store(item, at)

        return _put(builder, place, made, fill)

    # Numba passes no `*items` to an intrinsic.
    def put(  # noqa: PLR0917
        typing: Untyped, target: Untyped, index: Untyped, kind: Untyped, is_tracked: Untyped,  # noqa: ARG001
        a: Untyped, b: Untyped, c: Untyped, d: Untyped, e: Untyped,  # noqa: ARG001
        f: Untyped, g: Untyped, h: Untyped, i: Untyped,  # noqa: ARG001
    ) -> Untyped:  # fmt: skip
        integer = numba.int64
        return integer(target, *[integer] * (3 + _TUPLE_WIDTH)), generate

    return intrinsic(put)


@cache
def _has_checksum() -> bool:
    """Whether the processor has an instruction for CRC-32C that is used here."""
    return bool(llvm.get_host_cpu_features().get("sse4.2", False))


@cache
def _machine_checksum(size: int) -> Untyped:
    """`add_byte` or `add_block` as one instruction of SSE4.2, for so many bytes."""
    register = ir.IntType(64 if size == BLOCK else 32)
    operand = ir.IntType(8 * size)
    name = f"llvm.x86.sse42.crc32.{register.width}.{operand.width}"

    def generate(
        context: Untyped, builder: Untyped, signature: Untyped, arguments: Untyped
    ) -> Untyped:
        data, at, crc = arguments
        pointer = builder.gep(
            context.make_array(signature.args[0])(context, builder, data).data, [at]
        )
        taken = builder.load(builder.bitcast(pointer, operand.as_pointer()))
        taken.align = 1
        instruction = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(register, [register, operand]), name
        )
        if register.width == 64:
            return builder.call(instruction, [crc, taken])
        found = builder.call(instruction, [builder.trunc(crc, register), taken])
        return builder.zext(found, ir.IntType(64))

    def add(
        typing: Untyped,  # noqa: ARG001
        data: Untyped,
        at: Untyped,  # noqa: ARG001
        crc: Untyped,  # noqa: ARG001
    ) -> Untyped:
        integer = numba.int64
        return integer(data, integer, integer), generate

    return intrinsic(add)
