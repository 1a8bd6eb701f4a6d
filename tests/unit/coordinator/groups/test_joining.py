"""JoinGroup: who becomes a member, and when its answer comes."""

import asyncio
from dataclasses import replace

from tailrace.coordinator.groups.classic_group import ClassicState
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.groups.stage import (
    DELAY,
    MOMENT,
    REBALANCE,
    SESSION,
    Broker,
    Calls,
    Member,
    complete,
    on_stage,
    stable,
    subscription,
    synced,
)


@on_stage()
async def test_a_first_member_gets_its_id_and_then_leads(broker: Broker) -> None:
    """MEMBER_ID_REQUIRED comes at once with `clientId-UUID`, generation 1 after the delay."""
    member = Member(broker, "consumer-1")
    reply = await member.join_once()
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("consumer-1-")
    joining = member.join()
    await broker.passes(DELAY - 0.1)
    assert not joining.done()
    await broker.passes(0.2)
    reply = await joining
    assert (reply.error_code, reply.generation_id) == (ErrorCode.NONE, 1)
    assert (reply.leader, reply.member_id) == (member.member_id, member.member_id)
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    assert [each.metadata for each in reply.members] == [subscription("flights")]


@on_stage()
async def test_before_version_4_a_member_joins_with_its_first_request(broker: Broker) -> None:
    """A dynamic member of an old client is not asked to come with an id."""
    member = Member(broker, version=3)
    joining = member.join_once()
    await broker.passes(DELAY * 2)
    assert (await joining).error_code == ErrorCode.NONE
    assert member.is_leader


@on_stage()
async def test_version_0_waits_for_a_member_as_long_as_its_session(broker: Broker) -> None:
    """It has no field for the rebalance timeout."""
    member = Member(broker, version=0, rebalance_timeout_ms=-1)
    member.join_once()
    await broker.passes(MOMENT)
    assert broker.group().rebalance_timeout_ms == SESSION * 1000


@on_stage()
async def test_what_cannot_be_a_member_is_refused(broker: Broker) -> None:
    """Empty group ids, sessions outside of the limits, and ids that nobody has given out."""
    good = Member(broker)
    for member, code in (
        (replace(good, group_id=""), ErrorCode.INVALID_GROUP_ID),
        (replace(good, session_timeout_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (replace(good, session_timeout_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (replace(good, member_id="mine"), ErrorCode.UNKNOWN_MEMBER_ID),
        (replace(good, protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (replace(good, protocols={}), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        reply = await member.join_once()
        assert reply.error_code == code
        assert (reply.protocol_type, reply.protocol_name) == (None, None) or not reply.protocol_name


@on_stage()
async def test_the_limits_of_a_session_are_allowed(broker: Broker) -> None:
    """Both `group.min.session.timeout.ms` and `group.max.session.timeout.ms`."""
    for timeout_ms in (6_000, 1_800_000):
        reply = await Member(broker, session_timeout_ms=timeout_ms).join_once()
        assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED


@on_stage()
async def test_a_group_that_is_not_known_takes_no_id(broker: Broker) -> None:
    """Nor does a known group take an id that it has not given out."""
    await stable(broker, "first")
    for group_id in ("g", "other"):
        member = Member(broker, group_id=group_id, member_id="stranger")
        assert (await member.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(broker.machine.groups.by_id) == ["g"]


@on_stage()
async def test_members_have_a_type_and_an_assignor_in_common(broker: Broker) -> None:
    """A member of another type, or without a common assignor, is refused and changes nothing."""
    await stable(broker, "first")
    for member in (
        Member(broker, protocol_type="connect"),
        Member(broker, protocols={"sticky": b""}),
        Member(broker, protocols={}),
    ):
        reply = await member.join_once()
        assert reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert broker.state is ClassicState.STABLE


@on_stage()
async def test_the_assignor_with_most_votes_is_chosen(broker: Broker) -> None:
    """Each member votes for the first that all of them support."""
    members = [
        Member(broker, name, protocols=dict.fromkeys(names, subscription("flights")))
        for name, names in (
            ("one", ("roundrobin", "range", "sticky")),
            ("two", ("sticky", "range")),
            ("three", ("range", "sticky")),
        )
    ]
    await complete(broker, *members)
    assert {each.joined.protocol_name for each in members} == {"range"}


@on_stage()
async def test_an_assignor_that_is_named_twice_counts_once(broker: Broker) -> None:
    """No client makes a group that has no assignor."""
    members = await stable(broker, "first")
    twice = Member(broker, "second")

    class Twice(dict[str, bytes]):
        """Names its assignor twice."""

        def items(self) -> list[tuple[str, bytes]]:  # type: ignore[override]
            """The same item two times."""
            return [*super().items(), ("range", b"other")]

    twice.protocols = Twice(twice.protocols)
    await complete(broker, *members, twice)
    assert broker.group().members[twice.member_id].metadata("range") == subscription("flights")


@on_stage()
async def test_the_first_delay_grows_while_members_come(broker: Broker) -> None:
    """It begins anew after each round in which a member came, and ends when none did (KIP-134)."""
    first, second = Member(broker, "first"), Member(broker, "second")
    joining = first.join()
    await broker.passes(DELAY - 1)
    joining_too = second.join()
    await broker.passes(DELAY - 1)
    assert not joining.done()
    await broker.passes(2.1)
    assert (await joining).generation_id == (await joining_too).generation_id == 1
    assert len(first.joined.members) == 2
    assert second.joined.members == ()
    assert second.joined.leader == first.member_id


@on_stage()
async def test_the_first_delay_ends_with_the_longest_rebalance_timeout(broker: Broker) -> None:
    """However many members come."""
    first = Member(broker, "first", rebalance_timeout_ms=10_000)
    joining = first.join()
    for number in range(20):
        await broker.passes(0.6)
        if joining.done():
            break
        Member(broker, f"more-{number}", rebalance_timeout_ms=10_000).join()
    assert 9 <= broker.now_ms / 1000 - 1_700_000_000 <= 12.5
    assert (await joining).error_code == ErrorCode.NONE


@on_stage(GroupSettings(initial_delay_ms=0))
async def test_without_a_delay_the_first_member_begins(broker: Broker) -> None:
    """`group.initial.rebalance.delay.ms` can be 0."""
    joining = Member(broker).join()
    await broker.passes(MOMENT)
    assert (await joining).generation_id == 1


@on_stage()
async def test_a_join_phase_waits_for_all_members(broker: Broker) -> None:
    """It ends when the last one has joined again, long before the rebalance timeout."""
    first, second = await stable(broker, "first", "second")
    third = Member(broker, "third")
    joining = [third.join(), first.join()]
    await broker.passes(SESSION / 2)
    assert [each.done() for each in joining] == [False, False]
    assert await second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    joining.append(second.join())
    await broker.passes(MOMENT)
    assert [(await each).generation_id for each in joining] == [2, 2, 2]
    assert first.is_leader


@on_stage()
async def test_members_that_do_not_join_again_are_dropped(broker: Broker) -> None:
    """After the rebalance timeout the others go on, with a leader that has joined."""
    leader, second = await stable(broker, "leader", "second")
    joining = [Member(broker, "third").join()]
    await broker.passes(MOMENT)
    joining.append(second.join())
    for _ in range(round(REBALANCE) - 1):
        await broker.passes(1)
        assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    await broker.passes(1.1)
    assert [(await each).generation_id for each in joining] == [2, 2]
    assert second.is_leader
    assert await leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_a_follower_that_joins_again_unchanged_gets_its_generation(broker: Broker) -> None:
    """The group stays stable: its answer was lost, and nothing else has happened."""
    _, follower = await stable(broker, "leader", "follower")
    reply = await follower.join_once()
    assert (reply.error_code, reply.generation_id, reply.members) == (ErrorCode.NONE, 1, ())
    assert broker.state is ClassicState.STABLE


@on_stage()
async def test_a_follower_with_a_new_subscription_begins_a_rebalance(broker: Broker) -> None:
    """The leader must hear of it."""
    leader, follower = await stable(broker, "leader", "follower")
    follower.protocols = {"range": subscription("flights", "planes")}
    joining = follower.join()
    await broker.passes(MOMENT)
    assert not joining.done()
    assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    leading = leader.join()
    assert (await leading).generation_id == (await joining).generation_id == 2
    assert subscription("flights", "planes") in [each.metadata for each in leader.joined.members]


@on_stage()
async def test_a_leader_that_joins_again_begins_a_rebalance(broker: Broker) -> None:
    """It has seen something change that the broker does not know, as new partitions."""
    leader, follower = await stable(broker, "leader", "follower")
    joining = leader.join()
    await broker.passes(MOMENT)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    assert (await follower.join()).generation_id == (await joining).generation_id == 2


@on_stage()
async def test_a_lost_answer_is_given_again_before_the_sync(broker: Broker) -> None:
    """To the leader with the members, to others without; a changed member begins anew."""
    leader, follower = Member(broker, "leader"), Member(broker, "follower")
    joining = [leader.join(), follower.join()]
    await broker.passes(DELAY * 2)
    [first, second] = [await each for each in joining]
    assert await leader.join_once() == first
    assert await follower.join_once() == second
    follower.protocols = {"range": subscription("planes")}
    changed = follower.join()
    await broker.passes(MOMENT)
    assert not changed.done()
    assert (await leader.join()).generation_id == 2
    await synced(broker, leader, follower)


@on_stage()
async def test_a_join_that_is_sent_twice_is_answered_twice(broker: Broker) -> None:
    """Nobody knows whether the connection of the first one is still there."""
    leader, follower = await stable(broker, "leader", "follower")
    both = [leader.join(), leader.join()]
    await broker.passes(MOMENT)
    await follower.join()
    assert await both[0] == await both[1]


@on_stage()
async def test_a_rebalance_waits_for_an_id_that_was_given_out(broker: Broker) -> None:
    """Its client is about to join; after its session timeout it is given up."""
    [member] = await stable(broker, "member")
    pending = Member(broker, "pending")
    await pending.join_once()
    joining = member.join()
    await broker.passes(SESSION - 1)
    assert not joining.done()
    await broker.passes(1.1)
    assert (await joining).generation_id == 2
    assert (await pending.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@on_stage()
async def test_a_rebalance_ends_when_the_id_that_was_given_out_joins(broker: Broker) -> None:
    """Both are in the new generation."""
    [member] = await stable(broker, "member")
    pending = Member(broker, "pending")
    await pending.join_once()
    joining = member.join()
    await broker.passes(1)
    assert (await pending.join_once()).generation_id == (await joining).generation_id == 2


@on_stage()
async def test_an_id_that_was_given_out_cannot_become_static(broker: Broker) -> None:
    """Otherwise two members could have one instance id."""
    [known] = await stable(broker, "one", instance_id="instance")
    pending = Member(broker)
    await pending.join_once()
    for instance_id, code in (
        ("instance", ErrorCode.FENCED_INSTANCE_ID),
        ("other", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        claiming = replace(pending, instance_id=instance_id)
        assert (await claiming.join_once()).error_code == code
    assert broker.group().static_members == {"instance": known.member_id}


@on_stage()
async def test_a_new_member_is_dropped_if_its_first_join_takes_five_minutes(broker: Broker) -> None:
    """Its client may be gone; one that is there asks again."""
    slow = Member(broker, "slow", rebalance_timeout_ms=900_000, session_timeout_ms=900_000)
    await complete(broker, slow)
    new = Member(broker, "new")
    joining = new.join()
    await broker.passes(299)
    assert not joining.done()
    await broker.passes(2)
    assert (await joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(broker.group().members) == [slow.member_id]


@on_stage()
async def test_a_member_joins_while_a_group_without_members_prepares(broker: Broker) -> None:
    """The only member has left during the first delay; nothing of it limits the next one."""
    first = Member(broker, "first", version=3)
    first.join()
    await broker.passes(MOMENT)
    [member_id] = broker.group().members
    first.member_id = member_id
    assert await first.leave() == ErrorCode.NONE
    assert broker.state is ClassicState.PREPARING_REBALANCE
    second = Member(broker, "second", protocols={"sticky": b""})
    joining = second.join()
    await broker.passes(DELAY * 2)
    assert (await joining).protocol_name == "sticky"


@on_stage()
async def test_a_delay_is_not_longer_for_members_of_an_earlier_one(broker: Broker) -> None:
    """A member that came in the last round of a delay counts for that delay alone."""
    early = [
        Member(broker, name, rebalance_timeout_ms=3_000, session_timeout_ms=6_000)
        for name in ("one", "two")
    ]
    joining = [each.join() for each in early]
    await broker.passes(DELAY * 2)
    assert [(await each).generation_id for each in joining] == [1, 1]
    await broker.passes(20)
    assert broker.state is ClassicState.EMPTY
    late = Member(broker, "late").join()
    await broker.passes(DELAY + 0.1)
    assert late.done()


LIMIT = GroupSettings(size_max=2)


@on_stage(LIMIT)
async def test_a_full_group_takes_no_new_member(broker: Broker) -> None:
    """The answer has no id, and members of the group can still join again."""
    leader, follower = await stable(broker, "leader", "follower")
    for version in (3, 9):
        reply = await Member(broker, version=version).join_once()
        assert (reply.error_code, reply.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    joining = [leader.join(), follower.join()]
    await broker.passes(MOMENT)
    assert [(await each).error_code for each in joining] == [0, 0]


@on_stage(LIMIT)
async def test_ids_can_be_given_out_beyond_the_limit(broker: Broker) -> None:
    """The member that comes first with its id gets the place."""
    members = [Member(broker, str(number)) for number in range(4)]
    for each in members:
        await each.join_once()
    joining = [each.join_once() for each in members]
    await broker.passes(DELAY * 3)
    codes = [(await each).error_code for each in joining]
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, full, full]


@on_stage(LIMIT)
async def test_static_members_count_for_the_limit(broker: Broker) -> None:
    """One that restarts keeps its place."""
    members = [Member(broker, name, instance_id=name) for name in ("one", "two", "three")]
    joining = [each.join() for each in members]
    await broker.passes(DELAY * 3)
    assert [(await each).error_code for each in joining] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]  # fmt: skip
    await synced(broker, *members[:2])
    again = Member(broker, instance_id="two")
    assert (await again.join()).error_code == ErrorCode.NONE


@on_stage(LIMIT)
async def test_a_member_can_join_again_while_a_full_group_rebalances(broker: Broker) -> None:
    """The one that waits already is not refused."""
    leader, follower = await stable(broker, "leader", "follower")
    joining = [leader.join(), leader.join(), follower.join()]
    await broker.passes(MOMENT)
    assert [(await each).error_code for each in joining] == [0, 0, 0]


@on_stage()
async def test_a_group_over_a_new_limit_loses_who_joins_last(broker: Broker) -> None:
    """The limit is lower after a restart: the group rebalances, and the first to join stay."""
    members = await stable(broker, "one", "two", "three")
    broker._settings = LIMIT
    await broker.restart()
    await broker.passes(MOMENT)
    assert broker.state is ClassicState.PREPARING_REBALANCE
    joining = [each.join() for each in members]
    await broker.passes(REBALANCE + 1)
    assert [(await each).error_code for each in joining] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]  # fmt: skip


async def calls_of_joins(broker: Broker, count: int) -> int:
    """Calls of functions while so many members come to a group."""
    members = [Member(broker, group_id=f"of {count}") for _ in range(count)]
    joining = [each.join() for each in members]
    with Calls() as calls:
        await broker.passes(MOMENT)
    await broker.passes(DELAY * 2)
    assert all(each.error_code == ErrorCode.NONE for each in await asyncio.gather(*joining))
    return calls.count


@on_stage()
async def test_a_join_takes_as_long_in_a_large_group_as_in_a_small_one(broker: Broker) -> None:
    """Nothing in it looks at the other members."""
    assert await calls_of_joins(broker, 800) < 5 * await calls_of_joins(broker, 200)
