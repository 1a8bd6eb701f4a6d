"""Sizes of all tests: inputs of a fuzz target, examples of a property, rounds of kills.

It also distributes tests over processes, and says at the end of a run which it has left to other
targets of the Makefile.
"""

import gc
import inspect
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tailrace.testing import Outside, virtual_runtime
from tests.spark.classes import ARCHIVE, HOME, JVM_OPTIONS, archive_options, make_home
from tests.steps import Steps, every, spread

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

SPARK = ("tests/spark/", "tests/unit/demo/test_pipeline.py")
"""Tests that share the Spark session of a process."""

OWN_JVMS = ("test_install", "test_notebook", "test_worker_python")
"""Files among them whose tests use no session, and start JVMs."""

KILLS = "tests/kills/"
"""Tests that share the drivers of a process, which are processes of their own."""

WAITING = ("spark", "kills", "tests/spark/", "tests/wire/", "tests/chaos/", "tests/smoke/")
"""Beginnings of units that wait for sockets, processes and JVMs more than they compute."""

ELSEWHERE = {
    "tests/devices": "make devices",
    "tests/kerberos": "make kerberos",
    "tests/test_docs.py": "make check",
    "tests/test_tidy.py": "make check",
}
"""The targets of what `make test` ignores."""

LEFT = pytest.StashKey[dict[str, int]]()
"""Counts of tests by the target that a run leaves them to."""

# A property that is wrong is most often wrong at once: 20 examples find nearly all that 400 find.
# `slow` is for the rooms whose states are many: kernels, properties of the log, simulations.
for profile, count in (("default", 20), ("full", 400), ("slow", 10_000)):
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
    """Gives a process whole files, the next one when it has no other left.

    Not single tests, as `--dist=worksteal` does: brokers, clusters and folders of a file are made
    once for each process that has a test of it. One process has all that use the Spark session,
    since a JVM takes long to start and to become quick, and one has all kills. The first process
    has the tests that wait, and the others compute beside it until there is nothing else left.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(KILLS):
            return "kills"
        file = str(super()._split_scope(nodeid))
        return "spark" if file.startswith(SPARK) and Path(file).stem not in OWN_JVMS else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is not self.nodes[0]:
            computing = (unit for unit in self.workqueue if not unit.startswith(WAITING))
            if (unit := next(computing, None)) is not None:
                self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesAndSpark:
    """The scheduler of every run in several processes."""
    return FilesAndSpark(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, so that no process is alone with one at the end.

    Spark's session has the longest, then come the tests that wait for sockets and processes; the
    files of `tests/unit` take a second or less, and fill what is left.
    """

    def rank(item: pytest.Item) -> int:
        if item.get_closest_marker("spark") is not None:
            return 0
        if item.get_closest_marker("wire") is not None:
            return 1
        return 3 if item.nodeid.startswith("tests/unit/") else 2

    items.sort(key=rank)


def target_of(item: pytest.Item) -> str:
    """The target of the Makefile that runs a test."""
    for mark, target in (("slow", "make slow"), ("spark", "make test-spark")):
        if item.get_closest_marker(mark) is not None:
            return target
    return "make test"


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count by target what `-m` has left out, unless tests were chosen by name."""
    if not items or items[0].config.getoption("keyword"):
        return
    config = items[0].config
    if "not slow" in config.getoption("markexpr"):
        config.stash[LEFT] = dict(Counter(map(target_of, items)))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Have a process of pytest-xdist tell the first one what it left out: all leave the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Take what a process of pytest-xdist has left out; one that died tells nothing."""
    if left := getattr(node, "workeroutput", {}).get("left"):
        node.config.stash[LEFT] = left


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left to which target, so that nobody takes a green run for all there is."""
    left = config.stash.get(LEFT, {})
    lines = [f"{count} tests to `{target}`" for target, count in sorted(left.items())]
    ignored = config.getoption("ignore") or ()
    lines += [f"{each} to `{ELSEWHERE[each]}`" for each in ignored if each in ELSEWHERE]
    if lines:
        terminalreporter.write_line(f"left: {', '.join(lines)}")


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
def hears_hangups() -> Iterator[None]:
    """SIGHUP has its effect on what the test starts, also in a run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


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
