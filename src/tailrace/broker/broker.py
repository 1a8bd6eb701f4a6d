"""A running broker: its parts, and its stop, in the right order.

start  listen -> start background tasks; the logs are open (`start`)
stop   close the port and connections -> end the threads that write -> sync and close every log
       -> write the marks of a clean shutdown -> release the locks
kill   let go of everything at once, as if the process had died; the next start recovers
fail   a log directory fails -> its partitions are offline; if it has the cluster's state, or
       is the last -> the port is closed, and `failed` tells the caller to stop
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from tailrace.broker.changing import (
    changed_config,
    check_listeners,
    is_changeable,
    is_of_one_broker,
    usable_changes,
)
from tailrace.broker.cleaning import clean_regularly
from tailrace.broker.config import BROKER_SETTINGS, BrokerConfig
from tailrace.broker.coordinators import Coordinators, CoordinatorsStatistics, LogServices
from tailrace.broker.listeners import Listener
from tailrace.broker.monitoring.health import Health
from tailrace.broker.quorum import Quorum
from tailrace.broker.schedule import Housekeeping, Schedule, ScheduleStatistics
from tailrace.broker.security import NodeSecurity, ScramUsers
from tailrace.broker.wiring import find_handlers, find_repeats
from tailrace.cluster.changes import TopicChanges
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import Topic
from tailrace.cluster.records import Endpoint
from tailrace.errors import ConfigError, ListenError, MissingExtraError, TailraceError
from tailrace.handlers.fetch_sessions import FetchSessions, FetchSessionsStatistics
from tailrace.handlers.services import BrokerSettings, Services
from tailrace.model import TopicPartition
from tailrace.replication.device_reads import DeviceReads
from tailrace.replication.flushes import Flushes, FlushStatistics
from tailrace.replication.moves import MovesStatistics, PartitionMoves
from tailrace.replication.quotas import ReplicationQuota
from tailrace.replication.replicas import Replicas, ReplicaStatistics
from tailrace.replication.validation import BatchValidation
from tailrace.runtime.system import Runtime
from tailrace.security.audit import Audit
from tailrace.security.quotas import ClientQuotas, QuotaStatistics
from tailrace.server.dispatch import Dispatch, Dispatcher, RequestAnswers
from tailrace.server.listener import Port, Server, ServerStatistics
from tailrace.server.quotas import ConnectionRates
from tailrace.storage.cleaner.worker import (
    CleanerStatistics,
    CleaningJob,
    LogCleaner,
    Throttle,
)
from tailrace.storage.config import LogConfig, log_config, stored_log_config
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import (
    LogManager,
    LogManagerStatistics,
    end_reason,
)
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.broker.controller.node import ControllerNode, ControllerStatistics
    from tailrace.broker.following import FollowingStatistics
    from tailrace.broker.kraft.metadata_fetch import MetadataFetchStatistics
    from tailrace.broker.monitoring.listener import Monitor
    from tailrace.broker.peers import Peers

logger = logging.getLogger(__name__)


LAST_ANSWERS_S = 0.05
"""Time from the failure of the last directory until connections end, so that clients
still get KAFKA_STORAGE_ERROR."""

WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatistics:
    """A whole broker at one moment, by its parts."""

    server: ServerStatistics
    """Connections, and memory for requests."""
    replicas: ReplicaStatistics
    """Partitions, served or offline."""
    logs: LogManagerStatistics
    """Logs and log directories."""
    cleaner: CleanerStatistics
    """Rounds of compaction."""
    moves: MovesStatistics
    """Moves of partitions to other log directories."""
    flushes: FlushStatistics
    """Flushes to the devices."""
    quotas: QuotaStatistics
    """Throttled clients."""
    fetch_sessions: FetchSessionsStatistics
    """Fetch sessions of clients."""
    coordinators: CoordinatorsStatistics
    """Coordinators of groups and of transactions."""
    metadata: "MetadataFetchStatistics | None"
    """The metadata log, where it is followed; None if this is the only node."""
    following: "FollowingStatistics | None"
    """Partitions that are fetched from other brokers; None if this is the only node."""
    controller: "ControllerStatistics | None"
    """The only controller of the cluster, if it is in this process; else None."""
    schedules: Mapping[str, ScheduleStatistics]
    """Periodic jobs, by the path of the log directory; read only."""


class RunningBroker:
    """A broker on one event loop, which accepts requests from `start` on; see `start_broker`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        runtime: Runtime,
        security: NodeSecurity,
        cluster_id: str,
        logs: LogManager,
        quorum: Quorum,
        changes: TopicChanges,
        replicas: Replicas,
        health: Health,
        monitor: "Monitor | None" = None,
        wrap_dispatch: Callable[[Dispatch], Dispatch] | None,
    ) -> None:
        """`health` hears of the stop, and `monitor` is closed with the broker.

        `wrap_dispatch` gets the function that answers a frame, and returns another.
        """
        self.config = config
        """The settings of the start."""
        self.current = config
        """The settings that count now."""
        self.logs = logs
        self.cluster = quorum.cluster
        """The state of the cluster, as this broker knows it."""
        self.replicas = replicas
        self.failed = asyncio.Event()
        """Set when the broker cannot continue: it accepts no more requests, and must be stopped."""
        self._end_reason: str | None = None
        self._endpoints: Mapping[str, Endpoint] | None = None
        self._listeners = {each.name: each for each in config.listeners}
        """The listeners with an open port, by name."""
        self._topic_configs: Mapping[str, str] = {}
        """The defaults for topics that the logs have."""
        self._quorum = quorum
        self._runtime = runtime
        self.flushes = Flushes(logs, runtime.threads)
        device_reads = DeviceReads(runtime.threads)
        self.cleaner = LogCleaner(logs, config.cleaner, runtime.clock)
        self._leader_quota, self.follower_quota = (
            ReplicationQuota(
                role,
                runtime.clock,
                node_id=config.node_id,
                window_count=config.kraft.quota_window_count,
                window_s=config.kraft.quota_window_s,
            )
            for role in ("leader", "follower")
        )
        self.quotas = ClientQuotas(
            lambda: quorum.cluster.metadata.quotas, runtime.clock, config.quotas
        )
        self._move_throttle = Throttle(runtime.clock, config.move_bytes_per_second)
        self.moves = PartitionMoves(
            logs,
            replicas,
            self.cleaner,
            threads=runtime.threads,
            throttle=self._move_throttle,
            new_id=quorum.new_id,
        )
        self._changes = changes
        self.coordinators = Coordinators(
            config,
            cluster=quorum.cluster,
            next_producer_id=quorum.next_producer_id,
            replicas=replicas,
            runtime=runtime,
            logs=LogServices(
                flushes=self.flushes, device_reads=device_reads, is_durable=config.is_durable
            ),
            consumer_settings=lambda: self.current.consumer_groups,
            peers=quorum.transaction_peers,
        )
        self.fetch_sessions = FetchSessions(
            config.fetch_sessions, runtime.chance, name_of=self._topic_name
        )
        self._audit = Audit()
        services = Services(
            node_id=config.node_id,
            cluster_id=cluster_id,
            listener=config.inter_broker_listener,
            endpoints=self.endpoints,
            cluster=quorum.cluster,
            controller=quorum.controller,
            create_topics=quorum.create_topics,
            next_producer_id=quorum.next_producer_id,
            changes=self._changes,
            threads=runtime.threads,
            replicas=replicas,
            flushes=self.flushes,
            device_reads=device_reads,
            moves=self.moves,
            validation=BatchValidation(runtime.threads),
            groups=self.coordinators.groups,
            group_settings=config.groups,
            consumer_settings_now=lambda: self.current.consumer_groups,
            transactions=self.coordinators.transactions,
            transaction_settings_now=lambda: self.current.transactions,
            coordinator_log=self.coordinators.log_of,
            verdicts_elsewhere=(
                None if quorum.transaction_peers is None else self.coordinators.verdicts_elsewhere
            ),
            clock=runtime.clock,
            is_durable=config.is_durable,
            auto_create_topics=config.auto_create_topics,
            can_delete_topics=config.can_delete_topics,
            fetch_sessions=self.fetch_sessions,
            sends_to_nearest=config.kraft.sends_to_nearest,
            leader_quota=self._leader_quota,
            quotas=self.quotas,
            fetch_bytes_max=config.fetch_bytes_max,
            # So that a waiting fetch of a lost client does not outlast `connections.max.idle.ms`.
            fetch_wait_ms_max=config.idle_ms_max // 2,
            partitions_per_answer_max=config.partitions_per_answer_max,
            settings=BrokerSettings(
                declared={each.name: each for each in BROKER_SETTINGS},
                is_changeable=is_changeable,
                port_of=self.port_of,
                given={**config.given, **config.ignored},
                check=self._check_changes,
                apply=self.use_changes,
            ),
            authorizer=config.access.authorizer(lambda: self.cluster.metadata.acls, self._audit),
            audit=self._audit,
        )
        self._services, self._security = services, security
        self._health, self._monitor = health, monitor
        self._port = self._ports(services, security, wrap_dispatch)
        self._server = self._server_of(services)
        self._watching: asyncio.Task[None] | None = None
        """The task that looks for renewed certificates."""
        self._schedules = self._planned()
        self._cleaning: dict[int, asyncio.Task[None]] = {}
        """The tasks that compact logs, by their number, from 0."""

    def open(self) -> None:
        """Open the ports; connections wait in the kernel's queue until `start`.

        Raises:
            ListenError: an address cannot be used; nothing was started.
        """
        self._server.open()

    def close_port(self) -> None:
        """Take no more connections, and end those that there are."""
        self._server.close()

    def start(self, current: BrokerConfig) -> None:
        """Accept requests, and begin the background tasks.

        `current` are the settings with the changes that the cluster's state has.

        Raises:
            ListenError: as `open`, unless that was called before.
        """
        if self._services.authorizer is not None:
            # Before the first request: the index of many entries takes some turns of the loop.
            self._services.authorizer.refresh()
        # First, so that an address in use ends the start before anything runs.
        self._server.start()
        self.logs.on_failure = self._directory_failed
        # Abort the compaction of a topic whose policy no longer contains `compact`.
        self.replicas.on_compaction_end = self.cleaner.abort
        self.replicas.on_rolled = self.flushes.ask_rolled
        for schedule in self._schedules.values():
            schedule.start()
        # In the same turn as the port is opened: no request may come before the shards are there.
        self.coordinators.start()
        self._topic_configs = self.cluster.defaults.configs
        self._quorum.started(self)
        self._use(current)

    @property
    def end_reason(self) -> str | None:
        """Why the broker cannot continue; None: it can."""
        return self._end_reason or end_reason(self.logs)

    def end(self, reason: str) -> None:
        """Have the broker stopped, since it cannot continue."""
        self._end_reason = self._end_reason or reason
        # Connections that end at once would take the answers with them.
        asyncio.get_running_loop().call_later(LAST_ANSWERS_S, self._server.close)
        self.failed.set()

    @property
    def controller(self) -> Controller:
        """The controller of a broker that is the only node."""
        controller = self._quorum.controller
        assert controller is not None, "the cluster has controllers"
        return controller

    @property
    def controller_node(self) -> "ControllerNode | None":
        """The only controller of the cluster, if it is in this process."""
        return self._quorum.controller_node

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port that clients connect to: those of the first advertised listener."""
        return next(iter(self.endpoints().values()))

    def endpoints(self) -> Mapping[str, Endpoint]:
        """The advertised addresses by the name of the listener, in order; from `open` on."""
        # Asked for by each request that names brokers, and the same from then on.
        if self._endpoints is None:
            advertised = (each for each in self._listeners.values() if each.is_advertised)
            self._endpoints = {each.name: self._endpoint_of(each) for each in advertised}
        return self._endpoints

    def _endpoint_of(self, listener: Listener) -> Endpoint:
        host, port = self._server.address_of(listener.name)
        if listener.advertised is not None:
            host, port = listener.advertised[0], listener.advertised[1] or port
        return Endpoint(socket.gethostname() if host in WILDCARDS else host, port)

    def port_of(self, name: str) -> int | None:
        """The port in use of a listener; None: this broker has no such listener."""
        return self._server.address_of(name)[1] if name in self._listeners else None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for `bootstrap.servers`, of the first advertised listener."""
        return _address(self.endpoint)

    @property
    def http_address(self) -> str | None:
        """HOST:PORT for metrics and health; None: they are not answered."""
        return None if self._monitor is None else self._monitor.address

    def readable_end(self, name: TopicPartition) -> int | None:
        """Offset after the last record that consumers may read; None: it is not known here.

        A follower in sync knows it, up to half a second late, which is the wait of its fetches.
        """
        partition = self.replicas.get(name)
        if partition is None or self.replicas.is_offline(name):
            return None
        if not partition.is_leader:
            state = self.cluster.partition(name)
            if state is None or self.config.node_id not in state.isr:
                return None
        return partition.log.positions.high_watermark

    def new_peers(self) -> "Peers | None":
        """Connections to other brokers, for a caller who closes them; None: there are no others."""
        return self._quorum.new_peers()

    @property
    def addresses(self) -> str:
        """Addresses it listens on, and as what they are advertised if that differs; for people.

        HOST:PORT of a single listener, and NAME://HOST:PORT of each of several. With that of a
        controller in this process.
        """
        listening, advertised = self._listening(), self._listening(are_advertised=True)
        if advertised != listening:
            return f"{_addresses(listening)}, advertised as {_addresses(advertised)}"
        return _addresses(listening) if len(listening) > 1 else _address(self.endpoint)

    @property
    def listeners(self) -> str:
        """NAME://HOST:PORT of each listener with the port in use, its controller's included."""
        return _addresses(self._listening())

    def _listening(self, *, are_advertised: bool = False) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = (
            dict(self.endpoints())
            if are_advertised
            else {name: self._server.address_of(name) for name in self._listeners}
        )
        node = self.controller_node
        if node is not None and self.config.controller_listener is not None:
            found[self.config.controller_listener.name] = node.address
        return found

    async def wait_until_unfenced(self) -> None:
        """Wait until this broker may lead partitions; without controllers it may at once."""
        await self._quorum.wait_until_unfenced()

    def statistics(self) -> BrokerStatistics:
        """The statistics of all parts; looks at every segment, group and transaction."""
        node = self.controller_node
        return BrokerStatistics(
            server=self._server.statistics(),
            replicas=self.replicas.statistics(),
            logs=self.logs.statistics(),
            cleaner=self.cleaner.statistics(),
            moves=self.moves.statistics(),
            flushes=self.flushes.statistics(),
            quotas=self.quotas.statistics(),
            fetch_sessions=self.fetch_sessions.statistics(),
            coordinators=self.coordinators.statistics(),
            metadata=self._quorum.metadata_statistics(),
            following=self._quorum.following_statistics(),
            controller=None if node is None else node.statistics(),
            schedules=MappingProxyType(
                {path: each.statistics() for path, each in self._schedules.items()}
            ),
        )

    def server_statistics(self) -> ServerStatistics:
        """Connections and memory right now."""
        return self._server.statistics()

    def metadata_statistics(self) -> "MetadataFetchStatistics | None":
        """The metadata log, where it is followed; None if this is the only node."""
        return self._quorum.metadata_statistics()

    def following_statistics(self) -> "FollowingStatistics | None":
        """Partitions that are fetched from other brokers; None if this is the only node."""
        return self._quorum.following_statistics()

    def resume_moves(self, moves: Mapping[TopicPartition, DirectoryLogs]) -> None:
        """Begin the moves again that the last stop or a crash has interrupted."""
        for partition, target in moves.items():
            topic = self.cluster.image.topics.get(partition.topic)
            try:
                self.moves.alter(
                    partition,
                    target.path,
                    topic_id=None if topic is None else topic.topic_id,
                    is_resumed=True,
                )
            except TailraceError as error:
                logger.warning("move_not_resumed partition=%s reason=%s", partition, error)

    async def stop(self) -> None:
        """Stop in order; every record that was acknowledged is on the device afterwards.

        Raises:
            OSError: the device failed; the next start recovers.
        """
        if self._watching is not None:
            self._watching.cancel()
        self._health.stops()
        await self._quorum.before_stop()
        # No new requests first: what comes next ends what they would need.
        self._server.close()
        self._audit.close()
        await self._quorum.stop()
        tasks = tuple(self._cleaning.values())
        for task in tasks:
            task.cancel()
        # Wait for the threads: after the locks are released another process may write.
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                logger.error("task_failed reason=%r", result)
        # A change of a topic that has begun is completed, or its client would see half of it.
        await self._changes.finish()
        await self.replicas.new_logs.finish()
        # Coordinators append while they stop, and a move or a job may roll or flush a log: what
        # still writes ends first, and the flushes that it has asked for come last.
        await self.coordinators.stop()
        await self.moves.stop()
        await asyncio.gather(*(schedule.stop() for schedule in self._schedules.values()))
        await self.flushes.finish()
        try:
            await self._runtime.threads.run(self._close_logs)
        finally:
            self._runtime.threads.close()
            if self._monitor is not None:
                self._monitor.close()
        logger.info("broker_stopped node=%d", self.config.node_id)

    def leave_now(self) -> None:
        """Have `stop` wait no more until other brokers lead this one's partitions."""
        self._quorum.leave_now()

    def _close_logs(self) -> None:
        homes = {log.partition: self.logs.home_of(log).directory.directory_id for log in self.logs}
        try:
            self._quorum.leave(homes if self.end_reason is None else None)
        finally:
            self.logs.close()

    def _ports(
        self,
        services: Services,
        security: NodeSecurity,
        wrap_dispatch: Callable[[Dispatch], Dispatch] | None,
    ) -> Callable[[Listener], Port]:
        """The function that makes the port of a listener."""
        dispatcher = Dispatcher(find_handlers(services), self._runtime.threads, quotas=self.quotas)

        def answers(name: str) -> RequestAnswers:
            # What an answer depends on is bound here, so that no request has to carry it.
            of_listener = replace(services, listener=name)
            find_handler, repeats = find_handlers(of_listener), find_repeats(of_listener)
            if self._monitor is not None:
                times = self._monitor.times
                find_handler, repeats = times.wrap(find_handler), times.wrap_repeats(repeats)
            dispatch = self._quorum.wrap(
                dispatcher.with_handlers(find_handler).dispatch, self.quotas
            )
            # A repeated request would bypass the wrapper.
            if wrap_dispatch:
                return RequestAnswers(wrap_dispatch(dispatch))
            return RequestAnswers(dispatch, repeats, self.quotas)

        def users() -> ScramUsers:
            return self.cluster.metadata.scram

        def port(listener: Listener) -> Port:
            name, host, number, *_ = listener
            return Port(name, host, number, answers(name), security.port_of(listener, users))

        return port

    def _server_of(self, services: Services) -> Server:
        config = self.config
        return Server(
            self._runtime.network,
            [self._port(each) for each in config.listeners],
            read_from_device=services.device_reads.first_bytes,
            frame_bytes_max=config.frame_bytes_max,
            idle_ms_max=config.idle_ms_max,
            memory_bytes_max=config.request_memory_bytes_max,
            limits=config.connection_limits,
            rates=ConnectionRates(
                config.connection_limits,
                config.quotas.windows,
                quotas_now=lambda: self.cluster.metadata.quotas,
            ),
            threads=self._runtime.threads,
            clock=self._runtime.clock,
            slow_request_ms=config.slow_request_ms,
        )

    def _planned(self) -> dict[str, Schedule]:
        """The periodic jobs of each directory."""
        found = {
            directory.path: Schedule(self._housekeeping(directory).jobs(self.config))
            for directory in self.logs.directories
        }
        home = self.logs.metadata_home
        # A directory for the metadata log alone has files to remove, and none of the other jobs.
        if home.path not in found:
            found[home.path] = Schedule([self._housekeeping(home).removal()])
        return found

    def kill(self) -> None:
        """End as a killed process does, in one turn of the loop, whose tasks must end after it.

        Nothing is flushed, no mark of a clean shutdown is written, and no request is answered.
        Bytes that were written stay, since the page cache has them. Calls that worker threads have
        begun are waited for, because threads cannot be killed. Tasks that continue for a turn find
        the files closed.
        """
        # No flush, no mark of a clean shutdown and no answer: the next start has to recover.
        self._server.close()
        self._audit.close()
        if self._monitor is not None:
            self._monitor.close()
        if self._watching is not None:
            self._watching.cancel()
        self.replicas.new_logs.abandon()
        for schedule in self._schedules.values():
            schedule.abandon()
        for task in self._cleaning.values():
            task.cancel()
        self._runtime.threads.close()
        self._quorum.abandon()
        self.logs.abandon()

    async def finish_due_jobs(self) -> None:
        """Wait until no periodic job is due and none runs; for tests that move the clock."""
        for schedule in self._schedules.values():
            await schedule.wait_until_rested()

    def _housekeeping(self, directory: DirectoryLogs) -> Housekeeping:
        return Housekeeping(
            self.logs,
            directory,
            threads=self._runtime.threads,
            clock=self._runtime.clock,
            cleaner=self.cleaner,
        )

    def _directory_failed(self, directory: DirectoryLogs) -> None:
        self.replicas.directory_failed(directory)
        self._quorum.directory_failed(directory)
        reason = end_reason(self.logs)
        if reason is not None:
            self.end(reason)

    def _check_changes(self, of_all: Mapping[str, str], of_this: Mapping[str, str]) -> None:
        """Check changes of settings together, also with the own settings of topics.

        Raises:
            ConfigError: values that contradict each other, or those of a topic.
        """
        of_one = sorted(filter(is_of_one_broker, of_all))
        if of_one:
            # Kafka's words.
            said = (
                "Cannot update these configs at default cluster level, broker id must be specified"
            )
            raise ConfigError([f"{said}: [{', '.join(of_one)}]"])
        planned = changed_config(self.config, of_all, of_this)
        check_listeners(self.current, planned)
        added = [each for each in planned.listeners if each.name not in self._listeners]
        self._security.check(planned, added)
        self._check_ports(planned, added)
        # Also with the settings of each topic, which may contradict a new default.
        defaults = self.config.topic_defaults.with_changes(of_all, of_this).configs
        for topic in self.cluster.image.topics.values():
            # The only settings of which one limits another.
            if topic.configs.keys() & {"min.compaction.lag.ms", "max.compaction.lag.ms"}:
                log_config(topic.configs, defaults)
        log_config({}, defaults)

    def _check_ports(self, planned: BrokerConfig, added: Sequence[Listener]) -> None:
        """Check that new listeners could listen, as far as nobody else takes their ports."""
        kept = {each.name for each in planned.listeners}
        free = {self.port_of(name) for name in self._listeners.keys() - kept}
        for each in added:
            if each.port not in free:
                try:
                    self._server.check_port(each.host, each.port)
                except ListenError as error:
                    raise ConfigError([f"listeners: {error}"]) from error

    async def use_changes(self) -> None:
        """Use the changes of settings that the cluster's state has."""
        cluster, image, node_id = self.cluster, self.cluster.metadata, self.config.node_id
        of_all, of_this = image.broker_configs(node_id)
        self._use(usable_changes(self.config, of_all, of_this, in_use=self.current))
        for quota in (self._leader_quota, self.follower_quota):
            quota.configure(of_all, of_this)
        cluster.defaults = self.config.topic_defaults.with_state(image, node_id)
        # A walk over all logs, so only if a default of topics has changed.
        if cluster.defaults.configs != self._topic_configs:
            self._topic_configs = cluster.defaults.configs
            await self.replicas.configure_all(self.log_config)

    async def forget_topic(self, topic: Topic) -> None:
        """Delete what the groups of this broker have committed for a topic that is deleted."""
        # Imported here: a broker without groups needs none of it.
        from tailrace.handlers.groups import forget_topic

        await forget_topic(self._services, topic)

    def _topic_name(self, topic_id: UUID) -> str | None:
        topic = self.cluster.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def log_config(self, name: str) -> LogConfig | None:
        """The settings of a topic's logs; None: there is no such topic."""
        topic = self.cluster.image.topics.get(name)
        if topic is None:
            return None
        return stored_log_config(topic.configs, self.cluster.defaults.configs)

    def _use(self, config: BrokerConfig) -> None:
        """Use other settings, of those that change while the broker runs."""
        self.current = config
        try:
            self._security.renew(config)
        except ConfigError as error:
            # They were usable when they were changed; files may have gone since.
            logger.warning("certificate_not_renewed reason=%s", error)
        if config.listener_tls and (self._watching is None or self._watching.done()):
            self._watching = asyncio.ensure_future(self._security.watch(self._runtime.threads))
        self._use_listeners(config)
        if self.logs.cordon(config.cordoned_directories):
            self._quorum.directories_cordoned()
        self.cleaner.configure(config.cleaner)
        self._server.limit(config.connection_limits)
        self._move_throttle.bytes_per_second = config.move_bytes_per_second
        self.replicas.verify_transactions(is_required=config.transactions.is_verifying)
        for directory in self.logs.directories:
            directory.expire_producers_after(config.producer_expiration_ms)
        # Compaction can take hours, so it has tasks of its own and is no job of the schedule.
        if config.is_cleaner_enabled:
            for number in range(config.cleaner_thread_count):
                if number not in self._cleaning or self._cleaning[number].done():
                    self._cleaning[number] = asyncio.ensure_future(self._clean(number))

    def _use_listeners(self, config: BrokerConfig) -> None:
        """Open and close ports; those of listeners that stay are left as they are."""
        before, self._endpoints = self.endpoints(), None
        kept = {each.name for each in config.listeners}
        for name in [each for each in self._listeners if each not in kept]:
            del self._listeners[name]
            self._server.remove_port(name)
            logger.info("listener_removed name=%s", name)
        for each in config.listeners:
            if each.name in self._listeners:
                continue
            try:
                self._server.add_port(self._port(each))
            except (ConfigError, ListenError, MissingExtraError) as error:
                # It could be opened when the change was checked.
                next_step = "it is tried with the next change of settings, and with each start"
                logger.error(  # noqa: TRY400 - the reason says all
                    "listener_not_added name=%s reason=%s next=%s", each.name, error, next_step
                )
                continue
            self._listeners[each.name] = each
            address = _address(self._server.address_of(each.name))
            logger.info("listener_added name=%s listen=%s", each.name, address)
        endpoints = self.endpoints()
        if endpoints != before:
            protocols = {name: self._listeners[name].protocol_number for name in endpoints}
            self._quorum.listeners_changed(endpoints, protocols)

    async def _clean(self, number: int) -> None:
        def backoff_ms() -> int | None:
            is_needed = number < self.current.cleaner_thread_count
            return self.current.cleaner_backoff_ms if is_needed else None

        def device_failed(job: CleaningJob, error: OSError) -> None:
            if self.cleaner.is_in_service(job.log):
                self.logs.settle(self.logs.home_of(job.log), error)

        await clean_regularly(
            self.cleaner,
            self._runtime.threads,
            backoff_ms=backoff_ms,
            device_failed=device_failed,
        )


def _addresses(endpoints: Mapping[str, tuple[str, int]]) -> str:
    return ",".join(f"{name}://{_address(each)}" for name, each in endpoints.items())


def _address(endpoint: tuple[str, int]) -> str:
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
