"""The parts of `threading.RLock` that `threading.Condition` and `threading` itself use too.

They have no public name, and nothing public does the same: `Condition.wait` takes the lock again
without being interrupted, and only the lock knows whether this thread has it.
"""

import threading


def is_owned(lock: threading.RLock) -> bool:
    """Return whether this thread holds the lock."""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]
    return owned


def take_again(lock: threading.RLock) -> None:
    """Take the lock again if Ctrl-C interrupted a wait without it.

    The caller's `with` block releases the lock when it ends. Without the lock that would fail,
    and exception handlers would change the engine while another thread does.
    """
    if not is_owned(lock):
        # No signal interrupts it.
        lock._acquire_restore((1, threading.get_ident()))  # type: ignore[attr-defined]


def renew(lock: threading.RLock) -> None:
    """Release a lock in a forked child; a thread that is not there may have held it."""
    lock._at_fork_reinit()  # type: ignore[attr-defined]
