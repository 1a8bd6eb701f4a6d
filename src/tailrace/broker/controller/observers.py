"""`Observers`: the brokers and other nodes that follow the log of a controller, and their requests.

    Fetch            records at once, or when there are some; a later epoch, if one is known there
    FetchSnapshot    a part of a snapshot
    DescribeQuorum   with the last Fetch of each

Not here: what an answer says (`log_answers`).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from tailrace.broker.controller.log_answers import (
    Quorum,
    SeenObserver,
    differing,
    fetch_answer,
    is_due,
    later_epoch,
    quorum_answer,
    snapshot_answer,
)
from tailrace.broker.controller.log_writer import LogWriter, NotWrittenError
from tailrace.protocol.answers import CloseConnectionError, Handled
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_quorum import DescribeQuorumRequest
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse
from tailrace.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from tailrace.runtime.system import Runtime

logger = logging.getLogger(__name__)

SNAPSHOT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Most bytes of a snapshot in one answer, whatever the observer asks for: it is held in memory."""
LAG_BY_THREAD: Final = 10_000
"""An observer that lags by more records reads what the page cache may not have, so on a thread."""
OBSERVERS_MAX: Final = 1000
"""Most observers that are remembered: an id is what a peer says it is."""
OBSERVER_MS: Final = 300_000
"""Time for which an observer is remembered that fetches no more, as in Kafka."""


class Observers:
    """The observers of one log, from its start on; for one loop."""

    def __init__(
        self,
        writer: Callable[[], LogWriter],
        runtime: Runtime,
        *,
        quorum: Callable[[], Quorum],
        lead_above: Callable[[int], int],
        wait_ms_max: int,
    ) -> None:
        """`writer` and `quorum` are those of a controller that has started.

        `lead_above` has it lead a later epoch than this one, unless it is about to: from when the
        log is on the device up to the offset that it returns. It raises NotWrittenError.
        """
        self._writer = writer
        self._runtime = runtime
        self._quorum = quorum
        self._lead_above = lead_above
        self._wait_ms_max = wait_ms_max
        self._seen: dict[int, SeenObserver] = {}
        self._differing: set[int] = set()
        """Observers whose other log was reported."""

    def __len__(self) -> int:
        """The number of those that are remembered."""
        return len(self._seen)

    def fetch(self, _: RequestHeader, request: FetchRequest) -> Handled:
        """Answer a Fetch of the log, now or when it is due."""
        quorum = self._quorum()
        self._note(request)
        self._say_if_differing(quorum, request)
        known = later_epoch(quorum, request)
        if known is not None:
            return self._fetch_in_later_epoch(known, request)
        if not is_due(quorum, request):
            return self._fetch_later(request)
        offsets = [each.fetch_offset for topic in request.topics for each in topic.partitions]
        if max(offsets, default=0) + LAG_BY_THREAD < self._writer().watermark:
            return self._runtime.threads.run(partial(fetch_answer, quorum, request))
        return fetch_answer(quorum, request)

    def fetch_snapshot(self, _: RequestHeader, request: FetchSnapshotRequest) -> Handled:
        """Answer a FetchSnapshot, from a thread."""
        make = partial(snapshot_answer, self._quorum(), request, size_max=SNAPSHOT_BYTES_MAX)
        return self._runtime.threads.run(make)

    def describe_quorum(self, _: RequestHeader, request: DescribeQuorumRequest) -> Handled:
        """Answer a DescribeQuorum."""
        now_ms = self._runtime.clock.now_ms()
        for observer, seen in tuple(self._seen.items()):
            if seen.at_ms + OBSERVER_MS < now_ms:
                del self._seen[observer]
        return quorum_answer(self._quorum(), request, observers=self._seen, now_ms=now_ms)

    async def _fetch_in_later_epoch(self, known: int, request: FetchRequest) -> FetchResponse:
        # The only voter may begin any epoch by itself, and nothing that the observer has is missing
        # here: an older copy of this log has led in that epoch.
        try:
            await self._writer().written(self._lead_above(known))
        except NotWrittenError:
            raise CloseConnectionError("the controller ends") from None
        return fetch_answer(self._quorum(), request)

    async def _fetch_later(self, request: FetchRequest) -> FetchResponse:
        writer, wait_ms = self._writer(), min(request.max_wait_ms, self._wait_ms_max)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not is_due(self._quorum(), request):
                    if writer.is_closed:
                        raise CloseConnectionError("the controller ends")
                    await writer.changed()
        except TimeoutError:
            pass
        return fetch_answer(self._quorum(), request)

    def _say_if_differing(self, quorum: Quorum, request: FetchRequest) -> None:
        observer = request.replica_state.replica_id
        if observer in self._differing or len(self._differing) >= OBSERVERS_MAX:
            return
        asked = differing(quorum, request)
        if asked is None:
            return
        self._differing.add(observer)
        # Not an end of this node: the observer may be the one that has followed an older copy.
        logger.warning(
            "observer_differs observer=%d its_end=%d its_epoch=%d log_end=%d meaning=%s next=%s",
            observer, asked.fetch_offset, asked.last_fetched_epoch, quorum.log.end_offset,
            "if several say so, the log of this controller was restored from an older copy",
            "then stop it, and put the log of one of them in its place",
        )  # fmt: skip

    def _note(self, request: FetchRequest) -> None:
        observer = max(request.replica_id, request.replica_state.replica_id)
        named = [each for topic in request.topics for each in topic.partitions]
        if observer < 0 or len(named) != 1:
            return
        now_ms, end_offset = self._runtime.clock.now_ms(), self._writer().watermark
        known = self._seen.pop(observer, None)
        offset = named[0].fetch_offset
        caught_up_ms = -1 if known is None else known.caught_up_ms
        if offset >= end_offset:
            caught_up_ms = now_ms
        # At the end: the first is the one that has been silent for longest.
        self._seen[observer] = SeenObserver(
            offset, now_ms, caught_up_ms, named[0].replica_directory_id
        )
        while len(self._seen) > OBSERVERS_MAX:
            del self._seen[next(iter(self._seen))]
