"""DescribeLogDirs (35): the log directories of this broker, and the partitions in each.

Versions: 1 to 4.
Behaviour: each directory with the bytes of its logs, and of the copies that move into it, which say
    how many offsets they are behind. One that is out of service has KAFKA_STORAGE_ERROR.
Version notes: v4 has the size of the volume and its room, which are not known here (-1).
"""

from collections.abc import Iterable

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log


def handle_describe_log_dirs(
    services: Services, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Every directory, with the partitions that were asked about."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    left_out = (
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        for path in services.moves.left_out
    )
    return DescribeLogDirsResponse(
        results=(
            *(_describe(services, each, wanted) for each in services.moves.directories),
            *left_out,
        )
    )


def _describe(
    services: Services, directory: DirectoryLogs, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if directory.failure is not None:
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path
        )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log, lag, is_future in _logs(services, directory):
        if wanted is None or log.partition in wanted:
            topics.setdefault(log.partition.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=log.partition.partition,
                    partition_size=log.size,
                    offset_lag=lag,
                    is_future_key=is_future,
                )
            )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=tuple(
            DescribeLogDirsTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def _logs(services: Services, directory: DirectoryLogs) -> Iterable[tuple[Log, int, bool]]:
    for log in directory:
        yield log, max(log.positions.high_watermark - log.end_offset, 0), False
    for move in services.moves.futures(directory):
        yield move.future, move.lag, True
