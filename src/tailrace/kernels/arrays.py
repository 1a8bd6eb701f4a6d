"""Buffers of numbers that kernels take and fill, and types of numpy arrays by their elements.

The types stand for text at run time, so this does not import numpy.
"""

from array import array
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

AnyArray: TypeAlias = "np.ndarray[Any, Any]"
"""An array whose elements have any type, such as one that a caller gave."""

Bools: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

Int32s: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"

Int64s: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

UInt8s: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

UInt64s: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


def int64s(count: int) -> "array[int]":
    """A zeroed int64 buffer of `count` places, for a kernel's output."""
    # An `array`, because commands and brokers that make no columns do not import numpy.
    return array("q", bytes(8 * count))
