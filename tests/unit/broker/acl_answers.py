"""Answers to clients with and without rights: every API, and each right that it needs.

    question       one API, for names that the client may have rights for, and others
      x rights     none; all; all but one; all, and one of them denied; by prefix, by `*`, by ALL;
                   from another address
    = a cell       one principal, one request, one line of `acl_answers.tsv`

Apache Kafka has given the answers (`python -m compat.acl_answers`), and our broker is held to them.
Each cell has a principal of its own, so that the entries of all of them can be made at once.

A line says the name of each part of an answer with its error, and the operations that the answer
says the client may do. Questions change nothing: they validate only, or ask for what is not there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    renew_delegation_token,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tailrace.records.builder import BatchBuilder
from tailrace.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)

ANSWERS = Path(__file__).with_suffix(".tsv")
HEADER = "question\trights\tanswer"

TOPIC, SECRET, NOTHING = "topic-a", "secret-b", "nothing-c"
"""A topic that a client may have rights for; one without; a name of no topic."""
GROUP, HIDDEN, EMPTY, ABSENT = "group-a", "hidden-b", "empty-c", "absent-d"
"""The same for groups: two with offsets of both topics, one that members try to join, and none."""
TRANSACTION, OTHER = "tx-a", "other-b"
ELSEWHERE = "192.0.2.1"
"""An address that no client has."""

_NODE = 1
Op, Of = AclOperation, AclResource


class Right(NamedTuple):
    """An operation with a resource of a name."""

    operation: AclOperation
    resource: AclResource
    name: str = CLUSTER_NAME

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource.name} {self.name}"


@dataclass(frozen=True)
class Question:
    """A request, and the rights that it needs."""

    name: str
    version: int
    request: Message
    rights: tuple[Right, ...]
    is_narrow: bool = False
    """Whether more rights than these would change something."""


class Cell(NamedTuple):
    """A question by a client with some rights."""

    question: Question
    rights: str
    """In words."""
    principal: str
    bindings: tuple[AclBinding, ...]


def rights_of(question: Question) -> Iterator[tuple[str, list[AclBinding]]]:
    """The kinds of rights that a client may have for a question; principals come later."""

    def allowed(right: Right, **changed: Any) -> AclBinding:
        given: dict[str, Any] = {"name": right.name, "operation": right.operation} | changed
        return AclBinding(resource=right.resource, principal="", **given)

    rights = question.rights
    yield "none", []
    if not rights:
        return
    yield "all", [allowed(each) for each in rights]
    for each in rights:
        others = [allowed(other) for other in rights if other is not each]
        if others:
            yield f"without {each}", others
        denied = allowed(each, permission=Permission.DENY)
        yield f"denied {each}", [allowed(each), *others, denied]
        yield f"elsewhere {each}", [*others, allowed(each, host=ELSEWHERE)]
    if question.is_narrow:
        return
    yield (
        "by prefix",
        [
            # The cluster has one name, and no entry may have a part of it.
            allowed(
                each,
                name=each.name if each.resource is Of.CLUSTER else each.name[:4],
                pattern=PatternType.PREFIXED,
            )
            for each in rights
        ],
    )
    if any(each.resource is not Of.CLUSTER for each in rights):
        yield (
            "by *",
            [allowed(each, name="*") for each in rights if each.resource is not Of.CLUSTER],
        )
    yield "ALL", [allowed(each, operation=Op.ALL) for each in rights]


def cells(ids: Mapping[str, UUID]) -> Iterator[Cell]:
    """All cells; `ids` are those of the topics."""
    number = 0
    for question in questions(ids):
        for words, bindings in rights_of(question):
            principal = f"User:c{number}"
            given = {
                (each.resource, each.name, each.operation, each.permission, each.host, each.pattern)
                for each in bindings
            }
            yield Cell(
                question,
                words,
                principal,
                tuple(
                    AclBinding(
                        resource=resource,
                        name=name,
                        principal=principal,
                        operation=operation,
                        permission=permission,
                        host=host,
                        pattern=pattern,
                    )
                    for resource, name, operation, permission, host, pattern in sorted(given)
                ),
            )
            number += 1


def line(cell: Cell, answer: Message | None) -> str:
    """The line of a cell; None: the connection was closed."""
    found = "closed" if answer is None else " ".join(sorted(_told(answer))) or "nothing"
    return f"{cell.question.name} v{cell.question.version}\t{cell.rights}\t{found}"


_NAMES = (
    "name", "topic", "topic_name", "group_id", "key", "resource_name", "transactional_id", "user",
    "partition_index", "index", "partition", "partition_id",
)  # fmt: skip
_CODES = ("error_code", "partition_error_code", "topic_config_error_code")
_OPERATIONS = (
    "authorized_operations", "topic_authorized_operations", "cluster_authorized_operations",
)  # fmt: skip
_UNTOLD = frozenset({"configs", "brokers", "nodes", "entity", "members", "node_endpoints"})


def _told(part: Any, path: str = "") -> Iterator[str]:
    """The words of an answer about rights, without numbers and texts of the broker."""
    names = (getattr(part, each, None) for each in _NAMES)
    label = next((str(each) for each in names if each not in (None, "")), "")
    path = f"{path}/{label}" if label else path
    for each in fields(part):
        value = getattr(part, each.name)
        if each.name in _CODES:
            code = "" if each.name == "error_code" else f".{each.name}"
            if each.name != "topic_config_error_code" or value:
                yield f"{path}{code}={ErrorCode(value).name}"
        elif each.name in _OPERATIONS and value != -(2**31):
            yield f"{path}.may={value}"
        elif isinstance(value, tuple) and each.name not in _UNTOLD:
            for one in value:
                if is_dataclass(one):
                    yield from _told(one, path)
    if "error_code" not in {each.name for each in fields(part)} and label:
        yield path


def _batch(*, is_transactional: bool = False) -> bytes:
    if is_transactional:
        builder = BatchBuilder(producer_id=77, producer_epoch=0, base_sequence=0,
                               is_transactional=True)  # fmt: skip
    else:
        builder = BatchBuilder()
    builder.append(b"k", b"v", timestamp=1_700_000_000_000)
    return bytes(builder.build())


def _produced(name: str, **batch: bool) -> produce.TopicProduceData:
    data = produce.PartitionProduceData(index=0, records=_batch(**batch))
    return produce.TopicProduceData(name=name, partition_data=(data,))


def _fetched(name: str = "", topic_id: UUID = NO_UUID) -> fetch.FetchTopic:
    part = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return fetch.FetchTopic(topic=name, topic_id=topic_id, partitions=(part,))


_TOPICS = (TOPIC, SECRET, NOTHING)
_GROUPS = (GROUP, HIDDEN)


def topic(operation: AclOperation, name: str = TOPIC) -> Right:
    """A right for a topic."""
    return Right(operation, Of.TOPIC, name)


def group(operation: AclOperation, name: str = GROUP) -> Right:
    """A right for a group."""
    return Right(operation, Of.GROUP, name)


def transaction(operation: AclOperation) -> Right:
    """A right for the transactional id."""
    return Right(operation, Of.TRANSACTIONAL_ID, TRANSACTION)


def cluster(operation: AclOperation) -> Right:
    """A right for the cluster."""
    return Right(operation, Of.CLUSTER)


def questions(ids: Mapping[str, UUID]) -> Iterator[Question]:
    """All questions; `ids` are those of the topics."""
    yield from _of_records(ids)
    yield from _of_groups()
    yield from _of_topics(ids)
    yield from _of_transactions()
    yield from _of_entries_and_settings()
    yield from _of_replicas()
    yield from _of_clients()
    yield from _of_states()
    yield from _of_voters_and_tokens()


def _of_records(ids: Mapping[str, UUID]) -> Iterator[Question]:
    yield Question(
        "Produce", 9,
        produce.ProduceRequest(acks=1, timeout_ms=1000, topic_data=tuple(map(_produced, _TOPICS))),
        (topic(Op.WRITE),),
    )  # fmt: skip
    yield Question(
        "Produce in a transaction", 9,
        produce.ProduceRequest(
            acks=-1, timeout_ms=1000, transactional_id=TRANSACTION,
            topic_data=(_produced(SECRET, is_transactional=True),),
        ),
        (transaction(Op.WRITE),),
    )  # fmt: skip
    yield Question(
        "Fetch",
        12,
        fetch.FetchRequest(max_bytes=1000, topics=tuple(map(_fetched, _TOPICS))),
        (topic(Op.READ),),
    )
    by_id = tuple(_fetched(topic_id=ids[each]) for each in (TOPIC, SECRET))
    yield Question(
        "Fetch by id", 13, fetch.FetchRequest(max_bytes=1000, topics=by_id), (topic(Op.READ),)
    )
    yield Question(
        "Fetch of a follower", 12,
        fetch.FetchRequest(replica_id=_NODE + 1, max_bytes=1000, topics=(_fetched(NOTHING),)),
        (cluster(Op.CLUSTER_ACTION),),
    )  # fmt: skip
    latest = (list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1),)
    yield Question(
        "ListOffsets", 7,
        list_offsets.ListOffsetsRequest(
            topics=tuple(
                list_offsets.ListOffsetsTopic(name=each, partitions=latest) for each in _TOPICS
            ),
        ),
        (topic(Op.DESCRIBE),),
    )  # fmt: skip
    named = tuple(metadata.MetadataRequestTopic(name=each) for each in _TOPICS)
    yield Question(
        "Metadata", 12,
        metadata.MetadataRequest(
            topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        ),
        (topic(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "Metadata by READ", 9,
        metadata.MetadataRequest(
            topics=named, allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
        ),
        (topic(Op.READ), cluster(Op.DESCRIBE)),
    )  # fmt: skip
    yield Question(
        "Metadata by id", 12,
        metadata.MetadataRequest(
            topics=tuple(
                metadata.MetadataRequestTopic(name=None, topic_id=ids[each])
                for each in (TOPIC, SECRET)
            )
        ),
        (topic(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "Metadata of all", 9, metadata.MetadataRequest(topics=None), (topic(Op.DESCRIBE),)
    )
    yield Question(
        "Metadata that creates", 9,
        metadata.MetadataRequest(
            topics=(metadata.MetadataRequestTopic(name=NOTHING),), allow_auto_topic_creation=True
        ),
        (),
    )  # fmt: skip


def _of_groups() -> Iterator[Question]:
    offset = (offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0),)
    yield Question(
        "OffsetCommit", 8,
        offset_commit.OffsetCommitRequest(
            group_id=GROUP, generation_id_or_member_epoch=-1,
            topics=tuple(
                offset_commit.OffsetCommitRequestTopic(name=each, partitions=offset)
                for each in _TOPICS
            ),
        ),
        (group(Op.READ), topic(Op.READ)),
    )  # fmt: skip

    def offsets_of(name: str, *of: str) -> offset_fetch.OffsetFetchRequestGroup:
        return offset_fetch.OffsetFetchRequestGroup(
            group_id=name,
            topics=tuple(
                offset_fetch.OffsetFetchRequestTopics(name=each, partition_indexes=(0,))
                for each in of
            )
            or None,
        )

    describe = (group(Op.DESCRIBE), topic(Op.DESCRIBE))
    yield Question(
        "OffsetFetch", 8,
        offset_fetch.OffsetFetchRequest(
            groups=(offsets_of(GROUP, *_TOPICS), offsets_of(HIDDEN, TOPIC))
        ),
        describe,
    )  # fmt: skip
    yield Question(
        "OffsetFetch of all", 8,
        offset_fetch.OffsetFetchRequest(groups=(offsets_of(GROUP), offsets_of(HIDDEN))), describe,
    )  # fmt: skip
    yield Question(
        "OffsetFetch of one", 5,
        offset_fetch.OffsetFetchRequest(
            group_id=GROUP,
            topics=tuple(
                offset_fetch.OffsetFetchRequestTopic(name=each, partition_indexes=(0,))
                for each in _TOPICS
            ),
        ),
        describe,
    )  # fmt: skip
    find = find_coordinator.FindCoordinatorRequest
    yield Question("FindCoordinator", 4, find(coordinator_keys=_GROUPS), (group(Op.DESCRIBE),))
    yield Question("FindCoordinator of one", 2, find(key=GROUP), (group(Op.DESCRIBE),))
    yield Question(
        "FindCoordinator of transactions", 4,
        find(key_type=1, coordinator_keys=(TRANSACTION, OTHER)), (transaction(Op.DESCRIBE),),
    )  # fmt: skip
    # Before a member tries to join, which leaves a group for some time.
    yield Question("ListGroups", 3, list_groups.ListGroupsRequest(), (group(Op.DESCRIBE),))
    yield Question(
        "ListGroups of a cluster", 3, list_groups.ListGroupsRequest(), (cluster(Op.DESCRIBE),)
    )
    yield Question(
        "JoinGroup", 5,
        join_group.JoinGroupRequest(
            group_id=EMPTY, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(join_group.JoinGroupRequestProtocol(name="range", metadata=b""),),
        ),
        (group(Op.READ, EMPTY),),
    )  # fmt: skip
    yield Question(
        "SyncGroup", 3, sync_group.SyncGroupRequest(group_id=EMPTY, member_id="m"),
        (group(Op.READ, EMPTY),),
    )  # fmt: skip
    yield Question(
        "Heartbeat", 3, heartbeat.HeartbeatRequest(group_id=EMPTY, member_id="m"),
        (group(Op.READ, EMPTY),),
    )  # fmt: skip
    yield Question(
        "LeaveGroup", 2, leave_group.LeaveGroupRequest(group_id=EMPTY, member_id="m"),
        (group(Op.READ, EMPTY),),
    )  # fmt: skip
    yield Question(
        "DescribeGroups", 5,
        describe_groups.DescribeGroupsRequest(groups=_GROUPS, include_authorized_operations=True),
        (group(Op.DESCRIBE),),
    )  # fmt: skip


def _of_topics(ids: Mapping[str, UUID]) -> Iterator[Question]:
    new_topics = create_topics.CreateTopicsRequest(
        topics=tuple(
            create_topics.CreatableTopic(name=each, num_partitions=1, replication_factor=1)
            for each in ("topic-new", "secret-new")
        ),
        timeout_ms=10_000,
        validate_only=True,
    )
    yield Question(
        "CreateTopics", 5, new_topics,
        (topic(Op.CREATE, "topic-new"), topic(Op.DESCRIBE_CONFIGS, "topic-new")),
    )  # fmt: skip
    yield Question("CreateTopics in a cluster", 4, new_topics, (cluster(Op.CREATE),))
    yield Question(
        "DeleteTopics", 5,
        delete_topics.DeleteTopicsRequest(topic_names=(NOTHING, "other-d"), timeout_ms=10_000),
        (topic(Op.DELETE, NOTHING),),
    )  # fmt: skip
    yield Question(
        "DeleteTopics by id", 6,
        delete_topics.DeleteTopicsRequest(
            topics=tuple(
                delete_topics.DeleteTopicState(name=None, topic_id=ids[each])
                for each in (TOPIC, SECRET)
            ),
            timeout_ms=10_000,
        ),
        (topic(Op.DESCRIBE),), is_narrow=True,
    )  # fmt: skip
    low = (delete_records.DeleteRecordsPartition(partition_index=0, offset=0),)
    yield Question(
        "DeleteRecords", 2,
        delete_records.DeleteRecordsRequest(
            topics=tuple(
                delete_records.DeleteRecordsTopic(name=each, partitions=low) for each in _TOPICS
            ),
            timeout_ms=10_000,
        ),
        (topic(Op.DELETE),),
    )  # fmt: skip


def _of_transactions() -> Iterator[Question]:
    init = init_producer_id.InitProducerIdRequest
    yield Question(
        "InitProducerId", 4,
        init(transactional_id=TRANSACTION, transaction_timeout_ms=-1, producer_id=-1,
             producer_epoch=-1),
        (transaction(Op.WRITE),),
    )  # fmt: skip
    alone = init(transactional_id=None, producer_id=-1, producer_epoch=-1)
    yield Question("InitProducerId alone", 4, alone, (cluster(Op.IDEMPOTENT_WRITE),))
    yield Question("InitProducerId by a topic", 4, alone, (topic(Op.WRITE),))
    epochs = offset_for_leader_epoch
    wanted = (epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1),)
    ends = epochs.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=tuple(
            epochs.OffsetForLeaderTopic(topic=each, partitions=wanted) for each in _TOPICS
        ),
    )
    yield Question("OffsetForLeaderEpoch", 3, ends, (topic(Op.DESCRIBE),))
    yield Question("OffsetForLeaderEpoch in a cluster", 3, ends, (cluster(Op.CLUSTER_ACTION),))
    txn = add_partitions_to_txn
    yield Question(
        "AddPartitionsToTxn", 3,
        txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION, v3_and_below_producer_id=77,
            v3_and_below_topics=tuple(
                txn.AddPartitionsToTxnTopic(name=each, partitions=(0,))
                for each in (TOPIC, "topic-b")
            ),
        ),
        (transaction(Op.WRITE), topic(Op.WRITE)),
    )  # fmt: skip
    yield Question(
        "AddPartitionsToTxn of a broker", 4,
        txn.AddPartitionsToTxnRequest(
            transactions=(
                txn.AddPartitionsToTxnTransaction(
                    transactional_id=TRANSACTION, producer_id=77, verify_only=True,
                    topics=(txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=(0,)),),
                ),
            )
        ),
        (cluster(Op.CLUSTER_ACTION),),
    )  # fmt: skip
    yield Question(
        "AddOffsetsToTxn", 3,
        add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=TRANSACTION, producer_id=77, group_id=GROUP
        ),
        (transaction(Op.WRITE), group(Op.READ)),
    )  # fmt: skip
    yield Question(
        "EndTxn", 3, end_txn.EndTxnRequest(transactional_id=TRANSACTION, producer_id=77),
        (transaction(Op.WRITE),),
    )  # fmt: skip
    markers = write_txn_markers.WriteTxnMarkersRequest(
        markers=(
            write_txn_markers.WritableTxnMarker(
                producer_id=77,
                topics=(
                    write_txn_markers.WritableTxnMarkerTopic(name=NOTHING, partition_indexes=(0,)),
                ),
            ),
        )
    )
    yield Question("WriteTxnMarkers", 1, markers, (cluster(Op.CLUSTER_ACTION),))
    yield Question("WriteTxnMarkers by ALTER", 1, markers, (cluster(Op.ALTER),))
    pending = (
        txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0),
    )
    yield Question(
        "TxnOffsetCommit", 2,
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=TRANSACTION, group_id=GROUP, producer_id=77,
            topics=tuple(
                txn_offset_commit.TxnOffsetCommitRequestTopic(name=each, partitions=pending)
                for each in (SECRET, NOTHING)
            ),
        ),
        (transaction(Op.WRITE), group(Op.READ)),
    )  # fmt: skip


def _of_entries_and_settings() -> Iterator[Question]:
    yield Question(
        "DescribeAcls", 3,
        describe_acls.DescribeAclsRequest(
            resource_type_filter=Of.USER, pattern_type_filter=PatternType.ANY, operation=Op.ANY,
            permission_type=Permission.ANY, resource_name_filter=None, principal_filter=None,
            host_filter=None,
        ),
        (cluster(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "CreateAcls", 3,
        create_acls.CreateAclsRequest(
            creations=(
                create_acls.AclCreation(
                    resource_type=Of.CLUSTER, resource_name="x", resource_pattern_type=3,
                    principal="User:a", host="*", operation=Op.ALL, permission_type=3,
                ),
                create_acls.AclCreation(
                    resource_type=Of.TOPIC, resource_name="x", resource_pattern_type=3,
                    principal="nobody", host="*", operation=Op.ALL, permission_type=3,
                ),
            )
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "DeleteAcls", 3,
        delete_acls.DeleteAclsRequest(
            filters=(
                delete_acls.DeleteAclsFilter(
                    resource_type_filter=Of.USER, pattern_type_filter=PatternType.ANY,
                    operation=Op.ANY, permission_type=Permission.ANY,
                    resource_name_filter=None, principal_filter=None, host_filter=None,
                ),
            )
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "DescribeConfigs", 4,
        describe_configs.DescribeConfigsRequest(
            resources=tuple(
                describe_configs.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=("x",)
                )
                for kind, name in (
                    (2, TOPIC), (2, SECRET), (2, NOTHING), (4, str(_NODE)), (32, GROUP),
                    (32, HIDDEN),
                )
            )
        ),
        (topic(Op.DESCRIBE_CONFIGS), group(Op.DESCRIBE_CONFIGS), cluster(Op.DESCRIBE_CONFIGS)),
    )  # fmt: skip
    yield Question(
        "DescribeConfigs by ALTER_CONFIGS", 4,
        describe_configs.DescribeConfigsRequest(
            resources=(
                describe_configs.DescribeConfigsResource(
                    resource_type=2, resource_name=TOPIC, configuration_keys=("x",)
                ),
            )
        ),
        (topic(Op.ALTER_CONFIGS),),
    )  # fmt: skip
    altered = ((2, TOPIC), (2, SECRET), (4, ""), (32, GROUP))
    alter = (topic(Op.ALTER_CONFIGS), group(Op.ALTER_CONFIGS), cluster(Op.ALTER_CONFIGS))
    yield Question(
        "AlterConfigs", 2,
        alter_configs.AlterConfigsRequest(
            resources=tuple(
                alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)
                for kind, name in altered
            ),
            validate_only=True,
        ),
        alter,
    )  # fmt: skip
    yield Question(
        "IncrementalAlterConfigs", 1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=tuple(
                incremental_alter_configs.IncrementalAlterConfigsResource(
                    resource_type=kind, resource_name=name
                )
                for kind, name in altered
            ),
            validate_only=True,
        ),
        alter,
    )  # fmt: skip


def _of_replicas() -> Iterator[Question]:
    yield Question(
        "AlterReplicaLogDirs", 2,
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=(
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=(
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(
                            name=TOPIC, partitions=(0,)
                        ),
                    ),
                ),
            )
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "DescribeLogDirs", 4, describe_log_dirs.DescribeLogDirsRequest(topics=()),
        (cluster(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "CreatePartitions", 3,
        create_partitions.CreatePartitionsRequest(
            topics=tuple(
                create_partitions.CreatePartitionsTopic(name=each, count=1, assignments=None)
                for each in _TOPICS
            ),
            timeout_ms=10_000, validate_only=True,
        ),
        (topic(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "CreateDelegationToken", 3, create_delegation_token.CreateDelegationTokenRequest(), ()
    )
    yield Question(
        "DeleteGroups", 2, delete_groups.DeleteGroupsRequest(groups_names=(ABSENT, "other-e")),
        (group(Op.DELETE, ABSENT),),
    )  # fmt: skip
    yield Question(
        "ElectLeaders", 2,
        elect_leaders.ElectLeadersRequest(
            topic_partitions=(elect_leaders.TopicPartitions(topic=TOPIC, partitions=(0,)),),
            timeout_ms=10_000,
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    moving = alter_partition_reassignments
    yield Question(
        "AlterPartitionReassignments", 0,
        moving.AlterPartitionReassignmentsRequest(
            topics=(
                moving.ReassignableTopic(
                    name=TOPIC,
                    partitions=(moving.ReassignablePartition(partition_index=0, replicas=None),),
                ),
            ),
            timeout_ms=10_000,
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "ListPartitionReassignments", 0,
        list_partition_reassignments.ListPartitionReassignmentsRequest(
            topics=None, timeout_ms=10_000
        ),
        (cluster(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "OffsetDelete", 0,
        offset_delete.OffsetDeleteRequest(
            group_id=ABSENT,
            topics=tuple(
                offset_delete.OffsetDeleteRequestTopic(
                    name=each,
                    partitions=(offset_delete.OffsetDeleteRequestPartition(partition_index=0),),
                )
                for each in (SECRET, NOTHING)
            ),
        ),
        (group(Op.DELETE, ABSENT),),
    )  # fmt: skip


def _of_clients() -> Iterator[Question]:
    yield Question(
        "DescribeClientQuotas", 1,
        describe_client_quotas.DescribeClientQuotasRequest(components=()),
        (cluster(Op.DESCRIBE_CONFIGS),),
    )  # fmt: skip
    quotas = alter_client_quotas
    yield Question(
        "AlterClientQuotas", 1,
        quotas.AlterClientQuotasRequest(
            entries=(
                quotas.EntryData(
                    entity=(quotas.EntityData(entity_type="user", entity_name="x"),),
                    ops=(quotas.OpData(key="nonsense", value=1.0),),
                ),
            ),
            validate_only=True,
        ),
        (cluster(Op.ALTER_CONFIGS),),
    )  # fmt: skip
    yield Question(
        "DescribeUserScramCredentials", 0,
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=(describe_user_scram_credentials.UserName(name="x"),)
        ),
        (cluster(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "AlterUserScramCredentials", 0,
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=(alter_user_scram_credentials.ScramCredentialDeletion(name="x", mechanism=1),)
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "DescribeQuorum", 1,
        describe_quorum.DescribeQuorumRequest(
            topics=(
                describe_quorum.TopicData(
                    topic_name="__cluster_metadata",
                    partitions=(describe_quorum.PartitionData(partition_index=0),),
                ),
            )
        ),
        (cluster(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "UpdateFeatures", 1,
        update_features.UpdateFeaturesRequest(
            timeout_ms=10_000,
            feature_updates=(
                update_features.FeatureUpdateKey(
                    feature="nonsense", max_version_level=1, upgrade_type=1
                ),
            ),
            validate_only=True,
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "DescribeCluster", 1,
        describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
        (cluster(Op.DESCRIBE),),
    )  # fmt: skip


def _of_states() -> Iterator[Question]:
    yield Question(
        "DescribeProducers", 0,
        describe_producers.DescribeProducersRequest(
            topics=tuple(
                describe_producers.TopicRequest(name=each, partition_indexes=(0,))
                for each in _TOPICS
            )
        ),
        (topic(Op.READ),),
    )  # fmt: skip
    yield Question(
        "UnregisterBroker", 0, unregister_broker.UnregisterBrokerRequest(broker_id=99),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "DescribeTransactions", 0,
        describe_transactions.DescribeTransactionsRequest(transactional_ids=(TRANSACTION, OTHER)),
        (transaction(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "ListTransactions", 0, list_transactions.ListTransactionsRequest(),
        (transaction(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "ConsumerGroupHeartbeat", 0,
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=ABSENT, member_id="m", member_epoch=5, rebalance_timeout_ms=1000,
            subscribed_topic_names=(TOPIC,),
        ),
        (group(Op.READ, ABSENT), topic(Op.DESCRIBE)),
    )  # fmt: skip
    yield Question(
        "ConsumerGroupDescribe", 0,
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=(ABSENT, HIDDEN)),
        (group(Op.DESCRIBE, ABSENT),),
    )  # fmt: skip
    yield Question(
        "ListConfigResources", 1,
        list_config_resources.ListConfigResourcesRequest(resource_types=(16,)),
        (cluster(Op.DESCRIBE_CONFIGS),),
    )  # fmt: skip
    pages = describe_topic_partitions
    yield Question(
        "DescribeTopicPartitions", 0,
        pages.DescribeTopicPartitionsRequest(
            topics=tuple(pages.TopicRequest(name=each) for each in _TOPICS)
        ),
        (topic(Op.DESCRIBE),),
    )  # fmt: skip
    yield Question(
        "DescribeTopicPartitions of all", 0,
        pages.DescribeTopicPartitionsRequest(topics=()), (topic(Op.DESCRIBE),),
    )  # fmt: skip


def _of_voters_and_tokens() -> Iterator[Question]:
    directory = UUID(int=7)
    yield Question(
        "AddRaftVoter", 0,
        add_raft_voter.AddRaftVoterRequest(
            cluster_id=None, voter_id=9, timeout_ms=1000, voter_directory_id=directory,
            listeners=(add_raft_voter.Listener(name="CONTROLLER", host="h", port=5),),
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    yield Question(
        "RemoveRaftVoter", 0,
        remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=9, voter_directory_id=directory
        ),
        (cluster(Op.ALTER),),
    )  # fmt: skip
    tokens = create_delegation_token
    yield Question(
        "CreateDelegationToken for another", 3,
        tokens.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="other", max_lifetime_ms=-1
        ),
        (Right(Op.CREATE_TOKENS, Of.USER, "User:other"),),
    )  # fmt: skip
    renewer = tokens.CreatableRenewers(principal_type="Group", principal_name="g")
    yield Question(
        "CreateDelegationToken with a wrong renewer", 3,
        tokens.CreateDelegationTokenRequest(renewers=(renewer,), max_lifetime_ms=-1), (),
    )  # fmt: skip
    yield Question(
        "RenewDelegationToken", 2, renew_delegation_token.RenewDelegationTokenRequest(hmac=b"x"), ()
    )
    yield Question(
        "ExpireDelegationToken", 2,
        expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"x"), (),
    )  # fmt: skip
    yield Question(
        "DescribeDelegationToken", 3,
        describe_delegation_token.DescribeDelegationTokenRequest(owners=None), (),
    )  # fmt: skip


def why_other(line: str) -> str | None:
    """Why our answer is another than Kafka's; None: it is the same."""
    if line.startswith("OffsetFetch of one ") and ErrorCode.GROUP_AUTHORIZATION_FAILED.name in line:
        return (
            "the error of the group is repeated for each partition: aiokafka looks at those alone"
        )
    return None
