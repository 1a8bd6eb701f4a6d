"""Replicas of partitions: which leads, which brokers have them, and in which log directories.

admin.elect_leaders([TopicPartition("flights", 0)])
admin.alter_partition_reassignments({TopicPartition("flights", 0): [2, 3], other: None})
for path, directory in admin.describe_log_dirs([1]).result(1).items(): ...
admin.alter_replica_log_dirs({Replica("flights", 0, 1): "/disks/b"})
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tailrace.client.admin.cluster import brokers_of
from tailrace.client.admin.items import (
    ItemRequest,
    ask_one,
    by_topic,
    entry_error,
    for_each,
    of_partitions,
    partition_values_in,
    partitions_in,
    values_in,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import error_for
from tailrace.client.routes import CONTROLLER, broker
from tailrace.client.short_repr import short_repr
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tailrace.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tailrace.values import dataclass

_OFFLINE = frozenset({ErrorCode.KAFKA_STORAGE_ERROR})
"""Kafka's clients retry this error for leaders; a directory stays offline until a restart."""


# KIP-460 added the unclean kind, which Kafka had only as a setting before.
class ElectionType(IntEnum):
    """Kinds of elections, by Kafka's number."""

    PREFERRED = 0
    """The first replica in the list leads, if it is in sync."""
    UNCLEAN = 1
    """Any living replica leads where none is in sync; records may be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition whose replicas are moved."""

    replicas: tuple[int, ...]
    """All brokers that have it now, or are to have it."""
    adding: tuple[int, ...]
    """Brokers that get it."""
    removing: tuple[int, ...]
    """Brokers that lose it."""


class Replica(NamedTuple):
    """A partition on one broker."""

    topic: str
    """The topic."""
    partition: int
    """The number of the partition."""
    broker: int
    """The broker."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """A partition's log in one directory."""

    size: int
    """Bytes of its segments."""
    offset_lag: int
    """Lag in records: to the high watermark, or, of a future log, to the present one."""
    is_future: bool
    """Whether it is to replace the log in another directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """A log directory of a broker."""

    error: TailraceError | None
    """Why it is offline."""
    replicas: Mapping[TopicPartition, ReplicaSize]
    """The logs in it."""
    total_bytes: int
    """Size of its volume; -1 from brokers before Kafka 3.3."""
    usable_bytes: int
    """Free bytes of its volume; likewise."""
    is_cordoned: bool = False
    """Whether no new logs are put into it."""

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDirectories:
    """The directory of a replica, and the one that it is moved to."""

    # Both may be there while the broker copies: KIP-113 swaps them when the future log has caught
    # up.
    current: str | None
    """Its directory; None if the broker has no such log."""
    offset_lag: int
    """Lag in records to the high watermark; -1 without a log."""
    future: str | None
    """The directory that it is moved to."""
    future_offset_lag: int
    """Lag in records of the move; -1 without one."""


def elect_leaders(
    call: Call,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    election: ElectionType = ElectionType.PREFERRED,
) -> Steps[Outcomes[TopicPartition, None]]:
    """Elect leaders of these partitions, or of all that need it.

    A partition whose leader stays has a RemoteRetriableError with ELECTION_NOT_NEEDED. Repeated
    after a lost connection.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.2), or this kind (2.4).
        RemoteFatalError: the controller refuses all of it.
        OperationTimeoutError: no answer within the time limit.
    """
    wanted = None if partitions is None else partitions_in(partitions)
    # None in the request means all partitions, an empty list nothing: so no request.
    if wanted == []:
        return Outcomes({})
    chosen = None
    if wanted is not None:
        chosen = tuple(
            TopicPartitions(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(set(wanted)).items()
        )
    request: ItemRequest[str, dict[TopicPartition, TailraceError | None], ElectLeadersResponse]
    request = ItemRequest(
        what="the election",
        target=CONTROLLER,
        request=lambda _: ElectLeadersRequest(
            election_type=election, topic_partitions=chosen, timeout_ms=call.left_ms
        ),
        response=ElectLeadersResponse,
        value=lambda _, answer: {
            (partition := TopicPartition(topic.topic, each.partition_id)): entry_error(
                each, about=str(partition)
            )
            for topic in answer.replica_election_results
            for each in topic.partition_result
        },
        # An older broker elects the preferred leader, whatever is asked.
        first_version=0 if election is ElectionType.PREFERRED else 1,
    )
    # For all partitions the answer lists those with a change, and leaves out those that needed
    # none.
    outcomes = Outcomes((yield from ask_one(call, request)))
    return outcomes if wanted is None else outcomes.about(wanted, answer="ElectLeaders")


def alter_partition_reassignments(
    call: Call,
    replicas: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
) -> Steps[Outcomes[TopicPartition, None]]:
    """Begin to move partitions to these brokers; None ends a move that is under way.

    Done when the controller has noted it; `list_partition_reassignments` shows what is under way.
    Repeated after a lost connection.
    """
    kinds = (Sequence, type(None))
    wanted: dict[TopicPartition, Sequence[int] | None] = partition_values_in(
        replicas, what="replicas", kinds=kinds
    )
    request: ItemRequest[TopicPartition, None, AlterPartitionReassignmentsResponse] = ItemRequest(
        what="the replicas of",
        target=CONTROLLER,
        request=lambda batch: AlterPartitionReassignmentsRequest(
            timeout_ms=call.left_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=tuple(
                ReassignableTopic(
                    name=topic,
                    partitions=tuple(
                        ReassignablePartition(
                            partition_index=number,
                            # Null cancels a move (KIP-455); an empty list is an error.
                            replicas=None if brokers is None else tuple(brokers),
                        )
                        for number in numbers
                        for brokers in (wanted[TopicPartition(topic, number)],)
                    ),
                )
                for topic, numbers in by_topic(batch).items()
            ),
        ),
        response=AlterPartitionReassignmentsResponse,
        entries=lambda answer, _: of_partitions(answer.responses),
        # Older brokers would change the replication factor.
        # KIP-860, from version 1 on.
        first_version=0 if allow_replication_factor_change else 1,
    )
    return (yield from for_each(call, wanted, request))


def list_partition_reassignments(
    call: Call, partitions: Iterable[TopicPartition] | None = None
) -> Steps[dict[TopicPartition, Reassignment]]:
    """The partitions among these, or among all, whose replicas are being moved.

    Raises:
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.4).
        RemoteFatalError: the controller refuses.
        OperationTimeoutError: no answer within the time limit.
    """
    chosen = None
    if partitions is not None:
        chosen = tuple(
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
            for topic, numbers in by_topic(set(partitions_in(partitions))).items()
        )
    request: ItemRequest[
        str, dict[TopicPartition, Reassignment], ListPartitionReassignmentsResponse
    ] = ItemRequest(
        what="the reassignments",
        target=CONTROLLER,
        request=lambda _: ListPartitionReassignmentsRequest(timeout_ms=call.left_ms, topics=chosen),
        response=ListPartitionReassignmentsResponse,
        value=lambda _, answer: {
            partition: Reassignment(
                replicas=each.replicas, adding=each.adding_replicas, removing=each.removing_replicas
            )
            for partition, each in of_partitions(answer.topics)
        },
    )
    return (yield from ask_one(call, request))


def describe_log_dirs(
    call: Call,
    brokers: Iterable[int] | None = None,
    *,
    partitions: Iterable[TopicPartition] | None = None,
) -> Steps[Outcomes[int, dict[str, LogDirectory]]]:
    """The log directories of these brokers, or of all, by path.

    With `partitions` the logs of these alone are named, which is a short answer of a broker that
    has many. Repeated after a lost connection.
    """
    # A broker answers about its own directories alone.
    wanted = yield from brokers_of(call, brokers)
    chosen = None if partitions is None else partitions_in(partitions)
    return (yield from _describe(call, wanted, partitions=chosen))


def describe_replica_log_dirs(
    call: Call, replicas: Iterable[Replica]
) -> Steps[Outcomes[Replica, ReplicaDirectories]]:
    """The directories of these replicas, and those that they are moved to.

    Repeated after a lost connection.
    """
    wanted = [Replica(*each) for each in replicas]
    by_broker = yield from _describe(
        call,
        # One request for each broker, about all of its replicas.
        [*dict.fromkeys(each.broker for each in wanted)],
        partitions=[TopicPartition(each.topic, each.partition) for each in wanted],
    )
    found: dict[Replica, ReplicaDirectories | TailraceError] = {}
    for each in wanted:
        directories = by_broker[each.broker]
        found[each] = (
            directories
            if isinstance(directories, TailraceError)
            else _places(TopicPartition(each.topic, each.partition), directories)
        )
    return Outcomes(found)


def alter_replica_log_dirs(
    call: Call, moves: Mapping[Replica, str]
) -> Steps[Outcomes[Replica, None]]:
    """Have replicas go to other log directories of their brokers, while they are served.

    Done when the broker has begun; `describe_replica_log_dirs` shows how far it is. A broker that
    has no such replica puts it there when it gets one. Repeated after a lost connection.
    """
    wanted = {Replica(*each): path for each, path in values_in(moves, what="moves").items()}

    def asked(batch: Sequence[Replica]) -> AlterReplicaLogDirsRequest:
        # The request lists partitions by the directory that they go to.
        by_path: dict[str, list[TopicPartition]] = {}
        for each in batch:
            partition = TopicPartition(each.topic, each.partition)
            by_path.setdefault(wanted[each], []).append(partition)
        return AlterReplicaLogDirsRequest(
            dirs=tuple(
                AlterReplicaLogDir(
                    path=path,
                    topics=tuple(
                        AlterReplicaLogDirTopic(name=topic, partitions=tuple(numbers))
                        for topic, numbers in by_topic(partitions).items()
                    ),
                )
                for path, partitions in by_path.items()
            )
        )

    request: ItemRequest[Replica, None, AlterReplicaLogDirsResponse] = ItemRequest(
        what="replica",
        target=lambda each: broker(each.broker),
        request=asked,
        response=AlterReplicaLogDirsResponse,
        # The answer does not name the broker; a batch has one.
        entries=lambda answer, batch: (
            (Replica(topic.topic_name, each.partition_index, batch[0].broker), each)
            for topic in answer.results
            for each in topic.partitions
        ),
        final=_OFFLINE,
    )
    return (yield from for_each(call, wanted, request))


def _describe(
    call: Call, brokers: Sequence[int], *, partitions: Sequence[TopicPartition] | None
) -> Steps[Outcomes[int, dict[str, LogDirectory]]]:
    topics = None
    if partitions is not None:
        topics = tuple(
            DescribableLogDirTopic(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic(set(partitions)).items()
        )

    def refused(number: int, answer: DescribeLogDirsResponse) -> TailraceError | None:
        # Until version 2 a refusal has no code, and a broker always has a directory.
        if answer.error_code or answer.results:
            return None
        about = f"the log directories of broker {number}"
        return error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, about=about)

    request: ItemRequest[int, dict[str, LogDirectory], DescribeLogDirsResponse] = ItemRequest(
        what="the log directories of broker",
        target=broker,
        request=lambda _: DescribeLogDirsRequest(topics=topics),
        response=DescribeLogDirsResponse,
        special=refused,
        value=lambda number, answer: {
            each.log_dir: _directory(each, number) for each in answer.results
        },
        # One broker a request: no other knows its directories.
        is_single=True,
    )
    return (yield from for_each(call, brokers, request))


def _directory(found: DescribeLogDirsResult, number: int) -> LogDirectory:
    return LogDirectory(
        error=error_for(found.error_code, about=f"{found.log_dir} of broker {number}"),
        # An offline directory has an error and no logs: what it holds cannot be listed.
        replicas={
            TopicPartition(topic.name, each.partition_index): ReplicaSize(
                size=each.partition_size,
                offset_lag=each.offset_lag,
                is_future=each.is_future_key,
            )
            for topic in found.topics
            for each in topic.partitions
        },
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
        is_cordoned=found.is_cordoned,
    )


def _places(
    partition: TopicPartition, directories: Mapping[str, LogDirectory]
) -> ReplicaDirectories:
    current = future = None
    lag = future_lag = -1
    for path, directory in directories.items():
        found = directory.replicas.get(partition)
        # A log that is moved is in two directories.
        # The broker marks the copy, which has a folder that ends in -future.
        if found is not None and found.is_future:
            future, future_lag = path, found.offset_lag
        elif found is not None:
            current, lag = path, found.offset_lag
    return ReplicaDirectories(
        current=current, offset_lag=lag, future=future, future_offset_lag=future_lag
    )
