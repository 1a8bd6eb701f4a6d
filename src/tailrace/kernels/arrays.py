"""Types of numpy arrays by the type of their elements, as kernels take and fill them.

For type checkers only: the names stand for text at run time, so this does not import numpy.
"""

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
