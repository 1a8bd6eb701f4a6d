"""Records of type 1 of `__consumer_offsets`: offset commits.

    v1   its own time to expire             v4   flexible; topic id in a tag
    v3   leader epoch (KIP-320)

Kafka 4.3 writes v4, and v1 for a request that asks for a retention time.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey:
    """The key: group, topic and partition of the offset."""

    record_type: ClassVar[int] = 1
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
class OffsetCommitValue:
    """A committed offset."""

    record_type: ClassVar[int] = 1
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 4

    offset: int = wire("int64")
    """Offset of the next record to consume."""
    leader_epoch: int = wire("int32", since=3, default=-1)
    """Leader epoch of the last consumed record; -1: not known."""
    metadata: str = wire("string")
    """Metadata that the client has stored with the offset."""
    commit_timestamp: int = wire("int64")
    """Time of the commit, in milliseconds since 1970."""
    expire_timestamp: int = wire("int64", since=1, until=1, default=-1)
    """Time at which it expires, in milliseconds since 1970; -1: by the broker's setting."""
    topic_id: UUID = wire("uuid", since=4, tag=0)
    """The topic's id; zeros: not known."""
