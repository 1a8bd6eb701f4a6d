"""`RackMatches`: which members are in the rack of a replica, for the sticky assignors (KIP-881)."""

from collections import Counter
from collections.abc import Sequence

from tailrace.client.consumer.membership.assignors import Members, Racks, uses_racks
from tailrace.model import TopicPartition


class RackMatches:
    """The racks of members and replicas; empty if they make no difference."""

    def __init__(self, topics: Racks, members: Members) -> None:
        consumers = {member_id: each.rack for member_id, each in members.items() if each.rack}
        partitions = [racks for each in topics.values() for racks in each]
        matters = uses_racks(frozenset(consumers.values()), partitions)
        self.consumers: dict[str, str] = consumers if matters else {}
        """The rack of each member that has one."""
        self._topics: Racks = topics if matters else {}
        self._counts: Counter[str] = Counter(self.consumers.values())

    @property
    def matters(self) -> bool:
        """Whether the assignment depends on racks."""
        return bool(self.consumers)

    def replicas(self, partition: TopicPartition) -> frozenset[str]:
        """The racks of a partition's replicas."""
        racks = self._topics.get(partition.topic, ())
        return racks[partition.partition] if partition.partition < len(racks) else frozenset()

    def is_apart(self, consumer: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack in which there is no replica."""
        rack = self.consumers.get(consumer)
        return rack is not None and rack not in self.replicas(partition)

    def is_near(self, consumer: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack in which there is a replica."""
        return self.consumers.get(consumer) in self.replicas(partition)

    def scarce_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The partitions, those that fewer members are near to first."""
        if not self.matters:
            return partitions
        counts = self._counts
        return sorted(partitions, key=lambda each: sum(counts[r] for r in self.replicas(each)))

    def next_near(
        self, partition: TopicPartition, consumers: Sequence[str], first: int
    ) -> int | None:
        """Index of the next member that is near, going round from `first`; None if none is."""
        for step in range(len(consumers)):
            index = (first + step) % len(consumers)
            if self.is_near(consumers[index], partition):
                return index
        return None
