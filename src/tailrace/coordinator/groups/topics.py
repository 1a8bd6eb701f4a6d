"""The topics of the cluster, as far as groups have to know them."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


class Topic(NamedTuple):
    """A topic that can be consumed."""

    name: str
    topic_id: UUID
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()
    """The racks of each partition's replicas; empty: no broker has a rack."""


class Topics(Protocol):
    """All topics, at one version."""

    @property
    def version(self) -> int:
        """Grows with every change of a topic; Kafka's is an offset of the metadata log."""
        ...

    def by_name(self, name: str) -> Topic | None:
        """The topic with a name, if there is one."""
        ...

    def by_id(self, topic_id: UUID) -> Topic | None:
        """The topic with an id, if there is one."""
        ...

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        ...
