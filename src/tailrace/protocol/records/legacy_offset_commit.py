"""Records of type 0 of `__consumer_offsets`: offset commits of brokers before 0.9.

Kafka reads them as type 1, and writes none.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyOffsetCommitKey:
    """The key: group, topic and partition of the offset."""

    record_type: ClassVar[int] = 0
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group: str = wire("string")
    """The group."""
    topic: str = wire("string")
    """The topic."""
    partition: int = wire("int32")
    """The partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyOffsetCommitValue:
    """A committed offset."""

    record_type: ClassVar[int] = 0
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    offset: int = wire("int64")
    """Offset of the next record to consume."""
    metadata: str = wire("string")
    """Metadata that the client has stored with the offset."""
    commit_timestamp: int = wire("int64")
    """Time of the commit, in milliseconds since 1970."""
