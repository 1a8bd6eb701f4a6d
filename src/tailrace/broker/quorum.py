"""`Quorum`: who keeps the state of the cluster, as far as a running broker has to do with it.

OwnQuorum            this node alone: it registers when it serves, keeps its metadata log short, and
                     says at the end that it serves no more
kraft.Membership     controllers, on other nodes or in this process: the broker follows their
                     metadata log, and asks them
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from tailrace.cluster import bootstrap
from tailrace.cluster.changes import TopicChanges
from tailrace.cluster.controller import Controller
from tailrace.cluster.records import Endpoint
from tailrace.cluster.state import ClusterState
from tailrace.cluster.topic_rules import NewTopic
from tailrace.errors import StorageError, TailraceError
from tailrace.model import ProducerId, TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.runtime.system import Runtime
from tailrace.security.quotas import ClientQuotas
from tailrace.server.dispatch import Dispatch
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import LogManager, locked_directories

if TYPE_CHECKING:
    from tailrace.broker.broker import RunningBroker
    from tailrace.broker.controller.node import ControllerNode
    from tailrace.broker.following import FollowingStatistics
    from tailrace.broker.kraft.metadata_fetch import MetadataFetchStatistics
    from tailrace.broker.peers import Peers
    from tailrace.broker.transaction_peers import TransactionPeers
    from tailrace.protocol.frames import RequestHeader

logger = logging.getLogger(__name__)

METADATA_TIDY_S = 60.0
"""Interval at which the metadata log is looked at for snapshots and segments that may go."""


class Quorum(Protocol):
    """The keeper of the cluster's state; called on the event loop but for `leave`."""

    @property
    def cluster(self) -> ClusterState:
        """The state as this node knows it."""
        ...

    @property
    def controller(self) -> Controller | None:
        """The one that changes the state of this node alone; None: the cluster has controllers."""
        ...

    @property
    def controller_node(self) -> "ControllerNode | None":
        """The only controller of a cluster, if it is in this process."""
        ...

    @property
    def transaction_peers(self) -> "TransactionPeers | None":
        """The other brokers, where there may be some."""
        ...

    def new_peers(self) -> "Peers | None":
        """Connections to other brokers, for a caller who closes them; None: there are none."""
        ...

    def new_id(self) -> UUID:
        """A random id, never zero."""
        ...

    async def create_topics(
        self, missing: Sequence[NewTopic], client: "RequestHeader | None"
    ) -> Mapping[str, TailraceError]:
        """Create topics that a client or a coordinator misses; see `handlers.services`."""
        ...

    async def next_producer_id(self) -> ProducerId:
        """A producer id that was never assigned before.

        Raises:
            StorageError: none can be reserved.
        """
        ...

    def wrap(self, dispatch: Dispatch, quotas: ClientQuotas) -> Dispatch:
        """The dispatch with the requests that other nodes answer, if there are any.

        The time that this node spends on them counts for `quotas`, those of clients.
        """
        ...

    def started(self, broker: "RunningBroker") -> None:
        """The broker accepts requests, and its coordinators hear of leaderships."""
        ...

    async def wait_until_unfenced(self) -> None:
        """Wait until the controllers let this broker lead partitions."""
        ...

    def directory_failed(self, directory: DirectoryLogs) -> None:
        """A log directory has gone out of service, with its partitions."""
        ...

    def metadata_statistics(self) -> "MetadataFetchStatistics | None":
        """The state of the metadata log that is followed; None: no other nodes have one."""
        ...

    def following_statistics(self) -> "FollowingStatistics | None":
        """The partitions that are fetched from other brokers; None: there are none."""
        ...

    def directories_cordoned(self) -> None:
        """Other log directories than before get no new logs."""
        ...

    def listeners_changed(
        self, endpoints: Mapping[str, Endpoint], protocols: Mapping[str, int]
    ) -> None:
        """The broker has other advertised addresses than before; protocols by Kafka's numbers."""
        ...

    async def before_stop(self) -> None:
        """The broker stops: it still accepts requests, and has others take its partitions over."""
        ...

    def leave_now(self) -> None:
        """End the wait of `before_stop`: the operator does not wait any longer."""
        ...

    async def stop(self) -> None:
        """The broker accepts no requests any more; end what writes to logs or directories."""
        ...

    def leave(self, homes: Mapping[TopicPartition, UUID] | None) -> None:
        """Save the end of this broker's service, with the directory of each log; on a thread.

        None: a device has failed, and nothing is saved. Closes the metadata log in any case.
        """
        ...

    def abandon(self) -> None:
        """Close the metadata log as a killed process would."""
        ...


class OwnQuorum:
    """The quorum of this node alone, see `Quorum`; its registration runs beside serving."""

    def __init__(
        self,
        controller: Controller,
        logs: LogManager,
        runtime: Runtime,
        *,
        changes: TopicChanges,
        replicas: Replicas,
    ) -> None:
        self.cluster: ClusterState = controller
        self.controller: Controller | None = controller
        self.controller_node: ControllerNode | None = None
        self.transaction_peers: TransactionPeers | None = None
        self.new_id = controller.new_id
        self._controller = controller
        self._logs = logs
        self._runtime = runtime
        self._changes = changes
        self._replicas = replicas
        self._registering: asyncio.Future[None] | None = None
        """Done when the broker is registered; a stop waits for that, since it fences it."""
        self._task: asyncio.Task[None] | None = None

    def new_peers(self) -> None:
        return None

    async def create_topics(
        self,
        missing: Sequence[NewTopic],
        client: "RequestHeader | None",  # noqa: ARG002 - rights and quota were looked at by handlers
    ) -> Mapping[str, TailraceError]:
        # A start imports nothing that changes the cluster (decision 24).
        from tailrace.handlers.topics import create_missing

        return await create_missing(
            self._changes, self._controller, self._replicas, missing=missing
        )

    async def next_producer_id(self) -> ProducerId:
        return await self._runtime.threads.run(self._controller.next_producer_id)

    def wrap(self, dispatch: Dispatch, quotas: ClientQuotas) -> Dispatch:  # noqa: ARG002 - there are none
        return dispatch

    def started(self, broker: "RunningBroker") -> None:
        # Beside serving: clients need no registration, and a slow device would hold up the start.
        endpoints = broker.endpoints()
        protocols = {each: broker.config.protocol_number(each) for each in endpoints}
        registering = self._runtime.threads.run(lambda: self._register(endpoints, protocols))
        self._registering = asyncio.ensure_future(registering)
        self._task = asyncio.ensure_future(self._keep_metadata(self._registering))

    async def wait_until_unfenced(self) -> None:
        """Return at once: there is nobody who fences it."""

    def directory_failed(self, directory: DirectoryLogs) -> None:
        """Do nothing: nobody else could lead its partitions."""

    def metadata_statistics(self) -> None:
        return None

    def following_statistics(self) -> None:
        return None

    def directories_cordoned(self) -> None:
        """Do nothing: this node places its partitions itself."""

    def listeners_changed(
        self, endpoints: Mapping[str, Endpoint], protocols: Mapping[str, int]
    ) -> None:
        """Do nothing: answers have what the broker says, and nobody reads the registration."""

    async def before_stop(self) -> None:
        """Do nothing: there is no other broker."""

    def leave_now(self) -> None:
        """Do nothing: nobody is waited for."""

    async def stop(self) -> None:
        if self._registering is not None:
            await asyncio.wait([self._registering])
        if self._task is not None:
            self._task.cancel()
            # A thread that writes a snapshot is waited for: another process may write after it.
            for error in await asyncio.gather(self._task, return_exceptions=True):
                if isinstance(error, Exception):
                    logger.error("task_failed reason=%r", error)

    def leave(self, homes: Mapping[TopicPartition, UUID] | None) -> None:
        try:
            # Fenced while the metadata log can still be written. Kafka, which may get the directory
            # next, need not wait for the session of a broker that is gone.
            if homes is not None:
                self._controller.retire(homes)
                self._controller.close()
        except StorageError as error:
            # The logs do not depend on it; Kafka would wait until the registration has expired.
            logger.warning("registration_not_ended reason=%s", error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        self._controller.log.abandon()

    def _register(self, endpoints: Mapping[str, Endpoint], protocols: Mapping[str, int]) -> None:
        files, now_ms = self._runtime.files, self._runtime.clock.now_ms()
        for each in locked_directories(self._logs):
            if not files.exists(f"{each.path}/{bootstrap.FILE}"):
                image = bootstrap.new_image()
                bootstrap.write_bootstrap_file(files, each.path, image, now_ms=now_ms)
        # After the port is open: with port 0 the address is not known before.
        self._controller.register(endpoints, protocols)
        for each in self._logs.directories:
            each.directory.broker_epoch = self._controller.broker_epoch

    async def _keep_metadata(self, registering: asyncio.Future[None]) -> None:
        try:
            await registering
        except OSError as error:
            # Nothing here needs the registration; Kafka would elect every leader again.
            logger.warning("registration_failed reason=%s", error)
        await keep_short(self._controller.log.is_tidying_due, self._controller.tidy, self._runtime)


async def keep_short(
    is_due: Callable[[], bool], tidy: Callable[[], None], runtime: Runtime
) -> None:
    """Have a metadata log write its snapshots, and delete what it keeps no longer; never ends."""
    while True:
        await asyncio.sleep(METADATA_TIDY_S)
        if not is_due():
            continue
        try:
            await runtime.threads.run(tidy)
        except Exception as error:  # noqa: BLE001 - such as a system that starts no thread now
            logger.warning("metadata_snapshot_failed reason=%r", error)
