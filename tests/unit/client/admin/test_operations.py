"""The requests of single operations, and what becomes of their answers."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.client import RemoteFatalError, RemoteRetriableError, UnsupportedBrokerError
from tailrace.client.admin import (
    Admin,
    AsyncAdmin,
    ConfigChange,
    ConfigResource,
    IncompleteAnswerError,
    NewPartitions,
    NewTopic,
    OffsetAt,
    Place,
    Replica,
)
from tailrace.client.admin.replicas import ElectionType, Reassignment, ReplicaDirectories
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigOperation, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import alter_partition_reassignments as moving
from tailrace.protocol.messages import alter_replica_log_dirs as moved
from tailrace.protocol.messages import create_partitions as growing
from tailrace.protocol.messages import delete_topics as deleting
from tailrace.protocol.messages import describe_configs as configs
from tailrace.protocol.messages import describe_log_dirs as log_dirs
from tailrace.protocol.messages import describe_topic_partitions as pages
from tailrace.protocol.messages import elect_leaders as electing
from tailrace.protocol.messages import incremental_alter_configs as altering
from tailrace.protocol.messages import init_producer_id as fencing
from tailrace.protocol.messages import leave_group as leaving
from tailrace.protocol.messages import list_config_resources as resources
from tailrace.protocol.messages import list_partition_reassignments as ongoing
from tailrace.testing.cluster import ScriptedNode
from tests.unit.client.admin.stage import AdminStage, ask, on_stage

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def directories(*results: log_dirs.DescribeLogDirsResult, **fields: Any) -> Message:
    """An answer to DescribeLogDirs."""
    return log_dirs.DescribeLogDirsResponse(results=results, **fields)


def test_log_directories_of_all_brokers_are_described() -> None:
    """One that is offline has an error, and the others their logs and volumes."""
    part = log_dirs.DescribeLogDirsPartition(partition_index=0, partition_size=7, offset_lag=0)
    topic = log_dirs.DescribeLogDirsTopic(name="t", partitions=(part,))
    result = log_dirs.DescribeLogDirsResult
    answer = directories(
        result(log_dir="/a", topics=(topic,), total_bytes=9, usable_bytes=5),
        result(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
    )
    found, at = on_stage(ask("describe_log_dirs"), (ApiKey.DESCRIBE_LOG_DIRS, answer))
    assert [*found] == [1, 2]
    first = found.result(1)
    assert (first["/a"].replicas[T0].size, first["/a"].usable_bytes) == (7, 5)
    assert "/b of broker 1" in str(first["/b"].error)
    assert sorted(at.asked_nodes()) == [1, 2]


def test_the_logs_of_some_partitions_are_asked_for() -> None:
    """A poll about a few has a short answer, however many a broker has."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        del at
        return await admin.describe_log_dirs([1], partitions=[T1, T0])

    answer = directories(log_dirs.DescribeLogDirsResult(log_dir="/a"))
    _, at = on_stage(scene, (ApiKey.DESCRIBE_LOG_DIRS, answer))
    (topic,) = at.asked[0][1].topics
    assert (topic.topic, topic.partitions) == ("t", (0, 1))


def test_a_broker_that_refuses_its_log_directories_does_not_harm_the_others() -> None:
    """An answer with an error, and an old one without any directory, are refusals."""

    def answer(node: ScriptedNode, _: Any) -> Message:
        if node.id == 1:
            return directories(log_dirs.DescribeLogDirsResult(log_dir="/a"))
        return directories()

    found, _ = on_stage(ask("describe_log_dirs"), (ApiKey.DESCRIBE_LOG_DIRS, answer))
    assert [*found.succeeded] == [1]
    assert isinstance(found[2], RemoteFatalError)


def test_a_replica_is_found_in_its_directories() -> None:
    """Present and future log; a replica that the broker does not have is nowhere."""
    part = log_dirs.DescribeLogDirsPartition
    topic = log_dirs.DescribeLogDirsTopic
    result = log_dirs.DescribeLogDirsResult
    answer = directories(
        result(log_dir="/a", topics=(topic(name="t", partitions=(part(offset_lag=1),)),)),
        result(
            log_dir="/b",
            topics=(topic(name="t", partitions=(part(offset_lag=5, is_future_key=True),)),),
        ),
    )
    here, gone = Replica("t", 0, 1), Replica("t", 9, 1)
    found, _ = on_stage(
        ask("describe_replica_log_dirs", [here, gone]), (ApiKey.DESCRIBE_LOG_DIRS, answer)
    )
    assert found.result(here) == ReplicaDirectories(
        current="/a", offset_lag=1, future="/b", future_offset_lag=5
    )
    assert found.result(gone).current is None


def test_each_moved_replica_has_its_outcome() -> None:
    """Brokers are asked for their own replicas; an unknown directory fails alone."""

    def answer(node: ScriptedNode, body: Any) -> Message:
        code = ErrorCode.LOG_DIR_NOT_FOUND if node.id == 2 else ErrorCode.NONE
        part = moved.AlterReplicaLogDirPartitionResult(partition_index=0, error_code=code)
        topic = moved.AlterReplicaLogDirTopicResult(topic_name="t", partitions=(part,))
        assert [each.path for each in body.dirs] == ["/d"]
        return moved.AlterReplicaLogDirsResponse(results=(topic,))

    moves = {Replica("t", 0, 1): "/d", Replica("t", 0, 2): "/d"}
    found, _ = on_stage(
        ask("alter_replica_log_dirs", moves), (ApiKey.ALTER_REPLICA_LOG_DIRS, answer)
    )
    assert found.succeeded == {Replica("t", 0, 1): None}
    assert "t-0 on broker 2" in str(found[Replica("t", 0, 2)])


def test_an_election_tells_each_partition() -> None:
    """A leader that stays is an error of its partition; a partition without answer too."""
    part = electing.PartitionResult
    result = electing.ReplicaElectionResult(
        topic="t",
        partition_result=(
            part(partition_id=0),
            part(partition_id=1, error_code=ErrorCode.ELECTION_NOT_NEEDED),
        ),
    )
    answer = electing.ElectLeadersResponse(replica_election_results=(result,))
    wanted = [T0, T1, TopicPartition("u", 0)]
    found, at = on_stage(
        ask("elect_leaders", wanted, election=ElectionType.UNCLEAN), (ApiKey.ELECT_LEADERS, answer)
    )
    assert found.succeeded == {T0: None}
    assert isinstance(found[T1], RemoteRetriableError)
    assert isinstance(found[TopicPartition("u", 0)], IncompleteAnswerError)
    assert at.asked[0][1].election_type == 1
    assert len(at.asked) == 1


def test_reassignments_begin_and_end_by_partition() -> None:
    """None ends one; an error of the whole answer is that of each partition."""
    part = moving.ReassignablePartitionResponse
    topic = moving.ReassignableTopicResponse(
        name="t",
        partitions=(
            part(partition_index=0),
            part(partition_index=1, error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ),
    )
    answer = moving.AlterPartitionReassignmentsResponse(responses=(topic,))
    scene = ask("alter_partition_reassignments", {T0: [2, 1], T1: None})
    found, at = on_stage(scene, (ApiKey.ALTER_PARTITION_REASSIGNMENTS, answer))
    assert [*found.errors] == [T1]
    sent = at.asked[0][1].topics[0].partitions
    assert [each.replicas for each in sent] == [(2, 1), None]
    refused = moving.AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    found, _ = on_stage(scene, (ApiKey.ALTER_PARTITION_REASSIGNMENTS, refused))
    assert [*found.errors] == [T0, T1]


def test_reassignments_that_are_under_way_are_listed() -> None:
    """With the brokers that come and go."""
    part = ongoing.OngoingPartitionReassignment(
        partition_index=0, replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,)
    )
    topic = ongoing.OngoingTopicReassignment(name="t", partitions=(part,))
    answer = ongoing.ListPartitionReassignmentsResponse(topics=(topic,))
    found, _ = on_stage(
        ask("list_partition_reassignments"), (ApiKey.LIST_PARTITION_REASSIGNMENTS, answer)
    )
    assert found == {T0: Reassignment(replicas=(1, 2, 3), adding=(3,), removing=(1,))}


def described_configs(node: ScriptedNode, body: Any) -> Message:
    """The answer of a broker that has one setting for each resource."""
    synonym = configs.DescribeConfigsSynonym(name="x", value="2", source=5)
    entry = configs.DescribeConfigsResourceResult(
        name="x", value=str(node.id), config_source=1, synonyms=(synonym,), is_sensitive=False
    )
    return configs.DescribeConfigsResponse(
        results=tuple(
            configs.DescribeConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=(entry,),
                error_code=ErrorCode.INVALID_REQUEST if each.resource_name == "bad" else 0,
            )
            for each in body.resources
        )
    )


def test_settings_of_a_broker_are_asked_of_that_broker() -> None:
    """Also those of its loggers; others of any broker, and a bad one fails alone."""
    broker, logger = ConfigResource(ResourceType.BROKER, "2"), ConfigResource(8, "1")
    topic, bad = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.TOPIC, "bad")
    found, at = on_stage(
        ask("describe_configs", [broker, logger, topic, bad], include_synonyms=True),
        (ApiKey.DESCRIBE_CONFIGS, described_configs),
    )
    assert found.result(broker)["x"].value == "2"
    assert found.result(logger)["x"].value == "1"
    assert found.result(topic)["x"].is_own
    assert found.result(topic)["x"].synonyms[0].value == "2"
    assert [*found.errors] == [bad]
    assert all(body.include_synonyms for _, body in at.asked)


def test_single_settings_are_changed() -> None:
    """A mapping sets and unsets; changes may also append to lists; a dry run says so."""

    def answer(_: ScriptedNode, body: Any) -> Message:
        return altering.IncrementalAlterConfigsResponse(
            responses=tuple(
                altering.IncrementalAlterConfigsResourceResponse(
                    resource_type=each.resource_type, resource_name=each.resource_name,
                    error_code=ErrorCode.INVALID_CONFIG if each.resource_name == "b" else 0,
                )
                for each in body.resources
            )
        )  # fmt: skip

    a, b = ConfigResource(ResourceType.TOPIC, "a"), ConfigResource(ResourceType.TOPIC, "b")
    changes = {
        a: {"retention_ms": 60_000, "cleanup.policy": None},
        b: [ConfigChange("cleanup.policy", ["compact"], ConfigOperation.APPEND)],
    }
    found, at = on_stage(
        ask("incremental_alter_configs", changes, validate_only=True),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, answer),
    )
    assert [*found.errors] == [b]
    body = at.asked[0][1]
    assert body.validate_only
    sent = [
        (each.name, each.config_operation, each.value)
        for resource in body.resources
        for each in resource.configs
    ]
    assert sent == [
        ("retention.ms", 0, "60000"), ("cleanup.policy", 1, None), ("cleanup.policy", 2, "compact"),
    ]  # fmt: skip


def test_resources_with_settings_are_listed() -> None:
    """All kinds, or client metrics, which an older broker lists too."""
    one = resources.ConfigResource(resource_name="m", resource_type=16)
    answer = resources.ListConfigResourcesResponse(config_resources=(one,))
    found, at = on_stage(ask("list_config_resources", [16]), (ApiKey.LIST_CONFIG_RESOURCES, answer))
    assert found == (ConfigResource(16, "m"),)
    assert at.asked[0][1].resource_types == ()


def test_topics_are_deleted_by_name_and_by_id() -> None:
    """Each has its outcome under what it was called; one that is gone is not asked for again."""
    number = UUID(int=5)

    def answer(_: ScriptedNode, body: Any) -> Message:
        result = deleting.DeletableTopicResult
        return deleting.DeleteTopicsResponse(
            responses=tuple(
                result(name=each.name)
                if each.name
                else result(
                    name=None, topic_id=each.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
                for each in body.topics
            )
        )

    found, at = on_stage(ask("delete_topics", ["t", number]), (ApiKey.DELETE_TOPICS, answer))
    assert found["t"] is None
    assert isinstance(found[number], RemoteRetriableError)
    assert len(at.asked) == 2


def test_topics_are_described_page_by_page() -> None:
    """Partitions of several pages are put together; a topic that is not there has an error."""
    part = pages.DescribeTopicPartitionsResponsePartition
    topic = pages.DescribeTopicPartitionsResponseTopic
    number = UUID(int=5)
    first = pages.DescribeTopicPartitionsResponse(
        topics=(
            topic(name="gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            topic(name="t", topic_id=number, partitions=(part(partition_index=0, leader_id=1),)),
        ),
        next_cursor=pages.Cursor(topic_name="t", partition_index=1),
    )
    last = pages.DescribeTopicPartitionsResponse(
        topics=(
            topic(
                name="t", topic_id=number, topic_authorized_operations=1 << 3,
                partitions=(part(partition_index=1, leader_id=2),),
            ),
        )
    )  # fmt: skip

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions.pop(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
        at.on(ApiKey.DESCRIBE_TOPIC_PARTITIONS, first, last)
        by_name = await admin.describe_topics(["t", "gone"])
        at.on(ApiKey.DESCRIBE_TOPIC_PARTITIONS, first, last)
        by_id = await admin.describe_topics([number, UUID(int=6)])
        return by_name, by_id

    (by_name, by_id), _ = on_stage(scene)
    assert [each.leader for each in by_name.result("t").partitions] == [1, 2]
    assert [*by_name.errors] == ["gone"]
    assert by_id.result(number).name == "t"
    assert [*by_id.errors] == [UUID(int=6)]


def test_topics_of_an_old_broker_are_described_by_its_metadata() -> None:
    """Names and authorized operations as with the newer API; there are no ids."""
    found, _ = on_stage(ask("describe_topics", ["t", "gone"], include_authorized_operations=True))
    assert len(found.result("t").partitions) == 2
    assert isinstance(found["gone"], RemoteRetriableError)
    listed, _ = on_stage(ask("list_topics"))
    assert [each.name for each in listed] == ["t"]


def test_partitions_are_added_with_their_replicas() -> None:
    """A number is the count of all; a dry run says so."""
    result = growing.CreatePartitionsTopicResult
    answer = growing.CreatePartitionsResponse(
        results=(result(name="a"), result(name="b", error_code=ErrorCode.INVALID_PARTITIONS))
    )
    wanted = {"a": NewPartitions(3, [[1, 2]]), "b": 1}
    found, at = on_stage(
        ask("create_partitions", wanted, validate_only=True), (ApiKey.CREATE_PARTITIONS, answer)
    )
    assert [*found.errors] == ["b"]
    body = at.asked[0][1]
    assert (body.topics[0].assignments[0].broker_ids, body.validate_only) == ((1, 2), True)


def test_a_topic_may_name_its_replicas() -> None:
    """The counts are -1 then, as Kafka wants it."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        from tests.unit.client.admin.test_items import all_created

        at.on(ApiKey.CREATE_TOPICS, all_created)
        return await admin.create_topics([NewTopic("a", replicas={0: [2, 1]})], validate_only=True)

    _, at = on_stage(scene)
    body = at.asked[0][1]
    (sent,) = body.topics
    assert (sent.num_partitions, sent.assignments[0].broker_ids) == (-1, (2, 1))
    assert body.validate_only


def test_members_are_removed_by_their_names() -> None:
    """Each has its outcome; a long reason is cut, as the broker's log takes it."""
    member = leaving.MemberResponse
    answer = leaving.LeaveGroupResponse(
        members=(
            member(member_id="", group_instance_id="a"),
            member(member_id="", group_instance_id="b", error_code=ErrorCode.UNKNOWN_MEMBER_ID),
        )
    )
    found, at = on_stage(
        ask("remove_members_from_group", "g", ["a", "b"], reason="x" * 300),
        (ApiKey.LEAVE_GROUP, answer),
    )
    assert found.succeeded == {"a": None}
    assert "group 'g', member b" in str(found["b"])
    assert {len(each.reason) for each in at.asked[0][1].members} == {255}


def test_producers_are_fenced_by_their_ids() -> None:
    """Each coordinator gives the next identity; CONCURRENT_TRANSACTIONS is retried."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        response = fencing.InitProducerIdResponse
        busy = response(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        at.on(ApiKey.INIT_PRODUCER_ID, busy, response(producer_id=7, producer_epoch=3))
        return ask("fence_producers", ["x"])(at, admin)

    found, at = on_stage(scene)
    assert found.result("x") == (7, 3)
    assert len(at.asked) == 2
    assert at.asked[0][1].transactional_id == "x"


def test_offsets_are_reset_in_a_dry_run_without_a_commit() -> None:
    """The places are found, and OffsetCommit is not sent."""
    from tailrace.protocol.messages import list_offsets as listing
    from tailrace.protocol.messages import offset_fetch

    def answer(_: ScriptedNode, body: Any) -> Message:
        part = listing.ListOffsetsPartitionResponse(
            partition_index=0, offset=0 if body.topics[0].partitions[0].timestamp == -2 else 30
        )
        topic = listing.ListOffsetsTopicResponse(name="t", partitions=(part,))
        return listing.ListOffsetsResponse(topics=(topic,))

    group = offset_fetch.OffsetFetchResponseGroup(group_id="g")
    found, at = on_stage(
        ask("reset_group_offsets", "g", [T0], to=OffsetAt(Place.OFFSET, 99), validate_only=True),
        (ApiKey.LIST_OFFSETS, answer),
        (ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchResponse(groups=(group,))),
    )
    assert found.result(T0).found.within == 30
    assert at.cluster.count(ApiKey.OFFSET_COMMIT) == 0


def test_an_operation_is_a_method_of_both_clients_with_its_own_documentation() -> None:
    """`help` shows the sentence of the operation, and its parameters."""
    import inspect

    with Admin(bootstrap_servers="b:1") as admin:
        method = admin.create_topics
    assert method.__doc__ == AsyncAdmin.create_topics.__doc__
    assert [*inspect.signature(method).parameters] == ["topics", "validate_only"]
    assert method.__qualname__ == "Admin.create_topics"


@pytest.mark.parametrize(
    ("key", "version", "method", "options"),
    [
        (ApiKey.LIST_GROUPS, 3, "list_groups", {"states": ["Stable"]}),
        (ApiKey.LIST_GROUPS, 4, "list_groups", {"types": ["consumer"]}),
        (ApiKey.LIST_TRANSACTIONS, 0, "list_transactions", {"open_for_ms": 5}),
        (ApiKey.LIST_TRANSACTIONS, 1, "list_transactions", {"pattern": "a.*"}),
        (ApiKey.ELECT_LEADERS, 0, "elect_leaders", {"election": ElectionType.UNCLEAN}),
        (ApiKey.LIST_CONFIG_RESOURCES, 0, "list_config_resources", {"types": [2]}),
    ],
)
def test_a_filter_that_the_broker_lacks_is_not_left_out_in_silence(
    key: ApiKey, version: int, method: str, options: dict[str, Any]
) -> None:
    """An older version of the request would mean something else, so it is not sent."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions[key] = version
        return await getattr(admin, method)(**options)

    with pytest.raises(UnsupportedBrokerError, match=f"up to version {version}"):
        on_stage(scene)


def test_all_members_of_a_group_are_removed() -> None:
    """Static members by their names, the others by their ids, with a reason."""
    from tailrace.protocol.messages import consumer_group_describe as consumers
    from tailrace.protocol.messages import describe_groups as classic

    unknown = consumers.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    described = classic.DescribedGroup(
        group_id="g",
        group_state="Stable",
        members=(
            classic.DescribedGroupMember(member_id="m1"),
            classic.DescribedGroupMember(member_id="m2", group_instance_id="static"),
        ),
    )
    member = leaving.MemberResponse
    answer = leaving.LeaveGroupResponse(
        members=(member(member_id="m1", group_instance_id=None),
                 member(member_id="", group_instance_id="static"))
    )  # fmt: skip
    found, at = on_stage(
        ask("remove_members_from_group", "g"),
        (
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            consumers.ConsumerGroupDescribeResponse(groups=(unknown,)),
        ),
        (ApiKey.DESCRIBE_GROUPS, classic.DescribeGroupsResponse(groups=(described,))),
        (ApiKey.LEAVE_GROUP, answer),
    )
    assert found.results() == {"m1": None, "static": None}
    sent = at.asked[-1][1].members
    assert [(each.member_id, each.group_instance_id) for each in sent] == [
        ("m1", None), ("", "static"),
    ]  # fmt: skip
    assert {each.reason for each in sent} == {"removed by an admin client"}
