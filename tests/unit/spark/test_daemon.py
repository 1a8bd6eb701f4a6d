"""Tests of the calls of PySpark's daemon that change in a worker with this package."""

import gc
import sys
import traceback
from types import ModuleType

import pytest
from pyspark import daemon

from tailrace.spark.daemon import _freeze, adapt_daemon


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
    _freeze.cache_clear()


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


@pytest.mark.usefixtures("adapted")
def test_modules_are_left_out_of_later_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live objects are frozen when modules were added, and stay collectable otherwise."""
    daemon.gc.collect()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    alive = [[number] for number in range(1000)]
    daemon.gc.collect()
    assert gc.get_freeze_count() <= frozen
    monkeypatch.setitem(sys.modules, "added", ModuleType("added"))
    daemon.gc.collect()
    assert gc.get_freeze_count() >= frozen + len(alive) // 2


@pytest.mark.usefixtures("adapted")
def test_the_cycles_of_a_call_are_collected() -> None:
    """A worker keeps no memory of the calls that it has made."""
    daemon.gc.collect()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert daemon.gc.collect() >= 1


def test_programs_other_than_the_daemon_stay_as_they_are() -> None:
    """The module of a program keeps what it imported as `gc` and as `traceback`."""
    this = sys.modules[__name__]
    adapt_daemon(this)
    assert this.gc is gc
    assert this.traceback is traceback
