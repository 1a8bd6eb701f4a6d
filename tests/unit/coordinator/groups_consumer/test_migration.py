"""Groups with members move from one protocol to the other, and back."""

import pytest

from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.groups.consumer_group import MemberState
from tailrace.coordinator.groups.embedded_protocol import read_assignment, write_assignment
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import Client
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.protocol.messages.leave_group import MemberIdentity
from tests.unit.coordinator.groups.stage import GROUP, remove
from tests.unit.coordinator.groups_consumer.mixed_stage import (
    COUNT,
    TOPIC,
    ClassicClient,
    ConsumerClient,
    MixedBroker,
    classic_group,
    on_mixed_stage,
    settle,
    shares,
    subscription,
)

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


async def upgraded(broker: MixedBroker) -> tuple[ClassicClient, ClassicClient, ConsumerClient]:
    """A group of two classic members, and one of the consumer protocol that has joined it."""
    one, two = await classic_group(broker, "one", "two")
    three = ConsumerClient(broker, "three")
    assert (await three.beat()).error_code == ErrorCode.NONE
    assert broker.type == "consumer"
    return one, two, three


@on_mixed_stage()
async def test_a_classic_group_becomes_a_consumer_group(broker: MixedBroker) -> None:
    """Its members keep what they have until they are told to give it up; then all share."""
    one, two, three = await upgraded(broker)
    assert three.owned == frozenset()
    assert sorted(each.epoch for each in broker.consumers.members.values()) == [1, 1, 2]
    assert (await one.heartbeat(), await two.heartbeat()) == (REBALANCE, REBALANCE)
    await settle(broker, one, two, three)
    assert shares(one, two, three) == [1, 1, 2]
    assert {one.generation, two.generation, three.epoch} == {broker.consumers.epoch}


@on_mixed_stage()
async def test_an_upgraded_group_is_the_same_after_a_restart(broker: MixedBroker) -> None:
    """Before and after its members have joined again."""
    one, two, three = await upgraded(broker)
    for _ in range(2):
        before = broker.consumers
        await broker.restart()
        assert broker.consumers == before
        await settle(broker, one, two, three)
    assert shares(one, two, three) == [1, 1, 2]


@on_mixed_stage()
async def test_requests_that_wait_in_a_rebalance_are_sent_to_another(broker: MixedBroker) -> None:
    """REBALANCE_IN_PROGRESS: a parked join, or a parked sync."""
    one, two = await classic_group(broker, "one", "two")
    joining = one.join()
    await broker.passes(0.001)
    assert not joining.done()
    await ConsumerClient(broker, "three").beat()
    assert (await joining).error_code == REBALANCE
    assert await two.heartbeat() == REBALANCE


@on_mixed_stage()
async def test_a_parked_sync_is_sent_to_another_rebalance(broker: MixedBroker) -> None:
    """The leader's assignment has not come; the member joins again, and gets what there is."""
    one, two = await classic_group(broker, "one", "two")
    joining = [one.join(), two.join()]
    await broker.passes(0.001)
    assert [(await each).error_code for each in joining] == [0, 0]
    follower = two if one.is_leader else one
    syncing = follower.sync()
    await broker.passes(0.001)
    assert not syncing.done()
    three = ConsumerClient(broker, "three")
    await three.beat()
    assert (await syncing).error_code == REBALANCE
    one.owned = two.owned = frozenset()
    await settle(broker, one, two, three)
    assert shares(one, two, three) == [1, 1, 2]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_an_upgrade_needs_the_policy(policy: str) -> None:
    """Without it the member of the consumer protocol is refused, and nothing changes."""

    @on_mixed_stage(migration_policy=policy)
    async def scenario(broker: MixedBroker) -> None:
        [one] = await classic_group(broker, "one")
        answer = await ConsumerClient(broker, "two").beat()
        assert answer.error_code == NOT_FOUND
        assert answer.error_message == (
            "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
        )
        assert await one.heartbeat() == ErrorCode.NONE

    scenario()


@on_mixed_stage(size_max=2)
async def test_a_group_that_is_too_large_is_not_upgraded(broker: MixedBroker) -> None:
    """Its members alone are more than `group.consumer.max.size`; with just as many it is full."""
    await classic_group(broker, "one", "two", "three")
    answer = await ConsumerClient(broker, "four").beat()
    assert answer.error_code == NOT_FOUND
    assert "size exceeds the consumer group maximum size" in (answer.error_message or "")
    assert await remove(broker, MemberIdentity(member_id=next(iter(broker.group().members)))) == [0]
    answer = await ConsumerClient(broker, "four").beat()
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert broker.type == "classic"


@on_mixed_stage()
async def test_groups_of_other_programs_are_not_upgraded(broker: MixedBroker) -> None:
    """Only the protocol type `consumer` can be, and only what consumers write."""
    await classic_group(broker, "one", protocol_type="connect")
    answer = await ConsumerClient(broker, "two").beat()
    assert "does not use the consumer embedded protocol" in (answer.error_message or "")


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (b"\xff\xff", "the embedded consumer protocol is malformed"),
        (b"\0", "the embedded consumer protocol is malformed"),
        (write_assignment({}, for_metadata=subscription())[:-4] + b"\0\0\0\1x", "custom assignor"),
    ],
)
def test_an_assignment_that_is_not_understood_stays_with_its_group(
    assignment: bytes, reason: str
) -> None:
    """Malformed, or with data of an assignor that would be lost."""

    @on_mixed_stage()
    async def scenario(broker: MixedBroker) -> None:
        one = ClassicClient(broker, "one")
        joining = one.join()
        await broker.passes(7)
        await joining
        assert (await one._sync({one.member_id: assignment}, {})).error_code == ErrorCode.NONE
        answer = await ConsumerClient(broker, "two").beat()
        assert answer.error_code == NOT_FOUND
        assert reason in (answer.error_message or "")
        assert await one.heartbeat() == ErrorCode.NONE

    scenario()


@on_mixed_stage()
async def test_an_upgrade_that_cannot_be_stored_changes_nothing(broker: MixedBroker) -> None:
    """The classic group goes on."""
    one, two = await classic_group(broker, "one", "two")
    broker.log.refusal = OSError(28, "no space left on device")
    with pytest.raises(CoordinatorNotAvailableError):
        await ConsumerClient(broker, "three").beat()
    broker.log.refusal = None
    assert broker.type == "classic"
    assert (await one.heartbeat(), await two.heartbeat()) == (0, 0)
    await broker.restart()
    assert await one.heartbeat() == ErrorCode.NONE


@on_mixed_stage()
async def test_the_group_is_classic_again_when_the_last_consumer_leaves(
    broker: MixedBroker,
) -> None:
    """The members that are left rebalance among themselves, with the ids that they have."""
    one, two, three = await upgraded(broker)
    await settle(broker, one, two, three)
    assert await three.leave() is ErrorCode.NONE
    assert broker.type == "classic"
    assert broker.group().state.value == "PreparingRebalance"
    ids = one.member_id, two.member_id
    assert await one.heartbeat() == REBALANCE
    tasks = [broker.send(each.follow()) for each in (one, two)]
    await broker.passes(1)
    assert [await each for each in tasks] == [0, 0]
    assert shares(one, two) == [2, 2]
    assert (one.member_id, two.member_id) == ids


@on_mixed_stage()
async def test_the_last_consumer_can_leave_members_that_name_an_assignor_twice(
    broker: MixedBroker,
) -> None:
    """The group of classic members has that assignor."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    twice = (JoinGroupRequestProtocol(name="range", metadata=subscription(TOPIC)),) * 2
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=twice,
    )
    client = Client("one", "127.0.0.1", 3)
    reply = await broker.run(lambda machine, now: machine.join(client, request, now))
    assert reply.error_code == ErrorCode.NONE
    assert await three.leave() is ErrorCode.NONE
    assert list(broker.group().members) == [reply.member_id]
    assert broker.group().protocol == "range"


@on_mixed_stage()
async def test_the_last_consumer_can_leave_a_member_without_metadata_for_the_assignor_of_all(
    broker: MixedBroker,
) -> None:
    """Only its favourite assignor has metadata, and the group takes another one."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one", protocols={"range": subscription(TOPIC), "sticky": b""})
    two = ClassicClient(broker, "two", protocols={"sticky": subscription(TOPIC)})
    for each in (one, two):
        assert (await each.join()).error_code == ErrorCode.NONE
    assert await three.leave() is ErrorCode.NONE
    assert list(broker.group().members) == [one.member_id, two.member_id]
    assert broker.group().protocol == "sticky"


@on_mixed_stage()
async def test_a_downgraded_group_is_the_same_after_a_restart(broker: MixedBroker) -> None:
    """It has what its members were to have, so that they can go on without a rebalance."""
    one, two, three = await upgraded(broker)
    await settle(broker, one, two, three)
    epoch = broker.consumers.epoch
    await three.leave()
    await broker.restart()
    assert broker.group().state.value == "Stable"
    assert broker.group().generation == epoch
    assert (await one.heartbeat(), await two.heartbeat()) == (0, 0)


@on_mixed_stage()
async def test_a_consumer_that_is_not_heard_of_is_fenced_and_the_group_is_classic(
    broker: MixedBroker,
) -> None:
    """The classic members, which are heard of, are left."""
    one, two, three = await upgraded(broker)
    await settle(broker, one, two, three)
    for _ in range(45):
        await broker.passes(1)
        await one.heartbeat()
        await two.heartbeat()
    assert broker.type == "classic"
    assert sorted(broker.group().members) == sorted((one.member_id, two.member_id))


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_downgrade_needs_the_policy(policy: str) -> None:
    """Without it the classic members stay in a consumer group, and share."""

    @on_mixed_stage()
    async def scenario(broker: MixedBroker) -> None:
        one, two, three = await upgraded(broker)
        await settle(broker, one, two, three)
        broker.consumer_settings = type(broker.consumer_settings)(
            migration_policy=policy, assignment_interval_ms=0
        )
        await three.leave()
        assert broker.type == "consumer"
        if policy == "upgrade":
            await settle(broker, one, two)
            assert shares(one, two) == [2, 2]
        else:
            assert await one.follow() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    scenario()


@on_mixed_stage(GroupSettings(size_max=1))
async def test_a_downgrade_keeps_to_the_size_of_classic_groups(broker: MixedBroker) -> None:
    """With more members than `group.max.size` it stays a consumer group."""
    three, one, two = (ConsumerClient(broker, "three"), *classic_pair(broker))
    await three.beat()
    await settle(broker, three, one, two)
    await three.leave()
    assert broker.type == "consumer"
    await one.leave()
    assert broker.type == "classic"


def classic_pair(broker: MixedBroker) -> tuple[ClassicClient, ClassicClient]:
    """Two classic members that have not joined."""
    return ClassicClient(broker, "one"), ClassicClient(broker, "two")


@on_mixed_stage()
async def test_a_downgrade_that_cannot_be_stored_changes_nothing(broker: MixedBroker) -> None:
    """The member that wanted to leave is still there, and its session runs."""
    one, two, three = await upgraded(broker)
    await settle(broker, one, two, three)
    broker.log.refusal = OSError(28, "no space left on device")
    with pytest.raises(CoordinatorNotAvailableError):
        await three.leave()
    broker.log.refusal = None
    assert broker.type == "consumer"
    await settle(broker, one, two, three)
    for _ in range(45):
        await broker.passes(1)
        await one.heartbeat()
        await two.heartbeat()
    assert broker.type == "classic"


@on_mixed_stage()
async def test_a_static_member_that_comes_back_with_the_classic_protocol_can_be_the_last(
    broker: MixedBroker,
) -> None:
    """The group is classic then, and the member goes on with what the old one had."""
    old = ConsumerClient(broker, "old", instance_id="i")
    await old.beat()
    one = ClassicClient(broker, "one")
    await settle(broker, old, one)
    new = ClassicClient(broker, "new", instance_id="i")
    assert await new.follow() == ErrorCode.NONE
    assert broker.type == "classic"
    assert broker.group().state.value == "Stable"
    assert (new.owned, new.member_id) == (old.owned, broker.group().static_members["i"])
    assert await one.heartbeat() == ErrorCode.NONE
    await broker.restart()
    assert (await one.heartbeat(), await new.heartbeat()) == (0, 0)


@on_mixed_stage()
async def test_a_static_member_can_come_back_with_the_other_protocol(broker: MixedBroker) -> None:
    """A classic one as a consumer, which is how a group is upgraded member by member."""
    [one, two] = [ClassicClient(broker, each, instance_id=each) for each in ("one", "two")]
    tasks = [broker.send(each.follow()) for each in (one, two)]
    await broker.passes(7)
    assert [await each for each in tasks] == [0, 0]
    new = ConsumerClient(broker, "new", instance_id="one")
    assert (await new.beat()).error_code == ErrorCode.NONE
    await settle(broker, new, two)
    assert shares(new, two) == [2, 2]
    assert new.owned == one.owned
    assert await one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@on_mixed_stage()
async def test_a_static_classic_member_may_restart_in_a_consumer_group(broker: MixedBroker) -> None:
    """It gets a new id and what the old one had; the old one is fenced."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one", instance_id="i")
    await settle(broker, three, one)
    again = ClassicClient(broker, "one", instance_id="i")
    assert await again.follow() == ErrorCode.NONE
    await settle(broker, three, again)
    assert (again.owned, shares(three, again)) == (one.owned, [2, 2])
    for code in (await one.heartbeat(), (await one.join_once()).error_code, await one.leave()):
        assert code == ErrorCode.FENCED_INSTANCE_ID
    assert (await one._sync({}, {})).error_code == ErrorCode.FENCED_INSTANCE_ID
    stranger = ClassicClient(broker, "s", instance_id="none", member_id="s")
    assert (await stranger.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert await stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@on_mixed_stage()
async def test_classic_members_join_a_consumer_group(broker: MixedBroker) -> None:
    """They get their id first, see no leader and no members, and their epoch as generation."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one")
    first = await one.join_once()
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert broker.type == "consumer"
    joined = await one.join_once()
    assert (joined.generation_id, joined.leader, joined.members) == (3, "", ())
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    old = ClassicClient(broker, "old", version=3)
    assert (await old.join_once()).error_code == ErrorCode.NONE


@on_mixed_stage()
async def test_what_cannot_be_a_classic_member_is_refused(broker: MixedBroker) -> None:
    """By its timeout, its protocol type, its assignors, or its metadata."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one", protocols={"range": subscription(TOPIC)})
    await one.follow()
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for told, code in (
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": "connect"}, inconsistent),
        ({"protocols": {}}, inconsistent),
        ({"protocols": {"sticky": subscription(TOPIC)}}, inconsistent),
        ({"protocols": {"range": b""}, "member_id": "x"}, inconsistent),
        ({"protocols": {"range": b"\xff\xff"}, "member_id": "x"}, inconsistent),
    ):
        member = ClassicClient(broker, "two", **told)
        assert (await member.join_once()).error_code == code


@on_mixed_stage(size_max=1)
async def test_a_full_consumer_group_takes_no_classic_member(broker: MixedBroker) -> None:
    """Its id in the answer is empty."""
    await ConsumerClient(broker, "three").beat()
    answer = await ClassicClient(broker, "one").join_once()
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


@on_mixed_stage()
async def test_the_protocols_of_classic_members_have_one_in_common(broker: MixedBroker) -> None:
    """A member of the consumer protocol does not count."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    both = {"range": subscription(TOPIC), "sticky": subscription(TOPIC)}
    one = ClassicClient(broker, "one", protocols=both)
    two = ClassicClient(broker, "two", protocols={"sticky": subscription(TOPIC)})
    await settle(broker, three, one, two)
    assert shares(three, one, two) == [1, 1, 2]


@on_mixed_stage()
async def test_a_sync_fits_its_join(broker: MixedBroker) -> None:
    """Generation, protocol and type are those of the join; a consumer cannot sync."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one")
    await one.join()
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await one._sync({}, {"protocol_type": "x"})).error_code == inconsistent
    assert (await one._sync({}, {"protocol_name": "x"})).error_code == inconsistent
    one.generation += 1
    assert (await one._sync({}, {})).error_code == ErrorCode.ILLEGAL_GENERATION
    assert await one.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    stranger = ClassicClient(broker, "x", member_id="three", generation=three.epoch)
    assert (await stranger._sync({}, {})).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert await stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert three.member_id in broker.consumers.members


@on_mixed_stage()
async def test_a_member_joins_again_when_it_can_go_on(broker: MixedBroker) -> None:
    """It is told to when it has to give up partitions, and when those it waits for are free."""
    one = ConsumerClient(broker, "one")
    await one.beat()
    assert one.owned == frozenset(range(COUNT))
    two = ClassicClient(broker, "two")
    assert await two.follow() == ErrorCode.NONE
    member = broker.consumers.members[two.member_id]
    assert member.current.state is MemberState.UNRELEASED_PARTITIONS
    assert (two.owned, await two.heartbeat()) == (frozenset(), ErrorCode.NONE)
    await one.beat()
    assert await two.heartbeat() == ErrorCode.NONE
    await one.beat()
    assert await two.heartbeat() == REBALANCE
    assert await two.follow() == ErrorCode.NONE
    assert shares(one, two) == [2, 2]
    three = ConsumerClient(broker, "three")
    await three.beat()
    assert await two.heartbeat() == REBALANCE
    two.report()
    await two.join()
    state = broker.consumers.members[two.member_id].current.state
    if state is MemberState.UNREVOKED_PARTITIONS:
        assert await two.heartbeat() == REBALANCE


@pytest.mark.parametrize(("kind", "seconds"), [("session", 9), ("join", 6), ("sync", 5)])
def test_a_classic_member_that_misses_a_deadline_is_fenced(kind: str, seconds: int) -> None:
    """By its session, the time to join again, or the time to ask for its assignment."""

    @on_mixed_stage()
    async def scenario(broker: MixedBroker) -> None:
        three = ConsumerClient(broker, "three")
        await three.beat()
        one = ClassicClient(broker, "one", rebalance_timeout_ms=5_000)
        if kind == "sync":
            await one.join()
        else:
            await settle(broker, three, one)
        if kind == "join":
            await ConsumerClient(broker, "four").beat()
        for _ in range(seconds):
            assert one.member_id in broker.consumers.members
            await broker.passes(1)
            await three.beat()
            if kind != "session":
                await one.heartbeat()
        assert one.member_id not in broker.consumers.members

    scenario()


@on_mixed_stage()
async def test_the_time_to_join_counts_from_the_first_time_it_was_told(broker: MixedBroker) -> None:
    """Heartbeats in between do not make it longer; a join ends it."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one", rebalance_timeout_ms=5_000)
    await settle(broker, three, one)
    await ConsumerClient(broker, "four").beat()
    for _ in range(4):
        assert await one.heartbeat() == REBALANCE
        await broker.passes(1)
    assert await one.follow() == ErrorCode.NONE
    for _ in range(4):
        await broker.passes(1)
        await one.heartbeat()
    assert one.member_id in broker.consumers.members


@on_mixed_stage()
async def test_a_sync_is_refused_when_the_group_has_moved_on(broker: MixedBroker) -> None:
    """Between the join and the sync of a member another one has joined."""
    one = ClassicClient(broker, "one")
    three = ConsumerClient(broker, "three")
    await three.beat()
    joined = await one.join()
    await ConsumerClient(broker, "four").beat()
    assert await one.take(joined) == REBALANCE
    await settle(broker, three, one)


@on_mixed_stage()
async def test_the_group_is_classic_again_when_an_operator_removes_the_last_consumer(
    broker: MixedBroker,
) -> None:
    """By its instance id; the members that are left rebalance among themselves."""
    one, two = await classic_group(broker, "one", "two")
    three = ConsumerClient(broker, "three", instance_id="i")
    await settle(broker, three, one, two)
    assert await remove(broker, MemberIdentity(member_id="", group_instance_id="i")) == [0]
    assert broker.type == "classic"
    assert broker.group().state.value == "PreparingRebalance"
    assert sorted(broker.group().members) == sorted((one.member_id, two.member_id))


@on_mixed_stage()
async def test_a_member_that_had_no_assignment_yet_is_upgraded_with_its_group(
    broker: MixedBroker,
) -> None:
    """It has joined and not synced: it is a member without partitions, and joins again."""
    one = ClassicClient(broker, "one")
    joining = one.join()
    await broker.passes(7)
    assert (await joining).error_code == ErrorCode.NONE
    three = ConsumerClient(broker, "three")
    assert (await three.beat()).error_code == ErrorCode.NONE
    assert broker.type == "consumer"
    member = broker.consumers.members[one.member_id]
    assert (member.is_classic, member.current.assigned) == (True, {})
    await settle(broker, one, three)
    assert shares(one, three) == [2, 2]


@on_mixed_stage(assignment_interval_ms=5_000)
async def test_classic_members_go_on_during_the_assignment_interval(broker: MixedBroker) -> None:
    """A sync and a heartbeat are answered by what there is; a new target has them join again."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one")
    assert await one.follow() == ErrorCode.NONE
    assert broker.consumers.epoch > broker.consumers.target_epoch
    assert await one.heartbeat() == ErrorCode.NONE
    await broker.passes(6)
    await three.beat()
    assert broker.consumers.epoch == broker.consumers.target_epoch
    await three.beat()
    assert await one.heartbeat() == REBALANCE
    assert (await one._sync({}, {})).error_code == REBALANCE
    await settle(broker, one, three)
    assert shares(one, three) == [2, 2]


@pytest.mark.parametrize("topics", [("a",), ("a", "b")])
def test_a_classic_member_replaces_a_static_one_with_an_expression(topics: tuple[str, ...]) -> None:
    """It names its topics; the expression is deleted, and what it still wants stays with it."""

    @on_mixed_stage()
    async def scenario(broker: MixedBroker) -> None:
        other = ConsumerClient(broker, "other")
        await other.beat()
        old = ConsumerClient(broker, "old", instance_id="i", topics=(), regex="a+")
        for _ in range(3):
            await settle(broker, other, old)
            await broker.passes(11)
        assert shares(other, old) == [2, 2]
        assert list(broker.consumers.regexes) == ["a+"]
        new = ClassicClient(broker, "new", instance_id="i")
        new.protocols = {"range": subscription(*topics)}
        joined = await new.join()
        assert joined.error_code == ErrorCode.NONE
        assert await new.take(joined) == ErrorCode.NONE
        assert broker.consumers.regexes == {}
        assert new.owned == old.owned

    scenario()


@on_mixed_stage()
async def test_an_operator_who_removes_members_removes_their_expressions(
    broker: MixedBroker,
) -> None:
    """Not while another member has the same one."""
    clients = [
        ConsumerClient(broker, name, instance_id=name, topics=(), regex="a+")
        for name in ("one", "two")
    ]
    for _ in range(3):
        await settle(broker, *clients)
        await broker.passes(11)
    assert await remove(broker, MemberIdentity(member_id="", group_instance_id="one")) == [0]
    assert list(broker.consumers.regexes) == ["a+"]
    assert await remove(broker, MemberIdentity(member_id="", group_instance_id="two")) == [0]
    assert broker.consumers.regexes == {}


@on_mixed_stage(assignment_interval_ms=5_000)
async def test_a_classic_group_rebalances_if_the_last_consumer_was_replaced_before_a_new_target(
    broker: MixedBroker,
) -> None:
    """The target of the consumer group is not for the members that there are."""
    old = ConsumerClient(broker, "old", instance_id="i")
    await old.beat()
    one = ClassicClient(broker, "one")
    assert (await one.join()).error_code == ErrorCode.NONE
    assert broker.consumers.epoch > broker.consumers.target_epoch
    new = ClassicClient(broker, "new", instance_id="i")
    assert (await new.join()).error_code == ErrorCode.NONE
    assert broker.type == "classic"
    assert broker.group().state.value == "PreparingRebalance"
    tasks = [broker.send(each.follow()) for each in (one, new)]
    await broker.passes(1)
    assert [await each for each in tasks] == [0, 0]
    assert shares(one, new) == [2, 2]


@on_mixed_stage()
async def test_a_classic_member_whose_join_cannot_be_stored_is_none(broker: MixedBroker) -> None:
    """It is told to ask again, nothing waits for it, and the next try succeeds."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one")
    assert (await one.join_once()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    broker.log.refusal = OSError(28, "no space left on device")
    with pytest.raises(CoordinatorNotAvailableError):
        await one.join_once()
    broker.log.refusal = None
    assert list(broker.consumers.members) == ["three"]
    for _ in range(60):
        await broker.passes(1)
        await three.beat()
    assert broker.consumers.epoch == three.epoch == 2
    await settle(broker, one, three)
    assert shares(one, three) == [2, 2]


@on_mixed_stage()
async def test_a_member_with_an_eager_assignor_gives_up_all_and_joins(broker: MixedBroker) -> None:
    """It reports nothing, so that it has its target at once, with what others do not have."""
    one = ClassicClient(broker, "one")
    three = ConsumerClient(broker, "three")
    await three.beat()
    for _ in range(4):
        await three.beat()
        if one.generation < 0 or await one.heartbeat() != ErrorCode.NONE:
            one.owned = frozenset()
            assert await one.follow() == ErrorCode.NONE
    assert shares(one, three) == [2, 2]
    four = ConsumerClient(broker, "four")
    await four.beat()
    one.owned = frozenset()
    assert await one.follow() == ErrorCode.NONE
    member = broker.consumers.members[one.member_id]
    assert (member.epoch, member.current.revoking) == (broker.consumers.epoch, {})
    await settle(broker, one, three, four)
    assert shares(one, three, four) == [1, 1, 2]


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_has_the_version_of_the_subscription(version: int) -> None:
    """A consumer of any age can read what the broker has assigned to it."""

    @on_mixed_stage()
    async def scenario(broker: MixedBroker) -> None:
        three = ConsumerClient(broker, "three")
        await three.beat()
        one = ClassicClient(broker, "one")
        one.protocols = {"range": subscription(TOPIC, version=version)}
        assert (await one.join()).error_code == ErrorCode.NONE
        synced = await one._sync({}, {"protocol_type": "consumer", "protocol_name": "range"})
        assert synced.error_code == ErrorCode.NONE
        assert synced.assignment[:2] == version.to_bytes(2, "big")
        assert read_assignment(bytes(synced.assignment)).assigned_partitions == ()

    scenario()


@on_mixed_stage()
async def test_classic_members_leave_a_consumer_group_together(broker: MixedBroker) -> None:
    """Each has a result of its own; the epoch grows once, by the topics that are left.

    An operator removes members of the consumer protocol in the same way.
    """
    broker.topics.put("b", 2)
    one = ClassicClient(broker, "one", instance_id="i")
    two = ClassicClient(broker, "two", protocols={"range": subscription(TOPIC, "b")})
    for name in ("three", "four"):
        await ConsumerClient(broker, name).beat()
    assert (await one.join()).error_code == ErrorCode.NONE
    assert (await two.join()).error_code == ErrorCode.NONE
    before, metadata_hash = broker.consumers.epoch, broker.consumers.metadata_hash
    codes = await remove(
        broker,
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id=two.member_id),
        MemberIdentity(member_id="three"),
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id="", group_instance_id="none"),
    )
    none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [none, none, none, unknown, unknown]
    assert list(broker.consumers.members) == ["four"]
    assert broker.consumers.epoch == before + 1
    assert broker.consumers.metadata_hash != metadata_hash
    await broker.passes(60)
    assert broker.consumers.members == {}


@on_mixed_stage()
async def test_the_group_is_classic_again_when_the_last_consumer_gives_up_nothing(
    broker: MixedBroker,
) -> None:
    """Its rebalance timeout ends, though it sends heartbeats."""
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one")
    assert await one.follow() == ErrorCode.NONE
    for _ in range(20):
        assert broker.type == "consumer"
        await three.beat(topic_partitions=None)
        await one.heartbeat()
        await broker.passes(1)
    assert broker.type == "classic"
    assert list(broker.group().members) == [one.member_id]


@on_mixed_stage()
async def test_a_static_classic_member_may_restart_with_other_topics(broker: MixedBroker) -> None:
    """The group epoch grows, and it gets its share of the new topic."""
    broker.topics.put("b", 2)
    three = ConsumerClient(broker, "three")
    await three.beat()
    one = ClassicClient(broker, "one", instance_id="i")
    await settle(broker, three, one)
    before = broker.consumers.epoch
    again = ClassicClient(broker, "one", instance_id="i")
    again.protocols = {"range": subscription(TOPIC, "b")}
    assert (await again.join()).error_code == ErrorCode.NONE
    assert broker.consumers.epoch == before + 1
    assert len(broker.consumers.target[again.member_id]) == 2
