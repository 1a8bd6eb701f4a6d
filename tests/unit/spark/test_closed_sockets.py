"""Tests of the messages that PySpark's daemon prints in a worker with this package."""

import sys
import traceback

import pytest
from pyspark import daemon

from tailrace.spark.closed_sockets import hide_closed_sockets


def print_in_daemon(error: Exception) -> None:
    """Print an error that ends a worker, as the daemon does."""
    try:
        raise error
    except type(error):
        daemon.traceback.print_exc()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon as it is in a worker that has imported this package; itself again afterwards."""
    monkeypatch.setattr(daemon, "traceback", traceback)
    hide_closed_sockets(daemon)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("error", [BrokenPipeError(32, "x"), ConnectionResetError(104, "x")])
def test_a_socket_that_spark_has_closed_is_not_reported(
    error: OSError, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed for a unix socket or a TCP one."""
    print_in_daemon(error)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("quiet")
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


@pytest.mark.usefixtures("quiet")
def test_tracebacks_of_other_code_in_a_worker_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A function of the user that prints a lost connection of its own still does."""
    try:
        raise BrokenPipeError(32, "x")
    except BrokenPipeError:
        traceback.print_exc()
    assert "BrokenPipeError" in capsys.readouterr().err


def test_programs_other_than_the_daemon_stay_as_they_are() -> None:
    """The module of a program keeps what it imported as `traceback`."""
    this = sys.modules[__name__]
    hide_closed_sockets(this)
    assert this.traceback is traceback
