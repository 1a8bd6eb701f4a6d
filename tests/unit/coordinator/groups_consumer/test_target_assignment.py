"""A new target for all members of a group: what the assignor says, and what of it is written."""

from dataclasses import replace

from tailrace.coordinator.groups.consumer_group import NO_METADATA, ConsumerGroup, ConsumerMember
from tailrace.coordinator.groups.consumer_records import target_epoch_record, target_record
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.coordinator.groups.target_assignment import (
    GroupUpdate,
    TargetAssignment,
    compute_target,
)
from tests.unit.coordinator.groups_consumer.assigning import targets
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
