"""The state that a start begins with: that of the log, or what lies beside a log that has none.

    Beginning    what the log has, or the state that a new one begins with
    adopt        and partition folders of no topic
    records      all of it as records; with a new log, in one transaction of metadata (KIP-868)

Until these records are written a new log has none but its leader's: a crash before their end leaves
what was found as it was found.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from tailrace.cluster.image import Topic, image_on_node
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import TRANSACTIONS_SINCE
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.log import MetadataLog
from tailrace.cluster.records import (
    NO_BROKER_EPOCH,
    FoundLog,
    Node,
    election_records,
    producer_ids_record,
    topic_records,
    transaction_records,
)
from tailrace.cluster.topic_rules import PARTITIONS_MAX
from tailrace.config.settings import INT64_MAX
from tailrace.model import INTERNAL_TOPICS, TopicPartition
from tailrace.values import replace

FIRST_PRODUCER_ID = 2**40
"""The first id of a cluster whose own counter is lost. A counter from 0 on does not reach this one
even with a million new producers a day, so no id is assigned twice."""

ADOPTED_CONFIGS = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
"""Settings of an adopted topic, whose own settings are unknown: no record may be deleted until the
operator sets others. Kafka's defaults are set only where the broker's defaults differ."""

ADOPTED_COMPACTED_CONFIGS = MappingProxyType(
    {"cleanup.policy": "compact", "min.compaction.lag.ms": str(INT64_MAX)}
)
"""Settings of an adopted topic that was compacted. Records without a key are refused, as by the
other broker: its cleaner would drop them when it gets the topic back."""


class Beginning:
    """The state at a start, before it is in the log."""

    def __init__(
        self,
        log: MetadataLog,
        node: Node,
        *,
        first: Callable[[], MetadataImage],
        defaults: Mapping[str, str],
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        """`first` gives the state of a log without records; `defaults` are the broker's for topics.

        Raises:
            DirectoryError: as `first`.
        """
        self.is_new = not log.image.features
        """Whether the log has no state yet."""
        self.has_lost_records = log.has_lost_records
        """Whether the log lacks changes that were acknowledged: folders say more than it does."""
        self.base = first() if self.is_new else log.image
        """The state of the log, or that which it begins with."""
        self.image = image_on_node(self.base, node.node_id)
        """The topics and settings that were found."""
        self.deleted_topic_ids = frozenset(log.removed_topics)
        """Ids of deleted topics whose folders may still exist, so that these are not adopted."""
        self._node = node
        self._defaults = defaults
        self._new_id = new_id
        self._found: dict[str, None] = dict.fromkeys(self.image.topics if self.is_new else ())
        """Names of the topics that the log may have otherwise than the image."""

    @property
    def has_news(self) -> bool:
        """Whether there is something that the log has to have before it is served."""
        return self.is_new or bool(self._found)

    @property
    def is_blank(self) -> bool:
        """Whether the log has no state, and nothing was found that it has to have."""
        return self.is_new and not self._found

    def adopt(
        self,
        folders: Mapping[TopicPartition, uuid.UUID | None],
        *,
        compacted: Collection[str] = (),
    ) -> None:
        """Put partitions that are on disk and not in the image into it.

        New topics get `ADOPTED_CONFIGS`; `compacted` ones also get `ADOPTED_COMPACTED_CONFIGS`. The
        caller has removed the folders of deleted topics. An internal topic gets the partitions
        between them too, and its start creates their logs.
        """
        topics = dict(self.image.topics)
        # A setting that is Kafka's default anyway is set only where the broker's default differs.
        ours = {"retention.ms", *self._defaults}
        configs = {name: value for name, value in ADOPTED_CONFIGS.items() if name in ours}
        for (name, number), topic_id in sorted(folders.items()):
            known = topics.get(name)
            if known is None:
                kept = ADOPTED_COMPACTED_CONFIGS if name in compacted else {}
                known = Topic(
                    name=name,
                    topic_id=topic_id or self._new_id(),
                    partitions=(),
                    configs=MappingProxyType({**configs, **kept}),
                )
            if number not in known.partitions:
                topics[name] = replace(known, partitions=tuple(sorted((*known.partitions, number))))
        # The hash of a group's id names a partition. One between those that were found, without a
        # log, would have no coordinator, and its groups would never be found.
        for name in INTERNAL_TOPICS & topics.keys():
            known = topics[name]
            if known.partition_count <= PARTITIONS_MAX:
                topics[name] = replace(known, partitions=tuple(range(known.partition_count)))
        self._found |= dict.fromkeys(name for name, _ in folders)
        self.image = self.image.with_topics(topics)

    def records(
        self,
        logs: Mapping[TopicPartition, FoundLog],
        *,
        was_clean: bool,
        largest_producer_id: int,
    ) -> Iterator[RecordToWrite]:
        """The records that save what was found, and make this node the leader of its partitions.

        `logs` are those that were opened, and `largest_producer_id` is the largest in any of them,
        or -1: it is never assigned again. `was_clean` tells whether the last stop was orderly.
        """
        base = self.base
        begin, end = transaction_records("Bootstrap records")
        # Until the last of them is written a new log counts as empty: a crash before that leaves
        # what was found as it was found.
        is_one = self.is_new and base.metadata_version >= TRANSACTIONS_SINCE
        if is_one:
            yield begin
        if self.is_new:
            from tailrace.cluster.metadata.snapshot import snapshot_records

            yield from snapshot_records(base)
        for topic in map(self.image.topics.__getitem__, self._found):
            yield from topic_records(topic, base, self._node, logs=logs)
        yield from election_records(base, self._node, logs, was_clean=was_clean)
        first = self._first_producer_id(largest_producer_id)
        if first > (base.next_producer_id or 0):
            yield producer_ids_record(self._node, NO_BROKER_EPOCH, first)
        if is_one:
            yield end

    def _first_producer_id(self, largest: int) -> int:
        """The first id that may be assigned, by what the log does not know."""
        is_lost = self.has_lost_records or (
            self.is_new and bool(self.image.topics) and self.base.next_producer_id is None
        )
        return max(largest + 1, FIRST_PRODUCER_ID if is_lost else 0)
