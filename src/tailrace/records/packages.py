"""The compiled packages `crc32c` and `cramjam`, each imported when it is first used.

`crc32c` reads its own metadata when it is imported, which takes as long as all of asyncio and 25
modules; `cramjam` is 4 MB of machine code. A broker without records has no use for either (decision
24). Write `packages.crc32c.crc32c(data)`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cramjam
    import crc32c

__all__ = ["cramjam", "crc32c"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # From now on the name is found before this function is asked.
    package = globals()[name] = import_module(name)
    return package
