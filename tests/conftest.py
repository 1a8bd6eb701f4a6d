"""Sizes of all tests: inputs of a fuzz target, examples of a property, rounds of kills.

It also distributes the tests of `make test` over processes: by file, but all tests that use a Spark
session run in one process, since a JVM takes long to start and to become quick.
"""

import gc
import inspect
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tailrace.testing import Outside, virtual_runtime
from tests.spark.classes import ARCHIVE, HOME, JVM_OPTIONS, archive_options, make_home
from tests.steps import Steps, every, spread

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

SPARK = ("tests/spark/", "tests/unit/demo/test_pipeline.py")
"""Tests that share the Spark session of a process."""

KILLS = "tests/kills/"
"""Tests that share the drivers of a process, which are processes of their own."""

for profile, count in (("default", 40), ("full", 100), ("slow", 10_000)):
    settings.register_profile(
        profile, max_examples=count, deadline=None, suppress_health_check=QUIET
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fuzz-inputs`, `--kills`, `--kafka` and `--every`."""
    parser.addoption(
        "--fuzz-inputs", type=int, default=50, help="mutated inputs for each fuzz target"
    )
    parser.addoption(
        "--every", action="store_true", help="try every step of an enumeration, not only some"
    )
    parser.addoption("--kills", type=int, default=3, help="kills of each of the jobs on Spark")
    parser.addoption(
        "--kafka",
        default="",
        help="version of Apache Kafka that killed streams write to, exactly once, not to ours",
    )


class FilesAndSpark(LoadFileScheduling):  # type: ignore[misc]
    """Gives a process whole files; one process has all of `SPARK`, and one all of `KILLS`."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(KILLS):
            return "kills"
        return "spark" if nodeid.startswith(SPARK) else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesAndSpark:
    """The scheduler of every run in several processes."""
    return FilesAndSpark(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests on Spark first: they take longest, and the others fill the rest of the time."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


def stale_modules() -> list[str]:
    """Compiled modules of the checkout that are older than their sources."""
    stale = []
    for types in Path(__file__).parents[1].glob("src/**/*.pxd"):
        built = types.with_name(types.stem + EXTENSION_SUFFIXES[0])
        changed = max(each.stat().st_mtime for each in (types, types.with_suffix(".py")))
        if not built.exists() or built.stat().st_mtime < changed:
            stale.append(types.stem)
    return stale


def pytest_configure(config: pytest.Config) -> None:
    """Set what all processes below inherit: options of JVMs, unless the caller has set others.

    A shell has Ctrl-C ignored in what it runs in the background, and all processes below inherit
    that; tests that press Ctrl-C would wait for ever.
    """
    if stale := stale_modules():
        raise pytest.UsageError(
            f"compiled before their sources changed: {', '.join(stale)}; run `make setup`"
        )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)
    if find_spec("pyspark") is None or "SPARK_HOME" in os.environ:
        return
    home = HOME
    if ARCHIVE.exists():
        os.environ.setdefault("SPARK_SUBMIT_OPTS", archive_options())
    else:
        home = Path(tempfile.mkdtemp(prefix="tailrace-spark-home-"))
        config.add_cleanup(lambda: shutil.rmtree(home))
        make_home(home)
    os.environ["SPARK_HOME"] = str(home)


def pytest_collection() -> None:
    """Search for no garbage while modules are imported; they leave little, and it takes long."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep what is imported out of later searches for garbage, so that these come in time.

    A test leaves hundreds of megabytes of disks in memory, which only such a search finds. It takes
    ten times as long when what was frozen is not any more, so no test calls `gc.unfreeze`.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def steps(request: pytest.FixtureRequest) -> Steps:
    """Chooses what a test tries of an enumeration: all with `--every`, else some of it."""
    return every if request.config.getoption("--every") else spread


@pytest.fixture
def outside() -> Iterator[Outside]:
    """Doubles for every seam, and the loop on which an `async def` test runs."""
    with virtual_runtime() as found:
        yield found


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on the virtual time of its fixture `outside`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    cast("Outside", pyfuncitem.funcargs["outside"]).run(test)
    return True
