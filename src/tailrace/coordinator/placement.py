"""The partition of a coordinator's topic that a key belongs to, by Kafka's own function."""

from functools import lru_cache

_UNSIGNED = 0xFFFF_FFFF
_SIGN = 0x8000_0000


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """`String.hashCode` of Java: 31 times the hash so far plus each UTF-16 unit, as an int32.

    Example:
        >>> java_hash("g1")
        3242
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = 31 * value + (high << 8 | low) & _UNSIGNED
    return value - (value & _SIGN) * 2


def partition_of(key: str, partition_count: int) -> int:
    """The partition of a group id or transactional id; `partition_count` is at least 1.

    The absolute value of the hash, with 0 for -2^31, whose absolute value is no int32.

    Example:
        >>> partition_of("polygenelubricants", 50)
        0
    """
    value = java_hash(key)
    return 0 if value == -_SIGN else abs(value) % partition_count
