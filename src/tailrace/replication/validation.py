"""Check batches before their append, on the event loop or on a worker thread.

    short                      on the loop, within its budget of 5 ms (decision 23)
    up to 1 MiB of records     the quick lane: two threads
    more                       the heavy lane: one thread, on compiled kernels

The decompressed size of a batch is not known in advance, so each compressed batch is tried where
its compressed size allows it, with a limit on what it may give. If it exceeds the limit it is
checked again in the next lane. Ten kilobytes can hold eighteen million records: one thread takes
half a second for them, and meanwhile only other batches of the heavy lane wait. The lanes also
limit the memory for decompressed records: twice 1 MiB, and once the whole limit.

The caller appends on the loop, so that each log has one writer, and producer sequences are checked
there.
"""

from contextlib import suppress
from typing import Final

from tailrace import kernels
from tailrace.kernels.loading import load_beside
from tailrace.model import NO_LEADER_EPOCH
from tailrace.records.codecs import DecompressedTooLargeError
from tailrace.records.layout import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE
from tailrace.runtime.files import Buffer
from tailrace.runtime.threads import BoundedThreads, Threads
from tailrace.storage.appends import PlannedAppend, plan_append
from tailrace.storage.log import Log

PLAIN_BYTES_MAX: Final = 8 * 1024
"""Most bytes that plain Python checks on the loop: 4000 records of two bytes take some 4 ms."""

COMPILED_BYTES_MAX: Final = 1024 * 1024
"""The same for compiled kernels, which take 2 ms for half a million headers."""

PACKED_BYTES_MAX: Final = 64 * 1024
"""Most bytes of a compressed batch that is tried on the loop."""

UNPACKED_BYTES_MAX: Final = 256 * 1024
"""Most bytes that it may give there to compiled kernels. The slowest codec, gzip, takes 1 ms for
them; a hand-off to a thread and back takes 0.1 ms, and more while the loop has other work."""

QUICK_BYTES_MAX: Final = 1024 * 1024
"""Most decompressed bytes in the quick lane; plain Python takes half a second at worst."""

QUICK_COUNT: Final = 2
"""Batches at a time in the quick lane."""


def is_short(records: Buffer, *, before: int = 0) -> bool:
    """Whether a batch can be appended on the event loop within its budget.

    `before` are the bytes of batches that are appended in the same step.
    """
    size_max = COMPILED_BYTES_MAX if kernels.walk_records.is_compiled else PLAIN_BYTES_MAX
    if len(records) < HEADER_SIZE:
        return True  # It is refused because of its size.
    return before + len(records) <= size_max and not _is_compressed(records)


def _is_compressed(records: Buffer) -> bool:
    return bool(records[ATTRIBUTES_POSITION + 1] & CODEC_MASK)


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
        # A topic with a codec of its own has batches compressed again, which may take long.
        if (
            len(records) <= PACKED_BYTES_MAX
            and log.config.codec is None
            and _is_compressed(records)
        ):
            unpacked_max = (
                UNPACKED_BYTES_MAX if kernels.walk_records.is_compiled else PLAIN_BYTES_MAX
            )
            with suppress(DecompressedTooLargeError):
                return _plan(log, records, now_ms=now_ms, decompressed_max=unpacked_max)
        try:
            return await self._quick.run(
                lambda: _plan(log, records, now_ms=now_ms, decompressed_max=QUICK_BYTES_MAX)
            )
        except DecompressedTooLargeError:
            return await self._heavy.run(lambda: _plan_heavy(log, records, now_ms=now_ms))


def _plan_heavy(log: Log, records: memoryview, *, now_ms: int) -> PlannedAppend:
    load_beside(kernels.walk_records, kernels.list_refused)
    return _plan(log, records, now_ms=now_ms, decompressed_max=None)


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
