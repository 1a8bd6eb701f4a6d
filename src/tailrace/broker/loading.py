"""Open every log when a broker starts, several at a time, and log the progress.

Each directory has its own workers (`num.recovery.threads.per.data.dir`), because they wait for its
disk. A directory that refuses goes out of service with all its partitions, and the others continue.
The same happens if a folder is damaged and recovery cannot repair it, as in Kafka. If the first
directory fails, the start fails with its reason.

A log is opened on a thread, and its topic's settings may change meanwhile. So they are looked up
again on the event loop, where they change, before the log is served.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from uuid import UUID

from tailrace.cluster.image import Topic
from tailrace.cluster.state import ClusterState
from tailrace.errors import StorageError
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas, directory_of
from tailrace.runtime.threads import Threads
from tailrace.storage.config import LogConfig, stored_log_config
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import LogManager
from tailrace.values import dataclass

logger = logging.getLogger(__name__)

PROGRESS_S = 1.0
"""Interval of the progress log lines; a shorter start logs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedPartition:
    """A partition to open."""

    partition: TopicPartition
    topic: Topic
    config: LogConfig
    """The topic's settings when the partition was queued."""
    directory_id: UUID | None
    """The log directory that controllers have assigned, if it has to be made."""


class Loading:
    """Opens the logs of one start, and counts them."""

    def __init__(
        self, logs: LogManager, replicas: Replicas, threads: Threads, *, thread_count: int
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._threads = threads
        self._thread_count = thread_count
        self._partition_count = 0
        self._done_count = 0
        self._done_bytes = 0
        self._is_given_up = False

    def words(self) -> str:
        """The progress, as a sentence for people."""
        return f"it recovers its logs: {self._done_count} of {self._partition_count} are open"

    async def open_all(self, cluster: ClusterState, *, node_id: int | None = None) -> None:
        """Open every partition of the image; those that cannot be opened are set offline.

        With `node_id` only those of which this node has a replica.

        Those without a folder are created, unless a directory that may have it is out of service.

        Raises:
            DirectoryError: a folder is of another topic.
        """
        queues: dict[DirectoryLogs | None, list[_QueuedPartition]] = {}
        is_shared = node_id is not None
        for topic in cluster.image.topics.values():
            config = stored_log_config(topic.configs, cluster.defaults.configs)
            states = cluster.metadata.topics[topic.topic_id].partitions if is_shared else {}
            for number in topic.partitions:
                if is_shared and node_id not in states[number].replicas:
                    continue
                partition = TopicPartition(topic.name, number)
                one = _QueuedPartition(
                    partition=partition,
                    topic=topic,
                    config=config,
                    directory_id=None if node_id is None else directory_of(states[number], node_id),
                )
                queues.setdefault(self._logs.directory_of(partition), []).append(one)
        self._warn(queues.get(None, []))
        self._partition_count = sum(map(len, queues.values()))
        found = [one.partition for queue in queues.values() for one in queue]
        progress = asyncio.ensure_future(self._log_progress(found))
        workers: list[asyncio.Task[None]] = []
        # One queue for each directory: its workers wait for its disk and hold up no other.
        for home, queue in queues.items():
            rest = iter(queue)
            # New folders are created one after the other: each goes where the fewest logs are.
            count = min(self._thread_count, len(queue)) if home is not None else 1
            workers += [
                asyncio.ensure_future(self._work(cluster, home, rest)) for _ in range(count)
            ]
        # Wait for all, also after a failure: a log must not be closed while a thread opens it.
        results = await asyncio.gather(*workers, return_exceptions=True)
        progress.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await progress
        for result in results:
            if result is not None:
                raise result

    async def _work(
        self, cluster: ClusterState, home: DirectoryLogs | None, rest: Iterator[_QueuedPartition]
    ) -> None:
        for one in rest:
            if self._is_given_up:
                return
            try:
                log = await self._threads.run(
                    lambda one=one: self._logs.open(  # type: ignore[misc]
                        one.partition,
                        topic_id=one.topic.topic_id,
                        config=one.config,
                        directory_id=one.directory_id,
                    )
                )
            except StorageError as error:
                # As in Kafka the whole directory goes, also for one folder beyond repair.
                if home is not None:
                    self._logs.fail(home, error)
                self._replicas.set_offline(one.partition, str(error))
                continue
            except BaseException:
                self._is_given_up = True
                raise
            # Its settings may have changed while a thread has opened it. Here, on the loop, where
            # they change, none can be missed.
            topic = cluster.image.topics[one.partition.topic]
            if topic is not one.topic:
                log.config = stored_log_config(topic.configs, cluster.defaults.configs)
            self._replicas.add(log)
            self._done_count += 1
            self._done_bytes += log.size

    def _warn(self, missing: list[_QueuedPartition]) -> None:
        if missing:
            logger.warning(
                "folders_missing partitions=%d first=%s action=%s",
                len(missing),
                missing[0].partition,
                "created empty, as after a crash while a topic is created"
                if self._logs.is_complete
                else "offline until the directories that may have them are back",
            )

    async def _log_progress(self, partitions: list[TopicPartition]) -> None:
        # A short start logs nothing, and asks no device for sizes.
        await asyncio.sleep(PROGRESS_S)
        total = await self._threads.run(lambda: sum(map(self._bytes_of, partitions)))
        while True:
            logger.info(
                "loading partitions_done=%d partitions=%d bytes_done=%d bytes=%d",
                self._done_count, self._partition_count, self._done_bytes, total,
            )  # fmt: skip
            await asyncio.sleep(PROGRESS_S)

    def _bytes_of(self, partition: TopicPartition) -> int:
        home = self._logs.directory_of(partition)
        # An error here must not stop the start; opening the folder raises it too.
        with contextlib.suppress(OSError):
            return 0 if home is None else home.bytes_of(partition)
        return 0
