"""Records of type 9 of `__cluster_metadata`: a topic is deleted."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    """The end of a topic, of its partitions and of its settings."""

    record_type: ClassVar[int] = 9
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    topic_id: UUID = wire("uuid")
    """The topic by id."""
