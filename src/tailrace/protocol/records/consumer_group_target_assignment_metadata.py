"""Records of type 6 of `__consumer_offsets`: the epoch of a target assignment (KIP-848)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """The key: the group."""

    record_type: ClassVar[int] = 6
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of a target assignment."""

    record_type: ClassVar[int] = 6
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    assignment_epoch: int = wire("int32")
    """Epoch of the group that it is for."""
    assignment_timestamp: int = wire("int64", tag=0)
    """Time of the assignment, in milliseconds since 1970; 0: not known (KIP-1263)."""
