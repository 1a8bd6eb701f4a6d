"""Signals: those that end a process, a thread for them, and steps that no handler breaks off.

Python calls signal handlers on the main thread, between any two of its instructions, and Ctrl-C or
`sys.exit` in a handler raises an exception there. In the middle of a step that takes in answers it
would leave an unknown state. So the handlers of such a step are called after it.

Not here: waits. They have to be interrupted, and change nothing.
"""

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that end a process in order: those of Kafka (LoggingSignalHandler).

    SIGHUP is left out where it is ignored, as under nohup: the process outlives its terminal then,
    as Java's do.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (SIGINT, SIGTERM) if is_ignored else (SIGINT, SIGTERM, signal.SIGHUP)


@contextmanager
def stop_signals_on_thread(act: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Have `act` called for each of `stop_signals`, on a thread of its own.

    So it is called whatever the main thread does, in a call of the system, too, that does not end.
    Only if the process has started threads before, one of these may get the signal; it is called on
    the main thread then.
    """
    numbers = stop_signals()
    is_over = False

    def receive() -> None:
        while True:
            number = signal.Signals(signal.sigwait(numbers))
            if is_over:
                return
            act(number)

    handlers = {
        each: signal.signal(each, lambda number, _: act(signal.Signals(number))) for each in numbers
    }
    # Threads that are started from here on inherit it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    receiver = threading.Thread(target=receive, name="tailrace-signals", daemon=True)
    receiver.start()
    try:
        yield
    finally:
        is_over = True
        assert receiver.ident is not None
        signal.pthread_kill(receiver.ident, numbers[0])
        receiver.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def uninterrupted(step: Callable[[], None]) -> None:
    """Run a step; handlers of SIGINT and SIGTERM that come meanwhile are called at its end.

    Only the main thread is ever interrupted, so on others it costs nothing.
    """
    if threading.current_thread() is threading.main_thread():
        _shielded(SIGINT, lambda: _shielded(SIGTERM, step))
    else:
        step()


def _shielded(number: int, step: Callable[[], None]) -> None:
    # `signal.signal` makes enums of its arguments, which takes ten times as long.
    handler = _signal.getsignal(number)
    if not callable(handler):
        step()
        return
    came: list[FrameType | None] = []

    def note(_: int, frame: FrameType | None) -> None:
        came.append(frame)

    try:
        _signal.signal(number, note)
        step()
    finally:
        _signal.signal(number, handler)
    # The first one, at the end of the step: as if the signal had come a moment later.
    if came:
        handler(number, came[0])
