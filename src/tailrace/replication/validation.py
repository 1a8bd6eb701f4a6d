"""Check batches before their append, on the event loop or on a worker thread.

    short                      on the loop, within its budget of 5 ms (decision 23)
    up to 1 MiB of records     the quick lane: two threads
    more                       the heavy lane: one thread

The decompressed size of a batch is not known in advance, so each compressed batch is tried where
its compressed size allows it, with a limit on what it may give. If it exceeds the limit it is
checked again in the next lane. Ten kilobytes can hold eighteen million records: one thread takes
half a second for them, and meanwhile only other batches of the heavy lane wait. The lanes also
limit the memory for decompressed records: twice 1 MiB, and once the whole limit.

A topic with a codec of its own (`compression.type`) has batches compressed again, which takes
longer than all checks. So what the loop compresses is limited by codec and level.

The caller appends on the loop, so that each log has one writer, and producer sequences are checked
there.
"""

import math
from contextlib import suppress
from typing import Final

from tailrace.model import NO_LEADER_EPOCH, Codec
from tailrace.records.codecs import LEVELS, DecompressedTooLargeError
from tailrace.records.layout import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE
from tailrace.runtime.files import Buffer
from tailrace.runtime.threads import BoundedThreads, Threads
from tailrace.storage.appends import PlannedAppend, plan_append
from tailrace.storage.config import LogConfig
from tailrace.storage.log import Log

SHORT_BYTES_MAX: Final = 1024 * 1024
"""Most bytes that are checked on the loop: it takes 2 ms for half a million headers."""

PACKED_BYTES_MAX: Final = 64 * 1024
"""Most bytes of a compressed batch that is tried on the loop."""

PACKED_AGAIN_BYTES_MAX: Final = {
    Codec.GZIP: 32 * 1024,
    Codec.SNAPPY: 1024 * 1024,
    Codec.LZ4: 256 * 1024,
    Codec.ZSTD: 128 * 1024,
}
"""Most bytes that the loop compresses with the codec of their topic, at Kafka's level: each takes
0.3 to 1 ms for what suits the codec least, where a mebibyte takes gzip 28 ms."""

SLOWER_LEVELS: Final = 32
"""Above Kafka's level the loop compresses that many times less: level 19 of zstd takes so much
longer."""

UNPACKED_BYTES_MAX: Final = 256 * 1024
"""Most bytes that it may give there. The slowest codec, gzip, takes 1 ms for them; a hand-off to a
thread and back takes 0.1 ms, and more while the loop has other work."""

QUICK_BYTES_MAX: Final = 1024 * 1024
"""Most decompressed bytes in the quick lane, which take 2 ms besides the codec's work."""

QUICK_COUNT: Final = 2
"""Batches at a time in the quick lane."""


def loop_share(records: Buffer, config: LogConfig | None) -> float:
    """The part of the budget that appending a batch on the event loop takes; above 1: too long.

    `config` are the settings of its topic, None if that is not known: it is refused then. Shares of
    batches that are appended in the same step add up.
    """
    size = len(records)
    if size < HEADER_SIZE:
        return 0.0  # It is refused because of its size.
    if _codec_of(records):
        return math.inf
    share = size / SHORT_BYTES_MAX
    return share if config is None else share + size / _packed_again_max(config, records)


def _packed_again_max(config: LogConfig, records: Buffer) -> float:
    """Most decompressed bytes that the loop compresses for the topic; inf if it need not."""
    codec = config.codec
    if codec is None or codec is Codec.NONE or codec == _codec_of(records):
        return math.inf
    levels = LEVELS.get(codec)
    is_slower = levels is not None and config.compression_levels[codec] > levels.default
    return PACKED_AGAIN_BYTES_MAX[codec] / (SLOWER_LEVELS if is_slower else 1)


def _codec_of(records: Buffer) -> int:
    return int(records[ATTRIBUTES_POSITION + 1]) & CODEC_MASK


class BatchValidation:
    """Checks batches on worker threads, in a quick and a heavy lane."""

    def __init__(self, threads: Threads) -> None:
        self._quick = BoundedThreads(threads, QUICK_COUNT)
        self._heavy = BoundedThreads(threads, 1)

    async def plan(self, log: Log, records: memoryview, *, now_ms: int) -> PlannedAppend:
        """The plan of `plan_append` for a client's batch, without blocking the event loop.

        A small compressed batch does not wait. The caller passes the plan to
        `Log.append_planned`. Raises as `plan_append`.
        """
        # Nobody knows how much a batch gives before it is tried: here with little, then with more.
        if len(records) <= PACKED_BYTES_MAX and _codec_of(records):
            unpacked_max = int(min(UNPACKED_BYTES_MAX, _packed_again_max(log.config, records)))
            with suppress(DecompressedTooLargeError):
                return _plan(log, records, now_ms=now_ms, decompressed_max=unpacked_max)
        try:
            return await self._quick.run(
                lambda: _plan(log, records, now_ms=now_ms, decompressed_max=QUICK_BYTES_MAX)
            )
        except DecompressedTooLargeError:
            # Ten kilobytes can hold eighteen million records. One thread takes half a second for
            # them, and meanwhile only other batches like this wait.
            return await self._heavy.run(
                lambda: _plan(log, records, now_ms=now_ms, decompressed_max=None)
            )


def _plan(
    log: Log, records: memoryview, *, now_ms: int, decompressed_max: int | None
) -> PlannedAppend:
    return plan_append(
        records,
        config=log.config,
        next_offset=log.end_offset,
        leader_epoch=NO_LEADER_EPOCH,
        now_ms=now_ms,
        decompressed_max=decompressed_max,
    )
