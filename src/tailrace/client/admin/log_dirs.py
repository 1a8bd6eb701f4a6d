"""Log directories of brokers: what lies in them, and in which of them a replica is to lie.

for path, directory in admin.describe_log_dirs([1]).result(1).items(): ...
admin.alter_replica_log_dirs({Replica("flights", 0, 1): "/disks/b"})
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.admin.cluster import brokers_of
from tailrace.client.admin.items import ItemRequest, all_of, by_topic, for_each, values_in
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import error_for
from tailrace.client.routes import broker
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
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
from tailrace.values import dataclass

_OFFLINE = frozenset({ErrorCode.KAFKA_STORAGE_ERROR})
"""Kafka's clients retry this error for leaders; a directory stays offline until a restart."""


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


def describe_log_dirs(
    call: Call, brokers: Iterable[int] | None = None
) -> Steps[Outcomes[int, dict[str, LogDirectory]]]:
    """The log directories of these brokers, or of all, by path.

    Repeated after a lost connection.
    """
    wanted = (
        # A broker answers about its own directories alone.
        (yield from brokers_of(call)) if brokers is None else all_of(int, brokers, what="brokers")
    )
    return (yield from _describe(call, wanted, partitions=None))


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
