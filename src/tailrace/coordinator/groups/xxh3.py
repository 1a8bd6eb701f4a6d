"""XXH3-64 with seed 0, for inputs of at least four bytes.

A group is hashed by it once for each change of its topics. Inputs over 240 bytes are the hash of a
topic with many partitions; NumPy sums their stripes a block at a time.
"""

from struct import Struct
from typing import Final

import numpy as np

_MASK: Final = 2**64 - 1
_PRIME32_1: Final = 0x9E3779B1
_PRIME32_2: Final = 0x85EBCA77
_PRIME32_3: Final = 0xC2B2AE3D
_PRIME64_1: Final = 0x9E3779B185EBCA87
_PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME64_3: Final = 0x165667B19E3779F9
_PRIME64_4: Final = 0x85EBCA77C2B2AE63
_PRIME64_5: Final = 0x27D4EB2F165667C5
_PRIME_MX1: Final = 0x165667919E3779F9
_PRIME_MX2: Final = 0x9FB21C651E98DF25

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_U32: Final = Struct("<I")
_U64: Final = Struct("<Q")
_STRIPE: Final = 64
_BLOCK_STRIPES: Final = (len(_SECRET) - _STRIPE) // 8
_BLOCK: Final = _STRIPE * _BLOCK_STRIPES
_LANES: Final = np.dtype("<u8")


def xxh3_64(data: bytes) -> int:
    """The hash, as an unsigned number of 64 bits; `data` has at least four bytes.

    Example:
        >>> hex(xxh3_64(b"tailrace"))
        '0xa4cae4cb9cf477d9'
    """
    size = len(data)
    assert size >= 4
    if size <= 8:
        return _hash_4_to_8(data)
    if size <= 16:
        return _hash_9_to_16(data)
    if size <= 128:
        return _hash_17_to_128(data)
    if size <= 240:
        return _hash_129_to_240(data)
    return _hash_long(data)


def _u64(data: bytes, position: int) -> int:
    value: int = _U64.unpack_from(data, position)[0]
    return value


def _fold(left: int, right: int) -> int:
    """The product of two numbers of 64 bits, its upper half folded into its lower."""
    product = left * right
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ value >> 32


def _hash_4_to_8(data: bytes) -> int:
    first: int = _U32.unpack_from(data)[0]
    last: int = _U32.unpack_from(data, len(data) - 4)[0]
    value = (last + (first << 32)) ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
    value ^= (value << 49 | value >> 15) & _MASK ^ (value << 24 | value >> 40) & _MASK
    value = value * _PRIME_MX2 & _MASK
    value ^= (value >> 35) + len(data)
    value = value * _PRIME_MX2 & _MASK
    return value ^ value >> 28


def _hash_9_to_16(data: bytes) -> int:
    low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
    high = _u64(data, len(data) - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche((len(data) + swapped + high + _fold(low, high)) & _MASK)


def _mix(data: bytes, position: int, secret: int) -> int:
    return _fold(
        _u64(data, position) ^ _u64(_SECRET, secret),
        _u64(data, position + 8) ^ _u64(_SECRET, secret + 8),
    )


def _hash_17_to_128(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME64_1
    for index in range((size - 1) // 32 + 1):
        value += _mix(data, 16 * index, 32 * index)
        value += _mix(data, size - 16 * (index + 1), 32 * index + 16)
    return _avalanche(value & _MASK)


def _hash_129_to_240(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME64_1
    value += sum(_mix(data, 16 * index, 16 * index) for index in range(8))
    value = _avalanche(value & _MASK)
    value += sum(_mix(data, 16 * index, 16 * (index - 8) + 3) for index in range(8, size // 16))
    value += _mix(data, size - 16, 136 - 17)
    return _avalanche(value & _MASK)


def _hash_long(data: bytes) -> int:
    lanes = [
        _PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3,
        _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1,
    ]  # fmt: skip
    size = len(data)
    scramble = np.frombuffer(_SECRET, _LANES, 8, len(_SECRET) - _STRIPE).tolist()
    block_count = (size - 1) // _BLOCK
    for block in range(block_count):
        lanes = _accumulated(lanes, data, (block * _BLOCK, _BLOCK_STRIPES))
        lanes = [
            (lane ^ lane >> 47 ^ secret) * _PRIME32_1 & _MASK
            for lane, secret in zip(lanes, scramble, strict=True)
        ]
    position = block_count * _BLOCK
    lanes = _accumulated(lanes, data, (position, (size - 1 - position) // _STRIPE))
    lanes = _accumulated(lanes, data, (size - _STRIPE, 1), secret=len(_SECRET) - _STRIPE - 7)
    value = size * _PRIME64_1
    for index in range(0, 8, 2):
        value += _fold(
            lanes[index] ^ _u64(_SECRET, 11 + 8 * index),
            lanes[index + 1] ^ _u64(_SECRET, 19 + 8 * index),
        )
    return _avalanche(value & _MASK)


def _accumulated(
    lanes: list[int], data: bytes, stripes: tuple[int, int], *, secret: int = 0
) -> list[int]:
    """The lanes with some stripes of the data added; the secret moves 8 bytes with each stripe."""
    position, count = stripes
    if not count:
        return lanes
    values = np.frombuffer(data, _LANES, 8 * count, position).reshape(count, 8)
    words = np.frombuffer(_SECRET, _LANES, count + 7, secret)
    keyed = values ^ np.lib.stride_tricks.sliding_window_view(words, 8)
    products = (keyed & 0xFFFF_FFFF) * (keyed >> np.uint64(32))
    swapped = values.reshape(count, 4, 2)[:, :, ::-1].reshape(count, 8)
    sums = (products + swapped).sum(axis=0, dtype=np.uint64).tolist()
    return [(lane + each) & _MASK for lane, each in zip(lanes, sums, strict=True)]
