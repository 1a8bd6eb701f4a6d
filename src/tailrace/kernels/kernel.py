"""Kernels: functions that run as plain Python at first, and as machine code after `load`.

A kernel is a function over buffers and integers that returns an integer. It is written in the part
of Python that Numba compiles, and returns the same result either way.

Until `load` has run, a kernel's buffers are memoryviews, and neither numpy nor numba is imported.
Afterwards they are numpy arrays over the same memory. Callers pass bytes, a memoryview, an array or
a numpy array in both cases, and see no difference but speed.

Not here: how Numba compiles (`compiling`), and where machine code is kept (`caching`).

Invariants:

* Each kernel has exactly one signature. Numba's on-disk cache races between processes when one
  function has several (numba issue 4807), and Spark's workers are many processes.
* No helper copies bytes under a condition, but the kernel itself may: Numba would count references
  to the helper's buffers at each call, which takes longer than the copying.
* Integers stay inside int64, and nothing mixes int64 with uint64: Numba would make a float of it.
"""

import threading
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

Untyped: TypeAlias = Any
"""An object of numba or numpy, which are imported late, or a buffer in either of their forms."""

PlainFunction = Callable[..., Any]
Helper = TypeVar("Helper", bound=PlainFunction)

_READ_ONLY: Final = "bytes"
_DTYPES: Final = {"int64[:]": "int64", "int32[:]": "int32", "uint8[:]": "uint8", "bytes": "uint8"}

WORTH_LOADING_RECORDS: Final = 2_000_000
"""Records in plain code that cost what loading costs; see `worth_loading`."""

_RECORD_SIZE_MIN: Final = 7
"""Bounds the records that a call can have walked, whatever its count claims."""

_loading = threading.Lock()
_kernels: "list[Kernel]" = []
_helpers: set[PlainFunction] = set()


class _Account:
    """How many records plain code has walked in this process."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records = 0


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
        """Runs the function as plain Python, even if it is compiled."""
        values = list(arguments)
        for index in self._buffers:
            values[index] = memoryview(values[index])
        claimed = values[self._count_index]
        # The count may be a lie; the bytes at hand bound how many records were walked.
        _plain.records += max(0, min(claimed, values[0].nbytes // _RECORD_SIZE_MIN))
        result: int = self.plain(*values)
        return result

    def switch_to(self, compiled: Callable[..., int], numpy: Untyped) -> None:
        """Has calls from now on run this machine code; `numpy` is the module."""
        ndarray, frombuffer = numpy.ndarray, numpy.frombuffer
        kinds = tuple(
            (index, numpy.dtype(_DTYPES[self.parameters[index]])) for index in self._buffers
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
            return compiled(*values)

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
        return made

    return register


def helper(plain: Helper) -> Helper:
    """Decorator: a function that kernels and helpers call; it is compiled along with them."""
    _helpers.add(plain)
    return plain


def is_helper(plain: PlainFunction) -> bool:
    """Whether the function was registered by `helper`."""
    return plain in _helpers


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


def registered(*wanted: Kernel) -> list[Kernel]:
    """The given kernels, or those of all modules imported so far if none is given."""
    return list(wanted or _kernels)


def load(*wanted: Kernel) -> None:
    """Imports Numba, and has these kernels run machine code from its cache, or compiled now.

    Without arguments: all kernels of the modules that have been imported by now. With a warm cache
    it takes 0.4 seconds, else half a second more for each kernel, and 120 to 185 MB of memory; call
    it in a thread where that matters. Calls already under way finish in plain code. Returns at once
    if nothing is left to do.

    Raises:
        ImportError: numba or numpy is not installed.
    """
    with _loading:
        waiting = [each for each in registered(*wanted) if not each.is_compiled]
        if not waiting:
            return
        import numpy as np

        from tailrace.kernels.caching import open_cache
        from tailrace.kernels.compiling import compile_function

        folder = open_cache()
        for each in waiting:
            each.switch_to(compile_function(each.plain, each.parameters, folder), np)


def is_loaded(*wanted: Kernel) -> bool:
    """Whether these kernels, or all of the modules imported so far, run machine code."""
    return all(each.is_compiled for each in wanted or _kernels)


def plain_records() -> int:
    """Records that plain code has walked in this process so far."""
    return _plain.records


def add_plain_records(count: int) -> None:
    """Tells the account of plain work beside the kernels' own that compiled ones would have saved.

    `count` is the number of records whose walk in plain code costs as much.
    """
    _plain.records += count


def worth_loading(*wanted: Kernel) -> bool:
    """Whether plain code has by now cost as much as loading these kernels (or all) would.

    This is ski rental: who buys when the rent paid equals the price never pays more than twice the
    best possible. Plain code walks 0.6 million records per second, so 2 million are three seconds
    of it. That is between the two prices of `load()`, 0.4 seconds of CPU with a warm cache and 6
    with none, and leaves a small broker without the 120 MB that are never given back.
    """
    return _plain.records >= WORTH_LOADING_RECORDS and not is_loaded(*wanted)


def int64s(count: int) -> "array[int]":
    """A zeroed int64 buffer of `count` places, for a kernel's output."""
    return array("q", bytes(8 * count))
