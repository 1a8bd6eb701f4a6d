"""ElectLeaders (43): makes the preferred replica of a partition its leader, or any that is alive.

v1   unclean elections (KIP-460)        v2   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    topic: str = wire("string")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersRequest:
    first_version, last_version, flexible_since = 0, 2, 2
    # 0: the preferred replica, 1: any live replica if none is in sync.
    election_type: int = wire("int8", since=1)
    # The partitions, by topic; None: all.
    topic_partitions: tuple[TopicPartitions, ...] | None = wire_array(
        TopicPartitions, nullable_since=0
    )
    timeout_ms: int = wire("int32", default=60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    partition_id: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaElectionResult:
    topic: str = wire("string")
    partition_result: tuple[PartitionResult, ...] = wire_array(PartitionResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersResponse:
    first_version, last_version, flexible_since = 0, 2, 2
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16", since=1)
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire_array(ReplicaElectionResult)
