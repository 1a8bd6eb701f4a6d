"""Requests of groups that no coordinator answers: before there is one, and without a group id."""

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tailrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tailrace.protocol.messages.sync_group import SyncGroupRequest
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.testing import Outside
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.test_consumer_groups import delete
from tests.unit.broker.test_groups import find, joining

TOPICS = (
    OffsetDeleteRequestTopic(
        name="t", partitions=(OffsetDeleteRequestPartition(partition_index=0),)
    ),
)


def requests(group_id: str) -> dict[ApiKey, Any]:
    """A request of each API for one group."""
    return {
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeRequest(group_ids=(group_id,)),
        ApiKey.JOIN_GROUP: joining(group_id=group_id),
        ApiKey.SYNC_GROUP: SyncGroupRequest(
            group_id=group_id,
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
        ),
        ApiKey.HEARTBEAT: HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m"),
        ApiKey.LEAVE_GROUP: LeaveGroupRequest(
            group_id=group_id, members=(MemberIdentity(member_id="m"),)
        ),
        ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest(groups=(group_id,)),
        ApiKey.DELETE_GROUPS: DeleteGroupsRequest(groups_names=(group_id,)),
        ApiKey.OFFSET_FETCH: OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),)
        ),
        ApiKey.OFFSET_DELETE: OffsetDeleteRequest(group_id=group_id, topics=TOPICS),
        ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group_id,
            producer_id=1,
            producer_epoch=0,
            topics=(
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=(
                        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1),
                    ),
                ),
            ),
        ),
    }


def codes(answer: Any) -> Iterator[ErrorCode]:
    """Every error code of a response but NONE."""
    if isinstance(answer, tuple):
        for each in answer:
            yield from codes(each)
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name == "error_code" and value != ErrorCode.NONE:
            yield ErrorCode(value)
        yield from codes(value)


@pytest.mark.parametrize("key", requests("g"))
async def test_a_group_without_a_coordinator_is_refused(outside: Outside, key: ApiKey) -> None:
    """Each API tells the client to look for another coordinator, and names no other error."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        answer = await peer.ask(key, requests("g")[key], object)  # type: ignore[type-var]
        assert list(codes(answer)) == [ErrorCode.NOT_COORDINATOR]


async def test_no_groups_are_listed_without_a_coordinator(outside: Outside) -> None:
    """It is no error: this broker has none of them."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        answer = await peer.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
        assert (answer.error_code, answer.groups) == (ErrorCode.NONE, ())


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_DELETE,
        ApiKey.TXN_OFFSET_COMMIT,
    ],
)
async def test_a_group_needs_an_id(outside: Outside, key: ApiKey) -> None:
    """INVALID_GROUP_ID, where Apache Kafka says so."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        answer = await peer.ask(key, requests("")[key], object)  # type: ignore[type-var]
        assert list(codes(answer)) == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_a_group_with_an_empty_id_is_described_as_dead(
    outside: Outside, version: int, code: ErrorCode
) -> None:
    """Old clients could commit without a group id, so DescribeGroups does not refuse it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        request = requests("")[ApiKey.DESCRIBE_GROUPS]
        answer = await peer.ask(
            ApiKey.DESCRIBE_GROUPS, request, DescribeGroupsResponse, version=version
        )
        [group] = answer.groups
        assert (group.group_id, group.group_state, group.error_code) == ("", "Dead", code)


async def test_a_topic_is_deleted_while_no_group_is_coordinated(outside: Outside) -> None:
    """No group can have committed for it, so nothing is left to do."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await delete(peer, "t")
        assert list(broker.controller.image.topics) == []
