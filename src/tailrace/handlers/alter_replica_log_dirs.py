"""AlterReplicaLogDirs (34): move partitions between the log directories of this broker (KIP-113).

Versions: 1 to 2.
Behaviour: the response says that a move has begun; DescribeLogDirs shows its progress. The
    partition is served meanwhile. If it is in the directory already, or moves there, nothing
    changes; a move to another directory is aborted. After a stop or a crash the copy begins again.
    Refused: a path that is not in log.dirs (LOG_DIR_NOT_FOUND), a directory out of service
    (KAFKA_STORAGE_ERROR), an unknown partition (UNKNOWN_TOPIC_OR_PARTITION), one that is on another
    broker (NOT_LEADER_OR_FOLLOWER), a topic whose name is too long for the folder of a copy
    (INVALID_TOPIC_EXCEPTION).
Not done: a directory for partitions that do not exist yet, which Kafka keeps in memory.
"""

from functools import partial

from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tailrace.replication.moves import ReplicaNotAvailableError
from tailrace.runtime.slices import Slices, each_in_slices


async def handle_alter_replica_log_dirs(
    services: Services, _: RequestHeader, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin the requested moves; refused ones get an error code."""
    slices = Slices()
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            await services.replicas.new_logs.wait_for_each(topic.name, topic.partitions)
            alter = partial(_alter, services, topic.name, path=directory.path)
            altered = await each_in_slices(topic.partitions, alter, slices)
            results.setdefault(topic.name, []).extend(altered)
            await slices.turn()
        await slices.turn()
    topics = await each_in_slices(results.items(), _topic_result, slices)
    return AlterReplicaLogDirsResponse(results=tuple(topics))


def _topic_result(
    named: tuple[str, list[AlterReplicaLogDirPartitionResult]],
) -> AlterReplicaLogDirTopicResult:
    name, partitions = named
    return AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(partitions))


def _alter(
    services: Services, name: str, number: int, *, path: str
) -> AlterReplicaLogDirPartitionResult:
    topic = services.controller.image.topics.get(name)
    topic_id = None if topic is None else topic.topic_id
    partition, code = TopicPartition(name, number), ErrorCode.NONE
    try:
        services.moves.alter(partition, path, topic_id=topic_id)
    except ReplicaNotAvailableError:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if services.has_partition(partition):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    except TailraceError as error:
        code = error_code(error)
    return AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
