"""SyncGroup, Heartbeat and LeaveGroup: what members do between two joins."""

import asyncio
from dataclasses import replace

import pytest

from tailrace.coordinator.groups.classic_group import ClassicState
from tailrace.protocol.errors import ErrorCode, UnencodableMessageError
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.unit.coordinator.groups.stage import (
    DELAY,
    MOMENT,
    REBALANCE,
    SESSION,
    Broker,
    Member,
    assigned_to,
    on_stage,
    remove,
    stable,
    synced,
)


async def joined(broker: Broker, *names: str) -> list[Member]:
    """Members of a generation that nobody has synced; the first one leads."""
    members = [Member(broker, name) for name in names]
    joining = [each.join() for each in members]
    await broker.passes(DELAY * 2)
    await asyncio.gather(*joining)
    return members


@on_stage()
async def test_a_follower_waits_for_the_leader(broker: Broker) -> None:
    """Its answer comes with the leader's assignments; nobody else gets it."""
    leader, follower = await joined(broker, "leader", "follower")
    following = follower.sync()
    await leader.heartbeats(SESSION * 2)
    assert not following.done()
    leading = leader.sync({leader.member_id: b"a", follower.member_id: b"b"})
    assert ((await leading).assignment, (await following).assignment) == (b"a", b"b")
    assert ((await leading).protocol_type, (await leading).protocol_name) == ("consumer", "range")


@on_stage()
async def test_a_follower_that_syncs_later_is_answered_at_once(broker: Broker) -> None:
    """The assignment is there already, as often as it asks."""
    leader, follower = await joined(broker, "leader", "follower")
    await leader.sync(assigned_to([leader, follower]))
    for _ in range(2):
        assert (await follower.sync()).assignment == follower.member_id.encode()


@on_stage()
async def test_a_member_that_the_leader_forgets_gets_nothing(broker: Broker) -> None:
    """Empty bytes, and no error."""
    leader, follower = await joined(broker, "leader", "follower")
    await leader.sync({"stranger": b"x"})
    reply = await follower.sync()
    assert (reply.error_code, reply.assignment) == (ErrorCode.NONE, b"")


@on_stage()
async def test_a_sync_that_is_sent_twice_is_answered_twice(broker: Broker) -> None:
    """The connection of the first one may still be there."""
    leader, follower = await joined(broker, "leader", "follower")
    both = [follower.sync(), follower.sync()]
    await broker.passes(MOMENT)
    await leader.sync(assigned_to([leader, follower]))
    assert await both[0] == await both[1]


@on_stage()
async def test_a_sync_has_to_fit_the_generation(broker: Broker) -> None:
    """Group, member, generation, protocol type and name; what is not named is not compared."""
    members = await joined(broker, "leader", "follower")
    [member, _] = members
    for other, code in (
        (replace(member, group_id=""), ErrorCode.INVALID_GROUP_ID),
        (replace(member, group_id="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(member, member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(member, generation=7), ErrorCode.ILLEGAL_GENERATION),
    ):
        assert (await other.sync()).error_code == code
    for reply in (
        await member.sync(protocol_type="connect"),
        await member.sync(protocol_name="sticky"),
    ):
        assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (reply.protocol_type, reply.protocol_name) == (None, None)
    reply = await member.sync(assigned_to(members), protocol_type="consumer", protocol_name="range")
    assert reply.error_code == ErrorCode.NONE


@on_stage()
async def test_a_rebalance_ends_the_wait_for_the_leader(broker: Broker) -> None:
    """A parked SyncGroup is answered REBALANCE_IN_PROGRESS, and one that comes then is too."""
    leader, follower = await joined(broker, "leader", "follower")
    following = follower.sync()
    await broker.passes(MOMENT)
    third = Member(broker, "third").join()
    await broker.passes(MOMENT)
    assert (await following).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await leader.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert not third.done()


@on_stage()
async def test_members_that_do_not_sync_are_dropped(broker: Broker) -> None:
    """A sync phase has the rebalance timeout too; then the group rebalances without them."""
    members = await joined(broker, "leader", "follower", "late")
    leader, follower, late = members
    await asyncio.gather(leader.sync(assigned_to(members)), follower.sync())
    beating = [each.heartbeats(REBALANCE + 1) for each in members]
    await asyncio.gather(*beating)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    assert await late.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert await follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    joining = [leader.join(), follower.join()]
    assert [(await each).generation_id for each in joining] == [2, 2]


@on_stage()
async def test_a_leader_that_does_not_sync_is_dropped(broker: Broker) -> None:
    """Its followers, which wait, are asked to join again, and one of them leads."""
    members = await joined(broker, "leader", "follower", "third")
    leader, *followers = members
    syncing = [each.sync() for each in followers]
    await leader.heartbeats(REBALANCE + 1)
    assert [(await each).error_code for each in syncing] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    joining = [each.join() for each in followers]
    assert [(await each).generation_id for each in joining] == [2, 2]
    assert followers[0].is_leader
    assert await leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_nobody_is_dropped_when_all_have_synced(broker: Broker) -> None:
    """The sync phase's timeout ends with its last sync."""
    members = await joined(broker, "leader", "follower")
    await synced(broker, *members)
    await asyncio.gather(*[each.heartbeats(REBALANCE * 2) for each in members])
    assert broker.state is ClassicState.STABLE


@on_stage()
async def test_a_leader_that_is_lost_before_its_sync_is_replaced(broker: Broker) -> None:
    """Its session ends, and the followers hear of a rebalance."""
    leader, follower = await joined(broker, "leader", "follower")
    following = follower.sync()
    await broker.passes(SESSION + 1)
    assert (await following).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await follower.join()).generation_id == 2
    assert follower.is_leader
    assert list(broker.group().members) == [follower.member_id]
    assert (await leader.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_a_heartbeat_has_to_fit_the_generation(broker: Broker) -> None:
    """Group, member and generation; a pending id is no member yet."""
    [member] = await stable(broker, "member")
    pending = Member(broker)
    await pending.join_once()
    for other, code in (
        (replace(member, group_id=""), ErrorCode.INVALID_GROUP_ID),
        (replace(member, group_id="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(member, member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(member, generation=7), ErrorCode.ILLEGAL_GENERATION),
        (replace(member, instance_id="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (pending, ErrorCode.UNKNOWN_MEMBER_ID),
        (member, ErrorCode.NONE),
    ):
        assert await other.heartbeat() == code


@on_stage()
async def test_a_heartbeat_to_an_empty_group_is_of_a_stranger(broker: Broker) -> None:
    """Its members are all gone."""
    [member] = await stable(broker, "member")
    assert await member.leave() == ErrorCode.NONE
    assert broker.state is ClassicState.EMPTY
    assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.sync()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await member.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_heartbeats_keep_a_member_and_their_lack_drops_it(broker: Broker) -> None:
    """The session begins anew with each."""
    [member] = await stable(broker, "member")
    await member.heartbeats(SESSION * 3)
    assert await member.heartbeat() == ErrorCode.NONE
    await broker.passes(SESSION - 0.1)
    assert await member.heartbeat() == ErrorCode.NONE
    await broker.passes(SESSION + 0.1)
    assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.state is ClassicState.EMPTY


@on_stage()
async def test_heartbeats_between_join_and_sync_keep_a_member(broker: Broker) -> None:
    """A leader may take long to assign, and its client beats meanwhile."""
    [leader] = await joined(broker, "leader")
    await leader.heartbeats(SESSION * 2)
    assert await leader.heartbeat() == ErrorCode.NONE
    assert (await leader.sync(assigned_to([leader]))).error_code == ErrorCode.NONE


@on_stage()
async def test_a_member_that_does_not_beat_is_dropped_in_a_rebalance(broker: Broker) -> None:
    """The others need not wait for the whole rebalance timeout."""
    leader, follower = await stable(broker, "leader", "follower")
    leading = leader.join()
    await broker.passes(SESSION + 1)
    assert (await leading).generation_id == 2
    assert await follower.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_a_member_that_waits_needs_no_heartbeats(broker: Broker) -> None:
    """Its client cannot send any while its JoinGroup is parked, and gets a whole session then."""
    leader, follower = await stable(broker, "leader", "follower")
    leading = leader.join()
    await follower.heartbeats(SESSION * 3)
    assert not leading.done()
    await follower.join()
    assert (await leading).generation_id == 2
    await broker.passes(SESSION - 1)
    assert await leader.heartbeat() == ErrorCode.NONE


@on_stage()
async def test_a_member_that_leaves_begins_a_rebalance(broker: Broker) -> None:
    """The others hear of it with their next heartbeat, and no id can be used twice."""
    leader, follower = await stable(broker, "leader", "follower")
    assert await follower.leave() == ErrorCode.NONE
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert await follower.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await leader.join()).generation_id == 2


@on_stage()
async def test_a_member_that_leaves_can_end_a_join_phase(broker: Broker) -> None:
    """It was the one for which the others waited."""
    leader, follower = await stable(broker, "leader", "follower")
    leading = leader.join()
    await broker.passes(MOMENT)
    assert await follower.leave() == ErrorCode.NONE
    assert (await leading).generation_id == 2


@on_stage()
async def test_what_a_removed_member_waits_for_is_answered(broker: Broker) -> None:
    """Its parked JoinGroup or SyncGroup gets UNKNOWN_MEMBER_ID, so that it can join anew."""
    leader, follower = await stable(broker, "leader", "follower")
    joining = follower.join_once()
    await broker.passes(MOMENT)
    follower.protocols = {"range": b"\0\0\0\0\0\0\xff\xff\xff\xff"}
    joining = follower.join_once()
    await broker.passes(MOMENT)
    await follower.leave()
    assert (await joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await leader.join()
    member = Member(broker, "again", instance_id="again")
    coming, leading = member.join(), leader.join()
    await asyncio.gather(coming, leading)
    syncing = member.sync()
    await broker.passes(MOMENT)
    await remove(broker, MemberIdentity(member_id="", group_instance_id="again"))
    assert (await syncing).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_strangers_cannot_leave(broker: Broker) -> None:
    """Each is told so, also if the group is not known; only an empty group id ends it all."""
    await stable(broker, "member")
    stranger = MemberIdentity(member_id="stranger")
    nameless = MemberIdentity(member_id="", group_instance_id=None)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert await remove(broker, stranger, nameless) == [unknown, unknown]
    assert await remove(broker, stranger, nameless, group_id="other") == [unknown, unknown]
    request = LeaveGroupRequest(group_id="", members=(stranger,))
    reply = await broker.run(lambda machine, now: machine.leave(request, now))
    assert (reply.error_code, reply.members) == (ErrorCode.INVALID_GROUP_ID, ())


@on_stage()
async def test_several_members_leave_at_once(broker: Broker) -> None:
    """Each has a result of its own, and the group rebalances once."""
    leader, second, third = await stable(broker, "leader", "second", "third")
    results = await remove(
        broker,
        MemberIdentity(member_id=second.member_id),
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id=third.member_id),
    )
    assert results == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert (await leader.join()).generation_id == 2
    assert [each.member_id for each in leader.joined.members] == [leader.member_id]


@on_stage()
async def test_ids_that_were_given_out_can_leave(broker: Broker) -> None:
    """Alone or with members; a rebalance that waits for them ends."""
    [leader] = await stable(broker, "leader")
    pending = [Member(broker, name) for name in ("one", "two")]
    for each in pending:
        await each.join_once()
    leading = leader.join()
    await broker.passes(MOMENT)
    assert await pending[0].leave() == ErrorCode.NONE
    assert not leading.done()
    results = await remove(
        broker,
        MemberIdentity(member_id=pending[1].member_id),
        MemberIdentity(member_id="stranger"),
    )
    assert results == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert (await leading).generation_id == 2
    assert (await pending[0].join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_a_group_that_is_new_is_stored_without_protocol_and_leader(broker: Broker) -> None:
    """In generation 0, before its first member has joined: both are null, as in Kafka."""
    await Member(broker, "member").join_once()
    stored = broker.stored_group()
    assert (stored.generation, stored.protocol, stored.leader) == (0, None, None)
    assert (stored.members, stored.protocol_type) == ((), "")


@on_stage()
async def test_the_last_member_leaves_an_empty_group(broker: Broker) -> None:
    """It is stored as such, in a generation of its own."""
    [member] = await stable(broker, "member")
    await member.leave()
    assert broker.state is ClassicState.EMPTY
    stored = broker.stored_group()
    assert (stored.generation, stored.protocol, stored.leader) == (2, None, None)
    assert (stored.members, stored.protocol_type) == ((), "consumer")
    assert stored.current_state_timestamp == broker.now_ms


@on_stage()
async def test_a_cooperative_rebalance_needs_two_generations(broker: Broker) -> None:
    """Members keep what they have, give up some of it, and join again, as with any assignor."""
    protocols = {"cooperative-sticky": b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0"}
    [leader] = await stable(broker, "leader", protocols=protocols)
    second = Member(broker, "second", protocols=protocols)
    coming = second.join()
    await broker.passes(MOMENT)
    await leader.join()
    await coming
    await asyncio.gather(leader.sync({leader.member_id: b"half"}), second.sync())
    assert (leader.assignment, second.assignment) == (b"half", b"")
    leading = leader.join()
    await broker.passes(MOMENT)
    assert await second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await second.join()).generation_id == (await leading).generation_id == 3
    await synced(broker, leader, second)


@on_stage()
async def test_assignments_that_cannot_be_stored_begin_another_rebalance(broker: Broker) -> None:
    """An instance id may be so long that its member fits no record; nobody waits for ever."""
    members = [Member(broker, "a"), Member(broker, "b", instance_id="x" * 32_767)]
    joining = [each.join() for each in members]
    await broker.passes(DELAY * 3)
    await asyncio.gather(*joining)
    leader, follower = sorted(members, key=lambda each: not each.is_leader)
    following = follower.sync()
    await broker.passes(MOMENT)
    with pytest.raises(UnencodableMessageError):
        await leader.sync(assigned_to(members))
    assert (await following).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.state is ClassicState.PREPARING_REBALANCE
