"""`ProducerIds`: producer ids that no other broker of the cluster gives (KIP-730).

    the block in use   1000 ─────────────── 1900 ───► 2000     the next one is asked for at 1900
    the next block     7000 ────────────────────────► 8000     others may have those between

A controller writes into the metadata log that a block is given before it answers, so an id is given
once in the life of the cluster. A log that knew an id of two producers would drop the records of
the second as repeated.

After a crash: the rest of the blocks is lost, and never given.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tailrace.broker.kraft.channel import Asker, ControllerChannel
from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.model import ProducerId
from tailrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

logger = logging.getLogger(__name__)

WAIT_S: Final = 1.0
"""Longest wait for a block, after which the client asks again. Kafka's clients ask at once and get
an error; most controllers answer in a few ms."""
PREFETCH_AT: Final = 0.9
"""Part of a block after which the next one is asked for, as in Kafka's RPCProducerIdManager."""
AGAIN_S: Final = 0.05
"""Pause after an attempt without a block; Kafka's constant."""
ATTEMPT_TIMEOUT_MS: Final = 60_000

_ID_MAX: Final = 2**63 - 1


class ProducerIds:
    """Gives producer ids from blocks of the controllers; for one loop."""

    def __init__(
        self, channel: ControllerChannel, *, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        """`broker_epoch` gives the epoch of the registration now."""
        self._asker = Asker(channel, logger, lambda: "producer_ids_refused")
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block = range(0)
        """The ids of the current block that are left."""
        self._prefetch_at = -1
        """The id at which the next block is asked for."""
        self._next_block: range | None = None
        self._limit = 0
        """One above the highest id of all blocks so far."""
        self._asking: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Ask for a block before the first producer: later the controllers may be away."""
        if not self._block and self._next_block is None:
            self._ask()

    async def next(self) -> ProducerId:
        """An id that was given to nobody before.

        Raises:
            CoordinatorLoadInProgressError: no controller has given a block in time. Clients of all
                ages ask again then, where they take a time-out for the end.
        """
        if not self._block and self._next_block is None:
            asking = self._ask()
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    # Others wait for the same block, so a cancelled caller ends no attempt.
                    await asyncio.shield(asking)
        if not self._block:
            # Without a wait from here on: no other caller can come between.
            if self._next_block is None:
                raise CoordinatorLoadInProgressError(
                    "the controllers have given no producer ids yet; ask again"
                )
            self._block, self._next_block = self._next_block, None
            self._prefetch_at = self._block.start + int(len(self._block) * PREFETCH_AT)
        found, self._block = self._block[0], self._block[1:]
        if found == self._prefetch_at:
            self._ask()
        return ProducerId(found)

    def close(self) -> None:
        """Ask for no more; the ids that are left are lost."""
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> "asyncio.Task[None]":
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._fetch())
        return self._asking

    async def _fetch(self) -> None:
        """Ask until there is a next block; one attempt at a time."""
        while self._next_block is None:
            request = AllocateProducerIdsRequest(
                broker_id=self._broker_id, broker_epoch=self._broker_epoch()
            )
            answer = await self._asker.ask(
                request, AllocateProducerIdsResponse, timeout_ms=ATTEMPT_TIMEOUT_MS
            )
            if answer is not None and self._take(answer):
                return
            await asyncio.sleep(AGAIN_S)

    def _take(self, answer: AllocateProducerIdsResponse) -> bool:
        """Keep the block of an answer; False if it has none that could be used."""
        start, count = answer.producer_id_start, answer.producer_id_len
        if start < 0 or count <= 0 or start > _ID_MAX - count:
            self._asker.failed(f"a controller gives producer ids from {start} on, {count} of them")
        # Whether another broker has them cannot be known; that this one has had them, can.
        elif start < self._limit:
            self._asker.failed(
                f"a controller gives producer ids from {start} on, and this broker has had those "
                f"below {self._limit}: its metadata log has gone back"
            )
        else:
            self._next_block = range(start, start + count)
            self._limit = start + count
            self._asker.succeeded()
            return True
        return False
