"""`Traffic`: what the partitions of this broker have taken and given out since the start, by topic.

The numbers are those of Kafka's `BrokerTopicStats`. They are counted where batches are appended and
answers are made, once for each call and not for each record, whether or not anybody reads them: a
few additions on the event loop.

As in Kafka those of a topic go with the last partition of it on this broker; what it had stays in
the totals. A topic that is created again begins at zero.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

FIELDS: Final = (
    "messages_in", "bytes_in", "bytes_out", "produce_requests", "fetch_requests",
    "failed_produce_requests", "failed_fetch_requests", "replication_bytes_in",
    "replication_bytes_out", "isr_shrinks", "isr_expands",
)  # fmt: skip


class TopicTraffic:
    """Counters of one topic, or of all."""

    __slots__ = (*FIELDS, "partition_count")

    def __init__(self) -> None:
        self.partition_count = 0
        """Partitions of the topic on this broker."""
        self.messages_in = 0
        """Records that were appended as leader."""
        self.bytes_in = 0
        """Bytes of their batches, as they were received."""
        self.bytes_out = 0
        """Bytes of records in answers to consumers."""
        self.produce_requests = 0
        """Batches that producers have sent, one for each partition of a request."""
        self.fetch_requests = 0
        """Partitions that Fetch requests were answered for."""
        self.failed_produce_requests = 0
        """Batches that were refused."""
        self.failed_fetch_requests = 0
        """Partitions that were answered with an error."""
        self.replication_bytes_in = 0
        """Bytes of batches that were fetched from leaders."""
        self.replication_bytes_out = 0
        """Bytes of records in answers to followers."""
        self.isr_shrinks = 0
        """Changes of an ISR by which replicas have left it."""
        self.isr_expands = 0
        """Changes by which replicas have joined it."""

    def add(self, other: "TopicTraffic") -> None:
        """Add the counts of another one."""
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """The counters of all topics; for one event loop."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()
        """The sums of topics that are no longer here."""

    def join(self, topic: str) -> TopicTraffic:
        """The counters of a topic, for one more partition of it; see `leave`."""
        found = self._topics.setdefault(topic, TopicTraffic())
        found.partition_count += 1
        return found

    def leave(self, topic: str) -> None:
        """Note that a partition has gone."""
        found = self._topics[topic]
        found.partition_count -= 1
        if not found.partition_count:
            self._gone.add(self._topics.pop(topic))

    def find(self, topic: str) -> TopicTraffic | None:
        """The counters of a topic; None: this broker has no partition of it."""
        return self._topics.get(topic)

    @property
    def topics(self) -> Mapping[str, TopicTraffic]:
        """By name; read only."""
        return MappingProxyType(self._topics)

    def total(self) -> TopicTraffic:
        """The sums over all topics, also over those that have gone."""
        found = TopicTraffic()
        for each in (self._gone, *self._topics.values()):
            found.add(each)
        return found
