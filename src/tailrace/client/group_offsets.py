"""`OffsetAndMetadata` and `ConsumerGroupMetadata`: consumed offsets that a transaction commits."""

from typing import NamedTuple


class OffsetAndMetadata(NamedTuple):
    """A consumed offset of a partition, as a group commits it."""

    offset: int
    """Offset of the next record to consume."""
    leader_epoch: int = -1
    """Leader epoch of the last consumed record; -1 if it is not known."""
    metadata: str | None = ""
    """Any text of the consumer."""


class ConsumerGroupMetadata(NamedTuple):
    """A consumer group and its member; with the member, the coordinator refuses old ones."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def names_member(self) -> bool:
        """Whether the member is given, so that the coordinator can check it."""
        return self != ConsumerGroupMetadata(self.group_id)
