"""Buffers whose surroundings are watched: nothing may be written, or read, beside them."""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, Literal, NamedTuple

PAGE = mmap.PAGESIZE
NO_ACCESS = 0
CANARY = b"\xa5"
MARGIN = 64
"""Bytes on each side of a buffer that must stay as they are."""

Code = Literal["B", "i", "q"]
ITEM_SIZES = {"B": 1, "i": 4, "q": 8}

_libc = ctypes.CDLL(None, use_errno=True)


def walled(data: bytes, *, is_at_end: bool) -> memoryview:
    """A copy of the data right before a page that no process may touch, or right behind one.

    Who reads one byte beside it, on that side, ends with a segmentation fault.
    """
    pages = -(-max(len(data), 1) // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for wall in (address, address + (pages + 1) * PAGE):
        assert _libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(PAGE), NO_ACCESS) == 0
    start = (pages + 1) * PAGE - len(data) if is_at_end else PAGE
    view = memoryview(memory)[start : start + len(data)]
    view[:] = data
    return view


class Output(NamedTuple):
    """A buffer that a kernel writes to: its items, and their type as the module `struct` has it."""

    code: Code
    items: Sequence[int]


class Guarded:
    """A buffer of some bytes or integers, with canaries before and behind it."""

    def __init__(self, code: Code, items: Sequence[int]) -> None:
        size = len(items) * ITEM_SIZES[code]
        self.memory = bytearray(CANARY * MARGIN + bytes(size) + CANARY * MARGIN)
        self.view = memoryview(self.memory)[MARGIN : MARGIN + size].cast(code)
        for place, item in enumerate(items):
            self.view[place] = item

    def content(self) -> list[int]:
        """The items of the buffer, once the canaries have been looked at."""
        assert self.memory[:MARGIN] == CANARY * MARGIN
        assert self.memory[-MARGIN:] == CANARY * MARGIN
        items: list[int] = self.view.tolist()
        return items


def attempt(run: Callable[..., Any], arguments: Sequence[Any]) -> tuple[object, list[list[Any]]]:
    """The result of a kernel, or the name of what it raises, and what it has written.

    Each `Output` is given to it as a guarded buffer, each bytes object right before a wall.
    """
    arguments = [list(each) if type(each) is list else each for each in arguments]
    outputs = list(starmap(Guarded, (each for each in arguments if isinstance(each, Output))))
    left = iter(outputs)
    given = [
        next(left).view
        if isinstance(each, Output)
        else walled(each, is_at_end=True)
        if isinstance(each, bytes)
        else each
        for each in arguments
    ]
    try:
        status = run(*given)
    except (IndexError, ValueError) as error:
        status = type(error).__name__
    lists = [each for each in arguments if type(each) is list]
    return status, [*lists, *(each.content() for each in outputs)]
