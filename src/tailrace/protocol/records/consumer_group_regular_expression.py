"""Records of type 16 of `__consumer_offsets`: topics that match a regular expression."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionKey:
    """The key: the group and the regular expression."""

    record_type: ClassVar[int] = 16
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    group_id: str = wire("string")
    """The group."""
    regular_expression: str = wire("string")
    """The regular expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue:
    """The topics that match it."""

    record_type: ClassVar[int] = 16
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    topics: tuple[str, ...] = wire_array("string")
    """The topics."""
    version: int = wire("int64")
    """Offset in the metadata log at which the topics were found."""
    timestamp: int = wire("int64")
    """Time of the search, in milliseconds since 1970."""
