"""`Service`: a node as systemd sees it, or another service manager with its protocol.

READY=1 is sent when the node may lead partitions, which is when `--print-ready` prints its line;
STATUS= has the sentences of /readyz; STOPPING=1 is sent when a stop begins.

WATCHDOG=1 is sent, at half of the time in which it is expected, only after both have moved on which
all requests depend: a job without content went through the worker threads, and the event loop took
its result. So a restart follows

    a loop that hangs      in a computation without an end, or in a write to a device that hangs
    threads that hang      all of them, in reads or flushes on a device that hangs

and does not follow one thread that hangs: a flush of gigabytes takes minutes on a slow device, and
a restart would begin it again. A log directory that returns errors is taken out of service already,
and controllers that are not reached are no reason, because a restart would not find them either.
"""

import asyncio
from typing import Final

from tailrace.broker.monitoring.health import Health
from tailrace.runtime.service_manager import ServiceManager
from tailrace.runtime.threads import Threads

STATUS_S: Final = 1.0
"""Pause between two looks at the state of the node."""


class Service:
    """Tells a service manager how a node is; on the node's event loop, from `start` on."""

    def __init__(self, manager: ServiceManager, health: Health, threads: Threads) -> None:
        self._manager = manager
        self._health = health
        self._threads = threads
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to send, if anybody receives it."""
        if self._manager.is_there:
            self._tasks = [asyncio.ensure_future(self._tell_status())]
            if self._manager.watchdog_s is not None:
                period_s = self._manager.watchdog_s / 2
                self._tasks.append(asyncio.ensure_future(self._keep_alive(period_s)))

    def ready(self) -> None:
        """The node may lead partitions."""
        self._manager.notify("READY=1", self._status())

    def stops(self) -> None:
        """The stop has begun; the watchdog counts on."""
        self._manager.notify("STOPPING=1")

    def close(self) -> None:
        """Send no more."""
        for task in self._tasks:
            task.cancel()
        self._manager.close()

    def _status(self) -> str:
        return f"STATUS={'; '.join(self._health.reasons()) or 'it serves'}"

    async def _tell_status(self) -> None:
        last = ""
        while True:
            status = self._status()
            if status != last:
                self._manager.notify(status)
                last = status
            await asyncio.sleep(STATUS_S)

    async def _keep_alive(self, period_s: float) -> None:
        while True:
            await self._threads.run(lambda: None)
            self._manager.notify("WATCHDOG=1")
            await asyncio.sleep(period_s)
