"""Signal handlers that come in the middle of a step, and signals that are taken by a thread."""

import os
import signal
import threading
from types import FrameType

import pytest

from tailrace.runtime.interrupts import stop_signals_on_thread, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_runs_after_the_step(number: signal.Signals) -> None:
    """Its exception breaks off nothing, is raised by the call, and the handler stays installed."""
    seen: list[str] = []

    def handler(_: int, __: FrameType | None) -> None:
        seen.append("handler")
        raise SystemExit

    def step() -> None:
        signal.raise_signal(number)
        seen.append("step")

    before = signal.signal(number, handler)
    try:
        with pytest.raises(SystemExit):
            uninterrupted(step)
        assert seen == ["step", "handler"]
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_an_error_of_the_step_is_raised_and_the_handler_stays() -> None:
    """A step that fails leaves no handler of ours behind."""

    def step() -> None:
        raise ZeroDivisionError

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError):
        uninterrupted(step)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_run_the_step_as_it_is() -> None:
    """Python allows them no change of a handler, and calls none there."""
    ran: list[bool] = []
    thread = threading.Thread(target=lambda: uninterrupted(lambda: ran.append(True)))
    thread.start()
    thread.join()
    assert ran == [True]


def test_signals_are_taken_beside_the_main_thread() -> None:
    """They reach the caller and nobody else; mask and handlers are then those from before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGTERM)
    seen: list[signal.Signals] = []
    came = threading.Event()

    def act(number: signal.Signals) -> None:
        seen.append(number)
        came.set()

    with stop_signals_on_thread(act):
        os.kill(os.getpid(), signal.SIGTERM)
        # Another thread of the tests may get it; the handler then runs when this one continues.
        while not came.wait(0.1):
            pass
    assert seen == [signal.SIGTERM]
    after = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGTERM)
    assert after == before
