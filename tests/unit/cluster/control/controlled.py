"""`Controlled`: a cluster as its controller sees it, driven by requests, for tests of the rules."""

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tailrace.broker.controller.config_rules import config_rules
from tailrace.cluster.bootstrap import new_image
from tailrace.cluster.control.brokers import fence_stale
from tailrace.cluster.control.leaders import balance_leaders, elect_unclean
from tailrace.cluster.control.requests import decide
from tailrace.cluster.control.settings import ControlConfig
from tailrace.cluster.control.state import ControlState, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import ELIGIBLE_LEADERS, FEATURES
from tailrace.cluster.metadata.image import TopicState
from tailrace.cluster.metadata.snapshot import snapshot_records
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
)
from tailrace.protocol.messages.assign_replicas_to_dirs import (
    PartitionData as AssignedPartition,
)
from tailrace.protocol.messages.assign_replicas_to_dirs import TopicData as AssignedTopic
from tailrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tailrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tailrace.protocol.metadata_records import BrokerRegistrationChangeRecord, PartitionRecord

CAUGHT_UP = 1 << 40
CLUSTER = "a-cluster"


def directory(broker_id: int, number: int = 0) -> UUID:
    """The id of a log directory of a broker."""
    return UUID(int=(broker_id + 1 << 64) + number)


class Controlled:
    """A controller's state, with requests of brokers and operators."""

    def __init__(
        self, *, level: int = 30, has_elr: bool = True, seed: int = 0, **config: Any
    ) -> None:
        self.now_ms = 0
        self.is_forwarded = True
        """Whether requests come through a broker, not from a client that asks the controller."""
        self.state = ControlState(
            CLUSTER,
            node_id=100,
            defaults=TopicDefaults(partition_count=1, replication_factor=3, given={}),
            chance=random.Random(seed),
            config=ControlConfig(**config),
            rules=config_rules(ConsumerSettings()),
        )
        self.appended: list[Message] = []
        self.incarnations: dict[int, int] = {}
        records = list(snapshot_records(new_image(level)))
        self.append(
            [
                each
                for each in records
                if has_elr or getattr(each.record, "name", "") != ELIGIBLE_LEADERS
            ]
        )

    # -- the log ------------------------------------------------------------------------------

    def append(self, records: Sequence[RecordToWrite]) -> list[Message]:
        """Replay records, and return them."""
        made = [each.record for each in records]
        self.state.replay(made)
        self.appended += made
        return list(made)

    def do(self, key: ApiKey, request: Message, *, version: int | None = None) -> Any:
        """Decide a request, replay its records, and return the answer."""
        api = APIS.get(key) or BETWEEN_NODES[key]
        last = api.last_version if version is None else version
        decision = decide(
            self.state,
            key,
            request,
            version=last,
            now_ms=self.now_ms,
            is_forwarded=self.is_forwarded,
        )
        self.append(decision.records)
        return decision.answer

    def refused(self, key: ApiKey, request: Message, *, version: int | None = None) -> ErrorCode:
        """The code with which a request as a whole is refused."""
        try:
            self.do(key, request, version=version)
        except RefusedError as error:
            return error.code
        return ErrorCode.NONE

    def partition(self, name: str = "t", number: int = 0) -> PartitionRecord:
        """The state of a partition."""
        topic = self.state.image.topic(name)
        assert topic is not None
        return topic.partitions[number]

    def shown(
        self, name: str = "t", number: int = 0
    ) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Leader, ISR and eligible leaders of a partition."""
        state = self.partition(name, number)
        return state.leader, state.isr, state.eligible_leader_replicas or ()

    # -- brokers ------------------------------------------------------------------------------

    def registration(self, broker_id: int, **fields: Any) -> BrokerRegistrationRequest:
        """A request with which a broker registers; a new incarnation unless one is given."""
        if "incarnation_id" not in fields:
            self.incarnations[broker_id] = self.incarnations.get(broker_id, 0) + 1
        number = (broker_id << 32) + self.incarnations.get(broker_id, 0)
        wanted = {
            "cluster_id": CLUSTER,
            "incarnation_id": UUID(int=number),
            "listeners": (Listener(name="PLAINTEXT", host="host", port=9092, security_protocol=0),),
            "features": features(),
            "rack": None,
            "log_dirs": (directory(broker_id),),
            **fields,
        }
        return BrokerRegistrationRequest(broker_id=broker_id, **wanted)

    def register(self, broker_id: int, *, version: int = 4, **fields: Any) -> int:
        """Register a broker, and return its epoch."""
        request = self.registration(broker_id, **fields)
        answer = self.do(ApiKey.BROKER_REGISTRATION, request, version=version)
        assert isinstance(answer.broker_epoch, int)
        return answer.broker_epoch

    def epoch(self, broker_id: int) -> int:
        """The epoch of a broker."""
        return self.state.image.brokers[broker_id].broker_epoch

    def beat(self, broker_id: int, **fields: Any) -> Any:
        """A heartbeat; by default the broker has applied all records, and wants to serve."""
        wanted = {"broker_epoch": self.epoch(broker_id), "current_metadata_offset": CAUGHT_UP,
                  "want_fence": False, "want_shut_down": False, **fields}  # fmt: skip
        return self.do(
            ApiKey.BROKER_HEARTBEAT, BrokerHeartbeatRequest(broker_id=broker_id, **wanted)
        )

    def serve(self, *broker_ids: int, **fields: Any) -> None:
        """Register brokers, and unfence them."""
        for broker_id in broker_ids:
            self.register(broker_id, **fields)
            assert not self.beat(broker_id).is_fenced

    def fence(self, broker_id: int) -> None:
        """Fence a broker by its own wish."""
        assert self.beat(broker_id, want_fence=True).is_fenced

    def pass_ms(self, ms: int) -> list[int]:
        """Let time pass; returns who was fenced for its silence."""
        self.now_ms += ms
        found: list[int] = []
        while (records := fence_stale(self.state, now_ms=self.now_ms)) is not None:
            made = self.append(records)
            found += [
                each.broker_id for each in made if isinstance(each, BrokerRegistrationChangeRecord)
            ]
        return found

    def balance(self) -> None:
        """The controller's elections of preferred leaders."""
        self.append(balance_leaders(self.state))

    def elect_unclean(self) -> None:
        """The controller's unclean elections."""
        self.append(elect_unclean(self.state))

    # -- topics -------------------------------------------------------------------------------

    def create(self, *topics: CreatableTopic, validate_only: bool = False) -> list[Any]:
        """Create topics, and return the results."""
        request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return list(self.do(ApiKey.CREATE_TOPICS, request).topics)

    def topic(self, *assignments: Sequence[int], name: str = "t", **configs: str) -> TopicState:
        """Make a topic with these replicas; `_` in the name of a setting is a dot."""
        [result] = self.create(assigned(name, *assignments, configs=configs))
        assert not result.error_code, result
        return self.state.image.topics[result.topic_id]

    def alter(
        self,
        *isr: int | BrokerState,
        name: str = "t",
        number: int = 0,
        broker_id: int | None = None,
        broker_epoch: int | None = None,
        version: int = 3,
        topic_id: UUID | None = None,
        **fields: Any,
    ) -> Any:
        """AlterPartition by the leader, or by another broker; returns the partition's answer."""
        topic = self.state.image.topic(name)
        assert topic is not None
        state = topic.partitions.get(number)
        leader = (state.leader if state is not None else 0) if broker_id is None else broker_id
        members = [
            each if isinstance(each, BrokerState) else BrokerState(broker_id=each) for each in isr
        ]
        wanted = {
            "leader_epoch": 0 if state is None else state.leader_epoch,
            "partition_epoch": 0 if state is None else state.partition_epoch,
            "leader_recovery_state": 0,
            "new_isr": tuple(each.broker_id for each in members) if version < 3 else (),
            "new_isr_with_epochs": tuple(members) if version >= 3 else (),
            **fields,
        }
        part = PartitionData(partition_index=number, **wanted)
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.epoch(leader) if broker_epoch is None else broker_epoch,
            topics=(TopicData(topic_id=topic_id or topic.topic_id, partitions=(part,)),),
        )
        answer = self.do(ApiKey.ALTER_PARTITION, request, version=version)
        return answer.topics[0].partitions[0]

    def report(self, broker_id: int, places: Sequence[tuple[UUID, UUID, int]]) -> list[ErrorCode]:
        """Say in which directory replicas are, by topic id and partition; returns the codes."""
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id),
            directories=tuple(
                DirectoryData(
                    id=each,
                    topics=(
                        AssignedTopic(
                            topic_id=topic_id,
                            partitions=(AssignedPartition(partition_index=number),),
                        ),
                    ),
                )
                for each, topic_id, number in places
            ),
        )
        answer = self.do(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request)
        return [ErrorCode(each.topics[0].partitions[0].error_code) for each in answer.directories]

    def reassign(
        self,
        replicas: Sequence[int] | None,
        *,
        name: str = "t",
        number: int = 0,
        allows_factor: bool = True,
    ) -> Any:
        """Reassign a partition, or cancel that; returns the partition's answer."""
        target = None if replicas is None else tuple(replicas)
        part = ReassignablePartition(partition_index=number, replicas=target)
        request = AlterPartitionReassignmentsRequest(
            topics=(ReassignableTopic(name=name, partitions=(part,)),),
            allow_replication_factor_change=allows_factor,
        )
        answer = self.do(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
        return answer.responses[0].partitions[0]

    def elect(self, kind: int, *numbers: int, name: str = "t") -> list[ErrorCode]:
        """Elect leaders of partitions; returns the codes."""
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=(TopicPartitions(topic=name, partitions=numbers),),
        )
        answer = self.do(ApiKey.ELECT_LEADERS, request)
        return [
            ErrorCode(each.error_code)
            for each in answer.replica_election_results[0].partition_result
        ]

    def configure(
        self, kind: int, name: str, *changes: tuple[str, int, str | None]
    ) -> tuple[ErrorCode, str | None]:
        """Change settings of a resource: name, operation, value."""
        resource = IncrementalAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(
                IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ),
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        answer = self.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses[0]
        return ErrorCode(answer.error_code), answer.error_message


def features(**levels: tuple[int, int] | None) -> tuple[Feature, ...]:
    """The ranges of all features that a broker announces, with some changed; None: left out."""
    known = {name: (each.lowest, each.highest) for name, each in FEATURES.items()}
    ranges = {**known, **{name.replace("_", "."): each for name, each in levels.items()}}
    return tuple(
        Feature(name=name, min_supported_version=each[0], max_supported_version=each[1])
        for name, each in ranges.items()
        if each is not None
    )


def assigned(
    name: str, *assignments: Sequence[int], configs: dict[str, str] | None = None
) -> CreatableTopic:
    """A topic with given replicas."""
    return wanted(
        name,
        -1,
        -1,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(each))
            for number, each in enumerate(assignments)
        ),
        configs=configs,
    )


def wanted(
    name: str,
    partitions: int = 1,
    factor: int = 3,
    *,
    assignments: tuple[CreatableReplicaAssignment, ...] = (),
    configs: dict[str, str] | None = None,
) -> CreatableTopic:
    """A topic in a request."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=assignments,
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in (configs or {}).items()
        ),
    )
