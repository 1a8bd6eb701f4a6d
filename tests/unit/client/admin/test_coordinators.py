"""Operations that a group's coordinator, or the leader of a partition, has to answer."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tailrace.client import RemoteFatalError
from tailrace.client.admin import AsyncAdmin, Outcomes
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import (
    delete_groups,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from tailrace.protocol.messages import list_offsets as listing
from tailrace.testing.cluster import ScriptedNode
from tailrace.testing.script import FaultKind
from tests.unit.client.admin.stage import AdminStage, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fetched(code: int) -> Message:
    """Committed offsets of `g`."""
    part = offset_fetch.OffsetFetchResponsePartitions(partition_index=0, committed_offset=4)
    topic = offset_fetch.OffsetFetchResponseTopics(name="t", partitions=(part,))
    group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=(topic,), error_code=code)
    return offset_fetch.OffsetFetchResponse(groups=(group,))


def committed(code: int) -> Message:
    """The outcome of a commit of one offset."""
    part = offset_commit.OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = offset_commit.OffsetCommitResponseTopic(name="t", partitions=(part,))
    return offset_commit.OffsetCommitResponse(topics=(topic,))


def deleted(code: int) -> Message:
    """The outcome of the deletion of one offset."""
    part = offset_delete.OffsetDeleteResponsePartition(partition_index=0)
    topic = offset_delete.OffsetDeleteResponseTopic(name="t", partitions=(part,))
    return offset_delete.OffsetDeleteResponse(error_code=code, topics=(topic,))


def removed(code: int) -> Message:
    """The outcome of the removal of one member."""
    member = leave_group.MemberResponse(member_id="", group_instance_id="m")
    return leave_group.LeaveGroupResponse(error_code=code, members=(member,))


def dropped(code: int) -> Message:
    """The outcome of the deletion of a group."""
    result = delete_groups.DeletableGroupResult(group_id="g", error_code=code)
    return delete_groups.DeleteGroupsResponse(results=(result,))


OPERATIONS = pytest.mark.parametrize(
    ("key", "answer", "method", "arguments"),
    [
        (ApiKey.OFFSET_FETCH, fetched, "list_group_offsets", ("g",)),
        (ApiKey.OFFSET_COMMIT, committed, "alter_group_offsets", ("g", {T0: 4})),
        (ApiKey.OFFSET_DELETE, deleted, "delete_group_offsets", ("g", [T0])),
        (ApiKey.LEAVE_GROUP, removed, "remove_members_from_group", ("g", ["m"])),
        (ApiKey.DELETE_GROUPS, dropped, "delete_groups", (["g"],)),
    ],
)

RETRIABLE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


async def results_of(admin: AsyncAdmin, method: str, arguments: tuple[Any, ...]) -> Any:
    """The results of a call."""
    found: Outcomes[Any, Any] = await getattr(admin, method)(*arguments)
    return found.results()


@OPERATIONS
def test_a_coordinator_that_is_not_ready_is_asked_again(
    key: ApiKey, answer: Callable[[int], Message], method: str, arguments: tuple[Any, ...]
) -> None:
    """After each retriable error it is looked up and asked anew, after a pause that grows."""
    times = []

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        def noted(code: int) -> Callable[[ScriptedNode, Any], Message]:
            def tell(*_: object) -> Message:
                times.append(at.outside.loop.time())
                return answer(code)

            return tell

        at.on(key, *map(noted, (*RETRIABLE, ErrorCode.NONE)))
        return results_of(admin, method, arguments)

    found, at = on_stage(scene)
    assert len(found) == 1
    assert len(at.asked) == 4
    assert at.cluster.count(ApiKey.FIND_COORDINATOR) == 4
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] >= 0.08
    assert pauses == sorted(pauses)


@OPERATIONS
def test_the_retries_of_a_coordinator_can_be_limited(
    key: ApiKey, answer: Callable[[int], Message], method: str, arguments: tuple[Any, ...]
) -> None:
    """With `retries=0` the first error is the outcome."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(key, answer(ErrorCode.NOT_COORDINATOR), answer(0))
        return results_of(admin, method, arguments)

    with pytest.raises(Exception, match="NOT_COORDINATOR"):
        on_stage(scene, retries=0)


@OPERATIONS
def test_a_refusal_of_a_coordinator_is_not_repeated(
    key: ApiKey, answer: Callable[[int], Message], method: str, arguments: tuple[Any, ...]
) -> None:
    """An error that no retry changes is the outcome of the first request."""
    asked = []

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        asked.append(at)
        at.on(key, answer(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return results_of(admin, method, arguments)

    with pytest.raises(RemoteFatalError, match="GROUP_AUTHORIZATION_FAILED"):
        on_stage(scene)
    assert len(asked[0].asked) == 1


def test_a_coordinator_that_cannot_be_found_yet_is_looked_up_again() -> None:
    """Retriable errors of FindCoordinator are retried; another one is the outcome."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.OFFSET_COMMIT, committed(0))
        fail = FaultKind.ERROR
        at.cluster.script.add(
            ApiKey.FIND_COORDINATOR, fail, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2
        )
        return results_of(admin, "alter_group_offsets", ("g", {T0: 4}))

    found, at = on_stage(scene)
    assert found == {T0: None}
    assert at.cluster.count(ApiKey.FIND_COORDINATOR) == 3

    def refused(at: AdminStage, admin: AsyncAdmin) -> Any:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        at.cluster.script.add(ApiKey.FIND_COORDINATOR, FaultKind.ERROR, error=code)
        return results_of(admin, "alter_group_offsets", ("g", {T0: 4}))

    with pytest.raises(RemoteFatalError, match="coordinator of group 'g'"):
        on_stage(refused)


def test_coordinators_of_an_old_broker_are_found_one_by_one() -> None:
    """Until version 3 a FindCoordinator has one key (KIP-699)."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        def answer(_: ScriptedNode, body: Any) -> Message:
            result = delete_groups.DeletableGroupResult
            return delete_groups.DeleteGroupsResponse(
                results=tuple(result(group_id=each) for each in body.groups_names)
            )

        at.cluster.versions[ApiKey.FIND_COORDINATOR] = 3
        at.on(ApiKey.DELETE_GROUPS, answer)
        return results_of(admin, "delete_groups", (["a", "b", "c"],))

    found, at = on_stage(scene)
    assert [*found] == ["a", "b", "c"]
    assert at.cluster.count(ApiKey.FIND_COORDINATOR) == 3
    assert len(at.asked) == 1


def listed(node: ScriptedNode, body: Any, **codes: int) -> Message:
    """The answer of a leader: the offset is the number of the node."""
    return listing.ListOffsetsResponse(
        topics=tuple(
            listing.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    listing.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        offset=node.id,
                        timestamp=7,
                        error_code=codes.get(f"p{each.partition_index}", 0),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


QUESTIONS = {T0: SpecialTimestamp.LATEST, T1: 1_700_000_000_000}


def test_offsets_come_from_the_leaders() -> None:
    """With timestamps and leader epochs; both leaders are asked at the same time."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.LIST_OFFSETS, listed)
        return results_of(admin, "list_offsets", (QUESTIONS,))

    found, at = on_stage(scene)
    assert {each: answer.offset for each, answer in found.items()} == {T0: 1, T1: 2}
    assert found[T1].timestamp == 7
    assert len(at.asked) == 2


def test_only_the_partition_in_trouble_is_asked_for_again() -> None:
    """Its leader moves between the two requests; the other partition keeps its first answer."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        def moving(node: ScriptedNode, body: Any) -> Message:
            at.cluster.move(T0, 2)
            return listed(node, body, p0=0 if node.id == 2 else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        at.on(ApiKey.LIST_OFFSETS, moving)
        return results_of(admin, "list_offsets", (QUESTIONS,))

    found, at = on_stage(scene)
    assert {each: answer.offset for each, answer in found.items()} == {T0: 2, T1: 2}
    assert sorted(at.asked_nodes()) == [1, 2, 2]


def test_a_partition_that_is_refused_does_not_harm_the_others() -> None:
    """It has its error, and they their offsets."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        at.on(ApiKey.LIST_OFFSETS, lambda node, body: listed(node, body, p0=code))
        return await admin.list_offsets(QUESTIONS)

    found, _ = on_stage(scene)
    assert [*found.errors] == [T0]
    assert found.result(T1).offset == 2


def test_a_topic_whose_metadata_is_refused_has_that_error() -> None:
    """A retriable error of the topic is waited for; another one is the partition's."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(ApiKey.LIST_OFFSETS, listed)
        at.cluster.script.add(
            ApiKey.METADATA, FaultKind.ERROR, error=ErrorCode.LEADER_NOT_AVAILABLE, times=2
        )
        return await admin.list_offsets(QUESTIONS)

    found, _ = on_stage(scene)
    assert found.errors == {}

    async def refused(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.topic_errors["t"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return await admin.list_offsets(QUESTIONS)

    found, _ = on_stage(refused)
    assert [*found.errors] == [T0, T1]
    with pytest.raises(RemoteFatalError, match=r"topic 't' at .*TOPIC_AUTHORIZATION_FAILED"):
        found.result(T0)
