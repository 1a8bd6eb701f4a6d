"""`disable_in_forks`: a child that is forked from a client's process must not use its sockets."""

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A driver."""

    def forked(self) -> None:
        """Stop in a forked child."""
        ...


_living: "weakref.WeakSet[Forkable]" = weakref.WeakSet()


def disable_in_forks(driver: Forkable) -> None:
    """Call `forked` in every child that is forked while the driver lives."""
    _living.add(driver)


def _forked() -> None:
    for each in list(_living):
        each.forked()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
