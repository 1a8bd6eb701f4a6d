"""What a broker asks of its process: memory that is kept, signals heard."""

import asyncio
import contextlib
import ctypes
import signal
from collections.abc import Callable

from tailrace.broker.broker import start_broker
from tailrace.broker.config import BrokerConfig
from tailrace.errors import DirectoryError, StorageError, TailraceError
from tailrace.runtime import Runtime
from tailrace.runtime.files import raise_descriptor_limit

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGE_BUFFER_BYTES = 32 * 1024 * 1024
"""The largest threshold that glibc takes for sure (half of HEAP_MAX_SIZE on 64 bits)."""


def keep_large_buffers() -> None:
    """Have glibc reuse large blocks instead of giving each back to the kernel.

    A 1 MB buffer otherwise costs 256 page faults every time, two to three times the work of
    receiving it. Other C libraries have no `mallopt`, and no such trouble.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE_BUFFER_BYTES)


async def serve(config: BrokerConfig, runtime: Runtime, started: Callable[[str], None]) -> None:
    """Run a broker until SIGINT or SIGTERM, or until it cannot go on, and stop it in order.

    `started` is called with HOST:PORT when requests are taken.

    Raises:
        DirectoryError, StorageError, ListenError: as `start_broker`.
        DirectoryError: the log directories have failed while it ran.
        StorageError: a device failed while logs were closed.
    """
    keep_large_buffers()
    raise_descriptor_limit()
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop.set)
    broker = await start_broker(config, runtime)
    started(broker.bootstrap_servers)
    ends = [asyncio.ensure_future(event.wait()) for event in (asked_to_stop, broker.failed)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    try:
        await broker.stop()
    except TailraceError:
        raise
    except OSError as error:
        raise StorageError(
            f"the stop was not orderly ({error}); the next start recovers"
        ) from error
    if broker.failed.is_set():
        raise DirectoryError(f"stopped: {broker.logs.directories[0].failure}")
