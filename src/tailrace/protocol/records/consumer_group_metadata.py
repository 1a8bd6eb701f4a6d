"""Records of type 3 of `__consumer_offsets`: groups of the consumer protocol (KIP-848)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataKey:
    """The key: the group."""

    record_type: ClassVar[int] = 3
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue:
    """The epoch of a group, and the hash of its topics."""

    record_type: ClassVar[int] = 3
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    epoch: int = wire("int32")
    """Epoch of the group."""
    metadata_hash: int = wire("int64", tag=0)
    """Hash over the subscribed topics (KIP-1101); 0: none is subscribed."""
