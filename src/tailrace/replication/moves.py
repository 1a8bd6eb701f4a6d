"""Run the moves of partitions to other log directories while they are served (KIP-113).

    alter ── pause the cleaner ── copy, catch up (thread) ── swap (loop) ── resume the cleaner
                                     └── again, if records were appended meanwhile

`storage.moving` has the steps; this module runs them on threads and on the event loop. The rate of
copying is limited by `replica.alter.log.dirs.io.max.bytes.per.second`. Each target directory uses
one thread (Kafka has `num.replica.alter.log.dirs.threads`, by default as many). If a move fails,
the partition stays where it is, and the error is logged. A stop ends all moves; the next start
begins them again.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from tailrace.errors import FatalError, RetriableError, StorageError, TailraceError
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.runtime.threads import Threads
from tailrace.storage import names
from tailrace.storage.cleaner.worker import CLOCK_TICK_S, PAUSE_S_MAX, LogCleaner, Throttle
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.log import Log
from tailrace.storage.manager import LogManager
from tailrace.storage.moving import (
    CHUNK_BYTES,
    MoveError,
    PartitionMove,
    begin_move,
    remove_futures,
)
from tailrace.values import dataclass

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLEANER_CHECK_S = 0.1
"""Interval at which a move checks whether the cleaner has released its log."""
QUIET_ROUNDS = 10
"""Number of times that a move tries to catch up between two appends; after that, appends wait while
it copies the records of the last round."""


class LogDirNotFoundError(FatalError, LookupError):
    """No log directory of this broker has this path."""


class ReplicaNotAvailableError(RetriableError, LookupError):
    """This broker has no such partition."""


class CordonedDirectoryError(FatalError):
    """The target of a move takes no new logs (KIP-1066)."""


class FolderNameError(FatalError, ValueError):
    """A topic name is too long for the `-future` folder of a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStatistics:
    """The move of one partition at one moment."""

    partition: TopicPartition
    """The partition that moves."""
    target: str
    """Path of the log directory that it moves to."""
    lag: int | None
    """Offsets that the copy does not have yet; None while the move waits to begin the copy."""
    copied_bytes: int
    """Size of the batches copied since this process has begun the move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesStatistics:
    """The moves of a broker at one moment; totals are since it was started."""

    moving: tuple[MoveStatistics, ...]
    """The moves in progress, in the order in which they were begun."""
    moved_count: int
    """Partitions that were moved."""
    failure_count: int
    """Moves that have ended in an error; the log has the reason."""


@dataclass(slots=True)
class _Moving:
    """A move in progress."""

    target: DirectoryLogs
    source: Log | None
    """The log that moves; the partition may have been deleted and created again since."""
    task: asyncio.Task[None] | None = None
    move: PartitionMove | None = None
    is_over: bool = False


class PartitionMoves:
    """The moves of a broker; at most one for a partition."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        cleaner: LogCleaner,
        *,
        threads: Threads,
        throttle: Throttle,
        new_id: Callable[[], uuid.UUID],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._cleaner = cleaner
        self._threads = threads
        self._throttle = throttle
        self._new_id = new_id
        self._moving: dict[TopicPartition, _Moving] = {}
        self._turns: dict[DirectoryLogs, asyncio.Lock] = {}
        """A lock for each target directory, so that one step at a time runs on a thread."""
        self._moved_count = 0
        self._failure_count = 0

    @property
    def directories(self) -> tuple[DirectoryLogs, ...]:
        """The log directories of this broker, in service or not."""
        return self._logs.directories

    @property
    def left_out(self) -> Mapping[str, str]:
        """Log directories that could not be used when the broker started: path and reason."""
        return self._logs.left_out

    def statistics(self) -> MovesStatistics:
        """The moves in progress with their lag, and how many have ended since the start."""
        return MovesStatistics(
            moving=tuple(
                MoveStatistics(
                    partition=partition,
                    target=each.target.path,
                    lag=None if each.move is None else each.move.lag,
                    copied_bytes=0 if each.move is None else each.move.copied_bytes,
                )
                for partition, each in self._moving.items()
            ),
            moved_count=self._moved_count,
            failure_count=self._failure_count,
        )

    @property
    def cordoned(self) -> Collection[DirectoryLogs]:
        """The directories that get no new logs."""
        return self._logs.cordoned

    def futures(self, directory: DirectoryLogs) -> list[PartitionMove]:
        """The moves whose target is this directory."""
        moves = (each.move for each in self._moving.values() if each.target is directory)
        return [move for move in moves if move is not None]

    def alter(
        self,
        partition: TopicPartition,
        path: str,
        *,
        topic_id: uuid.UUID | None,
        is_resumed: bool = False,
    ) -> None:
        """Begin the move of a partition to a directory, unless it is there or moves there already.

        A move to another directory is aborted. One that a stop has interrupted is resumed also to a
        directory that was cordoned since, as in Kafka.

        Raises:
            CordonedDirectoryError: the directory takes no new logs.
            FolderNameError: the topic's name is too long.
            LogDirNotFoundError: no directory has this path.
            StorageError: the directory, or that of the partition, is out of service.
            ReplicaNotAvailableError: there is no such partition.
        """
        name = names.future_directory_name(partition, uuid.UUID(int=0).hex)
        # Refused now, since the thread that makes the folder could tell nobody.
        if len(name) > names.NAME_BYTES_MAX:
            raise FolderNameError(
                f"the topic name {partition.topic[:40]}… is too long to move: the folder of the "
                f"copy would have a name of {len(name)} bytes, {names.NAME_BYTES_MAX} are allowed"
            )
        target = self._find(path)
        if target in self._logs.cordoned and not is_resumed:
            raise CordonedDirectoryError(f"Log directory {target.path} is cordoned")
        if self._replicas.is_offline(partition):
            raise StorageError(f"{partition} is in a directory that has failed")
        if self._replicas.get(partition) is None or topic_id is None:
            raise ReplicaNotAvailableError(f"{partition} is not on this broker")
        source = self._logs.get(partition)
        known = self._moving.get(partition)
        before = None
        if known is not None:
            if not known.is_over and known.target is target and known.source is source:
                return
            known.is_over = True
            before = known.task
        if self._logs.directory_of(partition) is not target:
            moving = self._moving[partition] = _Moving(target, source)
            moving.task = asyncio.ensure_future(
                self._run(partition, moving, topic_id, before=before)
            )

    async def stop(self) -> None:
        """Abort all moves, and wait for the threads that copy."""
        tasks = [each.task for each in self._moving.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        for each in self._moving.values():
            each.is_over = True
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find(self, path: str) -> DirectoryLogs:
        wanted = path.rstrip("/")
        for directory in self._logs.directories:
            if directory.path == wanted:
                if directory.failure is not None:
                    raise StorageError(directory.failure)
                return directory
        reason = self._logs.left_out.get(wanted)
        if reason is not None:
            raise StorageError(reason)
        raise LogDirNotFoundError(f"{path[:200]} is none of log.dirs")

    async def _run(
        self,
        partition: TopicPartition,
        moving: _Moving,
        topic_id: uuid.UUID,
        *,
        before: "asyncio.Task[None] | None",
    ) -> None:
        # An aborted move has to let go of its copy first.
        if before is not None:
            await asyncio.wait([before])
        # Compaction would exchange segments under the copy, and leave other offsets in it.
        self._cleaner.pause(partition)
        try:
            await self._move(partition, moving, topic_id)
        except asyncio.CancelledError:
            # A stop: the folder stays, so that the next start begins the move again.
            if moving.move is not None:
                moving.move.future.close()
                moving.move = None
            raise
        except MoveError as error:
            self._settle(moving, error)
            self._failed(partition, moving, error)
        except (TailraceError, OSError) as error:
            self._failed(partition, moving, error)
        except Exception:
            self._failure_count += 1
            logger.exception("move_broke_off partition=%s", partition)
        finally:
            self._cleaner.resume(partition)
            # After the swap the copy is the log, and stays.
            if moving.move is not None and not self._logs.is_in_service(moving.move.future):
                moving.move.discard()
            if self._moving.get(partition) is moving:
                del self._moving[partition]

    def _failed(self, partition: TopicPartition, moving: _Moving, error: Exception) -> None:
        self._failure_count += 1
        logger.error(
            "partition_not_moved partition=%s target=%s reason=%s",
            partition, moving.target.path, error,
        )  # fmt: skip

    def _settle(self, moving: _Moving, error: MoveError) -> None:
        source = moving.source
        if error.is_final:
            self._logs.fail(error.directory, error.error)
        elif error.directory is moving.target or (
            # If the partition was deleted meanwhile, its files were renamed: no device failure.
            source is not None and self._logs.is_in_service(source)
        ):
            self._logs.settle(error.directory, error.error)

    async def _move(self, partition: TopicPartition, moving: _Moving, topic_id: uuid.UUID) -> None:
        while self._cleaner.is_cleaning(partition):  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(CLEANER_CHECK_S)
        source = moving.source
        if source is None or not self._logs.is_in_service(source) or moving.is_over:
            return
        home, unique_id = self._logs.home_of(source), self._new_id().hex

        def begin() -> PartitionMove:
            self._remove_others(partition, moving.target)
            return begin_move(
                source, home=home, target=moving.target, topic_id=topic_id, unique_id=unique_id
            )

        moving.move = await self._in_turn(moving.target, begin)
        await self._copy_and_swap(moving, moving.move)

    def _remove_others(self, partition: TopicPartition, target: DirectoryLogs) -> None:
        """Remove copies of earlier moves from the other directories. Worker thread."""
        for directory in self._logs.online:
            if directory is not target:
                try:
                    remove_futures(partition, directory)
                except OSError as error:
                    logger.warning("future_not_removed path=%s reason=%s", directory.path, error)

    async def _copy_and_swap(self, moving: _Moving, move: PartitionMove) -> None:
        def is_over() -> bool:
            is_failed = move.target.failure is not None
            return moving.is_over or is_failed or not self._logs.is_in_service(move.source)

        rounds = 0
        while not is_over():
            await self._catch_up(move, is_over)
            rounds += 1
            # Under a producer that never rests the copy would lag for ever: appends wait for once.
            if rounds >= QUIET_ROUNDS and not move.is_ready and not is_over():
                await self._catch_up_alone(move, is_over)
            if move.is_ready and not is_over():
                self._swap(move)
                return

    async def _catch_up(self, move: PartitionMove, is_over: Callable[[], bool]) -> None:
        """Copy at the limited rate, then copy the last records if they are few."""
        copied = CHUNK_BYTES + 1
        while copied > CHUNK_BYTES and not is_over():
            copied, end = 0, move.source.end_offset
            while move.future.end_offset < end and not is_over():
                size = await self._in_turn(move.target, move.step) or 0
                await self._keep_rate(size, is_over)
                copied += size
        await self._in_turn(move.target, lambda: move.catch_up(is_over=is_over))

    async def _catch_up_alone(self, move: PartitionMove, is_over: Callable[[], bool]) -> None:
        """Copy the records of the last round, while appends to the partition wait."""
        # Take the turn first: appends must not wait for a step of another move, which may be long.
        async with self._turns.setdefault(move.target, asyncio.Lock()):
            if not is_over():
                with self._replicas.holding(move.source.partition):
                    await self._to_its_end(lambda: move.catch_up(is_over=is_over))

    async def _keep_rate(self, size: int, is_over: Callable[[], bool]) -> None:
        asked = self._throttle.ask(size)
        # Wait on the loop, not on a thread: flushes and cold reads need the threads.
        while not is_over():
            left_s = self._throttle.seconds_until(asked)
            if left_s < CLOCK_TICK_S:
                break
            await asyncio.sleep(min(left_s, PAUSE_S_MAX))

    def _swap(self, move: PartitionMove) -> None:
        """Swap log and copy.

        Raises:
            MoveError: a device refused.
        """
        # In one step of the loop, so that no append or read comes in between (decision 21).
        partition, refused = move.source.partition, None
        try:
            move.swap(self._new_id().hex)
        except MoveError as error:
            if not error.has_moved:
                raise
            # The names are exchanged already: the copy is served, and the error reported after.
            refused = error
        self._logs.exchange(partition, move.future, move.target)
        self._replicas.exchange(partition, move.future)
        move.hand_over()
        self._moved_count += 1
        if refused is not None:
            raise refused
        logger.info(
            "partition_moved partition=%s source=%s target=%s",
            partition, move.home.path, move.target.path,
        )  # fmt: skip

    async def _in_turn(self, target: DirectoryLogs, step: Callable[[], T]) -> T:
        """Run a step on a thread when no other move to this directory runs one."""
        async with self._turns.setdefault(target, asyncio.Lock()):
            return await self._to_its_end(step)

    async def _to_its_end(self, step: Callable[[], T]) -> T:
        """Run a step on a thread; wait for its end also if this task is cancelled."""
        running = asyncio.ensure_future(self._threads.run(step))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.gather(running, return_exceptions=True)
            raise
