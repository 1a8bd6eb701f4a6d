"""DeleteTopics (20): deletes topics with their records.

v1   throttle time                      v5   a message for each error (KIP-599)
v4   flexible                           v6   topics by id (KIP-516)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicState:
    name: str | None = wire("string", since=6, nullable_since=6, default=None)
    topic_id: UUID = wire("uuid", since=6)  # The topic by id, where the name is null.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest:
    first_version, last_version, flexible_since = 1, 6, 4
    topics: tuple[DeleteTopicState, ...] = wire_array(DeleteTopicState, since=6)
    topic_names: tuple[str, ...] = wire_array("string", until=5)
    timeout_ms: int = wire("int32")  # Longest time to wait until they are deleted.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableTopicResult:
    name: str | None = wire("string", nullable_since=6)  # The topic; None for an unknown id.
    topic_id: UUID = wire("uuid", since=6)
    error_code: int = wire("int16")
    error_message: str | None = wire("string", since=5, nullable_since=5, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse:
    first_version, last_version, flexible_since = 1, 6, 4
    throttle_time_ms: int = wire("int32", since=1)
    responses: tuple[DeletableTopicResult, ...] = wire_array(DeletableTopicResult)
