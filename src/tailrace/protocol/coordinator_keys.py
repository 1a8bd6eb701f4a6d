"""The kinds of keys that FindCoordinator takes."""

from enum import IntEnum


class CoordinatorKeyType(IntEnum):
    """Kinds of coordinator keys."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2
