"""The responses of a `ScriptedCluster`: one function for each request, and all refusals.

`script` has the faults, `cluster` the connections.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.client.nodes.versions import BEFORE_KIP_890
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    ReplicaState,
)
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tailrace.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tailrace.records.batch import Batch
from tailrace.testing.partition_log import ScriptedAppend
from tailrace.testing.script import Fault

if TYPE_CHECKING:
    from tailrace.testing.cluster import ScriptedCluster, ScriptedNode

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class SentBatch(NamedTuple):
    """A batch that reached a node, with the error code of its response."""

    at: float
    """Virtual seconds."""
    node_id: int
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    error: ErrorCode


def metadata(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: MetadataRequest
) -> MetadataResponse:
    """The living nodes, and the leaders of the requested topics, or of all."""
    names = (
        tuple(dict.fromkeys(place.topic for place in cluster.partitions))
        if body.topics is None
        else tuple(each.name or "" for each in body.topics)
    )
    cluster.asked_topics.append(names)
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=each.id, host=cluster.host, port=each.port)
            for each in cluster.nodes.values()
            if each.is_alive
        ),
        cluster_id="scripted",
        controller_id=node.id,
        topics=tuple(_topic(cluster, name) for name in names),
    )


def _topic(cluster: "ScriptedCluster", name: str) -> MetadataResponseTopic:
    found = [(place, led) for place, led in cluster.partitions.items() if place.topic == name]
    error = cluster.topic_errors.get(name, ErrorCode.NONE)
    if not error and not _LEGAL.fullmatch(name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    if not error and not found:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if error:
        return MetadataResponseTopic(error_code=error, name=name)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if led.leader < 0 else ErrorCode.NONE,
                partition_index=place.partition,
                leader_id=led.leader,
                leader_epoch=led.epoch,
                replica_nodes=() if led.leader < 0 else (led.leader,),
                isr_nodes=() if led.leader < 0 else (led.leader,),
            )
            for place, led in found
        ),
    )


def produce(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: ProduceRequest
) -> ProduceResponse | None:
    """Append the batches that this node leads; an error with acks=0 closes the connections."""

    def appended(place: TopicPartition, data: Any) -> ScriptedAppend:  # noqa: ANN401 - bytes or none
        return _append(cluster, node, place, name=body.transactional_id or "", data=data)

    answer = _each_batch(cluster, node, body, judge=appended)
    if body.acks:
        return answer
    if any(part.error_code for topic in answer.responses for part in topic.partition_responses):
        node.kill()
        node.revive()
    return None


def _append(
    cluster: "ScriptedCluster",
    node: "ScriptedNode",
    place: TopicPartition,
    *,
    name: str,
    data: Any,  # noqa: ANN401 - bytes of some kind
) -> ScriptedAppend:
    """Append a batch if this node leads and its transaction, if any, is open with the partition."""
    led = cluster.partitions.get(place)
    if led is None:
        return ScriptedAppend(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if led.leader != node.id:
        return ScriptedAppend(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    batch = Batch(memoryview(data))
    if batch.is_transactional:
        known = cluster.coordinator.transactions.get(name)
        if known is None or (known.producer_id, known.epoch) != (
            batch.producer_id,
            batch.producer_epoch,
        ):
            return ScriptedAppend(ErrorCode.INVALID_PRODUCER_EPOCH)
        if cluster.asked_version > BEFORE_KIP_890[ApiKey.PRODUCE]:
            cluster.coordinator.add(name, {place})
        if not cluster.coordinator.has(name, place):
            return ScriptedAppend(ErrorCode.INVALID_TXN_STATE)
    return led.log.append(data)


def _each_batch(
    cluster: "ScriptedCluster",
    node: "ScriptedNode",
    body: ProduceRequest,
    *,
    judge: Callable[[TopicPartition, Any], ScriptedAppend],
) -> ProduceResponse:
    """A response with the result of `judge` for each batch."""
    ends: dict[int, NodeEndpoint] = {}
    topics = []
    for topic in body.topic_data:
        parts = []
        for each in topic.partition_data:
            place = TopicPartition(topic.name, each.index)
            outcome = judge(place, each.records)
            _note(cluster, node, place, data=each.records, error=outcome.error)
            led = cluster.partitions.get(place)
            hint = LeaderIdAndEpoch()
            if (
                outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
                and led is not None
                and led.leader in cluster.nodes
                and led.leader != node.id
                and cluster.gives_hints
            ):
                hint = LeaderIdAndEpoch(leader_id=led.leader, leader_epoch=led.epoch)
                ends[led.leader] = NodeEndpoint(
                    node_id=led.leader, host=cluster.host, port=cluster.nodes[led.leader].port
                )
            parts.append(
                PartitionProduceResponse(
                    index=each.index,
                    error_code=outcome.error,
                    base_offset=outcome.base_offset,
                    log_start_offset=-1 if led is None else led.log.start_offset,
                    current_leader=hint,
                )
            )
        topics.append(TopicProduceResponse(name=topic.name, partition_responses=tuple(parts)))
    return ProduceResponse(
        responses=tuple(topics),
        throttle_time_ms=cluster.throttle_ms,
        node_endpoints=tuple(ends.values()),
    )


def _note(
    cluster: "ScriptedCluster",
    node: "ScriptedNode",
    place: TopicPartition,
    *,
    data: Any,  # noqa: ANN401 - bytes of some kind
    error: ErrorCode,
) -> None:
    batch = Batch(memoryview(data))
    cluster.sent.append(
        SentBatch(
            cluster.outside.loop.time(),
            node.id,
            place,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.record_count,
            error,
        )
    )


def init_producer_id(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new id, or the next epoch of a transactional one."""
    if body.transactional_id is None:
        return InitProducerIdResponse(
            error_code=0, producer_id=cluster.coordinator.new_producer(), producer_epoch=0
        )
    if node.id != cluster.coordinator_id:
        return InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
    error, producer_id, epoch = cluster.coordinator.init(
        body.transactional_id, body.producer_id, body.producer_epoch
    )
    return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)


def find_coordinator(
    cluster: "ScriptedCluster",
    node: "ScriptedNode",  # noqa: ARG001 - every node knows
    body: FindCoordinatorRequest,
    *,
    error: ErrorCode = ErrorCode.NONE,
) -> FindCoordinatorResponse:
    """The coordinator, in the fields of v4 and in those before v4."""
    node_id = cluster.coordinator_id
    port = cluster.nodes[node_id].port
    if not error and not cluster.nodes[node_id].is_alive:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return FindCoordinatorResponse(
        error_code=error,
        node_id=node_id,
        host=cluster.host,
        port=port,
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=node_id,
                host=cluster.host,
                port=port,
                error_code=error,
                error_message=None,
            )
            for key in body.coordinator_keys
        ),
    )


def add_partitions(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to the transaction."""
    name = body.v3_and_below_transactional_id
    producer = body.v3_and_below_producer_id, body.v3_and_below_producer_epoch
    error = _check(cluster, node, name, *producer)
    places = {
        TopicPartition(topic.name, number)
        for topic in body.v3_and_below_topics
        for number in topic.partitions
    }
    if not error and not places <= set(cluster.partitions):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not error:
        cluster.coordinator.add(name, places)
    return partitions_answer(body, error)


def partitions_answer(body: AddPartitionsToTxnRequest, error: int) -> AddPartitionsToTxnResponse:
    """The answer with one error code for every partition."""
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=error
                    )
                    for number in topic.partitions
                ),
            )
            for topic in body.v3_and_below_topics
        ),
    )


def add_offsets(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a group's offsets to the transaction."""
    error = _check(cluster, node, body.transactional_id, body.producer_id, body.producer_epoch)
    if not error:
        cluster.coordinator.add_group(body.transactional_id, body.group_id)
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error)


def txn_offset_commit(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Keep offsets until the transaction ends."""
    error = _check(cluster, node, body.transactional_id, body.producer_id, body.producer_epoch)
    if not error:
        known = cluster.coordinator.transactions[body.transactional_id]
        if cluster.asked_version > BEFORE_KIP_890[ApiKey.TXN_OFFSET_COMMIT]:
            cluster.coordinator.add_group(body.transactional_id, body.group_id)
        if body.group_id not in known.groups:
            error = ErrorCode.INVALID_TXN_STATE
        else:
            known.offsets |= {
                (body.group_id, TopicPartition(topic.name, each.partition_index)): (
                    each.committed_offset
                )
                for topic in body.topics
                for each in topic.partitions
            }
    return offsets_answer(body, error)


def offsets_answer(body: TxnOffsetCommitRequest, error: int) -> TxnOffsetCommitResponse:
    """The answer with one error code for every partition."""
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        ),
    )


def end_txn(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: EndTxnRequest
) -> EndTxnResponse:
    """Commit or abort the transaction."""
    if cluster.asked_version > BEFORE_KIP_890[ApiKey.END_TXN]:
        if node.id != cluster.coordinator_id:
            return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
        code, producer_id, epoch = cluster.coordinator.end_with_epoch(
            body.transactional_id,
            (body.producer_id, body.producer_epoch),
            is_commit=body.committed,
        )
        return EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
    error = _check(cluster, node, body.transactional_id, body.producer_id, body.producer_epoch)
    if not error:
        error = cluster.coordinator.end(body.transactional_id, is_commit=body.committed)
    return EndTxnResponse(throttle_time_ms=0, error_code=error)


def _check(
    cluster: "ScriptedCluster", node: "ScriptedNode", name: str, *producer: int
) -> ErrorCode:
    if node.id != cluster.coordinator_id:
        return ErrorCode.NOT_COORDINATOR
    return cluster.coordinator.check(name, *producer)


def sasl_handshake(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Accept the mechanism PLAIN."""
    del cluster, node, body
    return SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))


def sasl_authenticate(
    cluster: "ScriptedCluster", node: "ScriptedNode", body: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Accept the cluster's password, and refuse any other."""
    del node
    is_right = bytes(body.auth_bytes).rpartition(b"\0")[2] == cluster.password
    code = ErrorCode.NONE if is_right else ErrorCode.SASL_AUTHENTICATION_FAILED
    return SaslAuthenticateResponse(error_code=code, error_message=None, session_lifetime_ms=0)


def describe_quorum(
    cluster: "ScriptedCluster",  # noqa: ARG001
    node: "ScriptedNode",
    body: object,  # noqa: ARG001
) -> DescribeQuorumResponse:
    """A quorum of this node alone, since tools ask whether a controller is there."""
    part = DescribeQuorumResponsePartitionData(
        leader_id=node.id, current_voters=(ReplicaState(replica_id=node.id),)
    )
    topic = DescribeQuorumResponseTopicData(topic_name="__cluster_metadata", partitions=(part,))
    return DescribeQuorumResponse(topics=(topic,))


ANSWERS: Final[dict[ApiKey, Callable[..., Message | None]]] = {
    ApiKey.METADATA: metadata,
    ApiKey.SASL_HANDSHAKE: sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    ApiKey.PRODUCE: produce,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.END_TXN: end_txn,
    ApiKey.DESCRIBE_QUORUM: describe_quorum,
}
"""The function for each API; `ScriptedCluster` answers ApiVersions itself."""


def refusal(
    cluster: "ScriptedCluster",
    node: "ScriptedNode",
    body: Any,  # noqa: ANN401 - any request
    *,
    fault: Fault,
) -> Message:
    """The response with the fault's error; other partitions of a Produce request are appended."""
    error = fault.error
    match body:
        case ProduceRequest():

            def judge(place: TopicPartition, data: Any) -> ScriptedAppend:  # noqa: ANN401
                if fault.partition in {None, place}:
                    return ScriptedAppend(error)
                return _append(cluster, node, place, name=body.transactional_id or "", data=data)

            return _each_batch(cluster, node, body, judge=judge)
        case MetadataRequest():
            names = tuple(each.name or "" for each in body.topics or ())
            answer = metadata(cluster, node, body)
            topics = tuple(MetadataResponseTopic(error_code=error, name=name) for name in names)
            return MetadataResponse(
                brokers=answer.brokers, cluster_id="scripted", topics=topics, controller_id=node.id
            )
        case ApiVersionsRequest():
            return ApiVersionsResponse(error_code=error)
        case FindCoordinatorRequest():
            return find_coordinator(cluster, node, body, error=error)
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=error)
        case AddPartitionsToTxnRequest():
            return partitions_answer(body, error)
        case TxnOffsetCommitRequest():
            return offsets_answer(body, error)
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error)
        case _:
            return EndTxnResponse(throttle_time_ms=0, error_code=error)


def spoiled(answer: ProduceResponse, fault: Fault) -> ProduceResponse:
    """The response to appended batches, with the fault's error in place of success."""
    return replace(
        answer,
        responses=tuple(
            replace(
                topic,
                partition_responses=tuple(
                    replace(part, error_code=fault.error, base_offset=-1)
                    if fault.partition in {None, TopicPartition(topic.name, part.index)}
                    else part
                    for part in topic.partition_responses
                ),
            )
            for topic in answer.responses
        ),
    )
