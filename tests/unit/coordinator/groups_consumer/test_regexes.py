"""Subscriptions by regular expression: RE2's syntax, resolved after the heartbeat."""

import pytest

from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.coordinator.groups.subscribed_topics import REFRESH_MIN_MS
from tailrace.coordinator.groups.topics import matching
from tailrace.protocol.errors import ErrorCode
from tests.unit.coordinator.groups_consumer.group_shard import (
    Coordinator,
    MemoryTopics,
    beating,
    joining,
    told,
)
from tests.unit.coordinator.groups_consumer.test_consumer_heartbeat import refused, run


def named() -> MemoryTopics:
    """Topics `apple` and `berry`, with three partitions and two."""
    topics = MemoryTopics()
    topics.put("a", 3, name="apple")
    topics.put("b", 2, name="berry")
    return topics


async def joined(coordinator: Coordinator, member_id: str = "m1", regex: str = "a.*") -> None:
    """A member that has joined and got what matches."""
    await coordinator.send(joining(member_id, "", subscribed_topic_regex=regex))
    await coordinator.outside.pass_time(2)
    epoch = coordinator.group.members[member_id].epoch
    await coordinator.send(beating(member_id, epoch))
    coordinator.new_types()


def test_the_first_reply_is_empty_and_the_assignment_follows() -> None:
    """The heartbeat does not wait for the resolution, which writes the topics and a new epoch."""

    async def scenario(coordinator: Coordinator) -> None:
        response = await coordinator.send(joining("m1", "", subscribed_topic_regex="a.*"))
        assert (response.member_epoch, told(response)) == (2, "")
        await coordinator.outside.pass_time(2)
        assert coordinator.new_types() == [[5, 3, 7, 6, 8], [16, 3]]
        assert coordinator.group.regexes["a.*"].topics == {"apple"}
        response = await coordinator.send(beating("m1", 2))
        assert (response.member_epoch, told(response)) == (3, "a0 a1 a2")

    run(scenario, named())


def test_names_and_an_expression_add_up() -> None:
    """A topic that both say is one."""

    async def scenario(coordinator: Coordinator) -> None:
        fields = {"subscribed_topic_names": ("apple", "berry"), "subscribed_topic_regex": "a.*"}
        await coordinator.send(joining("m1", "", **fields))
        await coordinator.outside.pass_time(2)
        await coordinator.send(beating("m1", 2))
        assert coordinator.has("m1") == "a0 a1 a2 b0 b1"

    run(scenario, named())


def test_a_second_member_with_the_same_expression_does_not_wait() -> None:
    """A resolved expression counts at once."""

    async def scenario(coordinator: Coordinator) -> None:
        await joined(coordinator)
        await coordinator.outside.pass_time(1)
        response = await coordinator.send(joining("m2", "", subscribed_topic_regex="a.*"))
        assert response.member_epoch == 4
        assert coordinator.group.target["m2"]

    run(scenario, named())


def test_an_expression_that_is_wrong_is_refused() -> None:
    """With the reason; what RE2 does not have is wrong."""

    async def scenario(coordinator: Coordinator) -> None:
        for regex in ("(", "a(?=b)", r"(a)\1"):
            request = joining("m1", "", subscribed_topic_regex=regex)
            assert await refused(coordinator, request) is ErrorCode.INVALID_REGULAR_EXPRESSION
        response = await coordinator.send(joining("m1", "", subscribed_topic_regex="("))
        assert response.error_message == (
            "SubscribedTopicRegex `(` is not a valid regular expression: missing ): (."
        )

    run(scenario, named())


def test_new_topics_are_found_but_not_more_often_than_every_ten_seconds() -> None:
    """A heartbeat after that finds them; topics that do not match write no epoch."""

    async def scenario(coordinator: Coordinator) -> None:
        await joined(coordinator)
        coordinator.topics.put("c", 1, name="avocado")
        await coordinator.send(beating("m1", 3))
        await coordinator.outside.pass_time(1)
        assert coordinator.group.regexes["a.*"].topics == {"apple"}
        await coordinator.outside.pass_time(REFRESH_MIN_MS / 1000)
        await coordinator.send(beating("m1", 3))
        await coordinator.outside.pass_time(1)
        assert coordinator.group.regexes["a.*"].topics == {"apple", "avocado"}
        assert coordinator.group.epoch == 4
        await coordinator.outside.pass_time(REFRESH_MIN_MS / 1000)
        coordinator.topics.put("d", 1, name="cherry")
        await coordinator.send(beating("m1", 3))
        await coordinator.outside.pass_time(1)
        assert coordinator.group.epoch == 4

    run(scenario, named())


def test_expressions_are_resolved_again_after_ten_minutes() -> None:
    """Though no topic has changed: what a member may see may have."""

    async def scenario(coordinator: Coordinator) -> None:
        await joined(coordinator)
        for _ in range(ConsumerSettings().regex_refresh_interval_ms // 30_000 + 1):
            await coordinator.outside.pass_time(30)
            await coordinator.send(beating("m1", 3))
        await coordinator.outside.pass_time(1)
        assert coordinator.new_types() == [[16]]

    run(scenario, named())


def test_an_expression_that_nobody_has_any_more_is_deleted() -> None:
    """Its member leaves, is fenced, or takes another one; not while another member has it."""

    async def scenario(coordinator: Coordinator) -> None:
        await joined(coordinator)
        await joined(coordinator, "m2")
        await coordinator.send(beating("m2", -1))
        assert coordinator.new_types() == [[-8, -7, -5, 3]]
        epoch = coordinator.group.members["m1"].epoch
        await coordinator.send(beating("m1", epoch, subscribed_topic_regex="b.*"))
        assert -16 in coordinator.new_types()[0]
        await coordinator.outside.pass_time(REFRESH_MIN_MS / 1000 + 1)
        epoch = coordinator.group.members["m1"].epoch
        await coordinator.send(beating("m1", epoch, ""))
        await coordinator.outside.pass_time(1)
        await coordinator.send(beating("m1", coordinator.group.members["m1"].epoch, ""))
        assert coordinator.has("m1") == "b0 b1"
        coordinator.new_types()
        await coordinator.outside.pass_time(46)
        assert coordinator.new_types() == [[-8, -7, -5, -16, 3]]

    run(scenario, named())


def test_an_empty_expression_clears_it() -> None:
    """The member keeps the topics that it names."""

    async def scenario(coordinator: Coordinator) -> None:
        await joined(coordinator)
        cleared = beating("m1", 3, subscribed_topic_regex="", subscribed_topic_names=("berry",))
        await coordinator.send(cleared)
        await coordinator.outside.pass_time(1)
        epoch = coordinator.group.members["m1"].epoch
        await coordinator.send(beating("m1", epoch, ""))
        assert coordinator.has("m1") == "b0 b1"
        assert coordinator.group.regexes == {}

    run(scenario, named())


def test_an_expression_may_change_before_it_is_resolved() -> None:
    """The topics of the old one are dropped, and a heartbeat has the new one resolved."""

    async def scenario(coordinator: Coordinator) -> None:
        await coordinator.send(joining("m1", "", subscribed_topic_regex="a.*"))
        response = await coordinator.send(beating("m1", 2, subscribed_topic_regex="a.*|b.*"))
        assert response.member_epoch == 2
        await coordinator.outside.pass_time(2)
        assert "a.*" not in coordinator.group.regexes
        for _ in range(3):
            epoch = coordinator.group.members["m1"].epoch
            await coordinator.send(beating("m1", epoch))
            await coordinator.outside.pass_time(REFRESH_MIN_MS / 1000)
        assert coordinator.group.regexes["a.*|b.*"].topics == {"apple", "berry"}
        assert coordinator.has("m1") == "a0 a1 a2 b0 b1"

    run(scenario, named())


def test_another_expression_keeps_the_topics_that_the_member_names() -> None:
    """Topics that only the old one has matched are given up, before the new one is resolved."""

    async def scenario(coordinator: Coordinator) -> None:
        fields = {"subscribed_topic_names": ("apple",), "subscribed_topic_regex": "b.*"}
        await coordinator.send(joining("m1", "", **fields))
        await coordinator.outside.pass_time(2)
        await coordinator.send(beating("m1", 2))
        assert coordinator.has("m1") == "a0 a1 a2 b0 b1"
        epoch = coordinator.group.members["m1"].epoch
        changed = beating("m1", epoch, coordinator.has("m1"), subscribed_topic_regex="be.*")
        assert told(await coordinator.send(changed)) == "a0 a1 a2"

    run(scenario, named())


def test_a_static_member_comes_back_with_another_expression() -> None:
    """It gets nothing of what it had until that is resolved, and the old one is deleted."""

    async def scenario(coordinator: Coordinator) -> None:
        fields = {"instance_id": "i", "subscribed_topic_regex": "a.*|b.*"}
        await coordinator.send(joining("m1", "", **fields))
        await coordinator.outside.pass_time(2)
        await coordinator.send(beating("m1", 2, instance_id="i"))
        assert coordinator.has("m1") == "a0 a1 a2 b0 b1"
        await coordinator.send(beating("m1", -2, instance_id="i"))
        await coordinator.outside.pass_time(REFRESH_MIN_MS / 1000)
        response = await coordinator.send(
            joining("m2", "", **{**fields, "subscribed_topic_regex": "a.*"})
        )
        assert (response.error_code, told(response)) == (0, "")
        assert "a.*|b.*" not in coordinator.group.regexes
        await coordinator.outside.pass_time(2)
        await coordinator.send(beating("m2", response.member_epoch, instance_id="i"))
        assert coordinator.has("m2") == "a0 a1 a2"

    run(scenario, named())


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("app", set()),
        ("app|berry", {"berry"}),
        ("(?i)APPLE", {"apple"}),
        (r"\pL+", {"apple", "berry"}),
        ("[[:alpha:]]{5}", {"apple", "berry"}),
        (".*", {"apple", "berry", "c.d"}),
    ],
)
def test_an_expression_matches_whole_names(regex: str, expected: set[str]) -> None:
    """In RE2's syntax."""
    assert matching(regex, ["apple", "berry", "c.d"]) == expected


def test_no_expression_takes_long() -> None:
    """One over which Python's `re` would take longer than this machine lasts."""
    assert matching("(a+)+b", ["a" * 249]) == frozenset()
