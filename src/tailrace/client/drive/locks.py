"""Locks of clients after an interrupt and in a forked child, and `disable_in_forks`."""

import os
import threading
import weakref
from typing import Protocol

# Parts of `threading.RLock` that `threading.Condition` and `threading` itself use too. They have no
# public name, and nothing public does the same: `Condition.wait` takes the lock again without being
# interrupted, and only the lock knows whether this thread has it.


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


class Forkable(Protocol):
    """A driver."""

    def forked(self) -> None:
        """Stop in a forked child."""
        ...


# One hook for all drivers, which are held weakly: a hook of `os.register_at_fork` stays for as long
# as the process, and must not keep a client alive that nobody has any more.
_living: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def disable_in_forks(driver: Forkable) -> None:
    """Call `forked` in every child that is forked while the driver lives."""
    _living.add(driver)


def _forked() -> None:
    # A copy: garbage collection may take drivers out of the set meanwhile.
    for each in list(_living):
        each.forked()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
