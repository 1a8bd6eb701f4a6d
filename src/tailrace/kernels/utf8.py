# cython: boundscheck=False
"""UTF-8 inside of kernels."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.kernels.memory import Ints


def read_utf8(data: "Ints", at: int, limit: int) -> tuple[int, int]:
    """Size and code of the character at `at`, whose first byte is 128 or more; size 0 if invalid.

    As strict as Python: no overlong forms, no surrogates, nothing above U+10FFFF.
    """
    first = data[at]
    # 0xC0 and 0xC1 only begin overlong forms, those from 0xF5 on are above U+10FFFF, and 0x80 to
    # 0xBF continue a character.
    if first < 0xC2 or first > 0xF4:
        return 0, 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    # Before the loop, which reads at the address.
    if size > limit - at:
        return 0, 0
    # The first byte begins with as many ones as there are bytes, and a zero.
    code = first & (0x7F >> size)
    for place in range(at + 1, at + size):
        if data[place] & 0xC0 != 0x80:
            return 0, 0
        code = code << 6 | data[place] & 0x3F
    # Overlong, or half of a pair of UTF-16.
    if size == 3 and (code < 0x800 or 0xD800 <= code < 0xE000):
        return 0, 0
    if size == 4 and (code < 0x10000 or code > 0x10FFFF):
        return 0, 0
    return size, code


def is_utf8(data: "Ints", at: int, limit: int) -> bool:
    """Whether `data[at:limit]` is text."""
    while at < limit:
        size = 1
        if data[at] >= 128:
            size, _ = read_utf8(data, at, limit)
            if size == 0:
                return False
        at += size
    return True
