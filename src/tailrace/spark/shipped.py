"""The module `tailrace` of the archive that `install` ships: it unpacks the package and imports it.

Python loads no compiled module from an archive. So the first process that imports this one unpacks
the archive beside itself, into Spark's directory for the files of the application, which goes away
with it; the others find it there.

Invariant: no process imports a package of which a part is missing.
"""

import os
import shutil
import sys
import tempfile
import zipfile
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

PACKAGES: Final = "packages"
"""The directory of the archive that has the package."""


def unpack(archive: str) -> str:
    """Unpack a `.zip` beside itself, unless that was done before; returns where the package is.

    Raises:
        ImportError: its compiled modules are not for this Python or this machine.
        OSError: the archive cannot be read or its directory not be written.
    """
    directory = archive.removesuffix(".zip")
    if not os.path.isdir(directory):
        with zipfile.ZipFile(archive) as packed:
            if not any(name.endswith(EXTENSION_SUFFIXES[0]) for name in packed.namelist()):
                raise ImportError(
                    f"install() has shipped a tailrace that is not compiled for this Python, which "
                    f"needs modules named *{EXTENSION_SUFFIXES[0]}; install tailrace[spark] in the "
                    "Python of the executors and call install() no more"
                )
            # Beside the archive, so that the rename stays on one device and is atomic.
            made = tempfile.mkdtemp(dir=os.path.dirname(archive))
            packed.extractall(made)
        try:
            os.rename(made, directory)
        except OSError:
            shutil.rmtree(made)
            if not os.path.isdir(directory):
                raise
            # Another process was done first.
    return os.path.join(directory, PACKAGES)


if __name__ == "tailrace":
    sys.path.insert(0, unpack(os.path.dirname(os.path.dirname(__file__))))
    # This module stands for the package only until that can be imported.
    del sys.modules[__name__]
    import_module(__name__)
