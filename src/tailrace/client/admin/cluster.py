"""The cluster itself: brokers, controller, features, and the quorum of its metadata log.

admin.describe_cluster().controller
admin.update_features({"metadata.version": FeatureUpdate(25)}, validate_only=True)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from uuid import UUID

from tailrace.client.admin.acls import operations_in
from tailrace.client.admin.items import (
    ItemRequest,
    all_of,
    ask_one,
    check_kinds,
    entry_error,
    for_each,
    values_in,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import IncompleteAnswerError, UnsupportedBrokerError
from tailrace.client.routes import ANY, CONTROLLER
from tailrace.client.short_repr import short_repr
from tailrace.errors import RetriableError, TailraceError
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tailrace.security.acls import AclOperation
from tailrace.values import dataclass

_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """A broker of the cluster."""

    id: int
    host: str
    """The host that it tells clients."""
    port: int
    """The port that it tells clients."""
    rack: str | None
    """Its rack, where it has one."""
    is_fenced: bool = False
    """Whether it is registered and not in service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers of a cluster."""

    cluster_id: str | None
    controller: BrokerNode | None
    """The broker that takes changes; None if there is none at the moment."""
    brokers: tuple[BrokerNode, ...]
    """Ordered by number."""
    authorized_operations: frozenset[AclOperation] | None
    """Operations that the client may do with the cluster; None if nobody asked."""

    __repr__ = short_repr


# 0 is Kafka's UNKNOWN, and no broker accepts it.
class UpgradeType(IntEnum):
    """Kinds of changes of a feature, by Kafka's number (KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """Lower the level, if no metadata is lost."""
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature."""

    max_version_level: int
    """The level; 0 removes the feature."""
    upgrade_type: UpgradeType = UpgradeType.UPGRADE
    """The kind of the change."""


@dataclass(frozen=True, slots=True)
class LevelRange:
    """Levels of a feature, both included."""

    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMetadata:
    """The features of a cluster."""

    finalized: Mapping[str, LevelRange]
    """The levels that the cluster uses."""
    supported: Mapping[str, LevelRange]
    """The levels that the broker could use."""
    epoch: int | None
    """Grows with each change; None if nothing was ever changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A replica of the metadata log, as its leader knows it."""

    replica_id: int
    directory_id: UUID | None
    """Its log directory; None from older controllers."""
    log_end_offset: int
    """The end of its log; -1 if it is not known."""
    last_fetch_timestamp: int
    """When it last fetched, in milliseconds since 1970; -1 if not known, or the leader."""
    last_caught_up_timestamp: int
    """When it last had all of the leader's log; -1 if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataQuorum:
    """The controllers that keep the metadata log."""

    leader_id: int
    """The active controller; -1 if there is none."""
    leader_epoch: int
    high_watermark: int
    """The offset after the last record that a majority has."""
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    """The brokers, which follow."""
    addresses: Mapping[int, tuple[tuple[str, str, int], ...]]
    """Name, host and port of each listener of a controller, by node (Kafka 3.9)."""


def brokers_of(call: Call, brokers: Iterable[int] | None = None) -> Steps[list[int]]:
    """The numbers of all living brokers, asked for now; or `brokers`, if they are given.

    Raises:
        TypeError: `brokers` are no numbers.
        RemoteFatalError: the broker refuses.
        UnreachableBrokerError, RemoteRetriableError: no answer within the time limit.
    """
    if brokers is not None:
        return all_of(int, brokers, what="brokers")
    attempt = 0
    while True:
        # A stale list would leave out a broker that has just started.
        error = yield from call.routes.refresh(call)
        if error is None:
            return sorted(call.routes.nodes)
        seconds = call.pauses.pause_s(attempt)
        is_over = attempt >= call.retries or call.left_s <= seconds
        if is_over or not isinstance(error, RetriableError):
            raise error
        yield from call.pause(seconds)
        attempt += 1


def describe_cluster(
    call: Call,
    *,
    include_authorized_operations: bool = False,
    include_fenced_brokers: bool = False,
) -> Steps[ClusterDescription]:
    """The cluster's id, its brokers, and its controller.

    Raises:
        UnsupportedBrokerError: fenced brokers are asked for, and the broker cannot tell (before
            Kafka 4.0).
        RemoteFatalError: the broker refuses.
        OperationTimeoutError: no answer within the time limit.
    """
    request: ItemRequest[str, ClusterDescription, DescribeClusterResponse] = ItemRequest(
        what="the cluster",
        target=ANY,
        request=lambda _: DescribeClusterRequest(
            include_cluster_authorized_operations=include_authorized_operations,
            include_fenced_brokers=include_fenced_brokers,
        ),
        response=DescribeClusterResponse,
        value=lambda _, answer: _cluster(
            answer,
            [
                BrokerNode(
                    id=each.broker_id,
                    host=each.host,
                    port=each.port,
                    rack=each.rack,
                    is_fenced=each.is_fenced,
                )
                for each in answer.brokers
            ],
        ),
        # KIP-1073. An older version would leave the fenced brokers out without a word.
        first_version=2 if include_fenced_brokers else 0,
    )
    try:
        return (yield from ask_one(call, request))
    # Brokers before Kafka 2.8.
    except UnsupportedBrokerError:
        if include_fenced_brokers:
            raise
        return (yield from _describe_by_metadata(call, is_authorized=include_authorized_operations))


def describe_features(call: Call) -> Steps[FeatureMetadata]:
    """The features of the cluster, and those that a broker supports (KIP-584).

    Raises:
        RemoteFatalError: the broker refuses.
        OperationTimeoutError: no answer within the time limit.
    """
    request: ItemRequest[str, FeatureMetadata, ApiVersionsResponse] = ItemRequest(
        what="the features",
        target=ANY,
        request=lambda _: ApiVersionsRequest(
            # KIP-511: brokers refuse an empty name or version with INVALID_REQUEST.
            client_software_name="tailrace",
            client_software_version="1",
        ),
        response=ApiVersionsResponse,
        value=lambda _, answer: FeatureMetadata(
            finalized={
                each.name: LevelRange(each.min_version_level, each.max_version_level)
                for each in answer.finalized_features
            },
            supported={
                each.name: LevelRange(each.min_version, each.max_version)
                for each in answer.supported_features
            },
            # -1 is Kafka's unknown epoch.
            epoch=None if answer.finalized_features_epoch < 0 else answer.finalized_features_epoch,
        ),
    )
    return (yield from ask_one(call, request))


def update_features(
    call: Call, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
) -> Steps[Outcomes[str, None]]:
    """Change levels of features; brokers since Kafka 4.0 change all of them, or none.

    With `validate_only` (Kafka 3.3) the changes are checked and nothing changes. Repeated after a
    lost connection: a second request sets the same again.

    Raises:
        ValueError: `updates` is empty, a name is empty, or a level below 1 is an upgrade.
    """
    check_kinds(values_in(updates, what="updates"), (FeatureUpdate,), what="updates")
    # As Kafka's client does.
    if not updates:
        raise ValueError("updates is empty; name a feature")
    for name, update in updates.items():
        if not name.strip():
            raise ValueError("a feature has an empty name")
        if update.max_version_level < 1 and update.upgrade_type is UpgradeType.UPGRADE:
            raise ValueError(
                f"feature {name}: level {update.max_version_level} removes it; give an "
                "upgrade_type that allows it"
            )

    def results(
        answer: UpdateFeaturesResponse, batch: Sequence[str]
    ) -> Iterator[tuple[str, object]]:
        found = {each.feature: each for each in answer.results}
        # From version 2 on one code is for all of them.
        return ((each, found.get(each, answer)) for each in batch)

    request: ItemRequest[str, None, UpdateFeaturesResponse] = ItemRequest(
        what="feature",
        # Only the controller may change levels.
        target=CONTROLLER,
        request=lambda batch: UpdateFeaturesRequest(
            timeout_ms=call.left_ms,
            feature_updates=tuple(
                FeatureUpdateKey(
                    feature=each,
                    max_version_level=updates[each].max_version_level,
                    upgrade_type=updates[each].upgrade_type,
                )
                for each in batch
            ),
            validate_only=validate_only,
        ),
        response=UpdateFeaturesResponse,
        entries=results,
        # Version 0 has another way to say that a downgrade is allowed.
        first_version=1,
    )
    return (yield from for_each(call, updates, request))


def describe_metadata_quorum(call: Call) -> Steps[MetadataQuorum]:
    """The controllers of a KRaft cluster, and how far each replica of the metadata log is.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 3.0, or without KRaft).
        RemoteFatalError: the broker refuses.
        OperationTimeoutError: no answer within the time limit.
    """

    def fault(_: str, answer: DescribeQuorumResponse) -> TailraceError | None:
        if answer.error_code:
            return None
        # The code of the answer comes first: an answer that is an error has no topics.
        parts = [each for topic in answer.topics for each in topic.partitions]
        names = [topic.topic_name for topic in answer.topics]
        # Kafka's clients check this too: a broker without KRaft might answer with anything.
        if names != [METADATA_TOPIC] or len(parts) != 1:
            return IncompleteAnswerError(f"the quorum is not that of {METADATA_TOPIC}-0 alone")
        return entry_error(parts[0], about="the metadata quorum")

    def quorum(_: str, answer: DescribeQuorumResponse) -> MetadataQuorum:
        part = answer.topics[0].partitions[0]
        return MetadataQuorum(
            leader_id=part.leader_id,
            leader_epoch=part.leader_epoch,
            high_watermark=part.high_watermark,
            voters=tuple(map(_quorum_replica, part.current_voters)),
            observers=tuple(map(_quorum_replica, part.observers)),
            addresses={
                node.node_id: tuple((each.name, each.host, each.port) for each in node.listeners)
                for node in answer.nodes
            },
        )

    request = ItemRequest(
        what="the metadata quorum",
        target=ANY,
        request=lambda _: DescribeQuorumRequest(
            topics=(
                TopicData(
                    topic_name=METADATA_TOPIC, partitions=(PartitionData(partition_index=0),)
                ),
            )
        ),
        response=DescribeQuorumResponse,
        special=fault,
        value=quorum,
    )
    return (yield from ask_one(call, request))


def add_raft_voter(
    call: Call, voter_id: int, directory_id: UUID, *, endpoints: Sequence[tuple[str, str, int]]
) -> Steps[None]:
    """Add a controller to the voters of the metadata log (KIP-853), once its log is complete.

    `endpoints` are name, host and port of each of its listeners; one has the name that the active
    controller gives its own. `directory_id` is in its `meta.properties`, and in what
    `describe_metadata_quorum` says of it as an observer. Repeated after a lost connection.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 3.9).
        RemoteFatalError: the controller refuses: DUPLICATE_VOTER (it is one already, as after a
            lost answer), UNSUPPORTED_VERSION (the settings name the voters: `kraft.version` 0).
        OperationTimeoutError: no answer within the time limit, or the new voter is away or lags.
    """
    request: ItemRequest[str, None, AddRaftVoterResponse] = ItemRequest(
        what=f"controller {voter_id}",
        # The broker that is asked forwards it to the active controller.
        target=ANY,
        request=lambda _: AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=call.left_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=tuple(
                Listener(name=name, host=host, port=port) for name, host, port in endpoints
            ),
        ),
        response=AddRaftVoterResponse,
    )
    yield from ask_one(call, request)


def remove_raft_voter(call: Call, voter_id: int, directory_id: UUID) -> Steps[None]:
    """Remove a controller from the voters of the metadata log (KIP-853); it observes from then on.

    Repeated after a lost connection.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 3.9).
        RemoteFatalError: the controller refuses: VOTER_NOT_FOUND (it is none, as after a lost
            answer), UNSUPPORTED_VERSION (the settings name the voters: `kraft.version` 0).
        OperationTimeoutError: no answer within the time limit.
    """
    request: ItemRequest[str, None, RemoveRaftVoterResponse] = ItemRequest(
        what=f"controller {voter_id}",
        target=ANY,
        request=lambda _: RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id
        ),
        response=RemoveRaftVoterResponse,
    )
    yield from ask_one(call, request)


def unregister_broker(call: Call, broker_id: int) -> Steps[None]:
    """Have the cluster forget a broker that will not come back.

    Repeated after a lost connection.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.8, or without KRaft).
        RemoteFatalError: the controller refuses: BROKER_ID_NOT_REGISTERED.
        OperationTimeoutError: no answer within the time limit.
    """
    request: ItemRequest[str, None, UnregisterBrokerResponse] = ItemRequest(
        what=f"broker {broker_id}",
        # The broker that is asked forwards it to the controller.
        target=ANY,
        request=lambda _: UnregisterBrokerRequest(broker_id=broker_id),
        response=UnregisterBrokerResponse,
    )
    yield from ask_one(call, request)


def _describe_by_metadata(call: Call, *, is_authorized: bool) -> Steps[ClusterDescription]:
    """The cluster as a broker before Kafka 2.8 tells it."""
    request: ItemRequest[str, ClusterDescription, MetadataResponse] = ItemRequest(
        what="the cluster",
        target=ANY,
        request=lambda _: MetadataRequest(
            topics=(),
            # No topic is asked for, and none may be created by looking.
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=is_authorized,
        ),
        response=MetadataResponse,
        value=lambda _, answer: _cluster(
            answer,
            [
                BrokerNode(id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in answer.brokers
            ],
        ),
    )
    return (yield from ask_one(call, request))


def _cluster(
    answer: DescribeClusterResponse | MetadataResponse, found: Iterable[BrokerNode]
) -> ClusterDescription:
    brokers = {each.id: each for each in found}
    return ClusterDescription(
        cluster_id=answer.cluster_id,
        # In KRaft this is a broker chosen by chance, since clients cannot reach the controllers; -1
        # finds none.
        controller=brokers.get(answer.controller_id),
        # Kafka's answers have no order that one could rely on.
        brokers=tuple(brokers[each] for each in sorted(brokers)),
        authorized_operations=operations_in(answer.cluster_authorized_operations),
    )


def _quorum_replica(state: ReplicaState) -> QuorumReplica:
    # Zero from a controller before Kafka 3.9 (KIP-853).
    directory = state.replica_directory_id
    return QuorumReplica(
        replica_id=state.replica_id,
        directory_id=None if directory == _NO_ID else directory,
        log_end_offset=state.log_end_offset,
        last_fetch_timestamp=state.last_fetch_timestamp,
        last_caught_up_timestamp=state.last_caught_up_timestamp,
    )
