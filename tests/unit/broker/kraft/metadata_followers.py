"""A broker's side of a quorum on doubles: its log, and the task that follows the leader."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from tailrace.broker.kraft.metadata_fetch import MetadataFetch, Observer
from tailrace.broker.kraft.settings import MetadataFetchConfig
from tailrace.broker.peers import Peers
from tailrace.client.config import ClientConfig
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.folder import MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.image import ImageChange, MetadataImage
from tailrace.cluster.metadata.observer import ObserverLog, open_observer_log
from tailrace.storage.folder import Removals
from tailrace.testing import Outside
from tailrace.testing.controller import ScriptedController
from tests.unit.cluster.metadata_logs import DIRECTORY

NODE = 2


class MetadataFollower:
    """A broker's side of a quorum, one start after another on the same disk."""

    def __init__(self, outside: Outside, controller: ScriptedController, **config: int) -> None:
        self.outside = outside
        self.node_id = NODE
        self.controller = controller
        self.config = MetadataLogConfig(**config)
        self.cluster_id = controller.cluster_id
        self.published: list[tuple[MetadataImage, ImageChange, int]] = []
        self.told: list[str] = []
        self.leaders: list[Node | None] = []
        self.log: ObserverLog
        self.fetch: MetadataFetch
        self.task: asyncio.Task[None]
        outside.files.make_directory(DIRECTORY)

    @property
    def image(self) -> MetadataImage:
        """The image that was published last."""
        return self.published[-1][0]

    @asynccontextmanager
    async def running(self, *servers: Node, **config: int) -> AsyncIterator[MetadataFetch]:
        """A start with these servers, by default the first node of the quorum."""
        folder = MetadataFolder(
            self.outside.files,
            self.outside.clock,
            random.Random(0),
            Removals(self.outside.files),
            DIRECTORY,
        )
        self.log = open_observer_log(folder, self.config, node_id=NODE, report=self.told.append)
        peers = Peers(ClientConfig(client_id=f"raft-client-{NODE}"), self.outside.runtime)
        first = Node(-1, self.controller.host, next(iter(self.controller.nodes.values())).port)
        self.fetch = MetadataFetch(
            self.log,
            peers,
            self.outside.runtime,
            config=MetadataFetchConfig(**config),
            observer=Observer(NODE, self.cluster_id, UUID(int=77)),
            servers=servers or (first,),
            publish=lambda *given: self.published.append(given),
        )
        self.fetch.on_leader = self.leaders.append
        self.task = asyncio.ensure_future(self.fetch.run())
        try:
            yield self.fetch
        finally:
            self.task.cancel()
            await asyncio.wait([self.task])
            peers.close()
            self.log.close()

    async def until(self, holds: Callable[[], bool], *, seconds: float = 60) -> None:
        """Wait until something holds, or the time is over."""
        async with asyncio.timeout(seconds):
            while not holds():
                await self.outside.pass_time(0.01)

    async def until_equal(self) -> None:
        """Wait until the image that was published is that of the quorum."""
        log = self.controller.log
        await self.until(
            lambda: bool(self.published) and self.fetch.applied_offset >= log.watermark - 1
        )
        assert self.image == log.replay().image
