"""Tests of the calls of PySpark's daemon that change in a worker with this package."""

import gc
import sys
import traceback
import weakref
from types import ModuleType

import pytest
from pyspark import daemon

from tailrace.spark.daemon import CALLS_MAX, adapt_daemon


def print_in_daemon(error: Exception) -> None:
    """Print an error that ends a worker, as the daemon does."""
    try:
        raise error
    except type(error):
        daemon.traceback.print_exc()


@pytest.fixture
def adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon as it is in a worker that has imported this package; itself again afterwards."""
    for module in (gc, traceback):
        monkeypatch.setattr(daemon, module.__name__, module)
    adapt_daemon(daemon)


@pytest.mark.usefixtures("adapted")
@pytest.mark.parametrize("error", [BrokenPipeError(32, "x"), ConnectionResetError(104, "x")])
def test_a_socket_that_spark_has_closed_is_not_reported(
    error: OSError, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed for a unix socket or a TCP one."""
    print_in_daemon(error)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("adapted")
@pytest.mark.parametrize(
    "error", [OSError(28, "no space"), ValueError("no space"), EOFError("no space")]
)
def test_other_errors_of_a_worker_keep_their_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon prints them as without this package."""
    print_in_daemon(error)
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback")
    assert "no space" in printed


@pytest.mark.usefixtures("adapted")
def test_tracebacks_of_other_code_in_a_worker_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A function of the user that prints a lost connection of its own still does."""
    try:
        raise BrokenPipeError(32, "x")
    except BrokenPipeError:
        traceback.print_exc()
    assert "BrokenPipeError" in capsys.readouterr().err


class Model:
    """A value that a function keeps between two calls; only a collection can free it."""

    def __init__(self, size: int) -> None:
        self.weights = b"x" * size
        self.itself = self


@pytest.mark.usefixtures("adapted")
@pytest.mark.parametrize(
    ("size", "kept_max"), [(20_000_000, 3), (100, CALLS_MAX + 1)], ids=["large", "small"]
)
def test_what_a_function_of_the_user_replaces_is_freed(
    size: int, kept_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large model after a few calls, a small one later, also where each call imports a module."""
    models: list[weakref.ref[Model]] = []
    gc.disable()  # Only the calls of the daemon count.
    try:
        for call in range(50):
            model = Model(size)  # The name keeps one alive: the newest.
            models.append(weakref.ref(model))
            monkeypatch.setitem(sys.modules, f"added{call}", ModuleType("added"))
            daemon.gc.collect()
            assert sum(each() is not None for each in models) <= kept_max
    finally:
        gc.enable()


@pytest.mark.usefixtures("adapted")
def test_old_objects_are_looked_at_in_few_calls() -> None:
    """A call collects its own garbage, and looks at modules only now and then."""
    found: list[int] = []
    gc.callbacks.append(lambda phase, about: found.append(about["generation"] * (phase == "start")))
    try:
        for _ in range(2 * CALLS_MAX):
            daemon.gc.collect()
            cycle: list[object] = []
            cycle.append(cycle)
            del cycle
            assert daemon.gc.collect() >= 1
    finally:
        gc.callbacks.pop()
    assert found.count(2) <= 10  # Behind calls 1, 2, 4, 8, 16, then every 20th.


def test_programs_other_than_the_daemon_stay_as_they_are() -> None:
    """The module of a program keeps what it imported as `gc` and as `traceback`."""
    this = sys.modules[__name__]
    adapt_daemon(this)
    assert this.gc is gc
    assert this.traceback is traceback
