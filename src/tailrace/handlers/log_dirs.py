"""The log directories of this broker: what is in each, and moves between them."""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tailrace.cluster.partition_change import CORDONS_SINCE
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import TopicPartition
from tailrace.protocol.answers import LongAnswer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tailrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tailrace.replication.moves import ReplicaNotAvailableError
from tailrace.runtime.files import VolumeSpace
from tailrace.runtime.slices import Slices, each_in_slices, gather_in_parts
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.moving import PartitionMove
from tailrace.values import replace

SPACE_SINCE: Final = 4
"""The first version with the sizes of volumes."""
UNKNOWN_SPACE: Final = VolumeSpace(-1, -1)


class _DirectoryContent(NamedTuple):
    """The logs of a directory, and the moves into it."""

    directory: DirectoryLogs
    logs: tuple[Log, ...]
    moves: Sequence[PartitionMove]
    """The moves whose target is this directory."""


def handle_describe_log_dirs(
    services: Services, header: RequestHeader, request: DescribeLogDirsRequest
) -> Awaitable[DescribeLogDirsResponse] | LongAnswer:
    """DescribeLogDirs (35): the log directories of this broker, and the partitions in each.

    Versions: 1 to 5.
    Behaviour: each directory with the bytes of its logs, and of the copies that move into it, with
        the offsets by which they lag. A directory out of service has KAFKA_STORAGE_ERROR.
    Version notes: v4 has the size and the usable bytes of the volume (-1 where the device does not
        tell them), v5 whether the directory is cordoned (KIP-1066), where `metadata.version` has
        that.
    """
    has_space = header.api_version >= SPACE_SINCE
    make = partial(_describe_all, services, request, has_space=has_space)
    # A device that hangs holds up other answers only if these have no places of their own.
    if has_space:
        return LongAnswer(make, waits_for_device=True)
    return LongAnswer(make) if request.topics is None else make()


async def _describe_all(
    services: Services, request: DescribeLogDirsRequest, *, has_space: bool
) -> DescribeLogDirsResponse:
    slices = Slices()
    wanted = await _wanted(services, request, slices)
    # Read all at one moment, so that a moving partition is in exactly one directory.
    held = [
        _DirectoryContent(directory, tuple(directory), services.moves.futures(directory))
        for directory in services.moves.directories
    ]
    # As in Kafka a failed directory is listed with its error and without partitions. An answer
    # without it would look as if the partitions had been deleted.
    left_out = (
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        for path in services.moves.left_out
    )
    described = [await _describe(each, wanted, slices) for each in held]
    if services.cluster.metadata.metadata_version >= CORDONS_SINCE:
        cordoned = {each.path for each in services.moves.cordoned}
        described = [
            replace(each, is_cordoned=each.log_dir in cordoned and not each.error_code)
            for each in described
        ]
    if has_space:
        spaces = await gather_in_parts(_space(services, each.directory) for each in held)
        described = [
            replace(each, total_bytes=space.total, usable_bytes=space.usable)
            for each, space in zip(described, spaces, strict=True)
        ]
    return DescribeLogDirsResponse(results=(*described, *left_out))


async def _space(services: Services, directory: DirectoryLogs) -> VolumeSpace:
    if directory.failure is not None:
        return UNKNOWN_SPACE
    try:
        # `statvfs` waits for the device, or for the server of a network file system.
        return await services.threads.run(lambda: directory.files.space(directory.path))
    except OSError:
        # Kafka gives the whole directory an error here. Its partitions can be described without the
        # size.
        return UNKNOWN_SPACE


async def _wanted(
    services: Services, request: DescribeLogDirsRequest, slices: Slices
) -> dict[str, set[int]] | None:
    """The requested partitions of existing topics; None for all."""
    if request.topics is None:
        return None
    wanted: dict[str, set[int]] = {}
    for topic in request.topics:
        # As in Kafka, what does not exist is left out of the answer and is no error.
        if topic.topic in services.cluster.image.topics:
            # Only numbers: freeing 100,000 pairs of name and number takes 15 ms.
            numbers = wanted.setdefault(topic.topic, set())
            await each_in_slices(topic.partitions, numbers.add, slices)
        await slices.turn()
    return wanted


async def _describe(
    held: _DirectoryContent, wanted: dict[str, set[int]] | None, slices: Slices
) -> DescribeLogDirsResult:
    if held.directory.failure is not None:
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=held.directory.path
        )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}

    def describe(log: Log, *, move: PartitionMove | None = None) -> None:
        name, number = log.partition
        if wanted is None or number in wanted.get(name, ()):
            # Kafka's two measures: a replica in use lacks committed records, and a copy lacks what
            # the log has up to its end.
            lag = log.positions.high_watermark - log.end_offset
            topics.setdefault(name, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=log.size,
                    offset_lag=max(lag, 0) if move is None else move.lag,
                    # While a partition moves it is in two directories. This tells the copy apart
                    # (KIP-113): Java's admin client shows it as the future replica.
                    is_future_key=move is not None,
                )
            )

    await each_in_slices(held.logs, describe, slices)
    await each_in_slices(held.moves, lambda move: describe(move.future, move=move), slices)
    described = await each_in_slices(topics.items(), _topic, slices)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE, log_dir=held.directory.path, topics=tuple(described)
    )


def _topic(named: tuple[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsTopic:
    name, partitions = named
    return DescribeLogDirsTopic(name=name, partitions=tuple(partitions))


async def handle_alter_replica_log_dirs(
    services: Services, _: RequestHeader, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs (34): move partitions between log directories (KIP-113).

    Versions: 1 to 2.
    Behaviour: the response says that a move has begun; DescribeLogDirs shows its progress. The
        partition is served meanwhile. If it is in the directory already, or moves there, nothing
        changes; a move to another directory is aborted. After a stop or a crash the copy begins
        again. Refused: a path that is not in log.dirs (LOG_DIR_NOT_FOUND), a directory out of
        service (KAFKA_STORAGE_ERROR) or cordoned (INVALID_REPLICA_ASSIGNMENT), an unknown partition
        (UNKNOWN_TOPIC_OR_PARTITION), one that is on another broker (REPLICA_NOT_AVAILABLE), a topic
        whose name is too long for the folder of a copy (INVALID_TOPIC_EXCEPTION).
    Not done: a directory for partitions that do not exist yet, which Kafka keeps in memory.
    """
    slices = Slices()
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            # Topics are in the metadata before their logs are made (decision 55). For such a
            # partition Kafka notes the directory and answers with an error.
            await services.replicas.new_logs.wait_for_each(topic.name, topic.partitions)
            alter = partial(_begin_move, services, topic.name, path=directory.path)
            altered = await each_in_slices(topic.partitions, alter, slices)
            results.setdefault(topic.name, []).extend(altered)
            await slices.turn()
        await slices.turn()
    topics = await each_in_slices(results.items(), _moved_topic, slices)
    return AlterReplicaLogDirsResponse(results=tuple(topics))


def _moved_topic(
    named: tuple[str, list[AlterReplicaLogDirPartitionResult]],
) -> AlterReplicaLogDirTopicResult:
    name, partitions = named
    return AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(partitions))


def _begin_move(
    services: Services, name: str, number: int, *, path: str
) -> AlterReplicaLogDirPartitionResult:
    topic = services.cluster.image.topics.get(name)
    topic_id = None if topic is None else topic.topic_id
    partition, code = TopicPartition(name, number), ErrorCode.NONE
    try:
        services.moves.alter(partition, path, topic_id=topic_id)
    except ReplicaNotAvailableError:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if services.has_partition(partition):
            # Kafka has kept this code here, where other APIs have NOT_LEADER_OR_FOLLOWER.
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    except TailraceError as error:
        code = error_code(error)
    return AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
