"""Run a broker or a controller as a process: signals, memory, and the limit of descriptors.

SIGHUP stops it in order as SIGTERM does, and as both stop Kafka. There is nothing to reload: the
log goes to stderr, and certificates are read again when their files change.

A stop has a limit (`tailrace.shutdown.timeout.ms`). Signals are received and the limit is kept on
threads of their own, since the event loop may hang on a device, and so may all others. Python joins
threads at its end; so at the limit the process ends by `os._exit`, which is to its files what a
kill is.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from tailrace.broker.config import BrokerConfig
from tailrace.broker.monitoring.health import Health
from tailrace.broker.service import Service
from tailrace.broker.start import StartAbandonedError, start_broker
from tailrace.broker.wiring import load_handler
from tailrace.errors import DirectoryError, TailraceError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.runtime.files import raise_descriptor_limit
from tailrace.runtime.interrupts import stop_signals_on_thread
from tailrace.runtime.memory import freeze_objects, freeze_what_survives, keep_large_buffers
from tailrace.runtime.service_manager import ServiceManager
from tailrace.runtime.system import Runtime
from tailrace.runtime.threads import Threads

if TYPE_CHECKING:
    from tailrace.broker.broker import RunningBroker
    from tailrace.broker.controller.start import RunningController

    Node = RunningBroker | RunningController

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0002
"""Python's default of 5 ms, waited for four times in a request, would add 20 ms to each request
while another thread decodes a long one."""

EXIT_NOT_IN_ORDER = 6
"""Exit code of a node that ran and could not continue, or not stop in order."""

SECOND_SIGNAL_S = 1.0
"""Time after which a further signal is another one, and not the same by two ways."""

IMPORTED_AHEAD = (
    "tailrace.protocol.decoders",
    "tailrace.protocol.encoders",
    "tailrace.handlers.repeated_produce",
    "tailrace.handlers.repeated_commit",
)
"""Modules that every request or every batch needs, or every producer or consumer."""
ASKED_FIRST = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH)
"""APIs that every client uses. They are loaded before the others: a request that comes before its
API is loaded imports it on the loop, which takes 3 to 13 ms."""


class NodeFailedError(DirectoryError):
    """A node that ran could not continue, or not stop in order; the next start recovers."""


async def serve(
    config: BrokerConfig,
    runtime: Runtime,
    *,
    manager: ServiceManager,
    started: Callable[["Node"], None],
    ready: Callable[["Node"], None] = lambda _: None,
) -> None:
    """Run a node until one of `stop_signals`, or until it fails, and stop it in order.

    At a start it ends the wait for controllers. A second signal, from a second after the first on,
    ends the wait for controllers that have to find other leaders; the logs are closed in order all
    the same. What takes longer than `tailrace.shutdown.timeout.ms` is broken off: the process ends
    with `EXIT_NOT_IN_ORDER`.

    `started` is called when the node accepts requests, and `ready` when the controllers also let it
    lead partitions. `manager` hears of both, and of the state meanwhile; see `Service`.

    Raises:
        DirectoryError, StorageError, ListenError: as `start_broker` and `start_controller`.
        RegistrationError: as `start_broker`.
        NodeFailedError: the directory of the metadata log has failed while it ran, or every other;
            or a device while logs were closed.
    """
    keep_large_buffers()
    # The loop waits for this interval after each system call while another thread computes.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    freeze_what_survives()
    # Each segment, each index and each connection has one.
    raise_descriptor_limit()
    health = Health()
    service = Service(manager, health, runtime.threads)
    service.start()
    stopping = _Stopping(config)
    try:
        with stop_signals_on_thread(stopping.signalled):
            await _run(
                config, runtime, stopping, service=service, health=health, started=started,
                ready=ready,
            )  # fmt: skip
    finally:
        service.close()
        stopping.end()


async def _run(
    config: BrokerConfig,
    runtime: Runtime,
    stopping: "_Stopping",
    *,
    service: Service,
    health: Health,
    started: Callable[["Node"], None],
    ready: Callable[["Node"], None],
) -> None:
    try:
        broker = await _start(config, runtime, asked_to_stop=stopping.asked, health=health)
    except StartAbandonedError as error:
        logger.info("start_abandoned node=%d reason=%s", config.node_id, error)
        return

    def when_ready(node: "Node") -> None:
        service.ready()
        ready(node)

    # Exclude the objects of the start from garbage collection: a pass over them takes 30 ms.
    freeze_objects()
    started(broker)
    becoming_ready = asyncio.ensure_future(_when_ready(broker, when_ready))
    # Beside serving, so that a start does not wait for APIs that nobody may ask for (decision 24).
    ahead = asyncio.ensure_future(_load_ahead(runtime.threads, config))
    ends = [asyncio.ensure_future(event.wait()) for event in (stopping.asked, broker.failed)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in (*ends, becoming_ready):
        end.cancel()
    stopping.begin()
    service.stops()
    # A terminal and what runs the broker under it may both pass the same Ctrl-C on.
    loop = asyncio.get_running_loop()
    again = loop.call_later(SECOND_SIGNAL_S, stopping.acts.append, broker.leave_now)
    # A thread cannot be interrupted in an import.
    await asyncio.wait([ahead])
    try:
        await broker.stop()
    except TailraceError:
        raise
    except OSError as error:
        raise NodeFailedError(
            f"the stop was not orderly ({error}); the next start recovers"
        ) from error
    finally:
        again.cancel()
    if broker.failed.is_set():
        raise NodeFailedError(f"stopped: {broker.end_reason}")


async def _when_ready(node: "Node", ready: Callable[["Node"], None]) -> None:
    await node.wait_until_unfenced()
    ready(node)


class _Stopping:
    """The stop of a node: who asks for it, and how long it may take."""

    def __init__(self, config: BrokerConfig) -> None:
        self.asked = asyncio.Event()
        """Set by the first signal."""
        self.acts: list[Callable[[], None]] = [self.asked.set]
        """The last one is called, on the loop, at each signal."""
        self._node_id, self._timeout_s = config.node_id, config.shutdown_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._limit = threading.Timer(self._timeout_s, self._break_off)
        self._limit.daemon = True

    def signalled(self, number: signal.Signals) -> None:
        """A signal has come; on a thread of its own."""
        # From here on: a start that opens logs continues until it has them, and the loop may hang.
        self.begin()
        with suppress(RuntimeError):  # The loop is closed: the process ends already.
            self._loop.call_soon_threadsafe(self._act, number)

    def begin(self) -> None:
        """Count the time from now on, if it is not counted yet."""
        with suppress(RuntimeError):  # A thread can be started once.
            self._limit.start()

    def end(self) -> None:
        """The stop is done."""
        self._limit.cancel()

    def _act(self, number: signal.Signals) -> None:
        logger.info("stop_asked_for node=%d signal=%s", self._node_id, number.name)
        self.acts[-1]()

    def _break_off(self) -> None:
        logger.error(
            "stop_broken_off node=%d after_s=%g reason=%s consequence=%s next=%s",
            self._node_id, self._timeout_s, "it was not done within tailrace.shutdown.timeout.ms",
            "directories that were not closed have no mark of a clean shutdown, and the next start "
            "recovers their logs; what was acknowledged is in the files",
            "look for a device that hangs, or give it more time",
        )  # fmt: skip
        os._exit(EXIT_NOT_IN_ORDER)


async def _start(
    config: BrokerConfig, runtime: Runtime, *, asked_to_stop: asyncio.Event, health: Health
) -> "Node":
    if config.is_broker:
        return await start_broker(config, runtime, asked_to_stop=asked_to_stop, health=health)
    # Imported here: a broker alone needs nothing of it.
    from tailrace.broker.controller.start import start_controller

    return await start_controller(config, runtime, health=health)


async def _load_ahead(threads: Threads, config: BrokerConfig) -> None:
    """Import all APIs beside the running node, so that no request does it on the loop."""

    def load() -> None:
        if config.controller_listener is not None:
            # The controller has its rules already; what is left are the classes of messages.
            from tailrace.broker.controller.node import SERVED

            for api in SERVED.values():
                import_module(api.request.__module__)
        if not config.is_broker:
            return
        for name in IMPORTED_AHEAD:
            import_module(name)
        for key in (*ASKED_FIRST, *APIS):
            load_handler(key)

    await threads.run(load)
    freeze_objects()
