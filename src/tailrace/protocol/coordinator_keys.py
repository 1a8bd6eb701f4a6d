"""What a coordinator is asked for, in FindCoordinator and in KIP-932's share groups."""

from enum import IntEnum


class CoordinatorKeyType(IntEnum):
    """Kinds of coordinator keys."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2
