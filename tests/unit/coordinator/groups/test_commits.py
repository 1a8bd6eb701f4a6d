"""Committed offsets: who may commit, what is kept, and what is found."""

import uuid
from dataclasses import replace

from tailrace.coordinator.groups.classic_group import ClassicState
from tailrace.coordinator.groups.commits import Commit, Committer, OffsetToCommit
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.records import OffsetCommitValue
from tests.unit.coordinator.groups.stage import (
    DELAY,
    FLIGHTS,
    GROUP,
    MOMENT,
    NO_MEMBER,
    NOBODY,
    SESSION,
    Broker,
    Member,
    commit,
    on_stage,
    stable,
    stable_static,
)

PLANES = TopicPartition("planes", 2)
OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
PRODUCER = TransactionalProducer(ProducerId(7), ProducerEpoch(0))
OTHER_PRODUCER = TransactionalProducer(ProducerId(8), ProducerEpoch(0))


@on_stage()
async def test_an_operator_can_commit_for_a_group_that_is_not_known(broker: Broker) -> None:
    """It becomes a simple group, which has no record of its own."""
    assert await commit(broker, 5) == ErrorCode.NONE
    assert await broker.offset() == 5
    assert [type(each.value) for each in broker.records()] == [OffsetCommitValue]
    assert (broker.state, broker.group().protocol_type) == (ClassicState.EMPTY, None)


@on_stage()
async def test_a_simple_group_takes_any_ids(broker: Broker) -> None:
    """They are accepted as long as the client has no generation and the group no members."""
    for committer in (NOBODY, Committer(-1, "member", None), Committer(-1, "member", "instance")):
        assert await commit(broker, 5, committer=committer) == ErrorCode.NONE


@on_stage()
async def test_an_empty_group_id_can_commit(broker: Broker) -> None:
    """Old clients have none; a transaction must have one."""
    assert await commit(broker, 5, group_id="") == ErrorCode.NONE
    assert await broker.offset(group_id="") == 5
    refused = await commit(broker, 6, group_id="", producer=PRODUCER)
    assert refused == ErrorCode.INVALID_GROUP_ID


@on_stage()
async def test_a_member_of_a_group_that_is_gone_cannot_commit(broker: Broker) -> None:
    """Its error depends on the version: only since 9 there is one for it."""
    member = Committer(3, "member", None)
    for version, code in (
        (8, ErrorCode.ILLEGAL_GENERATION),
        (9, ErrorCode.GROUP_ID_NOT_FOUND),
        (10, ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        assert await commit(broker, 5, committer=member, version=version) == code
    assert await broker.offset() is None


@on_stage()
async def test_members_commit_in_their_generation(broker: Broker) -> None:
    """Strangers, other generations and clients without ids are refused while there are members."""
    [member] = await stable(broker, "member")
    assert await member.commit(5) == ErrorCode.NONE
    for other, code in (
        (replace(member, generation=0), ErrorCode.ILLEGAL_GENERATION),
        (replace(member, generation=2), ErrorCode.ILLEGAL_GENERATION),
        (replace(member, generation=-1), ErrorCode.ILLEGAL_GENERATION),
        (replace(member, member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(member, member_id="", generation=1), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(member, instance_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(member, member_id="", generation=-1), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert await other.commit(6) == code
    assert await broker.offset() == 5


@on_stage()
async def test_a_fenced_member_cannot_commit(broker: Broker) -> None:
    """Its instance has another id now."""
    _, member = await stable_static(broker, "leader", "follower")
    await replace(member, member_id="").join()
    assert await member.commit(5) == ErrorCode.FENCED_INSTANCE_ID


@on_stage()
async def test_commits_wait_for_the_assignment(broker: Broker) -> None:
    """Before it a member is told of the rebalance; in the join phase it can still commit."""
    member = Member(broker)
    joining = member.join()
    await broker.passes(DELAY * 2)
    await joining
    assert await member.commit(5) == ErrorCode.REBALANCE_IN_PROGRESS
    assert await member.commit(5, producer=PRODUCER) == ErrorCode.NONE
    await member.sync()
    Member(broker, "second").join()
    await broker.passes(MOMENT)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    assert await member.commit(6) == ErrorCode.NONE


@on_stage()
async def test_a_commit_keeps_a_member(broker: Broker) -> None:
    """It is heard of, even if nothing of what it commits can be stored."""
    [member] = await stable(broker, "member")
    for number in range(4):
        await broker.passes(SESSION - 1)
        committer = Committer(member.generation, member.member_id, None)
        metadata = "m" * 4_097 if number % 2 else ""
        await commit(broker, number, committer=committer, metadata=metadata)
    assert await member.heartbeat() == ErrorCode.NONE


@on_stage()
async def test_a_commit_of_a_transaction_keeps_no_member(broker: Broker) -> None:
    """It comes from a producer, which may live on without the consumer."""
    [member] = await stable(broker, "member")
    await broker.passes(SESSION - 1)
    await member.commit(1, producer=PRODUCER)
    await broker.passes(SESSION - 1)
    assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage(GroupSettings(metadata_characters_max=3))
async def test_metadata_has_a_limit(broker: Broker) -> None:
    """`offset.metadata.max.bytes` counts characters; what is too long is refused by partition."""
    assert await commit(broker, 5, metadata="äöü") == ErrorCode.NONE
    too_large = await commit(broker, 6, metadata="four")
    assert too_large == ErrorCode.OFFSET_METADATA_TOO_LARGE
    [found] = await broker.fetch(FLIGHTS)
    assert found.committed is not None
    assert (found.committed.offset, found.committed.metadata) == (5, "äöü")


@on_stage()
async def test_a_commit_is_stored_with_all_that_was_sent(broker: Broker) -> None:
    """Negative offsets too, as the client sends them; the time is the broker's."""
    await commit(broker, -7, leader_epoch=3, metadata="mine", topic_id=NEW)
    [stored] = [each.value for each in broker.records()]
    assert stored == OffsetCommitValue(
        offset=-7, leader_epoch=3, metadata="mine", commit_timestamp=broker.now_ms, topic_id=NEW
    )


@on_stage()
async def test_all_offsets_of_a_request_are_one_batch(broker: Broker) -> None:
    """A restart finds all of them, or none."""
    offsets = [
        OffsetToCommit(each, topic_id=NO_UUID, offset=5, leader_epoch=-1, metadata="")
        for each in (FLIGHTS, PLANES)
    ]
    request = Commit(group_id=GROUP, committer=NOBODY, offsets=offsets, version=9)
    codes = await broker.run(lambda machine, now: machine.commit(request, now))
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert (len(broker.log.content), len(broker.records())) == (1, 2)


@on_stage()
async def test_a_client_can_limit_the_time_of_a_commit(broker: Broker) -> None:
    """Versions 2 to 4 of OffsetCommit have a retention time, which counts from now."""
    await commit(broker, 5, version=2, retention_ms=1_000)
    [stored] = [each.value for each in broker.records()]
    assert isinstance(stored, OffsetCommitValue)
    assert stored.expire_timestamp == broker.now_ms + 1_000


@on_stage()
async def test_a_transaction_leaves_the_topic_id_out(broker: Broker) -> None:
    """Its topic id is not stored, and Kafka's own records of transactions have none either."""
    await commit(broker, 5, producer=PRODUCER, topic_id=NEW)
    [stored] = [each.value for each in broker.records()]
    assert isinstance(stored, OffsetCommitValue)
    assert stored.topic_id == NO_UUID


@on_stage()
async def test_unknown_groups_and_partitions_have_nothing(broker: Broker) -> None:
    """No error; a fetch of everything lists what there is, in order."""
    [nothing] = await broker.fetch(FLIGHTS, group_id="other")
    assert (nothing.committed, nothing.code) == (None, ErrorCode.NONE)
    assert await broker.fetch(group_id="other") == []
    await commit(broker, 5, PLANES)
    await commit(broker, 6, FLIGHTS)
    assert await broker.offset(TopicPartition("flights", 9)) is None
    assert [each.partition for each in await broker.fetch()] == [FLIGHTS, PLANES]


@on_stage()
async def test_offsets_of_a_topic_that_was_created_anew_are_not_found(broker: Broker) -> None:
    """The client names the topic's id, and the commit has another; a commit without one fits."""
    await commit(broker, 5, FLIGHTS, topic_id=OLD)
    await commit(broker, 6, PLANES)

    async def found(topic_id: uuid.UUID) -> list[int | None]:
        ids = {"flights": topic_id, "planes": topic_id}
        replies = await broker.run(
            lambda machine, _: machine.fetch_offsets(
                GROUP, (FLIGHTS, PLANES), fetcher=NO_MEMBER, is_stable=False, topic_ids=ids
            )
        )
        assert isinstance(replies, list)
        return [None if each.committed is None else each.committed.offset for each in replies]

    assert await found(OLD) == [5, 6]
    assert await found(NEW) == [None, 6]
    assert await found(NO_UUID) == [5, 6]


@on_stage()
async def test_offsets_of_a_transaction_count_from_its_marker_on(broker: Broker) -> None:
    """A commit makes them the group's, an abort drops them; each producer has its own."""
    await commit(broker, 1)
    await commit(broker, 5, producer=PRODUCER)
    await commit(broker, 6, PLANES, producer=OTHER_PRODUCER)
    assert (await broker.offset(), await broker.offset(PLANES)) == (1, None)
    await broker.end_transaction(PRODUCER, is_commit=True)
    assert (await broker.offset(), await broker.offset(PLANES)) == (5, None)
    await broker.end_transaction(OTHER_PRODUCER, is_commit=False)
    assert (await broker.offset(), await broker.offset(PLANES)) == (5, None)


@on_stage()
async def test_a_stable_fetch_waits_for_open_transactions(broker: Broker) -> None:
    """Partition by partition; without the wish for stable offsets the last one is found."""
    await commit(broker, 1)
    await commit(broker, 2, PLANES)
    await commit(broker, 5, producer=PRODUCER)
    for replies in (
        await broker.fetch(FLIGHTS, PLANES, is_stable=True),
        await broker.fetch(is_stable=True),
    ):
        assert [each.code for each in replies] == [
            ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE,
        ]  # fmt: skip
        assert [each.committed and each.committed.offset for each in replies] == [None, 2]
    assert await broker.offset() == 1
    await broker.end_transaction(PRODUCER, is_commit=False)
    [found] = await broker.fetch(FLIGHTS, is_stable=True)
    assert found.code == ErrorCode.NONE


@on_stage()
async def test_a_later_commit_is_kept_when_a_transaction_ends(broker: Broker) -> None:
    """The newest record counts, and not the newest marker."""
    await commit(broker, 5, producer=PRODUCER)
    await commit(broker, 6)
    await broker.end_transaction(PRODUCER, is_commit=True)
    assert await broker.offset() == 6
    await broker.restart()
    assert await broker.offset() == 6


@on_stage()
async def test_open_transactions_survive_a_restart(broker: Broker) -> None:
    """Their offsets are pending again, and the marker makes them count."""
    await commit(broker, 5, producer=PRODUCER)
    await broker.restart()
    [found] = await broker.fetch(FLIGHTS, is_stable=True)
    assert found.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    await broker.end_transaction(PRODUCER, is_commit=True)
    assert await broker.offset() == 5
    await broker.restart()
    assert await broker.offset() == 5


@on_stage()
async def test_transactions_can_commit_without_a_generation(broker: Broker) -> None:
    """Clients before version 3 of TxnOffsetCommit send none; with one it must be right."""
    [member] = await stable(broker, "member")
    assert await commit(broker, 5, producer=PRODUCER) == ErrorCode.NONE
    assert await member.commit(6, producer=PRODUCER) == ErrorCode.NONE
    old = replace(member, generation=0)
    assert await old.commit(7, producer=PRODUCER) == ErrorCode.ILLEGAL_GENERATION
    stranger = replace(member, member_id="stranger")
    assert await stranger.commit(7, producer=PRODUCER) == ErrorCode.UNKNOWN_MEMBER_ID
    unknown = replace(member, group_id="other")
    assert await unknown.commit(7, producer=PRODUCER) == ErrorCode.ILLEGAL_GENERATION


async def delete(broker: Broker, *partitions: TopicPartition, group_id: str = GROUP) -> object:
    """The reply to an OffsetDelete."""
    return await broker.run(lambda machine, _: machine.delete_offsets(group_id, partitions))


@on_stage()
async def test_offsets_can_be_deleted_of_topics_that_nobody_consumes(broker: Broker) -> None:
    """Each partition has its own result; one without an offset is no error."""
    [member] = await stable(broker, "member")
    for partition in (FLIGHTS, PLANES):
        assert await member.commit(5, partition) == ErrorCode.NONE
    nothing = TopicPartition("nothing", 0)
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(broker, FLIGHTS, PLANES, nothing) == [
        subscribed, ErrorCode.NONE, ErrorCode.NONE,
    ]  # fmt: skip
    assert (await broker.offset(), await broker.offset(PLANES)) == (5, None)
    await member.leave()
    assert await delete(broker, FLIGHTS) == [ErrorCode.NONE]
    assert await broker.offset() is None
    await broker.restart()
    assert await broker.fetch() == []


@on_stage()
async def test_offsets_of_other_groups_cannot_be_deleted(broker: Broker) -> None:
    """A group without id, an unknown one, and one whose members are not consumers."""
    assert await delete(broker, FLIGHTS, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert await delete(broker, FLIGHTS) == ErrorCode.GROUP_ID_NOT_FOUND
    [member] = await stable(broker, "member", protocol_type="connect")
    assert await delete(broker, FLIGHTS) == ErrorCode.NON_EMPTY_GROUP
    await member.leave()
    assert await delete(broker, FLIGHTS) == [ErrorCode.NONE]


@on_stage()
async def test_topics_of_consumers_that_cannot_be_known_are_all_consumed(broker: Broker) -> None:
    """A consumer may send metadata that only its own assignor can read."""
    for protocols in ({"mine": b""}, {"mine": b"\0"}, {"mine": b"\0\0\0\0\0\7no"}):
        [member] = await stable(broker, "member", protocols=protocols)
        assert await delete(broker, PLANES) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        await member.leave()


@on_stage()
async def test_to_delete_an_offset_drops_the_pending_one_too(broker: Broker) -> None:
    """Its transaction may commit afterwards: the offset stays deleted."""
    await commit(broker, 5, producer=PRODUCER)
    assert await delete(broker, FLIGHTS) == [ErrorCode.NONE]
    await broker.end_transaction(PRODUCER, is_commit=True)
    assert await broker.offset() is None


async def forget_flights(broker: Broker, group_id: str) -> None:
    """Delete what a group has committed for the topic."""
    await broker.run(lambda machine, _: machine.forget_offsets(group_id, [FLIGHTS], topic_id=NEW))


async def delete_group(broker: Broker, group_id: str = GROUP) -> ErrorCode | None:
    """The reply to a DeleteGroups."""
    return await broker.run(lambda machine, _: machine.delete_group(group_id))


@on_stage()
async def test_a_group_without_members_can_be_deleted(broker: Broker) -> None:
    """With its offsets, also after a restart; one with members, and an unknown one, cannot."""
    assert await delete_group(broker) == ErrorCode.GROUP_ID_NOT_FOUND
    [member] = await stable(broker, "member")
    await member.commit(5)
    await commit(broker, 6, group_id="other")
    assert await delete_group(broker) == ErrorCode.NON_EMPTY_GROUP
    await member.leave()
    assert await delete_group(broker) == ErrorCode.NONE
    for _ in range(2):
        assert list(broker.machine.groups.by_id) == ["other"]
        assert await broker.offset() is None
        await broker.restart()
    assert await broker.offset(group_id="other") == 6


@on_stage()
async def test_a_deleted_group_takes_its_pending_offsets_along(broker: Broker) -> None:
    """A marker that comes later finds nothing to commit; each partition has one tombstone."""
    await commit(broker, 4)
    await commit(broker, 5, producer=PRODUCER)
    await commit(broker, 6, PLANES, producer=PRODUCER)
    before = len(broker.records())
    assert await delete_group(broker) == ErrorCode.NONE
    assert len(broker.records()) - before == 3
    await broker.end_transaction(PRODUCER, is_commit=True)
    for _ in range(2):
        assert await broker.fetch() == []
        assert GROUP not in broker.machine.groups.by_id
        await broker.restart()


@on_stage()
async def test_a_deleted_group_forgets_the_ids_that_it_gave_out(broker: Broker) -> None:
    """Their deadlines pass without effect, and the id is a stranger's."""
    pending = Member(broker)
    await pending.join_once()
    assert await delete_group(broker) == ErrorCode.NONE
    await broker.passes(SESSION + 1)
    assert (await pending.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_offsets_go_with_their_topic(broker: Broker) -> None:
    """In all groups, pending ones too; not if they were committed for a topic with another id."""
    ids = {"matching": NEW, "unknown": NO_UUID, "other": OLD}
    for group_id, topic_id in ids.items():
        await commit(broker, 5, group_id=group_id, topic_id=topic_id)
        await commit(broker, 5, PLANES, group_id=group_id, topic_id=topic_id)
    await commit(broker, 6, group_id="pending", producer=PRODUCER)
    for group_id in broker.machine.groups.offsets.groups():
        await forget_flights(broker, group_id)
    await broker.end_transaction(PRODUCER, is_commit=True)
    for _ in range(2):
        assert [await broker.offset(group_id=each) for each in (*ids, "pending")] == [
            None, None, 5, None,
        ]  # fmt: skip
        assert [await broker.offset(PLANES, group_id=each) for each in ids] == [5, 5, 5]
        await broker.restart()
