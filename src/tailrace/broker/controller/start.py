"""Start a controller and no broker (`process.roles=controller`)."""

import asyncio
import logging
from typing import TYPE_CHECKING

from tailrace.broker.config import BrokerConfig
from tailrace.broker.controller.node import ControllerNode, ControllerStatistics
from tailrace.broker.monitoring import open_monitor
from tailrace.broker.monitoring.health import Health
from tailrace.broker.security import NodeSecurity
from tailrace.runtime.system import Runtime
from tailrace.storage.directories import LogDirectory, open_log_directories
from tailrace.storage.folder import Removals

if TYPE_CHECKING:
    from tailrace.broker.monitoring.listener import Monitor

logger = logging.getLogger(__name__)


class RunningController:
    """A controller on one event loop, which accepts requests; see `start_controller`."""

    def __init__(
        self,
        node: ControllerNode,
        directory: LogDirectory,
        runtime: Runtime,
        *,
        health: Health,
        monitor: "Monitor | None" = None,
    ) -> None:
        """`health` hears of the stop, and `monitor` is closed with the controller."""
        self.node = node
        self._health = health
        self._monitor = monitor
        self._directory = directory
        self._runtime = runtime

    @property
    def address(self) -> tuple[str, int]:
        """Host and port by which brokers reach it."""
        return self.node.address

    @property
    def addresses(self) -> str:
        """HOST:PORT, for people and for `controller.quorum.bootstrap.servers`."""
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, as `addresses`."""
        return self.addresses

    @property
    def listeners(self) -> str:
        """NAME://HOST:PORT of its listener."""
        return f"{self.node.listener_name}://{self.addresses}"

    async def wait_until_unfenced(self) -> None:
        """Return at once: controllers are not fenced."""

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def failed(self) -> asyncio.Event:
        """Set when the controller cannot continue: it must be stopped."""
        return self.node.failed

    @property
    def end_reason(self) -> str | None:
        """Why it cannot continue; None: it can."""
        return self.node.end_reason

    def statistics(self) -> ControllerStatistics:
        """The controller right now."""
        return self.node.statistics()

    async def stop(self) -> None:
        """Stop in order; all that was decided is on the device afterwards.

        Raises:
            OSError: the device failed; all that was acknowledged is on it already.
        """
        self._health.stops()
        try:
            await self.node.stop()
            if self.end_reason is None:
                await self._runtime.threads.run(self._directory.mark_clean)
        finally:
            self._directory.close()
            self._runtime.threads.close()
            if self._monitor is not None:
                self._monitor.close()

    def kill(self) -> None:
        """End as a killed process does, in one turn of the loop; the next start recovers."""
        self.node.kill()
        self._runtime.threads.close()
        self._directory.close()
        if self._monitor is not None:
            self._monitor.close()

    def leave_now(self) -> None:
        """Wait for nobody; a controller does not."""


async def start_controller(
    config: BrokerConfig, runtime: Runtime, *, health: Health | None = None
) -> RunningController:
    """Open the directory and listen; the controller accepts requests when this returns.

    A new directory becomes that of a new cluster. `health` is as for `start_broker`.

    Raises:
        DirectoryError: the directory cannot be used, or its state is not one to continue with.
        ListenError: the address cannot be used; the directory is released.
        ConfigError: a certificate, or another file of TLS, is not usable.
    """
    if config.ignored:
        logger.warning(
            "settings_ignored names=%s reason=a controller does not do what they ask for",
            ",".join(config.ignored),
        )
    health = health or Health()
    monitor = open_monitor(config, runtime, health)
    try:
        security = NodeSecurity(config, runtime)
        # Only that of the metadata log: a controller has no other logs (Kafka's takes all of them).
        opened = open_log_directories(
            runtime.files,
            (config.metadata_directory,),
            node_id=config.node_id,
            chance=runtime.chance,
        )
        [directory] = opened.usable
        node = ControllerNode(
            config,
            runtime,
            security,
            directory=directory,
            removals=Removals(runtime.files),
            times=None if monitor is None else monitor.times,
        )
        try:
            node.open()
            directory.take_mark()
            await node.start()
        except BaseException:
            node.kill()
            directory.close()
            raise
    except BaseException:
        if monitor is not None:
            monitor.close()
        raise
    if monitor is not None:
        monitor.controls(node)
    health.serves()
    return RunningController(node, directory, runtime, health=health, monitor=monitor)
