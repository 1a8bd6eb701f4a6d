"""Consumer groups on a broker on doubles, by the requests that clients send."""

import asyncio
from dataclasses import replace

import pytest

from tailrace.handlers.services import GROUP_OPERATIONS
from tailrace.model import OFFSETS_TOPIC
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tailrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    produce,
    running,
    wait_for_coordinators,
)

NAMED = 9
"""The last version of OffsetCommit and OffsetFetch that names topics."""


async def find(peer: Peer, kind: int = 0) -> FindCoordinatorResponse:
    """The answer to FindCoordinator, which creates the topic of the groups; they are loaded."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=("g",))
    found = await peer.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
    await wait_for_coordinators(peer)
    return found


def joining(member_id: str = "", **fields: object) -> JoinGroupRequest:
    """A JoinGroup of a consumer."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0"),),
    )
    return replace(request, **fields)  # type: ignore[arg-type]


async def join(peer: Peer, member_id: str = "", **fields: object) -> JoinGroupResponse:
    """The answer to a JoinGroup; a new member asks twice, as clients do."""
    request = joining(member_id, **fields)
    answer = await peer.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request = replace(request, member_id=answer.member_id)
        answer = await peer.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse)
    return answer


async def sync(peer: Peer, joined: JoinGroupResponse) -> SyncGroupResponse:
    """The answer to a SyncGroup; a leader assigns each member its own id."""
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=each.member_id.encode())
            for each in joined.members
        ),
    )
    return await peer.ask(ApiKey.SYNC_GROUP, request, SyncGroupResponse)


async def beat(peer: Peer, joined: JoinGroupResponse) -> ErrorCode:
    """The answer to a Heartbeat."""
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    answer = await peer.ask(ApiKey.HEARTBEAT, request, HeartbeatResponse)
    return ErrorCode(answer.error_code)


async def commit(
    peer: Peer,
    offset: int,
    joined: JoinGroupResponse | None = None,
    *,
    topic: str = "t",
    group_id: str = "g",
    metadata: str = "m",
) -> ErrorCode:
    """The code of a commit for partition 0 of a topic, by a member or by no member."""
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1 if joined is None else joined.generation_id,
        member_id="" if joined is None else joined.member_id,
        topics=(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    ),
                ),
            ),
        ),
    )
    answer = await peer.ask(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version=NAMED)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(peer: Peer, group_id: str = "g") -> dict[str, int]:
    """The offset of partition 0 of each topic that the group has committed."""
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=None),))
    answer = await peer.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version=NAMED)
    [group] = answer.groups
    assert group.error_code == ErrorCode.NONE
    return {each.name: each.partitions[0].committed_offset for each in group.topics}


async def test_the_topic_of_the_groups_is_made_by_the_first_who_asks(outside: Outside) -> None:
    """It is compacted and has the partitions of `offsets.topic.num.partitions`; others find it."""
    async with running(outside, {"offsets.topic.num.partitions": "3"}) as broker:
        peers = [connect(outside, broker) for _ in range(3)]
        for answer in await asyncio.gather(*map(find, peers)):
            assert answer.coordinators[0].node_id == 1
        topic = broker.controller.image.topics[OFFSETS_TOPIC]
        assert len(topic.partitions) == 3
        assert topic.configs["cleanup.policy"] == "compact"
        refused = await find(peers[0], kind=7)
        assert refused.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_client_that_looks_at_the_topic_of_the_groups_makes_it_whole(
    outside: Outside,
) -> None:
    """Metadata creates it like any topic that is missing, and with its own settings."""
    async with running(outside, {"offsets.topic.num.partitions": "3"}) as broker:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=OFFSETS_TOPIC),))
        peer = connect(outside, broker)
        [found] = (await peer.ask(ApiKey.METADATA, request, MetadataResponse)).topics
        assert (found.error_code, len(found.partitions)) == (ErrorCode.NONE, 3)
        assert broker.controller.image.topics[OFFSETS_TOPIC].configs["cleanup.policy"] == "compact"


async def test_members_share_a_group_and_take_over_from_each_other(outside: Outside) -> None:
    """Each gets what the leader has assigned to it; one that leaves or is silent is missed."""
    async with running(outside) as broker:
        first, second = connect(outside, broker), connect(outside, broker)
        await find(first)
        joins = await asyncio.gather(join(first), join(second))
        assert {each.generation_id for each in joins} == {1}
        assert {each.leader for each in joins} == {next(e.member_id for e in joins if e.members)}
        synced = await asyncio.gather(sync(first, joins[0]), sync(second, joins[1]))
        assert [each.assignment for each in synced] == [e.member_id.encode() for e in joins]
        assert await beat(first, joins[0]) is ErrorCode.NONE
        leaving = LeaveGroupRequest(
            group_id="g", members=(MemberIdentity(member_id=joins[1].member_id),)
        )
        left = await second.ask(ApiKey.LEAVE_GROUP, leaving, LeaveGroupResponse)
        assert left.members[0].error_code == ErrorCode.NONE
        assert await beat(first, joins[0]) is ErrorCode.REBALANCE_IN_PROGRESS
        again = await join(first, joins[0].member_id)
        assert (again.generation_id, len(again.members)) == (2, 1)
        assert (await sync(first, again)).error_code == ErrorCode.NONE
        await outside.pass_time(11)
        assert await beat(first, again) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_survive_a_crash_of_the_broker() -> None:
    """So does the group: its members go on in the generation that they were in."""

    async def before(outside: Outside) -> JoinGroupResponse:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            await find(peer)
            joined = await join(peer)
            await sync(peer, joined)
            assert await commit(peer, 5, joined) is ErrorCode.NONE
            assert await commit(peer, 7, joined) is ErrorCode.NONE
            disks.append(outside.files.crash(keep_unsynced=True))
            return joined

    async def after(outside: Outside) -> None:
        async with running(outside) as broker:
            await outside.pass_time(1)
            peer = connect(outside, broker)
            assert await beat(peer, joined) is ErrorCode.NONE
            assert await committed(peer) == {"t": 7}
            assert await commit(peer, 9, joined) is ErrorCode.NONE

    disks: list[MemoryFiles] = []
    with virtual_runtime() as outside:
        joined = outside.run(before(outside))
    with virtual_runtime(files=disks[0]) as outside:
        outside.run(after(outside))


async def test_commits_are_checked_against_the_group(outside: Outside) -> None:
    """A member of another generation, a client that is none, and an unknown topic are refused."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        assert await commit(peer, 1) is ErrorCode.NONE
        assert await commit(peer, 1, topic="gone") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        joined = await join(peer)
        assert await commit(peer, 2, joined) is ErrorCode.REBALANCE_IN_PROGRESS
        await sync(peer, joined)
        old = replace(joined, generation_id=joined.generation_id - 1)
        assert await commit(peer, 2, old) is ErrorCode.ILLEGAL_GENERATION
        assert await commit(peer, 2, replace(joined, member_id="?")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(peer, 2) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await committed(peer) == {"t": 1}
        assert await committed(peer, "nobody") == {}


@pytest.mark.parametrize("topic", ["gone", None])
async def test_a_commit_of_nothing_that_exists_does_not_ask_the_group(
    outside: Outside, topic: str | None
) -> None:
    """So it keeps no member alive, even if it comes again and again; a real commit does."""
    topics: tuple[OffsetCommitRequestTopic, ...] = ()
    if topic is not None:
        partitions = (OffsetCommitRequestPartition(partition_index=0, committed_offset=1),)
        topics = (OffsetCommitRequestTopic(name=topic, partitions=partitions),)
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        joined = await join(peer)
        await sync(peer, joined)
        for _ in range(4):
            await outside.pass_time(4)
            assert await commit(peer, 1, joined) is ErrorCode.NONE
        nothing = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=joined.generation_id,
            member_id=joined.member_id,
            topics=topics,
        )
        for _ in range(4):
            await outside.pass_time(4)
            await peer.ask(ApiKey.OFFSET_COMMIT, nothing, OffsetCommitResponse, version=NAMED)
        assert await beat(peer, joined) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_groups_are_listed_described_and_deleted(outside: Outside) -> None:
    """A group with members cannot be deleted, nor can offsets that they consume from."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        joined = await join(peer)
        await sync(peer, joined)
        await commit(peer, 3, joined)
        listed = await peer.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
        assert [(each.group_id, each.group_state) for each in listed.groups] == [("g", "Stable")]
        asked = DescribeGroupsRequest(groups=("g", "nobody"), include_authorized_operations=True)
        known, unknown = (
            await peer.ask(ApiKey.DESCRIBE_GROUPS, asked, DescribeGroupsResponse)
        ).groups
        assert (known.group_state, known.protocol_data) == ("Stable", "range")
        assert known.authorized_operations == GROUP_OPERATIONS
        assert known.members[0].member_id == joined.member_id
        assert known.members[0].member_assignment == joined.member_id.encode()
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await delete(peer) is ErrorCode.NON_EMPTY_GROUP
        leaving = LeaveGroupRequest(
            group_id="g", members=(MemberIdentity(member_id=joined.member_id),)
        )
        await peer.ask(ApiKey.LEAVE_GROUP, leaving, LeaveGroupResponse)
        forget = OffsetDeleteRequest(
            group_id="g",
            topics=(
                OffsetDeleteRequestTopic(
                    name="t", partitions=(OffsetDeleteRequestPartition(partition_index=0),)
                ),
            ),
        )
        forgotten = await peer.ask(ApiKey.OFFSET_DELETE, forget, OffsetDeleteResponse)
        assert forgotten.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await committed(peer) == {}
        assert await delete(peer) is ErrorCode.NONE
        assert await delete(peer) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_groups_that_are_named_often_are_answered_once(outside: Outside) -> None:
    """A short request cannot ask for an answer that is thousands of times as long as a group."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        await commit(peer, 1)
        asked = DescribeGroupsRequest(groups=("g",) * 100)
        described = await peer.ask(ApiKey.DESCRIBE_GROUPS, asked, DescribeGroupsResponse)
        assert [each.group_id for each in described.groups] == ["g"]
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        fetched = await peer.ask(
            ApiKey.OFFSET_FETCH,
            OffsetFetchRequest(groups=(group,) * 100),
            OffsetFetchResponse,
            version=NAMED,
        )
        assert [each.group_id for each in fetched.groups] == ["g"]


async def delete(peer: Peer) -> ErrorCode:
    """The code of a DeleteGroups for one group."""
    request = DeleteGroupsRequest(groups_names=("g",))
    answer = await peer.ask(ApiKey.DELETE_GROUPS, request, DeleteGroupsResponse)
    return ErrorCode(answer.results[0].error_code)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "never seen"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_a_join_that_cannot_be_is_refused(
    outside: Outside, fields: dict[str, object], code: ErrorCode
) -> None:
    """Each with the code that Apache Kafka gives."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        request = joining(**fields)  # type: ignore[arg-type]
        answer = await peer.ask(ApiKey.JOIN_GROUP, request, JoinGroupResponse)
        assert answer.error_code == code


async def test_no_group_is_coordinated_before_its_topic_exists(outside: Outside) -> None:
    """The client is told to look for the coordinator, which creates the topic."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert (await join(peer)).error_code == ErrorCode.NOT_COORDINATOR
        await find(peer)
        assert (await join(peer)).error_code == ErrorCode.NONE


async def test_a_damaged_record_of_groups_stops_its_partition(outside: Outside) -> None:
    """Nobody gets a wrong offset: the group has no coordinator, and the others are served."""
    settings = {"offsets.topic.num.partitions": "1"}
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        assert await commit(peer, 1) is ErrorCode.NONE
    log = f"data/{OFFSETS_TOPIC}-0/00000000000000000000.log"
    content = bytearray(outside.files.content(log))
    content[-3] ^= 0xFF
    outside.files.overwrite(log, bytes(content))
    async with running(outside, settings) as broker:
        await outside.pass_time(1)
        peer = connect(outside, broker)
        assert await commit(peer, 2) is ErrorCode.NOT_COORDINATOR
        assert (await produce(peer, "t", batch(b"x"))).error_code == ErrorCode.NONE


async def test_a_commit_that_is_too_large_for_the_log_harms_no_other(outside: Outside) -> None:
    """Three come at once to one partition: the second is refused, and the others are stored."""
    settings = {"message.max.bytes": "1000", "offsets.topic.num.partitions": "1"}
    async with running(outside, settings) as broker:
        peers = [connect(outside, broker) for _ in range(3)]
        await create_topic(peers[0], "t")
        await find(peers[0])
        codes = await asyncio.gather(
            *(
                commit(peer, 5, group_id=group, metadata=metadata)
                for peer, group, metadata in zip(peers, "abc", ("m", "m" * 2000, "m"), strict=True)
            )
        )
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
        assert [await committed(peers[0], each) for each in "abc"] == [{"t": 5}, {}, {"t": 5}]
