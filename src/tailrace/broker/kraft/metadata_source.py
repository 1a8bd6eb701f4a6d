"""`MetadataSource`: where a broker of a cluster has the state of the cluster from.

MetadataFetch             the controllers are other nodes: their metadata log is fetched
controller.OwnMetadata    the only controller is in this process: it hands its images over
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tailrace.client.nodes import Node
from tailrace.cluster.metadata.image import ImageChange, MetadataImage
from tailrace.errors import DirectoryError

if TYPE_CHECKING:
    from tailrace.broker.kraft.metadata_fetch import MetadataFetchStatistics

Publish = Callable[[MetadataImage, ImageChange, int], None]
"""Takes an image, what differs from the one before, and the offset of its last record."""


class ControllerEndedError(DirectoryError):
    """The only controller has ended: no request to it is ever answered again."""


class MetadataSource(Protocol):
    """Publishes images from `run` on, with rising offsets; for one loop."""

    on_leader: Callable[[Node | None], None]
    """Called when another controller is the active one; None: it is not known."""
    applied_offset: int
    """The last offset that is in the published image; -1: none was published."""
    caught_up: asyncio.Event
    """Set by the first publication."""
    has_room: bool
    """False while the disk is full: the image does not follow until there is room."""

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do (KIP-853)."""
        ...

    def statistics(self) -> "MetadataFetchStatistics":
        """The leader, and how far its log is here."""
        ...

    async def run(self) -> None:
        """Publish until cancelled.

        Raises:
            ControllerEndedError: nothing more can be asked of a controller.
            TailraceError, OSError: the cluster cannot be followed any more.
        """
        ...

    async def stop(self) -> None:
        """Ask nobody any more; `run` has been cancelled and waited for."""
        ...

    def close(self) -> None:
        """Close the metadata log in order, after `stop`; on a thread.

        Raises:
            OSError: the device refuses; nothing is lost by that.
        """
        ...

    def abandon(self) -> None:
        """Close the metadata log as a killed process would; also after `stop`."""
        ...
