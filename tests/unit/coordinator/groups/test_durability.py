"""Restarts, refused appends and late commits: what clients are told is what a restart finds."""

import asyncio

import pytest

from tailrace.coordinator.errors import CoordinatorNotAvailableError, NotCoordinatorError
from tailrace.coordinator.groups.classic_group import ClassicState
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.groups.stage import (
    DELAY,
    MOMENT,
    SESSION,
    Broker,
    Member,
    assigned_to,
    commit,
    on_stage,
    stable,
    synced,
)

FULL = OSError(28, "no space left on device")


async def generation(broker: Broker, *names: str) -> list[Member]:
    """Members that have joined and not synced."""
    members = [Member(broker, name) for name in names]
    joining = [each.join() for each in members]
    await broker.passes(DELAY * 2)
    await asyncio.gather(*joining)
    return members


@on_stage()
async def test_a_stable_group_goes_on_after_a_restart(broker: Broker) -> None:
    """Members, generation, leader, assignor and assignments are as they were."""
    members = await stable(broker, "leader", "follower")
    await broker.restart()
    assert broker.state is ClassicState.STABLE
    for each in members:
        assert await each.heartbeat() == ErrorCode.NONE
        assert await each.commit(5) == ErrorCode.NONE
        assert (await each.sync()).assignment == each.member_id.encode()
    assert broker.group().leader_id == members[0].member_id
    assert (await members[1].join_once()).generation_id == 1
    assert broker.group().subscribed_topics == frozenset({"flights"})


@on_stage()
async def test_sessions_begin_anew_with_a_restart(broker: Broker) -> None:
    """Members have a whole one to find the broker, and those that do not are dropped."""
    leader, _ = await stable(broker, "leader", "follower")
    await broker.passes(SESSION - 1)
    await broker.restart()
    await broker.passes(SESSION - 1)
    assert await leader.heartbeat() == ErrorCode.NONE
    await broker.passes(2)
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(broker.group().members) == [leader.member_id]


@on_stage()
async def test_every_prefix_of_the_log_is_a_group(broker: Broker) -> None:
    """A broker that starts after any record finds the group and the offset as of that record."""
    leader, follower = await stable(broker, "leader", "follower")
    await leader.commit(5)
    await follower.commit(6)
    await follower.leave()
    await leader.join()
    await synced(broker, leader)
    await leader.commit(7)
    await leader.leave()
    await commit(broker, 8)
    content = broker.log.content
    expected = [
        (None, 0, None), (0, 0, None), (1, 2, None), (1, 2, 5), (1, 2, 6), (2, 1, 6), (2, 1, 7),
        (3, 0, 7), (3, 0, 8),
    ]  # fmt: skip
    assert len(content) == len(expected) - 1
    for count, (number, size, offset) in enumerate(expected):
        broker.log.content = content
        await broker.restart(records=count)
        found = broker.machine.groups.classic("g")
        assert number == (None if found is None else found.generation)
        assert size == (0 if found is None else len(found.members))
        assert await broker.offset() == offset


@on_stage()
async def test_a_generation_that_was_not_stored_is_lost_with_the_broker(broker: Broker) -> None:
    """Its members are told to join again, and so are those of a group that was never stored."""
    leader, follower = await stable(broker, "leader", "follower")
    leading = leader.join()
    await broker.passes(MOMENT)
    await follower.join()
    assert (await leading).generation_id == 2
    await broker.restart()
    assert await leader.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert (await leader.sync()).error_code == ErrorCode.ILLEGAL_GENERATION
    [other] = [Member(broker, group_id="other")]
    joining = other.join()
    await broker.passes(DELAY * 2)
    assert (await joining).error_code == ErrorCode.NONE
    await broker.restart()
    assert await other.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_parked_requests_are_answered_when_the_broker_resigns(broker: Broker) -> None:
    """Their clients look the coordinator up again."""
    leader, follower = await generation(broker, "leader", "follower")
    syncing = follower.sync()
    joining = Member(broker, group_id="other").join()
    await broker.passes(MOMENT)
    broker.stop()
    await broker.passes(MOMENT)
    for each in (syncing, joining):
        assert isinstance(each.exception(), NotCoordinatorError)
    with pytest.raises(NotCoordinatorError):
        await leader.heartbeat()


@on_stage()
async def test_no_sync_is_answered_before_the_assignment_is_committed(broker: Broker) -> None:
    """Not the leader's, not one that was parked, not one that comes later."""
    leader, follower = await generation(broker, "leader", "follower")
    syncing = [follower.sync()]
    await broker.passes(MOMENT)
    broker.log.hold_commits()
    syncing.append(leader.sync(assigned_to([leader, follower])))
    await broker.passes(MOMENT)
    syncing.append(follower.sync())
    beating = broker.send(leader.heartbeat())
    await broker.passes(SESSION / 2)
    assert [each.done() for each in (*syncing, beating)] == [False] * 4
    broker.log.commit()
    replies = await asyncio.gather(*syncing)
    assert [each.error_code for each in replies] == [ErrorCode.NONE] * 3
    assert await beating == ErrorCode.NONE


@on_stage()
async def test_no_offset_is_found_before_it_is_committed(broker: Broker) -> None:
    """Neither the client that commits nor one that fetches is told of what may be lost."""
    await commit(broker, 5)
    broker.log.hold_commits()
    committing = broker.send(commit(broker, 6))
    await broker.passes(MOMENT)
    fetching = broker.send(broker.offset())
    await broker.passes(60)
    assert (committing.done(), fetching.done()) == (False, False)
    broker.log.commit()
    assert (await committing, await fetching) == (ErrorCode.NONE, 6)


@on_stage()
async def test_a_commit_that_cannot_be_appended_changes_nothing(broker: Broker) -> None:
    """In a transaction or not; the client is told to ask again."""
    await commit(broker, 5)
    broker.log.refusal = FULL
    for _ in range(2):
        with pytest.raises(CoordinatorNotAvailableError, match="no space left"):
            await commit(broker, 6)
    with pytest.raises(CoordinatorNotAvailableError):
        await commit(broker, 6, group_id="other")
    broker.log.refusal = None
    assert await broker.offset() == 5
    assert list(broker.machine.groups.by_id) == ["g"]


@on_stage()
async def test_a_group_that_cannot_be_appended_is_not_there(broker: Broker) -> None:
    """Neither its member nor an id that it gave out, for clients of both versions."""
    broker.log.refusal = FULL
    for version in (3, 9):
        joining = Member(broker, version=version).join_once()
        await broker.passes(MOMENT)
        assert isinstance(joining.exception(), CoordinatorNotAvailableError)
        assert broker.machine.groups.by_id == {}
    broker.log.refusal = None
    await broker.passes(SESSION * 60)
    assert broker.log.content == []
    await stable(broker, "member")


@on_stage()
async def test_an_assignment_that_cannot_be_appended_begins_a_rebalance(broker: Broker) -> None:
    """Each member that waits is told, nobody keeps any of it, and the next try succeeds."""
    leader, follower = await generation(broker, "leader", "follower")
    following = follower.sync()
    await broker.passes(MOMENT)
    broker.log.refusal = FULL
    leading = leader.sync(assigned_to([leader, follower]))
    await broker.passes(MOMENT)
    assert isinstance(leading.exception(), CoordinatorNotAvailableError)
    assert (await following).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert [each.assignment for each in broker.group().members.values()] == [b"", b""]
    broker.log.refusal = None
    joining = [leader.join(), follower.join()]
    assert [(await each).generation_id for each in joining] == [2, 2]
    await synced(broker, leader, follower)


@on_stage()
async def test_a_group_whose_end_cannot_be_appended_is_empty_all_the_same(broker: Broker) -> None:
    """Its members are gone; a new one begins a generation above theirs."""
    [member] = await stable(broker, "member")
    broker.log.refusal = FULL
    await broker.passes(SESSION + 1)
    assert broker.state is ClassicState.EMPTY
    broker.log.refusal = None
    [again] = await stable(broker, "again")
    assert again.generation == member.generation + 2


@on_stage()
async def test_a_deadline_is_not_kept_if_a_request_comes_before_its_turn(broker: Broker) -> None:
    """A member whose heartbeat waits with its deadline for the partition's move stays."""
    [member] = await stable(broker, "member")
    await broker.passes(SESSION - 1)
    broker.log.is_free.clear()
    beating = broker.send(member.heartbeat())
    await broker.passes(2)
    broker.log.is_free.set()
    assert await beating == ErrorCode.NONE
    assert await member.heartbeat() == ErrorCode.NONE


@on_stage()
async def test_two_sessions_that_end_at_once_end_one_by_one(broker: Broker) -> None:
    """The first begins a rebalance, which gives the second member, whose sync it ends, time."""
    leader, follower = await generation(broker, "leader", "follower")
    following = follower.sync()
    await broker.passes(SESSION + 1)
    assert (await following).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(broker.group().members) == [follower.member_id]
    assert leader.member_id not in broker.group().members


@on_stage()
async def test_a_delay_that_ends_with_a_join_phase_ends_nothing_else(broker: Broker) -> None:
    """Both come due while the partition moves: the members of the new generation stay."""
    member = Member(broker)
    joining = member.join()
    await broker.passes(MOMENT)
    pending = Member(broker, session_timeout_ms=6_000)
    await pending.join_once()
    broker.log.is_free.clear()
    await broker.passes(SESSION)
    broker.log.is_free.set()
    await broker.passes(MOMENT)
    assert (await joining).generation_id == 1
    assert await member.heartbeat() == ErrorCode.NONE
    assert broker.group().generation == 1
