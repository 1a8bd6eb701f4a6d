"""Records of type 2 of `__cluster_metadata`: a topic is created."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic; its partitions and settings follow in records of their own."""

    record_type: ClassVar[int] = 2
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    name: str = wire("string")
    """The topic."""
    topic_id: UUID = wire("uuid")
    """The topic by id."""
