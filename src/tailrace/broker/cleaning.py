"""Run the log cleaner in a broker: long steps on a worker thread, short ones on the event loop.

The steps themselves are in `storage.cleaner`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from tailrace.errors import TailraceError
from tailrace.runtime.threads import Threads
from tailrace.storage.cleaner.worker import CleaningJob, LogCleaner

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def clean_regularly(
    cleaner: LogCleaner,
    threads: Threads,
    *,
    backoff_ms: Callable[[], int | None],
    device_failed: Callable[[CleaningJob, OSError], None],
) -> None:
    """Clean one log after the other; if none is due, check again after `backoff_ms()`.

    Ends between two logs when that is None. Several may run at the same time
    (`log.cleaner.threads`), each with another log. `device_failed` is called with an OSError and
    its job. Ends when it is cancelled, after the running step on a thread has ended (at its next
    run of batches), because the step writes to the directory.
    """
    while (rest_ms := backoff_ms()) is not None:
        # Planning uses facts in memory only, so it can run on the loop.
        job = cleaner.next_job()
        if job is None:
            await asyncio.sleep(rest_ms / 1000)
            continue
        try:
            await _clean(job, threads)
        except OSError as error:
            # Closing files is for the loop, and this coroutine runs there.
            device_failed(job, error)
        except TailraceError:
            pass  # The cleaner has logged it, and retries the log later.
        except Exception:
            # Continue with the other logs; the job is finished, so that retention can go on.
            logger.exception("cleaning_broke_off partition=%s", job.log.partition)


async def _clean(job: CleaningJob, threads: Threads) -> None:
    try:
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
    """Run a step on a thread; on cancellation abort the job, and wait for the step's end."""
    running = asyncio.ensure_future(threads.run(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # A thread cannot be interrupted: it looks at the abort between two runs of batches. The
        # directory must not be unlocked while it writes.
        job.abort()
        # Ignore its error: the broker stops, and the next start completes a partial exchange.
        await asyncio.gather(running, return_exceptions=True)
        raise
