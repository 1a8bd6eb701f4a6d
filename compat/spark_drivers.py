"""`spark_drivers`: drivers of Spark for checks that kill them, with a home of their own."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kills.drivers import Drivers
from tests.spark.classes import JVM_OPTIONS, make_home


@contextmanager
def spark_drivers() -> Iterator[tuple[Drivers, Path]]:
    """Drivers of Spark, and a folder for what their queries write; both are gone at the end."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_home(folder / "spark")
        os.environ["SPARK_HOME"] = str(folder / "spark")
        os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)
        drivers = Drivers(folder / "drivers")
        try:
            yield drivers, folder
        finally:
            drivers.close()
            # Later checks start a Spark too, and this home is removed.
            os.environ.clear()
            os.environ.update(before)
