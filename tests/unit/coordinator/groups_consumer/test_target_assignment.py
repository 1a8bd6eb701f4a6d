"""A new target for all members of a group: what the assignor says, and what of it is written."""

from dataclasses import replace

from tailrace.coordinator.groups.consumer_group import NO_METADATA, ConsumerGroup, ConsumerMember
from tailrace.coordinator.groups.consumer_records import target_epoch_record, target_record
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.coordinator.groups.target_assignment import (
    GroupUpdate,
    TargetAssignment,
    compute_target,
    posed_problem,
)
from tailrace.coordinator.groups.topics import Topic
from tests.unit.coordinator.groups_consumer.assigning import targets, topic_id
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics

NOW = 1_000
SETTINGS = ConsumerSettings()


def computed(before: dict[str, str], *, letters: str = "ab", **members: str) -> TargetAssignment:
    """The target at epoch 20 of members that ask for `range`, by what they had to have before.

    Each member has its letters of topics; both topics have four partitions.
    """
    group = ConsumerGroup("g", epoch=20, target=dict(targets(**before)))
    for member_id in before:
        names = tuple(members.get(member_id, letters))
        metadata = replace(NO_METADATA, server_assignor="range", subscribed_topic_names=names)
        group.put(ConsumerMember(member_id, metadata))
    update = GroupUpdate(
        group=group, epoch=20, updated=group.members[min(before)], replaced_id=None
    )
    return compute_target(update, MemoryTopics(a=4, b=4), settings=SETTINGS, now_ms=NOW)


def test_members_can_exchange_their_partitions() -> None:
    """Both targets are written, then their epoch."""
    found = computed({"m1": "a2 a3 b2 b3", "m2": "a0 a1 b0 b1"})
    new = targets(m1="a0 a1 b0 b1", m2="a2 a3 b2 b3")
    assert found.targets == new
    assert found.records == (
        target_record("g", "m1", new["m1"]),
        target_record("g", "m2", new["m2"]),
        target_epoch_record("g", 20, NOW),
    )


def test_only_targets_that_have_changed_are_written() -> None:
    """A topic that some have unsubscribed goes to the last one; nothing is written of the first."""
    found = computed({"m1": "a0 a1", "m2": "a2 b0 b1", "m3": "a3 b2 b3"}, m1="a", m2="a", m3="b")
    new = targets(m1="a0 a1", m2="a2 a3", m3="b0 b1 b2 b3")
    assert found.targets == new
    assert found.records == (
        target_record("g", "m2", new["m2"]),
        target_record("g", "m3", new["m3"]),
        target_epoch_record("g", 20, NOW),
    )


def test_a_target_that_is_the_same_writes_its_epoch_alone() -> None:
    """The group has changed in a way that moves no partition."""
    found = computed({"m1": "a0 a1 b0 b1", "m2": "a2 a3 b2 b3"})
    assert found.records == (target_epoch_record("g", 20, NOW),)


class GoingTopics(MemoryTopics):
    """Topics that are deleted as soon as somebody has looked at them."""

    def by_name(self, name: str) -> Topic | None:
        """The topic, for the last time."""
        found = super().by_name(name)
        if found is not None:
            self.remove(name)
        return found


def test_a_topic_that_goes_meanwhile_is_the_same_for_all_members() -> None:
    """A thread looks at topics while they change: each is taken as it was at the first look."""
    group = ConsumerGroup("g", epoch=20)
    for member_id, names in (("m1", ("a",)), ("m2", ("a", "b"))):
        group.put(ConsumerMember(member_id, replace(NO_METADATA, subscribed_topic_names=names)))
    posed = posed_problem(group, group.members, GoingTopics(a=4, b=2))
    assert posed.members["m1"].topic_ids == {topic_id("a")}
    assert posed.members["m2"].topic_ids == {topic_id("a"), topic_id("b")}
    assert posed.partition_counts == {topic_id("a"): 4, topic_id("b"): 2}
