"""One function, two engines: plain Python at once, Numba's machine code when it has been loaded.

A kernel is a function over buffers and integers that returns an integer. It is written in the part
of Python that Numba compiles, and gives the same answer either way. What the kernels compute is
not known here.

Until `load()` has run, a kernel's buffers are memoryviews and neither numpy nor numba is imported.
Afterwards they are numpy arrays over the same memory. Callers hand over whatever they have (bytes,
memoryview, array, numpy array) and see no difference but speed.

Invariants:

* Each kernel has exactly one signature. Numba's on-disk cache races between processes when one
  function has several (numba issue 4807), and Spark's workers are many processes.
* A kernel and every helper it calls stand in one source file, because Numba's cache notices a
  change only in the file of the kernel itself. The exceptions are `copy_bytes`, `count_plain`, and
  the readers and writers of records that other kernels share with those of `records` and
  `cleaning`: whoever changes them, or how kernels are compiled, deletes the `.nbi` files of
  `__pycache__`.
* No helper copies bytes under a condition, but the kernel itself may: Numba would count references
  to the helper's buffers at each call, which takes longer than the copying.
* Integers stay inside int64, and nothing mixes int64 with uint64: Numba would make a float of it.
"""

import threading
import types
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

Untyped: TypeAlias = Any
"""An object of numba or numpy, which are imported late, or a buffer in either of their forms."""

PlainFunction = Callable[..., Any]
Helper = TypeVar("Helper", bound=PlainFunction)

_READ_ONLY: Final = "bytes"
_FORMATS: Final = {"int64[:]": "q", "int32[:]": "i", "uint8[:]": "B"}

WORTH_LOADING_RECORDS: Final = 2_000_000
"""Records in plain code that cost what loading costs; see `worth_loading`."""

_RECORD_SIZE_MIN: Final = 7
"""Bounds the records that a call can have walked, whatever its count claims."""

_loading = threading.Lock()
_kernels: "list[Kernel]" = []
_helpers: set[PlainFunction] = set()


class _Account:
    """How many records plain code has walked in this process, and whether it still does."""

    __slots__ = ("is_replaced", "records")

    def __init__(self) -> None:
        self.records = 0
        self.is_replaced = False


_plain = _Account()


class Kernel:
    """A callable that runs `plain` until it is switched to compiled code."""

    __slots__ = ("_buffers", "_count_index", "_run", "compiled", "parameters", "plain")

    def __init__(self, plain: PlainFunction, parameters: tuple[str, ...]) -> None:
        names = plain.__code__.co_varnames[: plain.__code__.co_argcount]
        assert len(names) == len(parameters), f"{plain.__name__} takes {names}"
        self.plain = plain
        self.parameters = parameters
        """Type of each argument: bytes, int64, int64[:], int32[:] or uint8[:]."""
        self.compiled: Untyped = None
        """Numba's dispatcher, once there is one."""
        self._buffers = tuple(i for i, kind in enumerate(parameters) if kind != "int64")
        self._count_index = names.index("count")
        self._run: Callable[..., int] = self.run_plain

    @property
    def is_compiled(self) -> bool:
        """Whether calls run compiled code."""
        return self.compiled is not None

    def __call__(self, *arguments: object) -> int:
        """What the function returns for these buffers and integers."""
        return self._run(*arguments)

    def run_plain(self, *arguments: Untyped) -> int:
        """The same by plain Python, whatever has been loaded."""
        values = list(arguments)
        for index in self._buffers:
            values[index] = memoryview(values[index])
        claimed = values[self._count_index]
        # The count may be a lie; the bytes at hand bound how many records were walked.
        _plain.records += max(0, min(claimed, values[0].nbytes // _RECORD_SIZE_MIN))
        result: int = self.plain(*values)
        return result

    def compile_with(self, numba: Untyped, numpy: Untyped) -> None:
        """Compiles, or reads from Numba's cache, and switches over."""
        compiled = _compiled(self, numba)
        ndarray, frombuffer = numpy.ndarray, numpy.frombuffer
        kinds = tuple(
            (index, numpy.dtype(_FORMATS.get(self.parameters[index], "B")))
            for index in self._buffers
        )
        read_only = self.parameters[0] == _READ_ONLY

        def run(*arguments: Untyped) -> int:
            values = list(arguments)
            if read_only and type(values[0]) is not ndarray:
                # A read-only array matches the signature exactly, which is the fast dispatch.
                values[0] = frombuffer(memoryview(values[0]).toreadonly(), numpy.uint8)
            for index, dtype in kinds:
                if type(values[index]) is not ndarray:
                    values[index] = frombuffer(values[index], dtype)
            result: int = compiled(*values)
            return result

        self._run = run
        self.compiled = compiled


def kernel(*parameters: str) -> Callable[[PlainFunction], Kernel]:
    """Decorator: registers a function as a kernel of the one signature `parameters`.

    Each of `parameters` is "bytes" (read-only), "int64", "int64[:]", "int32[:]" or "uint8[:]". One
    of the function's own parameters is called `count`: the records that the call walks, for the
    account that `worth_loading` looks at.

    Example:
        >>> @kernel("bytes", "int64")
        ... def sum_of(data, count): ...
    """

    def register(plain: PlainFunction) -> Kernel:
        made = Kernel(plain, parameters)
        _kernels.append(made)
        _plain.is_replaced = False
        return made

    return register


def helper(plain: Helper) -> Helper:
    """Decorator: a function that kernels of the same file call; it is compiled along with them."""
    _helpers.add(plain)
    return plain


def copy_bytes(source: Untyped, position: int, target: Untyped, start: int, size: int) -> None:
    """Copies `size` bytes between two buffers, for kernels; the kernel has checked both ends."""
    target[start : start + size] = source[position : position + size]


PLAIN_BLOCK: Final = 32
"""Bytes that `count_plain` looks at."""


def count_plain(data: Untyped, at: int, first: int, second: int) -> int:
    """How many of the `PLAIN_BLOCK` bytes at `at`, for kernels, stand before one that is not plain.

    Plain are the printable characters of ASCII but `first` and `second`. The kernel has checked
    that there are so many bytes.
    """
    for count in range(PLAIN_BLOCK):
        byte = data[at + count]
        if byte < 32 or byte > 126 or byte in {first, second}:
            return count
    return PLAIN_BLOCK


def registered_modules() -> set[str]:
    """Names of the modules that have kernels, of those imported so far."""
    return {each.plain.__module__ for each in _kernels}


def load() -> None:
    """Imports Numba, compiles every kernel or reads it from the cache, and switches them over.

    Every kernel is every one of the modules that have been imported by then.

    Takes 0.4 seconds when the cache is warm and 6 when it is not, and 120 to 185 MB; run it in a
    thread where that matters. Calls already under way finish in plain code. Further calls return
    at once if there is no new one.

    Raises:
        ImportError: numba or numpy is not installed.
    """
    with _loading:
        waiting = [each for each in _kernels if not each.is_compiled]
        if not waiting:
            return
        import numba
        import numpy as np

        for each in waiting:
            each.compile_with(numba, np)
        _plain.is_replaced = True


def is_loaded() -> bool:
    """Whether every kernel runs compiled code."""
    return _plain.is_replaced


def plain_records() -> int:
    """Records that plain code has walked in this process so far."""
    return _plain.records


def add_plain_records(count: int) -> None:
    """Tells the account of plain work beside the kernels' own that compiled ones would have saved.

    `count` is the number of records whose walk in plain code costs as much.
    """
    _plain.records += count


def worth_loading() -> bool:
    """Whether plain code has by now cost as much as `load()` would: rent until then, then buy.

    The rule of the ski rental: whoever buys when the rent paid equals the price never pays more
    than twice the best possible. Plain code walks 0.6 million records per second, so 2 million are
    three seconds of it. That is between the two prices of `load()`, 0.4 seconds of CPU with a warm
    cache and 6 with none, and leaves a small broker without the 120 MB that are never given back.
    """
    return not is_loaded() and _plain.records >= WORTH_LOADING_RECORDS


def int64s(count: int) -> "array[int]":
    """A zeroed int64 buffer of `count` places, for a kernel's output."""
    return array("q", bytes(8 * count))


def _compiled(target: Kernel, numba: Untyped) -> Callable[..., int]:
    level = numba.config.OPT
    # At level 1 the varint reader is twice as fast as at Numba's default of 3. The level must be of
    # Numba's own type (a plain 1 fails inside of Numba 0.68), and it is put back because the
    # process may have other users of Numba.
    numba.config.OPT = type(level)(1)
    try:
        plain = _with_compiled_helpers(target.plain, numba)
        signature = numba.int64(*(_numba_type(kind, numba) for kind in target.parameters))
        try:
            compiled = numba.njit([signature], cache=True, nogil=True)(plain)
        except RuntimeError:
            # Neither the package's directory nor the user's cache directory can be written.
            compiled = numba.njit([signature], nogil=True)(plain)
    finally:
        numba.config.OPT = level
    return compiled  # type: ignore[no-any-return]


def _with_compiled_helpers(plain: PlainFunction, numba: Untyped) -> types.FunctionType:
    """A copy of `plain` whose globals hold compiled versions of the helpers it calls.

    The module keeps its plain functions, which go on serving until every kernel is ready. The copy
    shares the code object, and so the source file by which Numba finds its cache.
    """
    names = plain.__code__.co_names
    scope = dict(plain.__globals__)
    for name in names:
        called = scope.get(name)
        if isinstance(called, types.FunctionType) and called in _helpers:
            scope[name] = numba.njit(nogil=True, forceinline=True)(
                _with_compiled_helpers(called, numba)
            )
        elif called is copy_bytes:
            scope[name] = _compiled_copy(numba)
        elif called is count_plain:
            scope[name] = _compiled_count(numba)
    copy = types.FunctionType(plain.__code__, scope, plain.__name__)
    copy.__qualname__ = plain.__qualname__
    copy.__module__ = plain.__module__
    return copy


def _compiled_copy(numba: Untyped) -> Untyped:
    """`copy_bytes` as the machine's memcpy.

    Numba's own slice assignment looks for overlaps and then copies byte by byte; on values of 100
    bytes it takes longer than all the rest of the decoder.
    """
    from numba.core import cgutils
    from numba.extending import intrinsic

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


def _compiled_count(numba: Untyped) -> Untyped:
    """`count_plain` on all bytes at once; Numba's loop over them takes ten times as long."""
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.extending import intrinsic

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

        # As unsigned bytes, those below 32 wrap around and are above 94 too.
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


def _numba_type(kind: str, numba: Untyped) -> Untyped:
    if kind == _READ_ONLY:
        return numba.types.Array(numba.uint8, 1, "C", readonly=True)
    return {
        "int64": numba.int64,
        "int64[:]": numba.int64[::1],
        "int32[:]": numba.int32[::1],
        "uint8[:]": numba.uint8[::1],
    }[kind]
