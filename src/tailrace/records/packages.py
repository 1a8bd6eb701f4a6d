"""The compiled packages `crc32c` and `cramjam`, each loaded when it is first used.

`crc32c` reads its own metadata when it is imported, which takes as long as all of asyncio and 25
modules. A broker needs one of its functions at its start (decision 24), so the extension inside of
the package is loaded alone where it is found, and the package otherwise. `cramjam` is 4 MB of
machine code. Write `packages.crc32c.crc32c(data)`.
"""

import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import module_from_spec
from os.path import exists
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cramjam
    import crc32c

__all__ = ["cramjam", "crc32c"]

_EXTENSION = "crc32c._crc32c"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # From now on the name is found before this function is asked.
    package = globals()[name] = (name == "crc32c" and _extension()) or import_module(name)
    return package


def _extension() -> ModuleType | None:
    """The extension module of the package `crc32c`, without the package; None if it is not there.

    It gets its full name, so that the package finds it where something else imports that later.
    """
    if _EXTENSION in sys.modules:
        return sys.modules[_EXTENSION]
    package, _, name = _EXTENSION.partition(".")
    found = PathFinder.find_spec(package)
    for folder in (found and found.submodule_search_locations) or ():
        for path in (f"{folder}/{name}{suffix}" for suffix in EXTENSION_SUFFIXES):
            if exists(path):
                loader = ExtensionFileLoader(_EXTENSION, path)
                module = module_from_spec(ModuleSpec(_EXTENSION, loader, origin=path))
                loader.exec_module(module)
                sys.modules[_EXTENSION] = module
                return module
    return None
