"""Signals: which of them end a process, and `uninterrupted`, a step that no handler breaks off.

Python calls signal handlers on the main thread, between any two of its instructions, and Ctrl-C or
`sys.exit` in a handler raises an exception there. In the middle of a step that takes in answers it
would leave an unknown state. So the handlers of such a step are called after it.

Not here: waits. They have to be interrupted, and change nothing.
"""

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from signal import SIGINT, SIGTERM
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that end a process in order: those of Kafka (LoggingSignalHandler).

    SIGHUP is left out where it is ignored, as under nohup: the process outlives its terminal then,
    as Java's do.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (SIGINT, SIGTERM) if is_ignored else (SIGINT, SIGTERM, signal.SIGHUP)


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
