"""Records of consumer groups: what Apache Kafka 4.3 writes, and the groups that they make."""

from dataclasses import replace
from uuid import UUID

from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerState,
    CurrentAssignment,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from tailrace.coordinator.groups.consumer_records import (
    consumer_group_tombstones,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    regex_record,
    target_epoch_record,
    target_record,
    topics_tombstone,
)
from tailrace.coordinator.groups.offsets import CommittedOffset, offset_record
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.machine import CoordinatorRecord, Origin
from tailrace.model import TopicPartition
from tailrace.protocol.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicPartitions,
    TransactionLogKey,
)
from tests.unit.coordinator.groups_consumer.codec import GroupCodec, type_of
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics, kinds, new_machine

A, B = UUID(int=1), UUID(int=2)
METADATA = ConsumerGroupMemberMetadataValue(
    instance_id="i1",
    client_id="c",
    client_host="/127.0.0.1",
    subscribed_topic_names=("a", "b"),
    subscribed_topic_regex="",
    rebalance_timeout_ms=45_000,
    classic_member_metadata=None,
)
MEMBER = ConsumerMember("m1", METADATA)
ASSIGNED = CurrentAssignment(
    epoch=3, previous_epoch=2, assigned={A: {0: 2, 1: 3}}, revoking={B: {4: 2}},
    state=MemberState.UNREVOKED_PARTITIONS,
)  # fmt: skip
COMMITTED = CommittedOffset(
    offset=1, leader_epoch=0, metadata="", commit_ms=0, expire_ms=-1, topic_id=A, record_offset=0
)
WHOLE = (
    epoch_record("g", 3, 77),
    member_record("g", MEMBER),
    target_record("g", "m1", {A: frozenset({1, 0})}),
    target_epoch_record("g", 3, 1_000),
    current_record("g", "m1", ASSIGNED),
    regex_record("g", "a.*", ResolvedRegex(frozenset({"a"}), 5, 900)),
)


def replayed(*records: CoordinatorRecord) -> Groups:
    """Groups made by records that have been bytes in between."""
    machine = new_machine(MemoryTopics())
    codec = GroupCodec()
    for each in records:
        record = codec.decode(*codec.encode(each))
        assert record is not None
        machine.replay(record, Origin(0))
    return machine.groups


def whole(*records: CoordinatorRecord) -> ConsumerGroup:
    """The group of `WHOLE` and of what comes after it."""
    return consumer_group(*WHOLE, *records)


def consumer_group(*records: CoordinatorRecord) -> ConsumerGroup:
    """The group that these records make."""
    group = replayed(*records).consumer("g")
    assert group is not None
    return group


def test_a_group_is_what_its_records_say() -> None:
    """All types of records together."""
    group = whole()
    assert (group.epoch, group.metadata_hash, group.target_epoch) == (3, 77, 3)
    assert group.target_timestamp_ms == 1_000
    member = group.members["m1"]
    assert member == ConsumerMember("m1", METADATA, ASSIGNED)
    assert (member.epoch, member.is_classic) == (3, False)
    assert group.static_member("i1") is member
    assert group.static_member("i2") is None
    assert group.target == {"m1": {A: frozenset({0, 1})}}
    assert group.regexes == {"a.*": ResolvedRegex(frozenset({"a"}), 5, 900)}
    assert group.owners == {A: {0: "m1", 1: "m1"}, B: {4: "m1"}}
    assert group.subscriptions == {Subscription(("a", "b")): 1}


def test_a_member_of_the_consumer_protocol_has_a_tag_that_says_so() -> None:
    """One tag, number 0, one byte, null; without it Kafka takes the member for a classic one."""
    _, value = GroupCodec().encode(member_record("g", MEMBER))
    assert value is not None
    assert value.endswith(bytes.fromhex("01000100"))
    classic = replace(METADATA, classic_member_metadata=ClassicMemberMetadata())
    group = consumer_group(member_record("g", ConsumerMember("m1", classic)))
    assert group.members["m1"].is_classic


def test_assignment_epochs_are_always_written() -> None:
    """Also where they are the member's own epoch."""
    value = current_record("g", "m1", ASSIGNED).value
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    assert [each.assignment_epochs for each in value.assigned_partitions] == [(2, 3)]
    assert [each.assignment_epochs for each in value.partitions_pending_revocation] == [(2,)]


def test_assignment_epochs_of_an_older_kafka_are_the_member_epoch() -> None:
    """Absent, or not one for each partition; an epoch below 0 counts as 0."""
    for epochs in (None, (1,)):
        for epoch, expected in ((5, 5), (-2, 0)):
            value = ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=epoch,
                assigned_partitions=(
                    TopicPartitions(topic_id=A, partitions=(0, 1), assignment_epochs=epochs),
                ),
            )
            record = CoordinatorRecord(current_record("g", "m1", ASSIGNED).key, value)
            assigned = whole(record).members["m1"].current.assigned
            assert assigned == {A: {0: expected, 1: expected}}


def test_a_state_of_a_newer_kafka_is_unknown() -> None:
    """The member has to begin anew, and the group goes on."""
    record = current_record("g", "m1", replace(ASSIGNED, state=MemberState.UNKNOWN))
    assert isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue)
    newer = CoordinatorRecord(record.key, replace(record.value, state=9))
    assert whole(newer).members["m1"].current.state is MemberState.UNKNOWN


def test_tombstones_of_a_member_are_in_the_order_that_kafka_demands() -> None:
    """Its partitions, its target and itself get tombstones; nothing of it is left."""
    tombstones = member_tombstones("g", "m1")
    assert [type_of(each) for each in tombstones] == [-8, -7, -5]
    left = whole(tombstones[0]).members["m1"]
    assert (left.epoch, left.current.assigned) == (-1, {})
    group = whole(*tombstones)
    assert (group.members, group.target, group.owners, group.static_members) == ({}, {}, {}, {})
    assert group.subscriptions == {}
    assert group.state is ConsumerState.EMPTY


def test_tombstones_of_a_group_are_in_the_order_that_kafka_demands() -> None:
    """All members by type, then the regular expressions, then the group."""
    second = member_record("g", ConsumerMember("m2", METADATA))
    topics = CoordinatorRecord(
        ConsumerGroupPartitionMetadataKey(group_id="g"), ConsumerGroupPartitionMetadataValue()
    )
    group = whole(second)
    tombstones = consumer_group_tombstones(group)
    assert [type_of(each) for each in tombstones] == [-8, -8, -7, -7, -6, -5, -5, -16, -3]
    assert replayed(*WHOLE, second, *tombstones).by_id == {}
    tombstones = consumer_group_tombstones(whole(topics))
    assert [type_of(each) for each in tombstones] == [-8, -7, -6, -5, -16, -4, -3]
    assert not whole(topics, topics_tombstone("g")).has_topic_records


def test_tombstones_of_what_is_not_there_are_passed_over() -> None:
    """Compaction may have removed what they delete."""
    group = ConsumerGroup("g")
    assert replayed(*consumer_group_tombstones(group)).by_id == {}
    assert replayed(*member_tombstones("g", "m1")).by_id == {}
    assert whole(*member_tombstones("g", "m2")) == whole()


def test_a_group_begins_with_whichever_record_compaction_has_left_first() -> None:
    """The order of records of different keys is that of their last changes."""
    group = consumer_group(*reversed(WHOLE))
    assert group == whole()


def test_a_partition_has_the_owner_that_was_written_last() -> None:
    """An old owner that is written again later, without it, does not take it from the new one."""
    moved = CurrentAssignment(epoch=4, previous_epoch=3, assigned={A: {0: 4}})
    group = whole(
        current_record("g", "m2", moved),
        current_record("g", "m1", CurrentAssignment(epoch=4, previous_epoch=3)),
    )
    assert group.owners == {A: {0: "m2"}}
    assert group.is_owned(A, 0)
    assert not group.is_owned(A, 1)


def test_a_member_gets_back_what_it_was_to_give_up() -> None:
    """It is the owner all the time, and has the partition in its new epoch."""
    asked = CurrentAssignment(
        epoch=3, previous_epoch=2, state=MemberState.UNREVOKED_PARTITIONS, revoking={A: {0: 2}}
    )
    kept = CurrentAssignment(epoch=4, previous_epoch=3, assigned={A: {0: 4}})
    group = whole(current_record("g", "m1", asked))
    assert group.owners == {A: {0: "m1"}}
    group = whole(current_record("g", "m1", asked), current_record("g", "m1", kept))
    assert group.owners == {A: {0: "m1"}}
    assert group.members["m1"].current.assigned == {A: {0: 4}}


def test_members_have_equal_or_mixed_subscriptions() -> None:
    """One that comes, changes or leaves is counted; the assignor has the easy case with one."""
    group = ConsumerGroup("g")

    def put(member_id: str, *names: str, regex: str = "") -> int:
        metadata = replace(METADATA, instance_id=None, subscribed_topic_names=names)
        group.put(ConsumerMember(member_id, replace(metadata, subscribed_topic_regex=regex)))
        return len(group.subscriptions)

    assert [put("m1", "a"), put("m2", "a", "b"), put("m3", "a", "b")] == [1, 2, 2]
    group.remove("m1")
    assert group.subscriptions == {Subscription(("a", "b")): 2}
    assert [put("m2", "a", "b", "c"), put("m3", "a", "b", "c")] == [2, 1]
    assert [put("m2", "a", regex="b.*"), put("m3", "a", regex="b.*")] == [2, 1]


def test_the_state_of_a_group_follows_from_its_epochs_and_members() -> None:
    """Empty, assigning, reconciling and stable, by Kafka's names."""
    stable = CurrentAssignment(epoch=3, previous_epoch=2)
    assert whole().state is ConsumerState.RECONCILING
    assert whole(current_record("g", "m1", stable)).state is ConsumerState.STABLE
    assert whole(epoch_record("g", 4, 77)).state is ConsumerState.ASSIGNING
    assert [each.value for each in ConsumerState] == ["Empty", "Assigning", "Reconciling", "Stable"]


def test_the_first_record_of_a_group_replaces_a_group_of_another_kind() -> None:
    """A simple group has no record of its own, and gives way."""
    machine = new_machine(MemoryTopics())
    machine.replay(offset_record("g", TopicPartition("a", 0), COMMITTED), Origin(0))
    assert kinds(machine) == {"g": "classic"}
    for each in WHOLE:
        machine.replay(each, Origin(1))
    machine.replay(CoordinatorRecord(TransactionLogKey(), None), Origin(2))
    assert kinds(machine) == {"g": "consumer"}
