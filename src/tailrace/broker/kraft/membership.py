"""`Membership`: a broker's place in a cluster with controllers; see `Quorum`.

    join        follow the metadata log, register, wait until both have met
    began       apply each image from the first one on, ask to be unfenced
    before_stop have others lead this broker's partitions (controlled shutdown)
    stop        follow and ask no more

The order is that of Kafka's BrokerServer: logs are opened by an image that has this broker's own
registration, so that whatever the controllers have decided for a broker that comes back is in it.

The controllers are other nodes, or the only one is in this process (`controller_node`). It is asked
by the network all the same; its images come without one (`MetadataSource`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

from tailrace.broker.config import BrokerConfig
from tailrace.broker.following import Following, FollowingStatistics
from tailrace.broker.kraft.applying import AppliedTo, Applying
from tailrace.broker.kraft.channel import ControllerChannel, Controllers, NoControllerError
from tailrace.broker.kraft.directory_reports import DirectoryReports
from tailrace.broker.kraft.forwarding import Forwarding
from tailrace.broker.kraft.isr_changes import IsrAnswer, IsrChanges
from tailrace.broker.kraft.lifecycle import (
    BrokerState,
    Lifecycle,
    Registration,
    RegistrationError,
    previous_epoch,
)
from tailrace.broker.kraft.metadata_fetch import MetadataFetch, MetadataFetchStatistics, Observer
from tailrace.broker.kraft.metadata_source import ControllerEndedError, MetadataSource, Publish
from tailrace.broker.kraft.producer_ids import ProducerIds
from tailrace.broker.kraft.replica_changes import assigned_replicas
from tailrace.broker.kraft.topic_creation import TopicCreation
from tailrace.broker.peers import Peers
from tailrace.broker.security import NodeSecurity
from tailrace.broker.transaction_peers import TransactionPeers
from tailrace.client.config import ClientConfig
from tailrace.client.errors import error_words
from tailrace.client.nodes import Node
from tailrace.cluster.metadata.folder import MetadataFolder
from tailrace.cluster.metadata.image import EVERYTHING_CHANGED, ImageChange, MetadataImage
from tailrace.cluster.metadata.observer import open_observer_log
from tailrace.cluster.partition_change import CORDONS_SINCE, DIRECTORIES_SINCE
from tailrace.cluster.records import Endpoint
from tailrace.cluster.state import FollowedCluster
from tailrace.cluster.topic_rules import NewTopic
from tailrace.errors import DirectoryError, StorageError, TailraceError
from tailrace.model import ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.broker_registration import Listener
from tailrace.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.replication.leadership import IsrChange, Rejection
from tailrace.replication.partition import ClusterView, Partition
from tailrace.replication.replicas import Replicas
from tailrace.runtime.clock import elapsed_ms
from tailrace.runtime.ids import random_uuid
from tailrace.runtime.system import Runtime
from tailrace.security.quotas import ClientQuotas
from tailrace.server.dispatch import Dispatch
from tailrace.storage.directories import CLUSTER_ID, unusable
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import LogManager

if TYPE_CHECKING:
    from tailrace.broker.broker import RunningBroker
    from tailrace.broker.controller.node import ControllerNode
    from tailrace.cluster.controller import Controller

logger = logging.getLogger(__name__)

OF_CONTROLLERS: Final = 2
"""The type of a DescribeCluster that controllers answer (KIP-919)."""
CREATION_TIMEOUT_MS: Final = 30_000
"""Longest wait for a topic that a client misses, as Kafka's `request.timeout.ms`."""


class Membership:
    """One broker of a cluster, from the opening of its directories to the end; see `Quorum`."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        cluster_id: str,
        logs: LogManager,
        security: NodeSecurity,
        controllers: Sequence[Node],
        source: Callable[[Publish], MetadataSource],
        controller_node: "ControllerNode | None" = None,
    ) -> None:
        """`controllers` are asked first; `source` makes the source that publishes to this."""
        self.controller: Controller | None = None
        self.controller_node = controller_node
        self._metadata = metadata = source(self._published)
        self.cluster = FollowedCluster(
            config.node_id,
            defaults=config.topic_defaults,
            listener=config.inter_broker_listener,
            kraft_version=lambda: metadata.kraft_version,
        )
        self.replicas = Replicas(
            logs,
            runtime.threads,
            cluster=ClusterView(
                node_id=config.node_id,
                brokers=self.cluster,
                has_partition=lambda name: self.cluster.partition(name) is not None,
                clock=runtime.clock,
                lag_ms=config.kraft.lag_ms,
            ),
        )
        self._config = config
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._logs = logs
        self._client = ClientConfig(client_id=f"broker-{config.node_id}")
        self._to_brokers = security.outgoing_to(config.inter_broker_listener)
        to_controllers = security.outgoing_to(config.controllers_listener)
        self._controllers = Controllers(controllers)
        self._metadata.on_leader = self._controllers.tell
        self._channels = [
            ControllerChannel(self._controllers, self._client, runtime, security=to_controllers)
            for _ in range(4)
        ]
        # A heartbeat must not wait for a request that takes long, nor a change of the ISR.
        self._beats, self._isr_channel, self._channel, forwards = self._channels
        self._forwarding = Forwarding(self._controllers, forwards, runtime.threads)
        self.transaction_peers: TransactionPeers | None = TransactionPeers(
            self.cluster,
            to_leaders=self.new_peers(),
            to_coordinators=self.new_peers(),
        )
        self._producer_ids = ProducerIds(
            self._channel, broker_id=config.node_id, broker_epoch=self._broker_epoch
        )
        self._creation = TopicCreation(
            self._ask_for_topics,
            partition_count=int(config.given.get("num.partitions", -1)),
            replication_factor=int(config.given.get("default.replication.factor", -1)),
            timeout_ms=CREATION_TIMEOUT_MS,
        )
        self._isr_changes = IsrChanges(
            self._isr_channel, broker_id=config.node_id, broker_epoch=self._broker_epoch
        )
        self._reports = DirectoryReports(
            self._channel,
            broker_id=config.node_id,
            broker_epoch=self._broker_epoch,
            is_replica=self._is_replica,
            chance=runtime.chance,
        )
        self._newest = (MetadataImage(), -1)
        """The newest image, and its offset."""
        self._lifecycle: Lifecycle | None = None
        self._applying: Applying | None = None
        self._following: Following | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopped = False
        self._ending: asyncio.Task[None] | None = None
        """The rest of the end of a killed broker, which nobody waits for."""
        self._on_failed: Callable[[str], None] = lambda _: None
        self.replicas.on_isr_change = self._propose

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        runtime: Runtime,
        security: NodeSecurity,
        *,
        cluster_id: str,
        logs: LogManager,
    ) -> Self:
        """Open the metadata log of controllers on other nodes, to be followed from `join` on.

        Raises:
            DirectoryError: the node is a voter of its quorum, the log is of a later release, or the
                device refuses.
        """
        home = logs.metadata_home
        try:
            log = open_observer_log(
                MetadataFolder(
                    runtime.files, runtime.clock, runtime.chance, home.removals, home.path
                ),
                config.metadata_log,
                node_id=config.node_id,
                report=lambda sentence: logger.warning("metadata_damaged reason=%s", sentence),
            )
        except (DirectoryError, StorageError):
            raise
        except OSError as error:
            raise unusable(home.path, error) from error
        controllers = [Node(*each) for each in config.controllers]
        fetch = partial(
            MetadataFetch,
            log,
            Peers(
                ClientConfig(client_id=f"raft-client-{config.node_id}"),
                runtime,
                security=security.outgoing_to(config.controllers_listener),
            ),
            runtime,
            config=config.metadata_fetch,
            observer=Observer(config.node_id, cluster_id, home.directory.directory_id),
            servers=controllers,
        )
        return cls(
            config,
            runtime,
            cluster_id=cluster_id,
            logs=logs,
            security=security,
            controllers=controllers,
            source=lambda publish: fetch(publish=publish),
        )

    @classmethod
    def beside(
        cls,
        node: "ControllerNode",
        config: BrokerConfig,
        runtime: Runtime,
        *,
        security: NodeSecurity,
        logs: LogManager,
    ) -> Self:
        """The membership in the cluster of a controller in this process, which has started.

        From now on the controller ends with the membership.
        """
        from tailrace.broker.controller.own_metadata import OwnMetadata

        controller = Node(config.node_id, *node.local_address)
        return cls(
            config,
            runtime,
            cluster_id=node.cluster_id,
            logs=logs,
            security=security,
            controllers=[controller],
            source=lambda publish: OwnMetadata(node, controller, publish=publish),
            controller_node=node,
        )

    # -- start --------------------------------------------------------------------------------

    async def join(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Register with the controllers, and show the image that has the registration.

        `endpoints` are the advertised addresses by listener.

        Raises:
            RegistrationError: no controller has registered the broker in time.
            TailraceError, OSError: as `MetadataSource.run`.
        """
        config = self._config
        directories = [each.directory for each in self._logs.directories]
        self._lifecycle = Lifecycle(
            self._beats,
            Registration(
                broker_id=config.node_id,
                cluster_id=self._cluster_id,
                incarnation=self.new_id(),
                listeners=_listeners(
                    endpoints,
                    {name: config.protocol_number(name) for name in endpoints},
                    first=config.inter_broker_listener,
                ),
                directories=sorted(each.directory_id for each in directories),
                previous_epoch=previous_epoch(directories, configured=len(config.directories)),
            ),
            config.lifecycle,
            applied_offset=lambda: self._metadata.applied_offset,
            cordoned=self._cordoned,
            can_follow=lambda: self._metadata.has_room,
        )
        self._lifecycle.on_registered = self._registered
        self._lifecycle.on_replaced = self.replicas.step_down
        following = asyncio.ensure_future(self._metadata.run())
        self._tasks.append(following)
        joined = asyncio.ensure_future(self._catch_up(self._lifecycle))
        try:
            await asyncio.wait([following, joined], return_when=asyncio.FIRST_COMPLETED)
            if not joined.done():
                # It never returns: it has failed, and nothing would come of waiting.
                following.result()
            await joined
        finally:
            joined.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([joined])

    async def _catch_up(self, lifecycle: Lifecycle) -> None:
        await lifecycle.start()
        await lifecycle.caught_up.wait()
        await self._metadata.caught_up.wait()
        image, offset = self._newest
        self.cluster.publish(image, EVERYTHING_CHANGED, offset=offset)

    def started(self, broker: "RunningBroker") -> None:
        config, lifecycle = self._config, self._lifecycle
        assert lifecycle is not None, "it has joined"
        self._on_failed = lifecycle.on_failed = broker.end
        self._following = Following(
            self._client,
            config.following,
            self._runtime,
            security=self._to_brokers,
            logs=self._logs,
            flushes=broker.flushes,
            cleaner=broker.cleaner,
            node_id=config.node_id,
            broker_epoch=self._broker_epoch,
            is_durable=config.is_durable,
            quota=broker.follower_quota,
        )
        applying = self._applying = Applying(
            AppliedTo(
                cluster=self.cluster,
                replicas=self.replicas,
                following=self._following,
                reports=self._reports,
                logs=self._logs,
                log_config=broker.log_config,
                forget_topic=broker.forget_topic,
                note_topics=broker.coordinators.note_topics,
                use_settings=broker.use_changes,
                is_stopping=self._is_stopping,
            ),
            self._runtime,
        )
        for home in self._logs.directories:
            # Since the registration, which has it: the controllers would elect this broker for what
            # it cannot serve.
            if home.failure is not None:
                self.directory_failed(home)
        for each in assigned_replicas(self.cluster.metadata, config.node_id):
            applying.assign(each)
        # What has come since the logs were opened.
        image, offset = self._newest
        applying.publish(image, EVERYTHING_CHANGED, offset)
        for work in (applying.run(), applying.forget_gone(), self._check_followers()):
            self._tasks.append(asyncio.ensure_future(work))
        for task in self._tasks:
            task.add_done_callback(self._ended)
        self._forwarding.start()
        self._producer_ids.prepare()
        lifecycle.ready_to_unfence()

    def set_strays_aside(self) -> None:
        """Put the folders aside that are of no replica of this broker; nothing deletes them.

        As Kafka: the image has no such topic, another one of the name, or the replica on other
        brokers; or the folder has no topic id. What was deleted while this broker was away is among
        them too.

        Raises:
            DirectoryError: a folder cannot be renamed, or a partition is in two directories.
        """
        known, node_id = self.cluster.metadata.topic_ids, self._config.node_id
        for partition, topic_id in self._logs.find_partitions(known).items():
            home = self._logs.directory_of(partition)
            # A directory that has failed keeps its folders for the next start.
            if home is None or home.failure is not None:
                continue
            state = self.cluster.partition(partition)
            if topic_id is None:
                # Records come after the id. So a crash has cut the making of the log short, or the
                # disk has lost a file, and the records may be those of a deleted topic of the name.
                reason = "it has no topic id (partition.metadata); nothing deletes it"
            elif state is None or node_id not in state.replicas:
                reason = "the cluster has no such replica on this broker; nothing deletes it"
            else:
                continue
            home.set_aside(partition, topic_id or self.new_id(), reason=reason)

    def _published(self, image: MetadataImage, change: ImageChange, offset: int) -> None:
        self._newest = (image, offset)
        if change.features and self._lifecycle is not None:
            own = image.brokers.get(self._config.node_id)
            # Before this level the controllers have dropped them, and could elect no other leader
            # for a directory that fails (KIP-858).
            if own is not None and not own.log_dirs and image.metadata_version >= DIRECTORIES_SINCE:
                self._lifecycle.register_again()
        if self._applying is not None:
            self._applying.publish(image, change, offset)

    def _registered(self, epoch: int) -> None:
        self.cluster.broker_epoch = epoch

    def _cordoned(self) -> Collection[UUID] | None:
        # Before the start is done the settings of the image do not count yet. The controllers place
        # nothing on a fenced broker meanwhile, and the heartbeat that ends that has them.
        if self._applying is None or self._newest[0].metadata_version < CORDONS_SINCE:
            return None
        return [each.directory.directory_id for each in self._logs.cordoned]

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Of our own errors the sentence says all; what nobody has foreseen has a traceback.
            unforeseen = None if isinstance(error, TailraceError) else error
            logger.error("membership_ended reason=%s", error, exc_info=unforeseen)
            if isinstance(error, ControllerEndedError):
                # The stop that follows would wait for its approval.
                self.leave_now()
            # A broker that follows the cluster no more would serve what it must not.
            self._on_failed(str(error))

    # -- while it runs ------------------------------------------------------------------------

    def new_peers(self) -> Peers:
        return Peers(self._client, self._runtime, security=self._to_brokers)

    def new_id(self) -> UUID:
        return random_uuid(self._runtime.chance)

    def wrap(self, dispatch: Dispatch, quotas: ClientQuotas) -> Dispatch:
        return self._forwarding.wrap(dispatch, quotas)

    async def create_topics(
        self, missing: Sequence[NewTopic], client: RequestHeader | None
    ) -> Mapping[str, TailraceError]:
        return await self._creation.create(missing, client)

    async def _ask_for_topics(
        self, request: CreateTopicsRequest, client: RequestHeader | None
    ) -> CreateTopicsResponse:
        if client is not None:
            return await self._forwarding.ask(request, CreateTopicsResponse, client=client)
        return await self._channel.ask(
            request, CreateTopicsResponse, timeout_ms=CREATION_TIMEOUT_MS
        )

    async def next_producer_id(self) -> ProducerId:
        return await self._producer_ids.next()

    def metadata_statistics(self) -> MetadataFetchStatistics:
        return self._metadata.statistics()

    def following_statistics(self) -> FollowingStatistics | None:
        return None if self._following is None else self._following.statistics()

    async def wait_until_unfenced(self) -> None:
        assert self._lifecycle is not None, "it has joined"
        await self._lifecycle.unfenced.wait()

    def directory_failed(self, directory: DirectoryLogs) -> None:
        # As Kafka: while a partition is idle its fetches go on without the log, and the leader
        # would have the replica back in the ISR, which no controller refuses for its directory.
        if self._following is not None:
            self._following.stop(log.partition for log in directory)
        if self._lifecycle is not None:
            self._lifecycle.failed_directory(directory.directory.directory_id)

    def listeners_changed(
        self, endpoints: Mapping[str, Endpoint], protocols: Mapping[str, int]
    ) -> None:
        # Kafka 4.3 does not: there clients of a new listener learn no broker until the next start.
        if self._lifecycle is not None:
            first = self._config.inter_broker_listener
            self._lifecycle.register_again(_listeners(endpoints, protocols, first=first))

    def directories_cordoned(self) -> None:
        if self._lifecycle is not None:
            self._lifecycle.cordoned_changed()

    def _broker_epoch(self) -> int:
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    def _is_replica(self, topic_id: UUID, number: int) -> bool:
        topic = self.cluster.metadata.topics.get(topic_id)
        state = None if topic is None else topic.partitions.get(number)
        return state is not None and self._config.node_id in state.replicas

    async def _check_followers(self) -> None:
        # Half of the lag, as in Kafka: a follower is out after one and a half of it at the latest.
        interval_s = self._config.kraft.lag_ms / 2000
        while True:
            await asyncio.sleep(interval_s)
            await self.replicas.check_followers(elapsed_ms(self._runtime.clock))

    def _propose(self, partition: Partition, change: IsrChange) -> None:
        # Not the topic that has the name now: its partition may be in the same epochs, and would
        # get the ISR of one that was deleted, with a member that does not have its records.
        topic_id = partition.topic_id
        assert topic_id is not None, "a leader has a state"
        clock = self._runtime.clock

        def answered(answer: IsrAnswer) -> None:
            if not isinstance(answer, ErrorCode):
                partition.confirm(
                    change,
                    answer.isr,
                    leader_epoch=answer.leader_epoch,
                    partition_epoch=answer.partition_epoch,
                    now_ms=elapsed_ms(clock),
                )
            elif partition.reject(change, answer, now_ms=elapsed_ms(clock)) is Rejection.AGAIN:
                self._propose(partition, change)

        self._isr_changes.submit(partition.name, topic_id, change, answered=answered)

    # -- stop ---------------------------------------------------------------------------------

    async def before_stop(self) -> None:
        if self._lifecycle is not None:
            # The other half is for the logs.
            timeout_s = self._config.shutdown_timeout_ms / 2000
            await self._lifecycle.controlled_shutdown(timeout_s=timeout_s)

    def leave_now(self) -> None:
        if self._lifecycle is not None:
            self._lifecycle.leave_now()

    def _is_stopping(self) -> bool:
        lifecycle = self._lifecycle
        return lifecycle is not None and lifecycle.state >= BrokerState.PENDING_CONTROLLED_SHUTDOWN

    async def stop(self) -> None:
        self._is_stopped = True
        self._ask_no_more()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._following is not None:
            await self._following.close()
        await self._creation.close()
        if self._lifecycle is not None:
            await self._lifecycle.close()
        await self._metadata.stop()

    def _ask_no_more(self) -> None:
        """End all requests and tasks; what they wait for does not come."""
        for task in self._tasks:
            task.remove_done_callback(self._ended)
            task.cancel()
        self._forwarding.close()
        self._isr_changes.close()
        self._reports.close()
        self._producer_ids.close()
        for each in self._channels:
            each.close()

    def leave(self, homes: Mapping[TopicPartition, UUID] | None) -> None:
        # The marks of an orderly stop name the registration that they end (KIP-966).
        for each in self._logs.directories:
            each.directory.broker_epoch = self._broker_epoch()
        try:
            if homes is not None:
                self._metadata.close()
        except OSError as error:
            # The next start fetches what is missing.
            logger.warning("metadata_log_not_closed reason=%s", error)
        finally:
            self._metadata.abandon()

    def abandon(self) -> None:
        # A process that is killed sends no heartbeat and fetches nothing more, either.
        self._ask_no_more()
        if not self._is_stopped:
            self._is_stopped = True
            self._ending = asyncio.ensure_future(self.stop())
        self._metadata.abandon()


_STARTING_PAUSE_S: Final = 0.5
"""Pause before controllers that have just started are asked for the cluster's id again."""


def _listeners(
    endpoints: Mapping[str, Endpoint], protocols: Mapping[str, int], *, first: str
) -> tuple[Listener, ...]:
    """Advertised addresses as a registration has them."""
    return tuple(
        Listener(name=name, host=each.host, port=each.port, security_protocol=protocols[name])
        # As in Kafka that of brokers comes first (`ListenerInfo.create`).
        for name, each in sorted(endpoints.items(), key=lambda each: each[0] != first)
    )


async def ask_cluster_id(config: BrokerConfig, runtime: Runtime, security: NodeSecurity) -> str:
    """The id of the cluster, as its controllers say: that of directories which have none yet.

    Raises:
        NoControllerError: none has answered within `initial.broker.registration.timeout.ms`.
        RegistrationError: what answers is no controller, or one has this broker's `node.id`.
    """
    controllers = Controllers([Node(*each) for each in config.controllers])
    client = ClientConfig(client_id=f"broker-{config.node_id}")
    channel = ControllerChannel(
        controllers, client, runtime, security=security.outgoing_to(config.controllers_listener)
    )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.lifecycle.registration_timeout_ms / 1000
    try:
        while True:
            answer = await channel.ask(
                DescribeClusterRequest(endpoint_type=OF_CONTROLLERS),
                DescribeClusterResponse,
                timeout_ms=max(1, round((deadline - loop.time()) * 1000)),
                first_version=1,
            )
            # Kafka's controller has the lowest metadata.version until it has read its log, and
            # refuses this request below 3.7 (ControllerApis.handleDescribeCluster): brokers that
            # start together with their controllers ask in that time.
            is_starting = answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            if not is_starting or loop.time() + _STARTING_PAUSE_S >= deadline:
                break
            await asyncio.sleep(_STARTING_PAUSE_S)
    except NoControllerError as error:
        raise NoControllerError(
            f"{error}; check controller.quorum.bootstrap.servers, and that the controllers run"
        ) from error
    finally:
        channel.close()
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # Kafka's controllers ask for this right too (ControllerApis.handleDescribeCluster).
        raise RegistrationError(
            "the controllers tell the id of their cluster, which a new directory needs, to those "
            "alone who have ALTER on it: give this broker that right, or make it a super user, or "
            "make the directory before with `tailrace storage format --cluster-id`"
        )
    if answer.error_code != ErrorCode.NONE or not answer.cluster_id:
        raise RegistrationError(
            f"the controllers do not say which cluster they are of: "
            f"{error_words(answer.error_code)}; check controller.quorum.bootstrap.servers"
        )
    # Kafka compares with the voters of the settings alone, which `bootstrap.servers` does not name.
    # The controllers would register the broker, and it could not follow a leader of its own id.
    if any(each.broker_id == config.node_id for each in answer.brokers):
        raise RegistrationError(
            f"node.id={config.node_id} is the id of a controller; ids are unique over brokers and "
            "controllers: give this broker another one"
        )
    # The next start would find another id in the file, or another line.
    if CLUSTER_ID.fullmatch(answer.cluster_id) is None:
        raise RegistrationError(
            f"the controllers name {answer.cluster_id[:100]!r} as the id of their cluster, which "
            "meta.properties cannot have; nothing was changed"
        )
    logger.info("cluster_joined cluster=%s", answer.cluster_id)
    return answer.cluster_id
