"""`survey_cluster`: what a move of a cluster depends on, asked of the cluster itself.

Brokers and controllers, partitions and those that are being moved, the sizes of replicas, the room
on the new brokers, and the APIs of both. Each question has the time limit of a call of its own.

Not here: what follows from it (`plan`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Concatenate, Final, ParamSpec, TypeVar

from tailrace.client.admin.cluster import (
    BrokerNode,
    describe_cluster,
    describe_metadata_quorum,
)
from tailrace.client.admin.items import ItemRequest, for_each
from tailrace.client.admin.replicas import (
    LogDirectory,
    Reassignment,
    describe_log_dirs,
    list_partition_reassignments,
)
from tailrace.client.admin.topics import list_topics
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import UnsupportedBrokerError
from tailrace.client.reader import PartitionDescription
from tailrace.client.routes import broker
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.values import dataclass

METADATA_LAG_S: Final = 2.0
"""Time in which a broker learns of a change; it fetches the metadata log all the time."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The cluster at one time; its parts may be some milliseconds apart."""

    brokers: Mapping[int, BrokerNode]
    """Brokers that are registered, or the living ones from a cluster before Kafka 4.0."""
    voters: frozenset[int]
    """The nodes that are controllers."""
    partitions: Mapping[TopicPartition, PartitionDescription]
    internal: frozenset[str]
    """The topics of Kafka's own state."""
    moving: Mapping[TopicPartition, Reassignment]
    sizes: Mapping[int, Mapping[TopicPartition, int]]
    """Bytes of replicas, by the brokers that answer."""
    room: Mapping[int, int | None]
    """Free bytes of the new brokers that answer, at least; None if one cannot tell."""
    room_apart: Mapping[int, int | None]
    """The same if each log directory has a volume of its own, as many disks of one size have."""
    silent: Mapping[int, TailraceError]
    """Why the other new brokers do not answer."""
    apis: Mapping[int, frozenset[int]]
    """The APIs that brokers serve, by number."""

    def size(self, partition: TopicPartition) -> int:
        """Bytes of a replica that has all of a partition, as far as anybody knows."""
        # Of followers that lag, and of copies under way, less is there than will be.
        return max((each.get(partition, 0) for each in self.sizes.values()), default=0)

    def missing_apis(self, number: int, others: Iterable[int]) -> tuple[str, ...]:
        """The APIs that others serve and a broker does not, by name."""
        if number not in self.apis:
            return ()
        served = frozenset().union(*(self.apis.get(each, frozenset()) for each in others))
        return tuple(_title(each) for each in sorted(served - self.apis[number]))


def do(
    call: Call,
    operation: Callable[Concatenate[Call, P], Steps[T]],
    *arguments: P.args,
    **options: P.kwargs,
) -> Steps[T]:
    """The result of an operation that has the whole time limit for itself.

    Raises: what the operation raises.
    """
    return (yield from operation(call.renewed(), *arguments, **options))


def survey_cluster(call: Call, *, source: Sequence[int], target: Sequence[int]) -> Steps[Survey]:
    """The cluster as it is now.

    Raises:
        TailraceError: no broker answers, or one refuses.
    """
    brokers = yield from known_brokers(call)
    moving, partitions, internal = yield from _placed(call)
    # The controllers tell what moves, and any broker where replicas are, which it may learn some
    # moments later. A move that has just ended then looks like one to begin, from all of its old
    # and new brokers; a partition may also have been created on brokers of both kinds.
    if any(
        not set(each.replicas).isdisjoint(source) and not set(each.replicas).isdisjoint(target)
        for name, each in partitions.items()
        if name not in moving
    ):
        yield from call.pause(METADATA_LAG_S)
        moving, partitions, internal = yield from _placed(call)
    alive = [each.id for each in brokers.values() if not each.is_fenced]
    directories = yield from do(call, describe_log_dirs, alive)
    of_target = {each: found for each, found in directories.succeeded.items() if each in target}
    apis = yield from do(call, _apis_of, [each for each in alive if each in {*source, *target}])
    return Survey(
        brokers=brokers,
        voters=(yield from _voters(call)),
        partitions=partitions,
        internal=internal,
        moving=moving,
        sizes={number: replica_sizes(found) for number, found in directories.succeeded.items()},
        room={each: _room(_usable(found)) for each, found in of_target.items()},
        room_apart={
            each: _room(_usable(found), are_apart=True) for each, found in of_target.items()
        },
        silent=directories.errors,
        apis=apis,
    )


def _placed(
    call: Call,
) -> Steps[
    tuple[
        dict[TopicPartition, Reassignment],
        dict[TopicPartition, PartitionDescription],
        frozenset[str],
    ]
]:
    """The partitions that move, all partitions, and the topics of Kafka's own state."""
    # In this order: a move that ends in between is seen as one, and never as one to begin.
    moving = yield from do(call, list_partition_reassignments)
    topics = yield from do(call, list_topics)
    partitions = {
        TopicPartition(topic.name, each.partition): each
        for topic in topics
        for each in topic.partitions
    }
    return moving, partitions, frozenset(each.name for each in topics if each.is_internal)


def known_brokers(call: Call) -> Steps[dict[int, BrokerNode]]:
    """The brokers of the cluster by id, with fenced ones where the cluster tells them.

    Raises:
        TailraceError: no broker answers, or one refuses.
    """
    try:
        found = yield from do(call, describe_cluster, include_fenced_brokers=True)
    except UnsupportedBrokerError:
        # Before Kafka 4.0 fenced brokers are not named, so they look like ones that are gone.
        found = yield from do(call, describe_cluster)
    return {each.id: each for each in found.brokers}


def replica_sizes(directories: Mapping[str, LogDirectory]) -> dict[TopicPartition, int]:
    """Bytes of each replica of a broker."""
    return {
        partition: replica.size
        for directory in directories.values()
        for partition, replica in directory.replicas.items()
        # A log that moves to another directory is there twice, and the copy is not whole.
        if not replica.is_future
    }


def target_of(moved: Reassignment) -> tuple[int, ...]:
    """The brokers that a partition is to have when its reassignment has ended."""
    return tuple(each for each in moved.replicas if each not in moved.removing)


def _voters(call: Call) -> Steps[frozenset[int]]:
    try:
        quorum = yield from do(call, describe_metadata_quorum)
    except UnsupportedBrokerError:
        return frozenset()
    return frozenset(each.replica_id for each in quorum.voters)


def _usable(directories: Mapping[str, LogDirectory]) -> list[LogDirectory]:
    """The directories that take new logs."""
    return [each for each in directories.values() if each.error is None and not each.is_cordoned]


def _room(usable: Sequence[LogDirectory], *, are_apart: bool = False) -> int | None:
    """Free bytes of a broker for new logs; 0 if it takes none, None if it cannot tell."""
    if any(each.usable_bytes < 0 for each in usable):
        return None
    if are_apart:
        return sum(each.usable_bytes for each in usable)
    # Directories of the same size with as much left may be on one volume.
    return sum(free for _, free in {(each.total_bytes, each.usable_bytes) for each in usable})


def _apis_of(call: Call, brokers: Collection[int]) -> Steps[dict[int, frozenset[int]]]:
    """The APIs of the brokers that answer."""
    request: ItemRequest[int, frozenset[int], ApiVersionsResponse] = ItemRequest(
        what="the APIs of broker",
        target=broker,
        request=lambda _: ApiVersionsRequest(
            client_software_name="tailrace", client_software_version="1"
        ),
        response=ApiVersionsResponse,
        value=lambda _, answer: frozenset(each.api_key for each in answer.api_keys),
        is_single=True,
    )
    return (yield from for_each(call, brokers, request)).succeeded


def _title(number: int) -> str:
    # A newer broker may serve what this version has no name for.
    return ApiKey(number).title if number in set(ApiKey) else f"API {number}"
