"""DeleteTopics (20): deletes topics with their records.

v1   throttle time                      v5   a message for each error (KIP-599)
v4   flexible                           v6   topics by id (KIP-516)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicState:
    """One topic, by name or by id."""

    name: str | None = wire("string", since=6, nullable_since=6, default=None)
    """The topic by name."""
    topic_id: UUID = wire("uuid", since=6)
    """The topic by id, where the name is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest:
    """Remove these topics."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 4

    topics: tuple[DeleteTopicState, ...] = wire_array(DeleteTopicState, since=6)
    """The topics, from v6."""
    topic_names: tuple[str, ...] = wire_array("string", until=5)
    """The topics, up to v5."""
    timeout_ms: int = wire("int32")
    """Longest time to wait until they are deleted, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult:
    """The result for one topic."""

    name: str | None = wire("string", nullable_since=6)
    """The topic; None for an unknown id."""
    topic_id: UUID = wire("uuid", since=6)
    """Its id."""
    error_code: int = wire("int16")
    """0, or why it was not deleted."""
    error_message: str | None = wire("string", since=5, nullable_since=5, default=None)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse:
    """The results for the topics."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    responses: tuple[DeletableTopicResult, ...] = wire_array(DeletableTopicResult)
    """The results, by topic."""
