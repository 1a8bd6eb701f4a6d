"""`OwnMetadata`: the state of the cluster from the controller in this process.

The node has one metadata log, that of the controller. Its broker takes each state that is on the
device, and so never acts on a decision that a crash could take. There is nothing to fetch, and no
second copy. All else the broker asks by the network, as it asks controllers elsewhere (decisions
82 and 84).

The controller lives as long as the broker: it stops when nothing more is asked of it.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from tailrace.broker.controller.node import ControllerNode
from tailrace.broker.kraft.metadata_fetch import MetadataFetchStatistics
from tailrace.broker.kraft.metadata_source import ControllerEndedError, Publish
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, ImageChange, MetadataImage

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class OwnMetadata:
    """The images of a controller that has started; see `MetadataSource`."""

    def __init__(self, node: ControllerNode, leader: Node, *, publish: Publish) -> None:
        """`leader` is the controller, as its own broker reaches it."""
        self.on_leader: Callable[[Node | None], None] = lambda _: None
        self.applied_offset = -1
        self.caught_up = asyncio.Event()
        # A controller whose disk is full ends, and the broker with it.
        self.has_room = True
        self._node = node
        self._leader = leader
        self._publish = publish
        self._is_over = False

    @property
    def kraft_version(self) -> int:
        return self._node.kraft_version

    def statistics(self) -> MetadataFetchStatistics:
        """The controller of this process, and how far its log is written."""
        node = self._node
        return MetadataFetchStatistics(
            leader=self._leader,
            epoch=node.epoch,
            applied_offset=self.applied_offset,
            end_offset=node.watermark,
            high_watermark=node.watermark,
            failures=0,
        )

    async def run(self) -> None:
        node = self._node
        self.on_leader(self._leader)
        node.on_written.append(self._take)
        try:
            self._take(node.image, EVERYTHING_CHANGED, node.watermark)
            self.caught_up.set()
            await node.failed.wait()
        finally:
            node.on_written.remove(self._take)
        raise ControllerEndedError(f"the controller in this process has ended: {node.end_reason}")

    async def stop(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        try:
            await self._node.stop()
        except OSError as error:
            # All that was answered is on the device already.
            logger.warning("metadata_log_not_closed reason=%s", error)

    def close(self) -> None:
        """Do nothing: the controller has closed it."""

    def abandon(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._node.kill()

    def _take(self, image: MetadataImage, change: ImageChange, end_offset: int) -> None:
        self.applied_offset = end_offset - 1
        self._publish(image, change, self.applied_offset)
