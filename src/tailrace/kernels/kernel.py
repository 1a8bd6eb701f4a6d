"""Kernels: functions that run as plain Python at first, and as machine code after `load`.

A kernel is a function over buffers and integers that returns an integer. It is written in the part
of Python that Numba compiles, and returns the same result either way.

Until `load` has run, a kernel's buffers are memoryviews. Afterwards the kernel is a builtin
function that takes the memory of the same buffers. Callers pass bytes, a memoryview, an array or a
numpy array in both cases, and see no difference but speed. Numba is imported only to compile what
no process has compiled before.

Not here: how Numba compiles (`compiling`), how machine code is called (`machine`), and where it is
kept (`caching`).

Invariants:

* Each kernel has exactly one signature.
* No helper copies bytes under a condition, but the kernel itself may: Numba would count references
  to the helper's buffers at each call, which takes longer than the copying.
* No kernel allocates memory or raises: its machine code has to run without Numba. Only Python does
  so, when it makes the objects of `put_bytes` and `put_tuple`.
* Integers stay inside int64, and nothing mixes int64 with uint64: Numba would make a float of it.
"""

import threading
from array import array
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

Untyped: TypeAlias = Any
"""A buffer, a list, an object, or an integer."""

PlainFunction = Callable[..., Any]
Helper = TypeVar("Helper", bound=PlainFunction)

WORTH_LOADING_RECORDS: Final = 500_000
"""Records in plain code that cost what loading costs; see `worth_loading`."""

_NO_BUFFERS: Final = ("int64", "list", "object")

_RECORD_SIZE_MIN: Final = 7
"""Bounds the records that a call can have walked, whatever its count claims."""

_loading = threading.Lock()
_kernels: "list[Kernel]" = []
_helpers: set[PlainFunction] = set()


class _Account:
    """Counter of the records that plain code has walked in this process."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records = 0


_plain = _Account()


class Kernel:
    """A callable that runs `plain` until it is switched to compiled code."""

    __slots__ = ("_buffers", "_count_index", "is_compiled", "parameters", "plain", "run")

    def __init__(self, plain: PlainFunction, parameters: tuple[str, ...]) -> None:
        names = plain.__code__.co_varnames[: plain.__code__.co_argcount]
        assert len(names) == len(parameters), f"{plain.__name__} takes {names}"
        self.plain = plain
        self.parameters = parameters
        """Type of each argument: bytes, key, int64, int64[:], int32[:], uint8[:], list, object."""
        self.is_compiled = False
        """Whether calls run machine code."""
        self._buffers = tuple(i for i, kind in enumerate(parameters) if kind not in _NO_BUFFERS)
        self._count_index = names.index("count")
        self.run: Callable[..., int] = self.run_plain
        """The code that calls run at present."""

    def __call__(self, *arguments: object) -> int:
        """Call the function with these buffers and integers."""
        return self.run(*arguments)

    def run_plain(self, *arguments: Untyped) -> int:
        """Runs the function as plain Python, even if it is compiled."""
        values = list(arguments)
        for index in self._buffers:
            values[index] = memoryview(values[index])
        if self.parameters[0] == "bytes":
            claimed = values[self._count_index]
            # The count may be a lie; the bytes at hand bound how many records were walked.
            _plain.records += max(0, min(claimed, values[0].nbytes // _RECORD_SIZE_MIN))
        result: int = self.plain(*values)
        return result

    def switch_to(self, compiled: Callable[..., int]) -> None:
        """Let calls from now on run this machine code, as `machine.open_object` gives it."""
        self.run = compiled
        self.is_compiled = True


def kernel(*parameters: str) -> Callable[[PlainFunction], Kernel]:
    """Decorator: registers a function as a kernel of the one signature `parameters`.

    Each of `parameters` is "bytes" (read-only), "int64", "int64[:]", "int32[:]" or "uint8[:]". With
    "key", read-only bytes of a single key or another field of a record, the call is so short that
    it keeps the interpreter's lock: to give it away and wait for another thread would take many
    times as long. With "list" and "object" it keeps the lock too: machine code sees the items of a
    list, and an object, as their addresses, and only hands them on (`put_bytes`, `put_tuple`). One
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


def put_bytes(target: Untyped, index: int, source: Untyped, position: int, size: int) -> int:
    """Puts `size` bytes of a buffer into a list, as an object; 1, or 0 if there is no memory.

    The kernel has checked the place in both.
    """
    target[index] = bytes(source[position : position + size])
    return 1


def put_tuple(
    target: Untyped,
    index: int,
    kind: Untyped,
    is_tracked: int,  # noqa: ARG001 - plain code cannot make a tuple that is not tracked
    *items: Untyped,
) -> int:
    """Puts a tuple of nine items of lists into a list; 1, or 0 if there is no memory.

    `kind` is a subclass of `tuple` that adds no fields. The garbage collector does not look at the
    tuple if `is_tracked` is 0. The kernel has checked the place.
    """
    target[index] = tuple.__new__(kind, items)
    return 1


PLAIN_BLOCK: Final = 32
"""Bytes that `count_plain` looks at."""


def count_plain(data: Untyped, at: int, first: int, second: int) -> int:
    """Count the bytes before the first one that is not plain, in the `PLAIN_BLOCK` bytes at `at`.

    Plain bytes are the printable characters of ASCII except `first` and `second`. Kernels call this
    after they have checked that there are `PLAIN_BLOCK` bytes.
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
    """Let these kernels run machine code from the cache, or compiled now, which imports Numba.

    Without arguments: all kernels of the modules that have been imported by now. With a warm cache
    it takes 0.1 seconds and 40 MB, else two seconds, half a second more for each kernel, and 120 to
    185 MB; call it in a thread where that matters. Calls already under way finish in plain code.
    Returns at once if nothing is left to do. In an interpreter without a lock, kernels that keep it
    stay plain code.

    Raises:
        ImportError: numba is not installed.
    """
    with _loading:
        waiting = [each for each in registered(*wanted) if not each.is_compiled]
        if not waiting:
            return
        from tailrace.kernels.caching import open_cache, read_code, write_code
        from tailrace.kernels.machine import open_object, refused_kinds

        folder, refused = open_cache(), refused_kinds()
        for each in waiting:
            if not refused.isdisjoint(each.parameters):
                continue
            name = each.plain.__name__
            code = None if folder is None else read_code(folder, name)
            if code is None:
                from tailrace.kernels.compiling import compile_function

                code = compile_function(each.plain, each.parameters)
                if folder is not None:
                    write_code(folder, name, code)
            each.switch_to(open_object(code, name=name))


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
    best possible. Plain code walks 0.6 million records per second, so half a million take 0.8
    seconds. That is between the two prices of `load()`, 0.1 seconds of CPU with a warm cache and 4
    with none, and leaves a small broker without the 40 MB that are never given back.
    """
    return _plain.records >= WORTH_LOADING_RECORDS and not is_loaded(*wanted)


def int64s(count: int) -> "array[int]":
    """A zeroed int64 buffer of `count` places, for a kernel's output."""
    return array("q", bytes(8 * count))
