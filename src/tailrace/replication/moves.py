"""Partitions that move to another log directory while they are served (KIP-113).

    alter ── pause the cleaner ── copy, catch up (thread) ── swap (loop) ── resume the cleaner
                                     └── again, if records came meanwhile

What a move does is `storage.moving`; here is who does which step when. Copying keeps to
`replica.alter.log.dirs.io.max.bytes.per.second`, and takes one thread for each directory that is
moved to (Kafka has `num.replica.alter.log.dirs.threads`, by default as many). A move that fails
leaves the partition where it is, and is told; so does one whose topic is deleted. A stop ends all:
their copies are begun anew by the next start.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from tailrace.storage.moving import CHUNK_BYTES, Move, MoveError, begin_move, remove_futures

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLEANER_CHECK_S = 0.1
"""How often a move looks whether the cleaner has let its log go."""
QUIET_ROUNDS = 10
"""How often a move waits for a moment without an append; then appends wait until it has caught up,
by what came during the last round."""


class LogDirNotFoundError(FatalError, LookupError):
    """No log directory of this broker has this path."""


class ReplicaNotAvailableError(RetriableError, LookupError):
    """This broker has no such partition."""


class FolderNameError(FatalError, ValueError):
    """The name of a topic is too long for the folder of a copy."""


@dataclass(slots=True)
class _Moving:
    """A move on its way."""

    target: DirectoryLogs
    source: Log | None
    """What moves: not a later log of the same name."""
    task: asyncio.Task[None] | None = None
    move: Move | None = None
    is_over: bool = False


class Moves:
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
        """Who does a step on a thread: one at a time for each directory that is moved to."""

    @property
    def directories(self) -> tuple[DirectoryLogs, ...]:
        """The log directories that this broker has found, out of service or not."""
        return self._logs.directories

    @property
    def left_out(self) -> Mapping[str, str]:
        """Those that could not be used when the broker started: path and why."""
        return self._logs.left_out

    def futures(self, directory: DirectoryLogs) -> list[Move]:
        """The moves whose copy is in a directory."""
        moves = (each.move for each in self._moving.values() if each.target is directory)
        return [move for move in moves if move is not None]

    def alter(self, partition: TopicPartition, path: str, *, topic_id: uuid.UUID | None) -> None:
        """Have a partition move to a directory; one that is there, or on its way, is left alone.

        A move to another directory is called off.

        Raises:
            FolderNameError: the topic's name is too long.
            LogDirNotFoundError: no directory has this path.
            StorageError: the directory, or that of the partition, is out of service.
            ReplicaNotAvailableError: there is no such partition.
        """
        name = names.future_directory_name(partition, uuid.UUID(int=0).hex)
        if len(name) > names.NAME_BYTES_MAX:
            raise FolderNameError(f"{partition.topic[:40]}… is too long to move")
        target = self._find(path)
        if self._replicas.is_offline(partition):
            raise StorageError(f"{partition} is in a directory that has failed")
        if self._replicas.get(partition) is None or topic_id is None:
            raise ReplicaNotAvailableError(f"{partition} is not on this broker")
        source = self._logs.get(partition)
        known = self._moving.get(partition)
        if (
            known is not None
            and not known.is_over
            and (known.target, known.source)
            == (
                target,
                source,
            )
        ):
            return
        before = None
        if known is not None:
            known.is_over = True
            before = known.task
        if self._logs.directory_of(partition) is not target:
            moving = self._moving[partition] = _Moving(target, source)
            moving.task = asyncio.ensure_future(
                self._run(partition, moving, topic_id, before=before)
            )

    async def stop(self) -> None:
        """Call all moves off, and wait for the threads that copy."""
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
        if before is not None:
            await asyncio.wait([before])
        self._cleaner.pause(partition)
        try:
            await self._move(partition, moving, topic_id)
        except asyncio.CancelledError:
            # A stop: the folder stays, so that the next start begins the move anew.
            if moving.move is not None:
                moving.move.future.close()
                moving.move = None
            raise
        except MoveError as error:
            self._settle(moving, error)
            _tell_failed(partition, moving.target, error)
        except (TailraceError, OSError) as error:
            _tell_failed(partition, moving.target, error)
        except Exception:
            logger.exception("move_broke_off partition=%s", partition)
        finally:
            self._cleaner.resume(partition)
            if moving.move is not None and not self._logs.is_in_service(moving.move.future):
                moving.move.discard()
            if self._moving.get(partition) is moving:
                del self._moving[partition]

    def _settle(self, moving: _Moving, error: MoveError) -> None:
        source = moving.source
        if error.is_final:
            self._logs.fail(error.directory, error.error)
        elif error.directory is moving.target or (
            # The files of one that was deleted meanwhile are not where they were.
            source is not None and self._logs.is_in_service(source)
        ):
            self._logs.settle(error.directory, error.error)

    async def _move(self, partition: TopicPartition, moving: _Moving, topic_id: uuid.UUID) -> None:
        while self._cleaner.is_cleaning(partition):  # noqa: ASYNC110 - it does not tell
            await asyncio.sleep(CLEANER_CHECK_S)
        source = moving.source
        if source is None or not self._logs.is_in_service(source) or moving.is_over:
            return
        home, unique_id = self._logs.home_of(source), self._new_id().hex

        def begin() -> Move:
            self._remove_others(partition, moving.target)
            return begin_move(
                source, home=home, target=moving.target, topic_id=topic_id, unique_id=unique_id
            )

        moving.move = await self._in_turn(moving.target, begin)
        await self._copy_and_swap(moving, moving.move)

    def _remove_others(self, partition: TopicPartition, target: DirectoryLogs) -> None:
        """Remove copies that earlier moves to other directories have left. Worker thread."""
        for directory in self._logs.online:
            if directory is not target:
                try:
                    remove_futures(partition, directory)
                except OSError as error:
                    logger.warning("future_not_removed path=%s reason=%s", directory.path, error)

    async def _copy_and_swap(self, moving: _Moving, move: Move) -> None:
        def is_over() -> bool:
            is_failed = move.target.failure is not None
            return moving.is_over or is_failed or not self._logs.is_in_service(move.source)

        rounds = 0
        while not is_over():
            await self._catch_up(move, is_over)
            rounds += 1
            if rounds >= QUIET_ROUNDS and not move.is_ready and not is_over():
                await self._catch_up_alone(move, is_over)
            if move.is_ready and not is_over():
                self._swap(move)
                return

    async def _catch_up(self, move: Move, is_over: Callable[[], bool]) -> None:
        """Copy what there is at the rate, then what came meanwhile if that is little."""
        copied = CHUNK_BYTES + 1
        while copied > CHUNK_BYTES and not is_over():
            copied, end = 0, move.source.end_offset
            while move.future.end_offset < end and not is_over():
                size = await self._in_turn(move.target, move.step) or 0
                await self._keep_rate(size, is_over)
                copied += size
        await self._in_turn(move.target, lambda: move.catch_up(is_over=is_over))

    async def _catch_up_alone(self, move: Move, is_over: Callable[[], bool]) -> None:
        """Copy what came during the last round, while appends to the partition wait for it."""
        # Not within the turn of another move: that may take long.
        async with self._turns.setdefault(move.target, asyncio.Lock()):
            if not is_over():
                with self._replicas.holding(move.source.partition):
                    await self._to_its_end(lambda: move.catch_up(is_over=is_over))

    async def _keep_rate(self, size: int, is_over: Callable[[], bool]) -> None:
        asked = self._throttle.ask(size)
        # No thread is kept waiting: others need them, for flushes and cold reads.
        while not is_over():
            left_s = self._throttle.seconds_until(asked)
            if left_s < CLOCK_TICK_S:
                break
            await asyncio.sleep(min(left_s, PAUSE_S_MAX))

    def _swap(self, move: Move) -> None:
        """One step of the loop: no append and no read comes in between.

        Raises:
            MoveError: a device refused.
        """
        partition, refused = move.source.partition, None
        try:
            move.swap(self._new_id().hex)
        except MoveError as error:
            if not error.has_moved:
                raise
            refused = error
        self._logs.exchange(partition, move.future, move.target)
        self._replicas.exchange(partition, move.future)
        move.hand_over()
        if refused is not None:
            raise refused
        logger.info(
            "partition_moved partition=%s source=%s target=%s",
            partition, move.home.path, move.target.path,
        )  # fmt: skip

    async def _in_turn(self, target: DirectoryLogs, step: Callable[[], T]) -> T:
        """Do a step on a thread when no other move to this directory does one."""
        async with self._turns.setdefault(target, asyncio.Lock()):
            return await self._to_its_end(step)

    async def _to_its_end(self, step: Callable[[], T]) -> T:
        """Do a step on a thread, and wait for it also when this is cancelled."""
        running = asyncio.ensure_future(self._threads.run(step))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.gather(running, return_exceptions=True)
            raise


def _tell_failed(partition: TopicPartition, target: DirectoryLogs, error: Exception) -> None:
    logger.error(
        "partition_not_moved partition=%s target=%s reason=%s", partition, target.path, error
    )
