"""The partition of a coordinator's topic that a key belongs to, by Kafka's own function."""

from tailrace.protocol.java_strings import java_hash

_SIGN = 0x8000_0000


def partition_of(key: str, partition_count: int) -> int:
    """The partition of a group id or transactional id; `partition_count` is at least 1.

    The absolute value of the hash, with 0 for -2^31, whose absolute value is no int32.

    Example:
        >>> partition_of("polygenelubricants", 50)
        0
    """
    value = java_hash(key)
    return 0 if value == -_SIGN else abs(value) % partition_count
