"""`Engine`: what a driver knows of a client.

An engine is sans-I/O: its state changes only in calls under its lock, which get the time as an
argument and never wait.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Engine(Protocol):
    """The state of one client; every method is called under `lock`."""

    kind: str
    """"producer" or "consumer", for log lines."""
    client_id: str
    lock: threading.RLock
    """Never acquired twice by a thread. An RLock, since `Condition` can take it again after a wait
    without being interrupted."""
    calls: deque[Callable[[], None]]
    """Calls of user code that are due; the driver makes them, without the lock."""
    is_done_by_one_poll: bool
    """Whether a poll leaves nothing for another one at the same time; a producer's poll leaves the
    next full batches of a partition."""

    def poll(self, now: float) -> None:
        """Do everything that is due now; `now` is in monotonic seconds."""
        ...

    def next_deadline(self, now: float) -> float:
        """The time of the next `poll` if no socket has news before; it may be too early."""
        ...

    def should_move(self) -> bool:
        """Return whether the call that ends now has left something to be sent at once."""
        ...

    def abandoned(self, now: float) -> bool:
        """End what nobody can call any more; returns whether that is done, and `end_close` is due.

        Called after each turn, from the garbage collection of the client on.
        """
        ...

    def end_close(self) -> None:
        """Close the connections; pending results get an error."""
        ...

    def give_up(self, error: BaseException) -> None:
        """Close after an interrupted step has left the state unknown."""
        ...

    def forked(self) -> None:
        """Refuse all calls, in a forked child, which shares the parent's sockets."""
        ...

    def reentrant_error(self) -> Exception:
        """The error of a call by a signal handler that has interrupted another call."""
        ...
