"""Java's hash and order of strings, where Kafka's results depend on them.

A group belongs to a partition by `String.hashCode`, and Kafka's assignors go through hash maps: to
assign the same partitions as they do, members have to be taken in the same order.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

_UNSIGNED = 0xFFFF_FFFF
_SIGN = 0x8000_0000
_TABLE_SIZE_MIN = 16
_LOAD = 0.75
"""A `HashMap` has at most this number of entries for each place in its table."""


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """`String.hashCode` of Java: 31 times the hash so far plus each UTF-16 unit, as an int32.

    Example:
        >>> java_hash("g1")
        3242
    """
    value = 0
    # A Java string may have half a surrogate pair, and its hash counts 16-bit units and not
    # characters.
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = 31 * value + (high << 8 | low) & _UNSIGNED
    return value - (value & _SIGN) * 2


def java_order(text: str) -> bytes:
    """Sort key for `String.compareTo` of Java, which compares UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_table_place(hashed: int, entry_count: int) -> int:
    """Index of a hash in the table of a `HashMap` that has had this number of entries."""
    size = _TABLE_SIZE_MIN
    # `HashMap` doubles when it is fuller than three quarters.
    while entry_count > size * _LOAD:
        size *= 2
    unsigned = hashed & _UNSIGNED
    # `HashMap.hash` mixes the upper half in, since small tables look at the lowest bits alone.
    return (unsigned ^ unsigned >> 16) & (size - 1)


def hash_map_order(items: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """The items in the order in which Java's `HashMap` would go through them.

    Items at one place of the table stay in the order in which they were put in.
    """
    given = list(items)
    return sorted(given, key=lambda item: hash_table_place(hash_of(item), len(given)))
