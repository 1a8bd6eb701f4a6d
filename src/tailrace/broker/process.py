"""What a broker asks of its process: memory that is kept, signals heard."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable

from tailrace.broker.broker import start_broker
from tailrace.broker.config import BrokerConfig
from tailrace.errors import DirectoryError, StorageError, TailraceError
from tailrace.runtime import Runtime
from tailrace.runtime.files import raise_descriptor_limit
from tailrace.runtime.memory import keep_large_buffers

SWITCH_INTERVAL_S = 0.0002
"""Python's own 5 ms, four times in a request, would make 20 ms of each while a batch is walked."""


async def serve(config: BrokerConfig, runtime: Runtime, started: Callable[[str], None]) -> None:
    """Run a broker until SIGINT or SIGTERM, or until it cannot go on, and stop it in order.

    `started` is called with HOST:PORT when requests are taken.

    Raises:
        DirectoryError, StorageError, ListenError: as `start_broker`.
        DirectoryError: the log directories have failed while it ran.
        StorageError: a device failed while logs were closed.
    """
    keep_large_buffers()
    # A thread that computes keeps the loop waiting for so long, at each call of the system.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_descriptor_limit()
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked_to_stop.set)
    broker = await start_broker(config, runtime)
    # What is there now stays: to look at it again for garbage takes 30 ms each time.
    gc.freeze()
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
