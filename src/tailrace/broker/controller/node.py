"""`ControllerNode`: the active controller of a quorum whose only voter it is.

    open    the port; connections wait in the kernel's queue
    start   open the log, begin its next epoch, take the state, accept requests
    stop    close the port, write what is decided, close the log

    Fetch, FetchSnapshot            the log, to observers
    BrokerRegistration, Heartbeat, AlterPartition, AllocateProducerIds, AssignReplicasToDirs
    Envelope                        what brokers forward for clients; also by itself
    DescribeCluster                 this controller, to those who ask for controllers (KIP-919)
    DescribeConfigs                 settings of the cluster and of this node, likewise

A request changes the state at once, in one turn of the loop, and is answered when its records are
on the device (`log_writer`). Nothing that is answered or observed can be lost by a crash after it.

Not here: the rules (`cluster.control`), how its log begins (`log_start`), and those who follow it
(`observers`).

Invariant: this node leads from `start` to its end. A failure of the device ends it, because its
state is ahead of the log then; what waits is answered NOT_CONTROLLER, as by Kafka's that resigns.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from tailrace.broker.config import BrokerConfig
from tailrace.broker.controller.config_rules import config_rules
from tailrace.broker.controller.described import (
    DescribedNode,
    alter_with_loggers,
    described_node,
)
from tailrace.broker.controller.log_answers import Quorum
from tailrace.broker.controller.log_lines import log_changes
from tailrace.broker.controller.log_start import epoch_step, start_log
from tailrace.broker.controller.log_writer import LogWriter, NotWrittenError
from tailrace.broker.controller.observers import Observers
from tailrace.broker.security import NodeSecurity
from tailrace.cluster.control.brokers import fence_records, fence_stale
from tailrace.cluster.control.leaders import balance_leaders, elect_unclean
from tailrace.cluster.control.requests import ANSWERED, FORWARDED, decide
from tailrace.cluster.control.state import RECORDS_MAX, ControlState, RefusedError
from tailrace.cluster.metadata.batches import BatchPlace, RecordToWrite, data_batch
from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.features import KRAFT_VERSION, KRAFT_VERSIONS
from tailrace.cluster.metadata.folder import MetadataFolder
from tailrace.cluster.metadata.image import NOTHING_CHANGED, ImageChange, MetadataImage
from tailrace.cluster.metadata.log import MetadataLog
from tailrace.handlers.acls import described_acls, no_creation, no_deletion
from tailrace.handlers.api_versions import versions_answer
from tailrace.handlers.audit import audited
from tailrace.handlers.describe_configs import handle_describe_configs
from tailrace.handlers.quorum import voters_refusal
from tailrace.handlers.refusals import refusal
from tailrace.handlers.security import (
    handle_create_delegation_token,
    handle_expire_delegation_token,
    handle_renew_delegation_token,
    handle_sasl_authenticate,
    handle_sasl_handshake,
)
from tailrace.protocol.answers import Answer, Handled, Handler
from tailrace.protocol.apis import APIS, BETWEEN_NODES, Api, ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.envelopes import InvalidAddressError, client_of
from tailrace.protocol.errors import ErrorCode, MalformedMessageError, UnencodableMessageError
from tailrace.protocol.fields import NO_UUID, Message, Records
from tailrace.protocol.frames import SIZE_BYTES, RequestHeader, read_request_header
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_configs import DescribeConfigsRequest
from tailrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tailrace.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tailrace.replication.device_reads import DeviceReads
from tailrace.runtime.background import BackgroundTasks
from tailrace.runtime.clock import elapsed_ms
from tailrace.runtime.system import Runtime
from tailrace.security.audit import Audit
from tailrace.security.quotas import STRICT_SINCE, ClientQuotas
from tailrace.server.dispatch import Dispatcher, RequestAnswers, UnservedRequestError
from tailrace.server.listener import Port, Server, ServerStatistics
from tailrace.server.quotas import ConnectionRates
from tailrace.server.request_times import RequestTimes
from tailrace.storage.directories import LogDirectory
from tailrace.storage.folder import Removals
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.handlers.services import Services
    from tailrace.protocol.metadata_records import VotersRecordVoter
    from tailrace.security.authorizer import Authorizer

logger = logging.getLogger(__name__)

KNOWN: Final[Mapping[int, Api]] = {**APIS, **BETWEEN_NODES}
OF_VOTERS: Final = frozenset({ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
PLAIN: Final[Mapping[int, Any]] = {
    ApiKey.SASL_HANDSHAKE: handle_sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: handle_sasl_authenticate,
    ApiKey.CREATE_DELEGATION_TOKEN: handle_create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: handle_renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: handle_expire_delegation_token,
}
"""Requests of what there is none of here: logins, tokens. They need no services."""
FORWARDABLE: Final = FORWARDED | OF_VOTERS | {ApiKey.DESCRIBE_QUORUM}
"""The requests that an envelope may have in it."""
SERVED: Final[Mapping[int, Api]] = {
    key: KNOWN[key]
    for key in sorted(
        {ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.ENVELOPE,
         ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_ACLS, *PLAIN,
         *FORWARDABLE, *ANSWERED}
    )
}  # fmt: skip
"""The APIs of the node; any other ends the connection, as in Kafka."""

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Most bytes of one batch, as in Kafka: every observer has to be able to take it as a whole."""
FENCINGS_PER_SESSION: Final = 8
"""Looks for brokers without heartbeats in the time of a session, as in Kafka."""
TIDY_S: Final = 1.0
REMOVE_S: Final = 60.0
_CONTROLLERS: Final = 2
"""Number of the endpoints of controllers in DescribeCluster (KIP-919)."""
_WILDCARDS: Final = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatistics:
    """A controller at one moment."""

    server: ServerStatistics
    """Connections, and memory for requests."""
    epoch: int
    """The epoch of the quorum, in which it leads."""
    end_offset: int
    """The offset of the next record, with those that are not on the device yet."""
    watermark: int
    """The offset after the last record on the device."""
    observer_count: int
    """Brokers that follow the log."""
    broker_count: int
    """Registered brokers."""
    fenced_count: int
    """Registered brokers that are fenced."""


class ControllerNode:
    """One controller, on one event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        security: NodeSecurity,
        *,
        directory: LogDirectory,
        removals: Removals,
        times: RequestTimes | None = None,
    ) -> None:
        """`directory` is that of the metadata log, which the caller has locked.

        `times` counts the requests.
        """
        assert config.controller_listener is not None, "the node has the role of a controller"
        self.cluster_id = directory.identity.cluster_id
        self.failed = asyncio.Event()
        """Set when the node cannot continue: it must be stopped."""
        self.end_reason: str | None = None
        """Why it cannot continue; None: it can."""
        self.on_written: list[Callable[[MetadataImage, ImageChange, int], None]] = []
        """Called with each state that is on the device, what has changed, and its end offset."""
        self._listener = config.controller_listener
        self._config = config
        self._security = security
        self._runtime = runtime
        self._directory = directory
        self._removals = removals
        self._state = ControlState(
            self.cluster_id,
            node_id=config.node_id,
            defaults=config.topic_defaults,
            chance=runtime.chance,
            config=config.control,
            rules=config_rules(config.consumer_groups),
            can_delete_topics=config.can_delete_topics,
        )
        self._log: MetadataLog | None = None
        self._described: DescribedNode | None = None
        """For DescribeConfigs, once somebody has asked."""
        # Of the decided state: the quotas of requests, too, count in the order of the log.
        self._quotas = ClientQuotas(lambda: self._state.image.quotas, runtime.clock, config.quotas)
        self._tasks = BackgroundTasks()
        self._audit = Audit()
        self._authorizer = config.access.authorizer(lambda: self.image.acls, self._audit)
        self._observers = Observers(
            lambda: self._writer,
            runtime,
            quorum=self._quorum,
            lead_above=self._lead_above,
            # Half of the time after which a silent connection is closed: one that is lost must not
            # outlast it.
            wait_ms_max=config.idle_ms_max // 2,
        )
        find_handler = self._handlers().__getitem__
        if times is not None:
            find_handler = times.wrap(find_handler)
        dispatcher = Dispatcher(find_handler, runtime.threads, apis=SERVED)
        self._forwarded = dispatcher.dispatch
        self._server = Server(
            runtime.network,
            [
                Port(
                    self._listener.name,
                    self._listener.host,
                    self._listener.port,
                    RequestAnswers(dispatcher.dispatch),
                    security.port_of(self._listener, lambda: self.image.scram),
                )
            ],
            read_from_device=DeviceReads(runtime.threads).first_bytes,
            frame_bytes_max=config.frame_bytes_max,
            idle_ms_max=config.idle_ms_max,
            memory_bytes_max=config.request_memory_bytes_max,
            limits=config.connection_limits,
            rates=ConnectionRates(
                config.connection_limits,
                config.quotas.windows,
                quotas_now=lambda: self._state.image.quotas,
            ),
            threads=runtime.threads,
            clock=runtime.clock,
            slow_request_ms=config.slow_request_ms,
        )

    # -- life ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the port; connections wait in the kernel's queue until `start`.

        Raises:
            ListenError: the address cannot be used; nothing was started.
        """
        self._server.open()

    async def start(self, *, has_partitions: Callable[[], bool] = lambda: False) -> None:
        """Open the log, lead its next epoch, and accept requests.

        `has_partitions` tells whether the node has folders of partitions, on a thread: a cluster
        that begins would not know them.

        Raises:
            DirectoryError: its state cannot be proven, lacks changes that were acknowledged, is of
                a later release or of a quorum with other voters, or the device refuses. Or a
                cluster would begin beside partitions.
        """
        opening = partial(self._open_log, has_partitions=has_partitions)
        self._log = log = await self._runtime.threads.run(opening)
        self._writer = LogWriter(log, self._runtime.threads, failed=self._write_failed)
        self._writer.on_written = self._written
        self._epoch = log.epoch
        self._logged = log.image
        self._looked_ms = self._now_ms
        self._state.kraft_version = log.kraft_version
        self._state.begin(log.image, next_offset=log.end_offset, now_ms=self._now_ms)
        own = log.image.brokers.get(self._config.node_id)
        if own is not None and self._config.is_broker:
            # The broker of this node has ended with the last process: this one has its locks. (In
            # Kafka it waits for the end of its own session.)
            self._state.heartbeats.end_session(own.broker_id, own.broker_epoch)
        if self._authorizer is not None:
            self._authorizer.refresh()
        self._server.start()
        control = self._config.control
        self._every(
            control.session_timeout_ms / 1000 / FENCINGS_PER_SESSION,
            self._fence_stale,
        )
        if control.is_rebalancing:
            self._every(control.rebalance_s, lambda: self._append(balance_leaders(self._state)))
        self._every(
            control.unclean_election_ms / 1000, lambda: self._append(elect_unclean(self._state))
        )
        if self._config.listener_tls and not self._config.is_broker:
            self._tasks.start(self._security.watch(self._runtime.threads))
        self._tasks.start(self._tidy())
        self._tasks.start(self._remove())
        logger.info(
            "controller_started node=%d cluster=%s listen=%s:%d epoch=%d end_offset=%d "
            "note=the metadata of the cluster is on this node alone",
            self._config.node_id, self.cluster_id, *self.address, log.epoch, log.end_offset,
        )  # fmt: skip

    async def stop(self) -> None:
        """Stop in order: what was decided is written, and nothing more is answered.

        Raises:
            OSError: the device failed; all that was acknowledged is on it already.
        """
        self.close_port()
        await self._tasks.end()
        if self._log is not None:
            await self._writer.close()
            await self._runtime.threads.run(self._close_log)
            logger.info("controller_stopped node=%d", self._config.node_id)

    def kill(self) -> None:
        """End as a killed process does; its directory stays locked by the caller."""
        self.close_port()
        self._tasks.cancel()
        if self._log is not None:
            self._writer.abandon()
            self._log.abandon()

    def close_port(self) -> None:
        """Take no more requests, and end all connections."""
        self._server.close()
        self._audit.close()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port by which brokers reach it; from `open` on."""
        host, port = self._server.address_of(self._listener.name)
        if self._listener.advertised is not None:
            host, port = self._listener.advertised[0], self._listener.advertised[1] or port
        return socket.gethostname() if host in _WILDCARDS else host, port

    @property
    def listener_name(self) -> str:
        """The name of its listener."""
        return self._listener.name

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port by which a broker in this process reaches it; from `open` on."""
        # A certificate names the host that is advertised.
        if self._listener.is_encrypted:
            return self.address
        host, port = self._server.address_of(self._listener.name)
        return ("::1" if ":" in host else "127.0.0.1") if host in _WILDCARDS else host, port

    @property
    def image(self) -> MetadataImage:
        """The state of the cluster that is on the device."""
        return self._writer.image

    @property
    def decided(self) -> MetadataImage:
        """The state with all decisions, of which a crash may take those that are not in `image`."""
        return self._state.image

    @property
    def watermark(self) -> int:
        """The offset after the last record on the device."""
        return self._writer.watermark

    @property
    def epoch(self) -> int:
        """The epoch in which it leads, which is on the device."""
        assert self._log is not None, "it has started"
        return self._log.epoch

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the settings do (KIP-853)."""
        return self._state.kraft_version

    def end_session(self, broker_id: int) -> None:
        """Fence a broker at once, as if its session had ended; for tests that do not wait for it.

        A heartbeat that comes later begins another session.
        """
        broker = self._state.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            self._append(fence_records(self._state, broker_id))
        if broker is not None:
            # A broker that was killed may start again at once.
            self._state.heartbeats.end_session(broker_id, broker.broker_epoch)

    def prolong_sessions(self, by_ms: int) -> None:
        """Let no session end because a test has moved the clock: nobody was silent meanwhile."""
        self._state.heartbeats.prolong(by_ms)

    def statistics(self) -> ControllerStatistics:
        """The controller right now."""
        brokers = self._state.image.brokers.values()
        return ControllerStatistics(
            server=self._server.statistics(),
            epoch=self.epoch,
            end_offset=self._state.next_offset,
            watermark=self.watermark,
            observer_count=len(self._observers),
            broker_count=len(brokers),
            fenced_count=sum(each.fenced for each in brokers),
        )

    # -- the log ------------------------------------------------------------------------------

    def _open_log(self, *, has_partitions: Callable[[], bool]) -> MetadataLog:
        runtime, home = self._runtime, self._directory.path
        return start_log(
            MetadataFolder(runtime.files, runtime.clock, runtime.chance, self._removals, home),
            self._config,
            cluster_id=self.cluster_id,
            own=self._own_voter(),
            has_partitions=has_partitions,
        )

    def _own_voter(self) -> "VotersRecordVoter":
        """This node, as its log names it."""
        from tailrace.protocol.metadata_records import (
            Endpoint,
            KRaftVersionFeature,
            VotersRecordVoter,
        )

        host, port = self.address
        return VotersRecordVoter(
            voter_id=self._config.node_id,
            voter_directory_id=self._directory.directory_id,
            endpoints=(Endpoint(name=self._listener.name, host=host, port=port),),
            kraft_version_feature=KRaftVersionFeature(
                min_supported_version=KRAFT_VERSIONS[0], max_supported_version=KRAFT_VERSIONS[1]
            ),
        )

    def _lead_above(self, known: int) -> int:
        """Lead a later epoch than one that is known elsewhere, when its batch is on the device.

        Returns the offset after what is written then.

        Raises:
            NotWrittenError: the node ends.
        """
        log, state, now_ms = self._log, self._state, self._runtime.clock.now_ms()
        assert log is not None, "it has started"
        # It waits to be written already, if another observer was first.
        if known >= self._epoch:
            epoch = known + epoch_step(self._runtime.chance)
            batch = log.election(BatchPlace(state.next_offset, epoch, now_ms))
            end_offset = state.next_offset + 1
            self._writer.put(
                batch, end_offset=end_offset, image=state.image, change=NOTHING_CHANGED
            )
            self._epoch, state.next_offset = epoch, end_offset
            logger.warning(
                "controller_epoch_raised epoch=%d known=%d reason=%s", epoch, known,
                "a broker has seen a later epoch: an older copy of this log has led meanwhile",
            )  # fmt: skip
        return state.next_offset

    def _close_log(self) -> None:
        assert self._log is not None, "it has started"
        try:
            # After a failure its files are as a crash leaves them, and the next start reads them.
            if self.end_reason is None:
                self._log.close()
        finally:
            self._log.abandon()

    def _append(self, records: Iterable[RecordToWrite]) -> None:
        """Change the state by records, and have them written.

        Raises:
            RefusedError: they are too large for a batch, or cannot be written.
            NotWrittenError: the node ends.
        """
        rest = iter(records)
        while part := tuple(islice(rest, RECORDS_MAX)):
            state, clock = self._state, self._runtime.clock
            place = BatchPlace(state.next_offset, self._epoch, clock.now_ms())
            try:
                # Before the state changes: what cannot be written is refused, and nothing happened.
                batch = data_batch(part, place)
            except UnencodableMessageError as error:
                raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from error
            if len(batch) > BATCH_BYTES_MAX:
                raise RefusedError(
                    ErrorCode.POLICY_VIOLATION,
                    f"The request would be a batch of {len(batch)} bytes, and {BATCH_BYTES_MAX} "
                    "are allowed.",
                )
            if self._writer.is_closed:
                raise NotWrittenError("the controller ends")
            change = state.replay(each.record for each in part)
            self._writer.put(batch, end_offset=state.next_offset, image=state.image, change=change)

    def _written(self, image: MetadataImage, change: ImageChange, end_offset: int) -> None:
        # Not when it is decided: a device that fails now takes the decision back. And not now:
        # observers wait, and there are lines about ten thousand leaders.
        asyncio.get_running_loop().call_soon(log_changes, self._logged, image, change)
        self._logged = image
        for callback in self.on_written:
            callback(image, change, end_offset)

    def _write_failed(self, error: Exception) -> None:
        path, is_known = self._directory.path, isinstance(error, OSError)
        logger.error(
            "controller_failed path=%s reason=%s", path, error, exc_info=None if is_known else error
        )
        what = "the device of the metadata log has failed" if is_known else "nothing can be written"
        self.end_reason = f"{path}: {what}: {error}"
        # In the next turn, so that what waits gets its answer.
        asyncio.get_running_loop().call_later(0.05, self.close_port)
        self.failed.set()

    # -- periodic work ------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        # Of the machine and not of the day: a clock that is set must not end all sessions.
        return elapsed_ms(self._runtime.clock)

    def _fence_stale(self) -> None:
        self._forgive_pause()
        # Each in a state that has the one before: else one could be elected leader of the other's
        # partitions. All that are due now, or the last would lead for a while longer.
        while (records := fence_stale(self._state, now_ms=self._now_ms)) is not None:
            before = self._state.image.brokers
            self._append(records)
            for broker_id, broker in self._state.image.brokers.items():
                if broker.fenced and not before[broker_id].fenced:
                    logger.warning(
                        "broker_session_ended broker=%d session_ms=%d next=%s",
                        broker_id, self._config.control.session_timeout_ms,
                        "others lead its partitions; see whether it runs and reaches this node",
                    )  # fmt: skip

    def _forgive_pause(self) -> None:
        # This process or its machine was stopped: heartbeats of that time may be in the sockets.
        # Without this all brokers would be fenced at once, and each partition lose its leader.
        now_ms = self._now_ms
        pause_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        if pause_ms > self._config.control.session_timeout_ms // 2:
            logger.warning(
                "controller_paused for_ms=%d consequence=%s", pause_ms,
                "brokers were not heard meanwhile, and keep their sessions for as long",
            )  # fmt: skip
            self._state.heartbeats.prolong(pause_ms)

    def _every(self, seconds: float, work: Callable[[], None]) -> None:
        async def run() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    work()
                except NotWrittenError:
                    return
                except Exception:
                    # The cluster is better off with the rest of its controller than without any.
                    logger.exception("controller_work_failed")

        self._tasks.start(run())

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            self._writer.tidy()

    async def _remove(self) -> None:
        while True:
            await asyncio.sleep(REMOVE_S)
            try:
                now_ms = self._runtime.clock.now_ms()
                await self._runtime.threads.run(partial(self._removals.remove_due, now_ms))
            except Exception as error:  # noqa: BLE001 - such as a system that starts no thread now
                logger.warning("files_not_removed reason=%r", error)

    # -- requests -----------------------------------------------------------------------------

    def _handlers(self) -> Mapping[int, Handler]:
        special: dict[int, Handler] = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.FETCH: self._observers.fetch,
            ApiKey.FETCH_SNAPSHOT: self._observers.fetch_snapshot,
            ApiKey.ENVELOPE: self._envelope,
            ApiKey.DESCRIBE_CLUSTER: self._describe_cluster,
            ApiKey.DESCRIBE_QUORUM: self._observers.describe_quorum,
            ApiKey.ADD_RAFT_VOTER: partial(self._refuse_voters, change="adding"),
            ApiKey.REMOVE_RAFT_VOTER: partial(self._refuse_voters, change="removing"),
            ApiKey.DESCRIBE_CONFIGS: self._describe_configs,
            ApiKey.DESCRIBE_ACLS: self._describe_acls,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
            **{key: partial(handle, None) for key, handle in PLAIN.items()},
        }
        handlers = {
            key: audited(special.get(key, self._decide), key, self._audit) for key in SERVED
        }
        if self._authorizer is None:
            without: dict[int, Handler] = {
                ApiKey.CREATE_ACLS: lambda _, request: no_creation(request),
                ApiKey.DELETE_ACLS: lambda _, request: no_deletion(request),
            }
            return handlers | without
        return self._guarded(handlers, self._authorizer)

    def _guarded(
        self, handlers: Mapping[int, Handler], authorizer: "Authorizer"
    ) -> Mapping[int, Handler]:
        """The handlers for nodes and clients that do not have every right."""
        # A start without an authorizer imports none of it (decision 24).
        from tailrace.handlers.guards import Guard, guarded
        from tailrace.handlers.special_guards import CHECKS, LONG
        from tailrace.security.needs import CONTROLLER_NEEDS

        def topic_name(topic_id: UUID) -> str | None:
            topic = self.image.topics.get(topic_id)
            return None if topic is None else topic.name

        def guard(key: ApiKey) -> Guard:
            return Guard(
                key,
                authorizer,
                CONTROLLER_NEEDS[key],
                topic_name=topic_name,
                has_topic=lambda name: name in self.image.topic_ids,
            )

        # DescribeCluster needs one right here, and is not what the broker's check is for.
        checks = dict(CHECKS)
        del checks[ApiKey.DESCRIBE_CLUSTER]
        return {
            key: guarded(handler, guard(ApiKey(key)), checks=checks, long=LONG)
            for key, handler in handlers.items()
        }

    def _describe_acls(self, _: RequestHeader, request: DescribeAclsRequest) -> Handled:
        return described_acls(self._authorizer, request, self._runtime.threads)

    def _alter_configs(
        self, header: RequestHeader, request: IncrementalAlterConfigsRequest
    ) -> Handled:
        """The answer: levels of loggers are of this process, the rest is decided (KIP-412)."""
        if all(each.resource_type != ResourceType.BROKER_LOGGER for each in request.resources):
            return self._decide(header, request)
        return alter_with_loggers(self._described_node(), request, partial(self._decide, header))

    def _described_node(self) -> "Services":
        if self._described is None:
            # With the first request: few ask, and it takes as long as there are topics.
            self._described = described_node(
                self._config, self.image, offset=self.watermark - 1, port_of=lambda _: None
            )
            cluster = self._described.cluster
            self.on_written.append(
                lambda image, change, end: cluster.publish(image, change, offset=end - 1)
            )
        return cast("Services", self._described)

    def _describe_configs(self, header: RequestHeader, request: DescribeConfigsRequest) -> Handled:
        return handle_describe_configs(self._described_node(), header, request)

    def _decide(self, header: RequestHeader, request: Message) -> Handled:
        """The answer by the rules, when its records are on the device."""
        api = SERVED[header.api_key]
        is_counted = api.key in STRICT_SINCE
        mutations = self._quotas.mutations(header) if is_counted else None

        def take(count: int) -> None:
            if mutations is not None and not mutations.take(count):
                raise RefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

        try:
            decision = decide(
                self._state,
                api.key,
                request,
                version=header.api_version,
                now_ms=self._now_ms,
                take=take,
                is_forwarded=bool(header.caller.forwarder),
            )
            self._append(decision.records)
        except RefusedError as error:
            return refusal(api, request, error.code, message=error.message)
        except MetadataFaultError:
            logger.exception("decision_refused api=%s", api.key.title)
            return refusal(api, request, ErrorCode.UNKNOWN_SERVER_ERROR)
        except NotWrittenError:
            return refusal(api, request, ErrorCode.NOT_CONTROLLER)
        # Also without records: what the answer is made of must be on the device too.
        end_offset, answer = self._state.next_offset, decision.answer
        if mutations is not None:
            answer = mutations.settle(answer)
        if self._writer.watermark >= end_offset:
            return answer
        return self._when_written(api, request, answer, end_offset=end_offset)

    async def _when_written(
        self, api: Api, request: Message, answer: Message, *, end_offset: int
    ) -> Message:
        try:
            await self._writer.written(end_offset)
        except NotWrittenError:
            # It may be there after the next start. Who has asked looks then, as after any lost
            # answer of a controller.
            return refusal(api, request, ErrorCode.NOT_CONTROLLER)
        return answer

    def _is_active(self) -> bool:
        return not self._writer.is_closed

    def _versions(self, header: RequestHeader, request: ApiVersionsRequest | None) -> Message:
        levels = dict(self.image.features)
        if self.kraft_version > 0:
            levels[KRAFT_VERSION] = self.kraft_version
        return versions_answer(
            header, request, served=_VERSIONS, levels=levels, epoch=max(self.watermark - 1, 0)
        )

    # -- the quorum ---------------------------------------------------------------------------

    def _quorum(self) -> Quorum:
        node_id = self._config.node_id
        return Quorum(
            cluster_id=self.cluster_id,
            node_id=node_id,
            leader_id=node_id,
            epoch=self.epoch,
            log=self._writer.served,
            listener=self._listener.name,
            endpoints={node_id: self.address},
            directory_id=self._directory.directory_id if self.kraft_version else NO_UUID,
        )

    def _describe_cluster(self, _: RequestHeader, request: DescribeClusterRequest) -> Message:
        if request.endpoint_type != _CONTROLLERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="The request was sent to an endpoint of type CONTROLLER, but we "
                "wanted an endpoint of type BROKER",
                cluster_id="",
            )
        host, port = self.address
        node_id = self._config.node_id
        own = DescribeClusterBroker(broker_id=node_id, host=host, port=port)
        return DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            endpoint_type=_CONTROLLERS,
            cluster_id=self.cluster_id,
            controller_id=node_id,
            brokers=(own,),
        )

    def _refuse_voters(self, header: RequestHeader, request: Any, *, change: str) -> Message:  # noqa: ANN401 - of one of two APIs
        code, message = voters_refusal(
            self.cluster_id, request.cluster_id, kraft_version=self.kraft_version, change=change
        )
        return refusal(SERVED[header.api_key], request, code, message=message)

    async def _envelope(self, header: RequestHeader, request: EnvelopeRequest) -> Answer:
        try:
            client = client_of(request, header.caller)
        except MalformedMessageError:
            return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        except InvalidAddressError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        client = client._replace(forwarder=f"{header.client_id}@{header.caller.peer}")
        # A copy: the request may wait for the device, and the frame's memory is the connection's.
        frame = memoryview(bytes(request.request_data))
        try:
            inner, _ = read_request_header(frame, apis=SERVED, caller=client)
            # An envelope in an envelope, and all that a broker answers itself.
            if inner.api_key not in FORWARDABLE:
                return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
            if not self._is_active():
                return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
            found = self._forwarded(frame, client)
            buffers = await found if isinstance(found, Awaitable) else found
        except UnservedRequestError:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        except MalformedMessageError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not self._is_active():
            # The broker asks again, and the client waits: NOT_CONTROLLER is nothing for clients.
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return EnvelopeResponse(
            response_data=_joined(buffers)[SIZE_BYTES:], error_code=ErrorCode.NONE
        )


_VERSIONS: Final = tuple(
    ApiVersion(api_key=int(each.key), min_version=each.first_version, max_version=each.last_version)
    for each in SERVED.values()
)


def _joined(buffers: Iterable[Records]) -> bytes:
    # None of the forwarded APIs answers with records of a file.
    return b"".join(buffers)  # type: ignore[arg-type]
