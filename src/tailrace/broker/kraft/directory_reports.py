"""`DirectoryReports`: which log directory each replica of this broker is in (KIP-858).

    assign(partition, directory) ─► queued ─ 100 ms ─► AssignReplicasToDirs, 2,250 in a request
                                      ▲ ─────────────── those without success, after a pause

The controllers need it where a broker has several directories: when one fails, they elect other
leaders for the partitions in it. The last directory counts that was reported for a partition.

After a crash: reports that were not sent are made again from the image, which has another directory
than the log is in.

Not here: when a replica is in a directory (`replication.moves`, and the start of the broker).
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.broker.kraft.channel import Asker, ControllerChannel
from tailrace.client.errors import error_words
from tailrace.client.nodes import Backoff
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

logger = logging.getLogger(__name__)

REPORTS_MAX: Final = 2250
"""Most partitions of a request; Kafka's limit, with which one of ten directories has 64 KB."""
ATTEMPT_TIMEOUT_MS: Final = 60_000
_PAUSE_MS: Final = 100
"""Pause before a request, so that it has more than one partition, and after the first failure."""
_PAUSE_MAX_MS: Final = 10_000

_Key = tuple[UUID, int]


class _Report(NamedTuple):
    name: TopicPartition
    directory: UUID
    done: Callable[[], None]


class DirectoryReports:
    """Reports directories of replicas to the controllers; for one loop."""

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        is_replica: Callable[[UUID, int], bool],
        chance: Random,
    ) -> None:
        """`is_replica` says whether this broker has a replica of a topic's partition, by the image.

        `broker_epoch` gives the epoch of the registration now.
        """
        self._asker = Asker(
            channel, logger, lambda: f"directory_reports_failed count={len(self._queued)}"
        )
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._is_replica = is_replica
        self._pauses = Backoff(_PAUSE_MS, _PAUSE_MAX_MS, chance)
        self._queued: dict[_Key, _Report] = {}
        self._sending: asyncio.Task[None] | None = None

    @property
    def pending_count(self) -> int:
        """Replicas whose directory no controller has accepted yet."""
        return len(self._queued)

    def assign(
        self,
        name: TopicPartition,
        topic_id: UUID,
        directory: UUID,
        *,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Report that this broker's replica is in a directory, or is about to be.

        `done` is called when a controller has accepted that; never, if another directory is
        reported before, or the broker has no such replica any more.
        """
        self._queued[topic_id, name.partition] = _Report(name, directory, done)
        if self._sending is None:
            self._begin()

    def close(self) -> None:
        """Send no more."""
        self._queued.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _begin(self) -> None:
        self._sending = asyncio.ensure_future(self._send_all())
        self._sending.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._sending = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # The next report begins again.
            logger.error("directory_reports_ended", exc_info=error)
        elif self._queued and not task.cancelled():
            # Reported between the task's last look and this call, which comes a turn later.
            self._begin()

    async def _send_all(self) -> None:
        failures = 0
        while self._queued:
            # A start reports thousands, which need not wait for more.
            if failures or len(self._queued) <= REPORTS_MAX:
                await asyncio.sleep(self._pauses.pause_s(max(failures - 1, 0)))
            sent = self._next()
            if not sent:
                continue
            answer = await self._asker.ask(
                self._request(sent), AssignReplicasToDirsResponse, timeout_ms=ATTEMPT_TIMEOUT_MS
            )
            if answer is not None and self._take(sent, answer):
                failures = 0
            else:
                failures += 1

    def _next(self) -> dict[_Key, _Report]:
        """The reports of the next request; those that no longer mean anything are dropped."""
        sent: dict[_Key, _Report] = {}
        for key, report in tuple(self._queued.items()):
            if len(sent) == REPORTS_MAX:
                break
            if self._is_replica(*key):
                sent[key] = report
            else:
                # The topic was deleted, or its replica is on another broker now.
                del self._queued[key]
        return sent

    def _request(self, sent: dict[_Key, _Report]) -> AssignReplicasToDirsRequest:
        directories: dict[UUID, dict[UUID, list[int]]] = {}
        for (topic_id, index), report in sent.items():
            directories.setdefault(report.directory, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=tuple(
                DirectoryData(
                    id=directory,
                    topics=tuple(
                        TopicData(
                            topic_id=topic_id,
                            partitions=tuple(
                                PartitionData(partition_index=each) for each in indices
                            ),
                        )
                        for topic_id, indices in topics.items()
                    ),
                )
                for directory, topics in directories.items()
            ),
        )

    def _take(self, sent: dict[_Key, _Report], answer: AssignReplicasToDirsResponse) -> bool:
        """Take the accepted ones from the queue; whether there was one, or nothing was asked."""
        accepted = 0
        codes = {
            (topic.topic_id, each.partition_index, directory.id): each.error_code
            for directory in answer.directories
            for topic in directory.topics
            for each in topic.partitions
        }
        refused: dict[int, TopicPartition] = {}
        for key, report in sent.items():
            code = codes.get((*key, report.directory))
            if code == ErrorCode.NONE:
                accepted += 1
                # Another directory may have been reported since.
                if self._queued.get(key) is report:
                    del self._queued[key]
                    report.done()
            else:
                refused.setdefault(
                    ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code, report.name
                )
        if refused:
            # One name for each code: there may be thousands of them.
            words = (f"{name}: {error_words(code)}" for code, name in refused.items())
            self._asker.failed("; ".join(words))
        else:
            self._asker.succeeded()
        return accepted > 0
