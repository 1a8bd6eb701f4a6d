"""Start and stop: the order in which a broker comes up and goes down.

    up    lock and read the directory -> open every log -> listen -> the rest, beside serving
    down  close the port and connections -> sync and close every log -> leave the clean mark

A broker takes requests before it has compiled anything: the walk over produced records runs on
plain Python until it has done as much work as loading Numba costs (`kernels.worth_loading`).
"""

import asyncio
import contextlib
import logging
import socket
import uuid

from tailrace import kernels
from tailrace.broker.config import BrokerConfig
from tailrace.broker.wiring import handler_table
from tailrace.cluster.controller import Controller
from tailrace.cluster.store import LocalStore
from tailrace.handlers.services import Services
from tailrace.handlers.topics import open_topics
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.runtime import Runtime
from tailrace.server.dispatch import Dispatcher
from tailrace.server.listener import Server, ServerStatistics
from tailrace.storage.directories import LogDirectory, open_log_directory
from tailrace.storage.manager import LogManager

logger = logging.getLogger(__name__)

KERNEL_CHECK_S = 1.0
"""How often a broker asks whether compiled kernels are worth loading."""

WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


class RunningBroker:
    """A broker that takes requests, on the running event loop; `start_broker` makes it."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        runtime: Runtime,
        directory: LogDirectory,
        logs: LogManager,
        controller: Controller,
        replicas: Replicas,
    ) -> None:
        self.config = config
        self.controller = controller
        self.replicas = replicas
        self._runtime = runtime
        self._directory = directory
        self._logs = logs
        services = Services(
            node_id=config.node_id,
            cluster_id=directory.identity.cluster_id,
            endpoint=lambda: self.endpoint,
            controller=controller,
            replicas=replicas,
            clock=runtime.clock,
            threads=runtime.threads,
            auto_create_topics=config.auto_create_topics,
            fetch_bytes_max=config.fetch_bytes_max,
        )
        self._server = Server(
            runtime.network,
            Dispatcher(handler_table(services)),
            address=(config.host, config.port),
            frame_bytes_max=config.frame_bytes_max,
            idle_ms_max=config.idle_ms_max,
        )
        self._tasks = [
            asyncio.ensure_future(self._checkpoint_regularly()),
            asyncio.ensure_future(self._load_kernels_when_worth_it()),
        ]

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port that clients are told to connect to."""
        if self.config.advertised is not None:
            host, port = self.config.advertised
            return host, port or self._server.port
        host = self._server.host
        return (socket.gethostname() if host in WILDCARDS else host), self._server.port

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for `bootstrap.servers`."""
        host, port = self.endpoint
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def statistics(self) -> ServerStatistics:
        """What the broker's server holds right now."""
        return self._server.statistics()

    async def stop(self) -> None:
        """Stop in order; every record that was acknowledged is on the device afterwards.

        Raises:
            OSError: the device failed; the next start recovers.
        """
        self._server.close()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        try:
            await self._runtime.threads.run(self._logs.close)
        finally:
            self._directory.close()
            self._runtime.threads.close()
        logger.info("broker_stopped node=%d", self.config.node_id)

    async def _checkpoint_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.config.checkpoint_interval_ms / 1000)
            try:
                await self._runtime.threads.run(self._logs.checkpoint)
            except OSError as error:
                # A failed fsync may not be tried again: what it left out is lost to the page
                # cache, and a second call would report success. So this is told, and not repeated.
                logger.error("checkpoint_failed path=%s reason=%s", self._directory.path, error)  # noqa: TRY400
                return

    async def _load_kernels_when_worth_it(self) -> None:
        while not kernels.worth_loading():  # noqa: ASYNC110 - the walk must not have to tell
            await asyncio.sleep(KERNEL_CHECK_S)
        await self._runtime.threads.run(kernels.load)
        logger.info("kernels_loaded")


def _existing_folders(
    logs: LogManager, controller: Controller
) -> dict[TopicPartition, uuid.UUID | None]:
    """The partition folders of the directory, without those of deleted topics, which go now."""
    folders = logs.find_partitions()
    for partition, topic_id in tuple(folders.items()):
        if topic_id in controller.image.deleted_topic_ids:
            logs.discard(partition)
            del folders[partition]
    return folders


async def start_broker(config: BrokerConfig, runtime: Runtime) -> RunningBroker:
    """Open the data directory and listen; the broker takes requests when this returns.

    Raises:
        DirectoryError, StorageError: the directory cannot be used.
        ListenError: the address cannot be had; the directory is released.
    """
    directory = open_log_directory(
        runtime.files,
        config.data,
        node_id=config.node_id,
        new_id=uuid.UUID(int=runtime.chance.getrandbits(128), version=4),
    )
    logs = LogManager(runtime.files, directory)
    try:
        controller = Controller(
            LocalStore(runtime.files, directory.path),
            chance=runtime.chance,
            defaults=config.topic_defaults,
        )
        replicas = Replicas(logs)
        controller.adopt(_existing_folders(logs, controller))
        await runtime.threads.run(lambda: open_topics(controller, replicas))
        broker = RunningBroker(
            config=config,
            runtime=runtime,
            directory=directory,
            logs=logs,
            controller=controller,
            replicas=replicas,
        )
    except BaseException:
        logs.abandon()
        directory.close()
        raise
    logger.info("broker_started node=%d listen=%s", config.node_id, broker.bootstrap_servers)
    return broker
