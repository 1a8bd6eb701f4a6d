"""The results of a consumer: records, and offsets with their times.

Not here: how they are made of fetched bytes (`fetched`, `columns`).
"""

from typing import Any, NamedTuple

from tailrace.model import TimestampType, TopicPartition


# A tuple, which one call makes of a whole block (decision 70).
class ConsumerRecord(NamedTuple):
    """A record that was read from a partition."""

    topic: str
    partition: int
    offset: int
    """The record's place in its partition."""
    timestamp: int
    """Milliseconds since 1970-01-01 UTC; -1 if it has none."""
    timestamp_type: TimestampType
    """Whether the producer or the broker set the timestamp."""
    key: Any
    """Bytes or None; with a `key_deserializer`, what that returned."""
    value: Any
    """Bytes or None; with a `value_deserializer`, what that returned."""
    headers: tuple[tuple[str, bytes | None], ...]
    """Names and values, in their order."""
    leader_epoch: int
    """Epoch of the leader that appended the record; -1 if it is not known."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, as `seek`, `pause` and the rest take it."""
        return TopicPartition(self.topic, self.partition)


class OffsetAndTimestamp(NamedTuple):
    """The first record from a time on, or an end of the log."""

    offset: int
    timestamp: int
    """The record's time in ms since 1970-01-01 UTC; -1 for the ends of a log."""
    leader_epoch: int = -1
    """-1 if it is not known."""
