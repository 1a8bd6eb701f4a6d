"""DescribeLogDirs (35): the log directories of this broker, and the partitions in each.

Versions: 1 to 5.
Behaviour: each directory with the bytes of its logs, and of the copies that move into it, with the
    offsets that they are behind. A directory out of service has KAFKA_STORAGE_ERROR.
Version notes: v4 has the size and the free bytes of the volume, v5 whether it is cordoned.
Not done: size and free bytes of volumes (-1); no directory can be cordoned.
"""

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import NamedTuple

from tailrace.handlers.services import Services
from tailrace.protocol.answers import LongAnswer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.moving import PartitionMove


class _DirectoryContent(NamedTuple):
    """The logs of a directory, and the moves into it."""

    directory: DirectoryLogs
    logs: tuple[Log, ...]
    moves: Sequence[PartitionMove]
    """The moves whose target is this directory."""


def handle_describe_log_dirs(
    services: Services, _: RequestHeader, request: DescribeLogDirsRequest
) -> Awaitable[DescribeLogDirsResponse] | LongAnswer:
    """Every directory, with the partitions that were asked about."""
    make = partial(_describe_all, services, request)
    return LongAnswer(make) if request.topics is None else make()


async def _describe_all(
    services: Services, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    slices = Slices()
    wanted = await _wanted(services, request, slices)
    # Read all at one moment, so that a moving partition is in exactly one directory.
    held = [
        _DirectoryContent(directory, tuple(directory), services.moves.futures(directory))
        for directory in services.moves.directories
    ]
    left_out = (
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        for path in services.moves.left_out
    )
    return DescribeLogDirsResponse(
        results=(*[await _describe(each, wanted, slices) for each in held], *left_out)
    )


async def _wanted(
    services: Services, request: DescribeLogDirsRequest, slices: Slices
) -> dict[str, set[int]] | None:
    """The requested partitions of existing topics; None for all."""
    if request.topics is None:
        return None
    wanted: dict[str, set[int]] = {}
    for topic in request.topics:
        if topic.topic in services.controller.image.topics:
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
            behind = log.positions.high_watermark - log.end_offset
            topics.setdefault(name, []).append(
                DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=log.size,
                    offset_lag=max(behind, 0) if move is None else move.lag,
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
