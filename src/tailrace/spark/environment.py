"""Check what Spark needs of this machine: a supported PySpark, and a Python for its workers.

Spark starts its Python workers as `python3` from PATH unless PYSPARK_PYTHON says otherwise. For a
program that was started as `/path/venv/bin/python program.py` that is another Python, which has
neither this package nor PyArrow.

Not here: Java (`java`), and the settings of a session (`session`).

Invariant: a Python that the user has chosen, by PYSPARK_PYTHON or `spark.pyspark.python`, is kept.
"""

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Final

from tailrace.errors import FatalError

if TYPE_CHECKING:
    from pyspark import SparkContext

PYSPARK_OLDEST: Final = (4, 0)
"""The first version with data sources in Python."""

PYSPARK_NEWEST: Final = (4, 3)
"""The newest version that the tests run with."""

PYSPARK_RANGE: Final = "4.0 to 4.3"
"""From the oldest to the newest, as the messages and the documentation say it."""

_INSTALL: Final = "pip install 'pyspark>=4.0,<4.4'"

PROBE_SECONDS_MAX: Final = 30
"""A Python that has not imported the package by then counts as one that cannot."""


def check_pyspark() -> None:
    """Raise if there is no PySpark, or one without data sources in Python.

    Warns of a version that is newer than `PYSPARK_NEWEST`, once in a process.

    Raises:
        FatalError: the message says which version is there and what to install.
    """
    try:
        from pyspark import __version__ as version
    except ImportError as error:
        raise FatalError("PySpark is not installed. Run: pip install 'tailrace[spark]'") from error
    check_pyspark_version(version)


def check_pyspark_version(version: str) -> None:
    """Raise if a version of PySpark has no data sources in Python; warn if it is not tested.

    Raises:
        FatalError: it is older than 4.0.
    """
    given = tuple(int(number) for number in version.split(".")[:2])
    if given < PYSPARK_OLDEST:
        raise FatalError(
            f"tailrace needs PySpark {PYSPARK_RANGE}, and this is PySpark {version}. "
            f"Run: {_INSTALL}"
        )
    if given > PYSPARK_NEWEST:
        warnings.warn(
            f"tailrace is tested with PySpark {PYSPARK_RANGE}, and this is PySpark {version}, "
            f"which may work. If it does not, run: {_INSTALL}",
            stacklevel=2,
        )


def use_this_python(context: "SparkContext") -> None:
    """Have the workers of a running local session be this Python, unless the user chose another.

    It holds for all functions and data sources that the session gets from now on.

    Raises:
        FatalError: the Python that the user chose cannot import this package.
    """
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if not chosen or chosen == sys.executable:
        context.pythonExec = sys.executable
    elif not can_import_package(chosen):
        raise FatalError(
            f"Spark starts its Python workers with {chosen}, which cannot import tailrace; "
            f"set PYSPARK_PYTHON={sys.executable} before the session starts"
        )


def is_local(master: str) -> bool:
    """Whether a master runs all tasks in the process of the driver's JVM."""
    return master == "local" or master.startswith("local[")


def can_import_package(python: str) -> bool:
    """Whether a Python has this package and PyArrow."""
    try:
        # The user's own Python, without a shell.
        answer = subprocess.run(  # noqa: S603
            [python, "-c", "import pyarrow, tailrace.kernels"],
            capture_output=True,
            check=False,
            timeout=PROBE_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0
