"""The next epoch of a consumer group, which grows when its topics have changed."""

from collections.abc import Iterable

from tailrace.coordinator.groups.consumer_group import ConsumerGroup
from tailrace.coordinator.groups.consumer_records import epoch_record, topics_tombstone
from tailrace.coordinator.groups.topic_hash import group_hash
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import CoordinatorRecord


def next_epoch(
    group: ConsumerGroup, names: Iterable[str], topics: Topics, *, is_forced: bool
) -> tuple[int, list[CoordinatorRecord]]:
    """The epoch of a group that subscribes to `names`, and its records.

    It grows by one if it is forced to, or if one of these topics is not what it was.
    """
    found = map(topics.by_name, names)
    metadata_hash = group_hash([each for each in found if each is not None])
    # The hash stands for this record since Kafka 4.1.
    records = [topics_tombstone(group.group_id)] if group.has_topic_records else []
    if not is_forced and metadata_hash == group.metadata_hash:
        return group.epoch, records
    records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    return group.epoch + 1, records
