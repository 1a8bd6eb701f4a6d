"""The broker's cleaner at work: long steps on a worker thread, short ones on the loop.

What is cleaned, and how, is `storage.cleaner`. Here is only who does which step when.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from tailrace.errors import TailraceError
from tailrace.kernels.loading import load_beside
from tailrace.runtime.threads import Threads
from tailrace.storage.cleaner.worker import CleaningJob, LogCleaner

T = TypeVar("T")

logger = logging.getLogger(__name__)

LOAD_KERNELS_BYTES = 8 * 1024 * 1024
"""A log from this size on is cleaned faster with compiled kernels than they take to load."""


async def clean_regularly(
    cleaner: LogCleaner,
    threads: Threads,
    *,
    backoff_ms: int,
    device_failed: Callable[[CleaningJob, OSError], None],
) -> None:
    """Clean one log after the other, and look again every `backoff_ms` when none is due.

    Several may run at the same time (`log.cleaner.threads`): a log that one has taken is not there
    for the others. `device_failed` is told of an error of the device, with the job that met it.
    Ends only when it is cancelled, and not before a step that runs on a thread has ended, which it
    does at its next batch: until then it writes to the directory.
    """
    while True:
        # Weighing looks at every compacted log, but at facts in memory only.
        job = cleaner.next_job()
        if job is None:
            await asyncio.sleep(backoff_ms / 1000)
            continue
        try:
            await _clean(job, threads)
        except OSError as error:
            device_failed(job, error)
        except TailraceError:
            pass  # Told by the cleaner, which comes back to the log in its own time.
        except Exception:
            # The other logs must be cleaned all the same, and retention waits for this one's job.
            logger.exception("cleaning_broke_off partition=%s", job.log.partition)


async def _clean(job: CleaningJob, threads: Threads) -> None:
    try:
        if job.plan.total_bytes >= LOAD_KERNELS_BYTES:
            await threads.run(load_beside)
        for group in await _to_its_end(job, threads, job.map_keys):
            work = lambda group=group: job.rewrite(group)  # noqa: E731
            job.exchange(await _to_its_end(job, threads, work))
            await _to_its_end(job, threads, job.settle)
        await _to_its_end(job, threads, job.note_cleaned)
    except Exception as error:
        job.finish(error)
        raise
    job.finish()


async def _to_its_end(job: CleaningJob, threads: Threads, step: Callable[[], T]) -> T:
    """Do a step on a thread; a cancelled one is called off, and waited for all the same."""
    running = asyncio.ensure_future(threads.run(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        job.abort()
        # Whatever it raises now: the broker stops, and the next start mends a half exchange.
        await asyncio.gather(running, return_exceptions=True)
        raise
