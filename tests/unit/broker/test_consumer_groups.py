"""Groups of the consumer protocol (KIP-848) on a broker on doubles, by the requests of clients."""

from dataclasses import replace
from typing import Any

import pytest

from tailrace.broker.config import broker_config
from tailrace.cluster import bootstrap
from tailrace.cluster.metadata.features import METADATA_VERSIONS
from tailrace.errors import ConfigError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tailrace.storage.checkpoints import write_whole
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.test_groups import NAMED, commit, find, join
from tests.unit.broker.transactional import begin


def joining(member_id: str = "m1", *topics: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=topics or ("t",),
        topic_partitions=(),
    )
    return replace(request, **fields)


def beating(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A later heartbeat of a member, which has nothing to report."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, topic_partitions=None
    )
    return replace(request, **fields)


async def beat(
    peer: Peer, request: ConsumerGroupHeartbeatRequest, *, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    """The answer to a heartbeat."""
    return await peer.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse, version=version
    )


def assigned(answer: ConsumerGroupHeartbeatResponse) -> list[int]:
    """The partitions of an answer that has an assignment."""
    assert answer.assignment is not None
    return [number for each in answer.assignment.topic_partitions for number in each.partitions]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_and_leaves(outside: Outside, version: int) -> None:
    """It gets all partitions at epoch 2; up to version 0 the broker can make its id."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        await create_topic(peer, "t", partitions=3)
        joined = await beat(peer, joining("m1" if version else ""), version=version)
        assert joined.error_code == ErrorCode.NONE
        assert joined.member_id
        assert (joined.member_epoch, joined.heartbeat_interval_ms) == (2, 5000)
        assert assigned(joined) == [0, 1, 2]
        left = await beat(peer, beating(joined.member_id, -1), version=version)
        assert (left.error_code, left.member_epoch) == (ErrorCode.NONE, -1)


async def test_a_topic_that_is_created_later_is_assigned(outside: Outside) -> None:
    """The next heartbeat finds it, and raises the epoch; so it does when the topic is deleted."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        joined = await beat(peer, joining("m1", "t", "later"))
        assert assigned(joined) == []
        await create_topic(peer, "later", partitions=2)
        await outside.pass_time(2)
        grown = await beat(peer, beating("m1", 2))
        assert (grown.member_epoch, assigned(grown)) == (3, [0, 1])
        topic = broker.controller.image.topics["later"]
        await delete(peer, "later")
        await outside.pass_time(2)
        report = (TopicPartitions(topic_id=topic.topic_id, partitions=(0, 1)),)
        asked = await beat(peer, beating("m1", 3, topic_partitions=report))
        assert (asked.member_epoch, assigned(asked)) == (3, [])
        assert (await beat(peer, beating("m1", 3, topic_partitions=()))).member_epoch == 4


async def test_each_kind_of_group_is_shown_by_its_own_api(outside: Outside) -> None:
    """To the API of the other kind it does not exist; ListGroups has both, and filters by type."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        await create_topic(peer, "t", partitions=2)
        await beat(peer, joining("m1"))
        await join(peer, group_id="classic")
        listed = await list_groups(peer)
        assert listed == {
            "g": ("consumer", "Stable"),
            "classic": ("classic", "CompletingRebalance"),
        }
        assert list(await list_groups(peer, types=("Consumer",))) == ["g"]
        assert list(await list_groups(peer, types=("classic",))) == ["classic"]
        assert list(await list_groups(peer, states=("stable",))) == ["g"]
        for version, code, message in (
            (5, ErrorCode.NONE, None),
            (6, ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group."),
        ):
            answer = await peer.ask(
                ApiKey.DESCRIBE_GROUPS,
                DescribeGroupsRequest(groups=("g",)),
                DescribeGroupsResponse,
                version=version,
            )
            [group] = answer.groups
            assert (group.group_state, group.error_code) == ("Dead", code)
            assert group.error_message == message
        found = await describe(peer, "g", "classic", "none", "", "g")
        assert [each.error_code for each in found] == [0, 69, 69, ErrorCode.INVALID_GROUP_ID]
        assert found[1].error_message == "Group classic is not a consumer group."
        assert (found[0].group_state, found[0].group_epoch) == ("Stable", 2)
        [member] = found[0].members
        [has] = member.assignment.topic_partitions
        assert (member.member_id, member.member_type, has.topic_name) == ("m1", 1, "t")
        assert has.partitions == (0, 1)


async def test_members_commit_and_fetch_at_their_epoch(outside: Outside) -> None:
    """A stale epoch is refused; a group with members cannot be deleted, one without can."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        await create_topic(peer, "t", partitions=1)
        await beat(peer, joining("m1"))
        assert await commit(peer, 5) is ErrorCode.UNKNOWN_MEMBER_ID
        for epoch, code in ((2, ErrorCode.NONE), (1, ErrorCode.STALE_MEMBER_EPOCH)):
            request = OffsetFetchRequest(
                groups=(
                    OffsetFetchRequestGroup(
                        group_id="g", member_id="m1", member_epoch=epoch, topics=None
                    ),
                )
            )
            answer = await peer.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse)
            assert answer.groups[0].error_code == code
        assert await delete_group(peer) is ErrorCode.NON_EMPTY_GROUP
        await beat(peer, beating("m1", -1))
        assert await delete_group(peer) is ErrorCode.NONE
        assert await list_groups(peer) == {}


async def at_epoch_3(outside: Outside, peer: Peer) -> None:
    """A member that has had `t-0` since epoch 2, and `later-0` since epoch 3."""
    await beat(peer, joining("m1", "t", "later"))
    await create_topic(peer, "later")
    await outside.pass_time(2)
    assert (await beat(peer, beating("m1", 2))).member_epoch == 3


async def test_an_older_epoch_commits_by_name_what_the_member_had_then(outside: Outside) -> None:
    """The request has no topic id; that of the topic tells since when the member has had it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        await create_topic(peer, "t")
        await at_epoch_3(outside, peer)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=2,
            member_id="m1",
            topics=tuple(
                OffsetCommitRequestTopic(name=each, partitions=(partition,))
                for each in ("t", "later")
            ),
        )
        answer = await peer.ask(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version=NAMED)
        codes = {each.name: each.partitions[0].error_code for each in answer.topics}
        assert codes == {"t": ErrorCode.NONE, "later": ErrorCode.STALE_MEMBER_EPOCH}


async def test_a_transaction_commits_by_name_what_the_member_had_at_an_older_epoch(
    outside: Outside,
) -> None:
    """TxnOffsetCommit names topics in all of its versions; all of its offsets count, or none."""
    async with running(outside) as broker:
        client = await begin(outside, broker)
        await create_topic(client.peer, "t")
        await at_epoch_3(outside, client.peer)
        await client.add_offsets()
        codes = [
            await client.commit_offset(5, generation=2, member_id="m1", topic=each)
            for each in ("t", "later")
        ]
        assert codes == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]


async def test_operators_can_do_without_the_protocol(outside: Outside) -> None:
    """`group.coordinator.rebalance.protocols` without `consumer`: UNSUPPORTED_VERSION."""
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await find(peer)
        assert (await beat(peer, joining("m1"))).error_code == ErrorCode.UNSUPPORTED_VERSION
        [group] = await describe(peer, "g")
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_cluster_without_the_feature_has_no_group_of_the_protocol(outside: Outside) -> None:
    """A directory of Kafka 3.9 has no `group.version`, and its Kafka does not know such records."""
    outside.files.make_directory("data")
    data = bootstrap.bootstrap_file(bootstrap.new_image(METADATA_VERSIONS["3.9-IV0"]), now_ms=0)
    write_whole(outside.files, f"data/{bootstrap.FILE}", data, is_synced=True)
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        assert (await beat(peer, joining("m1"))).error_code == ErrorCode.UNSUPPORTED_VERSION
        [group] = await describe(peer, "g")
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_the_features_of_groups_and_transactions_are_in_use(outside: Outside) -> None:
    """Clients ask ApiVersions; up to version 3 one that may be at 0 is not listed as supported."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        named = [
            "eligible.leader.replicas.version", "group.version", "transaction.version",
            "kraft.version",
        ]  # fmt: skip
        epochs = []
        for version, supported in ((3, []), (4, named)):
            answer = await peer.ask(
                ApiKey.API_VERSIONS, asked, ApiVersionsResponse, version=version
            )
            names = [each.name for each in answer.supported_features]
            assert names == ["metadata.version", *supported]
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            assert levels == {
                "metadata.version": 30,
                "eligible.leader.replicas.version": 1,
                "group.version": 1,
                "transaction.version": 2,
            }
            epochs.append(answer.finalized_features_epoch)
        assert epochs[0] == epochs[1] > 0


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"group.consumer.session.timeout.ms": "1000"},
            "group.consumer.session.timeout.ms: 1000 is not between group.consumer.min.session",
        ),
        (
            {
                "group.consumer.max.heartbeat.interval.ms": "50000",
                "group.consumer.heartbeat.interval.ms": "45000",
            },
            "45000 is not less than group.consumer.session.timeout.ms, which is 45000",
        ),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "it must be classic, and any of"),
        ({"group.consumer.assignors": "sticky"}, "it must be uniform, range, or both"),
        ({"group.consumer.migration.policy": "maybe"}, "'maybe' is not one of bidirectional"),
    ],
)
def test_settings_of_consumer_groups_fit_together(settings: dict[str, str], fault: str) -> None:
    """A broker with others does not start, and says which."""
    with pytest.raises(ConfigError) as refused:
        broker_config({"log.dirs": "data", **settings})
    assert fault in str(refused.value)


async def list_groups(
    peer: Peer, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> dict[str, tuple[str, str]]:
    """Type and state of each group."""
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    answer = await peer.ask(ApiKey.LIST_GROUPS, request, ListGroupsResponse)
    return {each.group_id: (each.group_type, each.group_state) for each in answer.groups}


async def describe(peer: Peer, *group_ids: str) -> Any:
    """The groups as ConsumerGroupDescribe answers."""
    request = ConsumerGroupDescribeRequest(group_ids=group_ids)
    return (
        await peer.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request, ConsumerGroupDescribeResponse)
    ).groups


async def delete_group(peer: Peer) -> ErrorCode:
    """The answer to DeleteGroups."""
    request = DeleteGroupsRequest(groups_names=("g",))
    answer = await peer.ask(ApiKey.DELETE_GROUPS, request, DeleteGroupsResponse)
    return ErrorCode(answer.results[0].error_code)


async def delete(peer: Peer, name: str) -> None:
    """Delete a topic."""
    request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name, topic_id=NO_UUID),))
    answer = await peer.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE
