"""Static members: a restart keeps the place in the group (KIP-345, KIP-814)."""

import asyncio
from dataclasses import replace

from tailrace.coordinator.groups.classic_group import ClassicState
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.leave_group import MemberIdentity
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
    stable_static,
    subscription,
    synced,
)


@on_stage()
async def test_a_static_member_joins_with_its_first_request(broker: Broker) -> None:
    """Its id is `instanceId-UUID`, and the group is stored with it."""
    [member] = await stable_static(broker, "one")
    assert member.member_id.startswith("one-")
    [stored] = broker.stored_group().members
    assert (stored.group_instance_id, stored.member_id) == ("one", member.member_id)


@on_stage()
async def test_a_follower_that_restarts_keeps_its_assignment(broker: Broker) -> None:
    """It gets a new id and the same generation; nobody else hears of it, and it is stored."""
    leader, follower = await stable_static(broker, "leader", "follower")
    again = replace(follower, member_id="", generation=-1)
    reply = await again.join()
    assert (reply.error_code, reply.generation_id, reply.members) == (ErrorCode.NONE, 1, ())
    assert reply.leader == leader.member_id
    assert again.member_id not in {"", follower.member_id}
    assert broker.state is ClassicState.STABLE
    assert (await again.sync()).assignment == follower.member_id.encode()
    assert again.member_id in [each.member_id for each in broker.stored_group().members]
    assert await leader.heartbeat() == ErrorCode.NONE


@on_stage()
async def test_a_leader_that_restarts_is_told_to_assign_nothing(broker: Broker) -> None:
    """Version 9 shows it the members all the same, so that it can watch their topics (KIP-814)."""
    leader, _ = await stable_static(broker, "leader", "follower")
    again = replace(leader, member_id="")
    reply = await again.join()
    assert (reply.skip_assignment, reply.leader) == (True, again.member_id)
    assert len(reply.members) == 2
    assert (await again.sync()).assignment == leader.member_id.encode()


@on_stage()
async def test_before_version_9_a_leader_that_restarts_sees_its_old_id_lead(broker: Broker) -> None:
    """It would assign if it saw itself as the leader, and it has no members to assign to."""
    leader, _ = await stable_static(broker, "leader", "follower", version=8)
    again = replace(leader, member_id="")
    reply = await again.join()
    assert (reply.leader, reply.members, reply.skip_assignment) == (leader.member_id, (), False)
    assert broker.group().leader_id == again.member_id


@on_stage()
async def test_each_restart_gives_another_id(broker: Broker) -> None:
    """Also many in a row, without a rebalance."""
    [_, member] = await stable_static(broker, "leader", "follower")
    ids = {member.member_id}
    for _ in range(5):
        ids.add((await replace(member, member_id="").join()).member_id)
    assert len(ids) == 6
    assert broker.group().generation == 1


@on_stage()
async def test_the_old_id_of_a_static_member_is_fenced(broker: Broker) -> None:
    """In every request that names the instance; without it, the id is a stranger's."""
    _, old = await stable_static(broker, "leader", "follower")
    await replace(old, member_id="").join()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert await old.heartbeat() == fenced
    assert (await old.sync()).error_code == fenced
    assert await old.commit(1) == fenced
    assert await old.leave() == fenced
    assert (await old.join()).error_code == fenced
    assert await replace(old, instance_id=None).heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_an_instance_that_is_not_known_is_a_stranger(broker: Broker) -> None:
    """With any member id, known or not, in every request but a first JoinGroup."""
    [member] = await stable_static(broker, "leader")
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    for member_id in (member.member_id, "stranger"):
        other = replace(member, instance_id="other", member_id=member_id)
        assert await other.heartbeat() == unknown
        assert (await other.sync()).error_code == unknown
        assert (await other.join()).error_code == unknown
        assert await other.commit(1) == unknown
        assert await other.leave() == unknown
    assert broker.state is ClassicState.STABLE


@on_stage()
async def test_a_static_member_that_asks_again_with_its_id_changes_nothing(broker: Broker) -> None:
    """Its answer was lost: before the sync, and as a follower of a stable group."""
    leader, follower = (Member(broker, name, instance_id=name) for name in ("leader", "follower"))
    joining = [leader.join(), follower.join()]
    await broker.passes(DELAY * 2)
    first, second = [await each for each in joining]
    assert (await leader.join_once(), await follower.join_once()) == (first, second)
    assert broker.state.value == "CompletingRebalance"
    await synced(broker, leader, follower)
    before = len(broker.log.content)
    again = await follower.join_once()
    assert (again.generation_id, again.leader, again.members) == (1, leader.member_id, ())
    assert broker.state is ClassicState.STABLE
    assert len(broker.log.content) == before


@on_stage()
async def test_a_static_member_of_an_empty_group_is_a_stranger(broker: Broker) -> None:
    """With the id that it had; without one it can join anew."""
    [member] = await stable_static(broker, "leader")
    assert await member.leave() == ErrorCode.NONE
    assert broker.state is ClassicState.EMPTY
    assert (await member.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    joining = replace(member, member_id="").join()
    await broker.passes(DELAY * 2)
    assert (await joining).error_code == ErrorCode.NONE


@on_stage()
async def test_a_member_and_the_instance_of_another_do_not_fit(broker: Broker) -> None:
    """Not even if both are in the group."""
    leader, follower = await stable_static(broker, "leader", "follower")
    for mixed in (
        replace(leader, instance_id="follower"),
        replace(follower, instance_id="leader"),
        replace(follower, member_id="stranger"),
    ):
        assert await mixed.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        assert (await mixed.join()).error_code == ErrorCode.FENCED_INSTANCE_ID


@on_stage()
async def test_what_the_old_id_waits_for_is_fenced(broker: Broker) -> None:
    """A parked JoinGroup and a parked SyncGroup, so that a duplicate ends at once."""
    leader, follower = await stable_static(broker, "leader", "follower")
    leading = leader.join()
    await broker.passes(MOMENT)
    again = replace(leader, member_id="").join()
    await broker.passes(MOMENT)
    assert (await leading).error_code == ErrorCode.FENCED_INSTANCE_ID
    await follower.join()
    assert (await again).generation_id == 2
    syncing = follower.sync()
    await broker.passes(MOMENT)
    once_more = replace(follower, member_id="").join()
    await broker.passes(MOMENT)
    assert (await syncing).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert not once_more.done()


@on_stage()
async def test_a_restart_before_the_sync_begins_a_rebalance(broker: Broker) -> None:
    """The leader may assign to the old id, so it has to assign again."""
    leader, follower = await stable_static(broker, "leader", "follower")
    joining = [leader.join()]
    await broker.passes(MOMENT)
    joining.append(follower.join())
    await asyncio.gather(*joining)
    again = replace(follower, member_id="")
    coming = again.join()
    await broker.passes(MOMENT)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    assert (await leader.sync()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await leader.join()).generation_id == (await coming).generation_id == 3
    await synced(broker, leader, again)


@on_stage()
async def test_a_restart_with_another_assignor_begins_a_rebalance(broker: Broker) -> None:
    """If the group would choose another one now; otherwise it keeps its generation."""
    both = {"range": b"", "sticky": b""}
    leader, follower = await stable_static(broker, "leader", "follower", protocols=both)
    kept = replace(
        follower, member_id="", protocols={"range": subscription("planes"), "other": b""}
    )
    assert (await kept.join()).generation_id == 1
    await replace(kept, member_id="", protocols=both).join()
    changed = replace(follower, member_id="", protocols={"sticky": b""})
    joining = changed.join()
    await broker.passes(MOMENT)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    assert (await leader.join()).protocol_name == "sticky"
    assert (await joining).generation_id == 2


@on_stage()
async def test_a_restart_that_cannot_be_stored_changes_nothing(broker: Broker) -> None:
    """The old id stays valid with its assignor and timeouts, and the next restart succeeds."""
    leader, follower = await stable_static(broker, "leader", "follower")
    again = replace(follower, member_id="", session_timeout_ms=20_000)
    broker.log.refusal = OSError(28, "no space left on device")
    for restarted in (again, replace(leader, member_id="")):
        joining = restarted.join()
        await broker.passes(MOMENT)
        assert "no space left" in str(joining.exception())
    broker.log.refusal = None
    assert await follower.heartbeat() == ErrorCode.NONE
    assert await leader.heartbeat() == ErrorCode.NONE
    assert broker.group().members[follower.member_id].session_timeout_ms == 10_000
    assert broker.group().leader_id == leader.member_id
    assert (await again.join()).error_code == ErrorCode.NONE


@on_stage()
async def test_a_static_member_has_its_session_to_restart_in(broker: Broker) -> None:
    """Then it is dropped like any other, and the group rebalances."""
    leader, _ = await stable_static(broker, "leader", "follower")
    await leader.heartbeats(SESSION - 2)
    assert await leader.heartbeat() == ErrorCode.NONE
    await leader.heartbeats(3)
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(broker.group().static_members) == ["leader"]


@on_stage()
async def test_a_static_member_may_restart_in_its_first_join(broker: Broker) -> None:
    """It waits for the others as long as they take, and not only for its session."""
    [leader] = await stable(broker, "leader")
    follower = Member(broker, instance_id="follower")
    follower.join()
    await broker.passes(MOMENT)
    again = replace(follower, member_id="")
    joining = again.join()
    await leader.heartbeats(SESSION + 5)
    assert not joining.done()
    await leader.join()
    assert ((await joining).error_code, again.generation) == (ErrorCode.NONE, 2)


LONG = round(REBALANCE * 10_000)


@on_stage()
async def test_a_static_follower_may_miss_a_join_phase(broker: Broker) -> None:
    """It stays in the group after the rebalance timeout, and its restart needs no rebalance."""
    leader, follower = await stable_static(broker, "leader", "follower", session_timeout_ms=LONG)
    leading = leader.join()
    await broker.passes(REBALANCE + 1)
    assert (await leading).generation_id == 2
    assert {each.group_instance_id for each in leader.joined.members} == {"leader", "follower"}
    await leader.sync(assigned_to([leader, follower]))
    again = replace(follower, member_id="")
    reply = await again.join()
    assert (reply.error_code, reply.generation_id) == (ErrorCode.NONE, 2)
    assert (await again.sync()).assignment == follower.member_id.encode()


@on_stage()
async def test_a_static_leader_may_miss_a_join_phase(broker: Broker) -> None:
    """Another member leads then; both are in the generation."""
    leader, follower = await stable_static(broker, "leader", "follower", session_timeout_ms=LONG)
    follower.protocols = {"range": subscription("planes")}
    joining = follower.join()
    await broker.passes(REBALANCE + 1)
    assert (await joining).generation_id == 2
    assert follower.is_leader
    assert len(follower.joined.members) == 2
    assert list(broker.group().static_members) == ["leader", "follower"]
    assert leader.member_id in broker.group().members


@on_stage()
async def test_a_join_phase_goes_on_while_no_static_member_joins(broker: Broker) -> None:
    """Nobody could lead; a session that ends, or a join, ends it."""
    await stable_static(broker, "leader", "follower", session_timeout_ms=LONG)
    dynamic = Member(broker, "dynamic", session_timeout_ms=LONG)
    dynamic.join()
    await broker.passes(1)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    await dynamic.leave()
    await broker.passes(REBALANCE * 2.5)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    again = Member(broker, instance_id="follower", session_timeout_ms=LONG)
    joining = again.join()
    await broker.passes(REBALANCE + 1)
    assert (await joining).generation_id == 2
    assert again.is_leader


@on_stage()
async def test_a_restart_between_join_and_sync_of_its_group_has_to_sync(broker: Broker) -> None:
    """The group is stable and waits for the old id's sync; the new id takes its turn."""
    leader, follower = await stable_static(broker, "leader", "follower", session_timeout_ms=LONG)
    leading = leader.join()
    await broker.passes(MOMENT)
    await follower.join()
    await leading
    await leader.sync(assigned_to([leader, follower]))
    again = replace(follower, member_id="")
    assert (await again.join()).generation_id == 2
    assert (await again.sync()).assignment == follower.member_id.encode()
    await broker.passes(REBALANCE + 1)
    assert broker.state is ClassicState.STABLE


@on_stage()
async def test_a_restart_that_never_syncs_is_dropped(broker: Broker) -> None:
    """It is dropped like every member that asks for no assignment within the rebalance timeout."""
    leader, follower = await stable_static(broker, "leader", "follower", session_timeout_ms=LONG)
    leading = leader.join()
    await broker.passes(MOMENT)
    await follower.join()
    await leading
    await leader.sync(assigned_to([leader, follower]))
    await replace(follower, member_id="").join()
    await broker.passes(REBALANCE + 1)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    assert list(broker.group().static_members) == ["leader"]


@on_stage()
async def test_an_operator_removes_static_members_by_their_instance(broker: Broker) -> None:
    """Without member ids; each has its own result."""
    leader, *_ = await stable_static(broker, "leader", "second", "third")
    results = await remove(
        broker,
        MemberIdentity(group_instance_id="second"),
        MemberIdentity(group_instance_id="other"),
        MemberIdentity(group_instance_id="third", member_id="stranger"),
    )
    assert results == [
        ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID,
    ]  # fmt: skip
    assert list(broker.group().static_members) == ["leader", "third"]
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


@on_stage()
async def test_static_members_survive_a_restart_of_the_broker(broker: Broker) -> None:
    """With instance ids, so that they can restart then without a rebalance."""
    leader, follower = await stable_static(broker, "leader", "follower")
    await broker.restart()
    assert broker.state is ClassicState.STABLE
    assert await leader.heartbeat() == ErrorCode.NONE
    again = replace(follower, member_id="")
    assert (await again.join()).generation_id == 1
    assert (await again.sync()).assignment == follower.member_id.encode()


@on_stage()
async def test_a_static_member_without_a_rebalance_timeout_costs_no_turns(broker: Broker) -> None:
    """It is left alone, and the group waits for it until its session ends, a second at a time."""
    alone = Member(
        broker, "alone", instance_id="i", rebalance_timeout_ms=0, session_timeout_ms=60_000
    )
    other = Member(broker, "other")
    joins = [each.join() for each in (alone, other)]
    await broker.passes(DELAY * 3)
    await asyncio.gather(*joins)
    leader, follower = (alone, other) if alone.is_leader else (other, alone)
    following = follower.sync()
    await broker.passes(MOMENT)
    await leader.sync(assigned_to([alone, other]))
    await following
    await other.leave()
    await broker.passes(30)
    assert list(broker.group().members) == [alone.member_id]
