"""The version that a record of the metadata log is written in, by the level of `metadata.version`.

Every node that has finalized the level can read that version, whatever its release (KIP-584).
"""

from typing import Final

_REGISTER_BROKER: Final = ((30, 4), (17, 3), (8, 2), (0, 1))
"""First level of `metadata.version`, and the version of the record from there on."""
_PARTITION: Final = ((23, 2), (17, 1), (0, 0))
TRANSACTIONS_SINCE: Final = 13
"""First level at which several batches can count as one (KIP-868)."""


def register_broker_version(level: int) -> int:
    """The version of RegisterBrokerRecord."""
    return _of(_REGISTER_BROKER, level)


def partition_version(level: int) -> int:
    """The version of PartitionRecord and of PartitionChangeRecord."""
    return _of(_PARTITION, level)


def _of(versions: tuple[tuple[int, int], ...], level: int) -> int:
    return next(version for first, version in versions if level >= first)
