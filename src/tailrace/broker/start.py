"""Start a broker: lock and read the directories, open every log, listen, begin.

alone        the only node: the state of the cluster is in its directory
in cluster   it registers with the controllers, and the logs are opened by the image that has its
             registration; the only controller may be one in this process, which starts before
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.broker.broker import RunningBroker
from tailrace.broker.changing import usable_changes
from tailrace.broker.config import BrokerConfig
from tailrace.broker.loading import Loading
from tailrace.broker.monitoring import open_monitor
from tailrace.broker.monitoring.health import Health
from tailrace.broker.quorum import OwnQuorum
from tailrace.broker.security import NodeSecurity
from tailrace.broker.state import StartingState, check_home
from tailrace.cluster.changes import TopicChanges
from tailrace.errors import DirectoryError, FatalError
from tailrace.records.codecs import limit_decompression
from tailrace.replication.replicas import Replicas
from tailrace.runtime.system import Runtime
from tailrace.server.dispatch import Dispatch
from tailrace.storage.directories import (
    LogDirectory,
    UnusableDirectoryError,
    known_cluster_id,
    open_log_directories,
)
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import LogManager, end_reason, take_marks
from tailrace.storage.moving import settle_futures

if TYPE_CHECKING:
    from tailrace.broker.controller.node import ControllerNode
    from tailrace.broker.monitoring.listener import Monitor

logger = logging.getLogger(__name__)

T = TypeVar("T")


class StartAbandonedError(FatalError):
    """A stop was asked for while the broker waited for its controllers; no log was changed."""


async def start_broker(
    config: BrokerConfig,
    runtime: Runtime,
    *,
    wrap_dispatch: Callable[[Dispatch], Dispatch] | None = None,
    asked_to_stop: asyncio.Event | None = None,
    health: Health | None = None,
) -> RunningBroker:
    """Open the data directories and listen; the broker accepts requests when this returns.

    Directories that the device refuses are left out, except for that of the metadata log.
    `wrap_dispatch` may change how requests are answered: it takes the function that answers a
    frame, and returns another. `asked_to_stop` ends the wait for controllers. `health` says
    meanwhile, and later, what the broker waits for.

    Raises:
        StartAbandonedError: `asked_to_stop` was set in that time.
        DirectoryError, StorageError: the directories cannot be used; see `open_log_directories`.
        ListenError: the address cannot be used; the directories are released.
        ConfigError: a certificate, or another file of TLS, is not usable.
    """
    if config.ignored:
        logger.warning(
            "settings_ignored names=%s reason=this broker does not do what they ask for; "
            "docs/configuration.md says why",
            ",".join(config.ignored),
        )
    # Process-wide, since codecs are: a batch of 10 KB can hold gigabytes.
    limit_decompression(config.decompressed_bytes_max)
    health = health or Health()
    monitor = open_monitor(config, runtime, health)
    try:
        security = NodeSecurity(config, runtime)
        if config.has_controllers:
            broker = await _start_in_cluster(
                config,
                runtime,
                security,
                health=health,
                monitor=monitor,
                wrap_dispatch=wrap_dispatch,
                asked_to_stop=asked_to_stop or asyncio.Event(),
            )
        else:
            broker = await _start_alone(
                config,
                runtime,
                security,
                health=health,
                monitor=monitor,
                wrap_dispatch=wrap_dispatch,
            )
    except BaseException:
        if monitor is not None:
            monitor.close()
        raise
    health.serves(broker)
    logger.info("broker_started node=%d listen=%s", config.node_id, broker.addresses)
    return broker


async def _start_alone(
    config: BrokerConfig,
    runtime: Runtime,
    security: NodeSecurity,
    *,
    health: Health,
    monitor: "Monitor | None",
    wrap_dispatch: Callable[[Dispatch], Dispatch] | None,
) -> RunningBroker:
    """Start a broker that is the only node."""
    cluster_id, logs = _open_directories(config, runtime)
    controller = None
    try:
        state = StartingState.open(config, runtime, logs)
        controller = state.controller
        # Before a log is changed: a crash from here on is no orderly stop.
        take_marks(logs)
        _check_can_continue(logs)
        current = usable_changes(config, *state.changed_settings())
        logs.cordon(current.cordoned_directories)
        replicas = Replicas(logs, runtime.threads)
        logs.on_failure = replicas.directory_failed
        topics = controller.image.topics
        # Before folders are looked at: an exchange of names that a crash has cut is completed here.
        moves = settle_futures(logs, {name: topic.topic_id for name, topic in topics.items()})
        _check_can_continue(logs)
        state.sort_folders()
        _check_can_continue(logs)
        loading = Loading(
            logs, replicas, runtime.threads, thread_count=current.recovery_thread_count
        )
        health.waits_for = loading.words
        await loading.open_all(controller)
        _check_can_continue(logs)
        await runtime.threads.run(lambda: state.settle(replicas))
        changes = TopicChanges(runtime.threads)
        broker = RunningBroker(
            config=config,
            runtime=runtime,
            security=security,
            cluster_id=cluster_id,
            logs=logs,
            quorum=OwnQuorum(controller, logs, runtime, changes=changes, replicas=replicas),
            changes=changes,
            replicas=replicas,
            health=health,
            monitor=monitor,
            wrap_dispatch=wrap_dispatch,
        )
        broker.start(current)
        broker.resume_moves(moves)
    except BaseException:
        if controller is not None:
            controller.log.abandon()
        logs.abandon()
        raise
    return broker


async def _start_in_cluster(
    config: BrokerConfig,
    runtime: Runtime,
    security: NodeSecurity,
    *,
    health: Health,
    monitor: "Monitor | None",
    wrap_dispatch: Callable[[Dispatch], Dispatch] | None,
    asked_to_stop: asyncio.Event,
) -> RunningBroker:
    """Start a broker that has controllers, with what they have decided for it.

    Raises:
        RegistrationError: no controller has registered it.
        StartAbandonedError: as `start_broker`.
    """
    # Imported here: a broker alone needs no client of any kind.
    from tailrace.broker.kraft.membership import Membership, ask_cluster_id

    is_controller = config.controller_listener is not None
    paths = tuple(dict.fromkeys((config.metadata_directory, *config.directories)))
    cluster_id = known_cluster_id(runtime.files, paths)
    # The cluster of a controller in this process begins with its directory.
    if cluster_id is None and not is_controller:
        cluster_id = await _wait_unless(asked_to_stop, ask_cluster_id(config, runtime, security))
    cluster_id, logs = _open_directories(config, runtime, cluster_id=cluster_id)
    membership, broker = None, None
    try:
        if is_controller:
            node = await _start_controller(config, runtime, security, logs=logs)
            membership = Membership.beside(node, config, runtime, security=security, logs=logs)
        else:
            membership = Membership.open(
                config, runtime, security, cluster_id=cluster_id, logs=logs
            )
        replicas = membership.replicas
        logs.on_failure = replicas.directory_failed
        broker = RunningBroker(
            config=config,
            runtime=runtime,
            security=security,
            cluster_id=cluster_id,
            logs=logs,
            quorum=membership,
            changes=TopicChanges(runtime.threads),
            replicas=replicas,
            health=health,
            monitor=monitor,
            wrap_dispatch=wrap_dispatch,
        )
        # The registration names the ports.
        broker.open()
        health.waits_for = lambda: "it waits for a controller that registers it"
        await _wait_unless(asked_to_stop, membership.join(broker.endpoints()))
        # Before a log is changed: a crash from here on is no orderly stop.
        take_marks(logs)
        _check_can_continue(logs)
        image = membership.cluster.image
        moves = settle_futures(logs, {each.name: each.topic_id for each in image.topics.values()})
        _check_can_continue(logs)
        membership.set_strays_aside()
        _check_can_continue(logs)
        current = usable_changes(
            config, *membership.cluster.metadata.broker_configs(config.node_id)
        )
        # Before logs are made, and before the heartbeat that asks to be unfenced.
        logs.cordon(current.cordoned_directories)
        loading = Loading(
            logs, replicas, runtime.threads, thread_count=current.recovery_thread_count
        )
        health.waits_for = loading.words
        await loading.open_all(membership.cluster, node_id=config.node_id)
        _check_can_continue(logs)
        broker.start(current)
        broker.resume_moves(moves)
    except BaseException:
        if broker is not None:
            broker.close_port()
        if membership is not None:
            await membership.stop()
            membership.abandon()
        logs.abandon()
        raise
    return broker


async def _start_controller(
    config: BrokerConfig, runtime: Runtime, security: NodeSecurity, *, logs: LogManager
) -> "ControllerNode":
    """The controller of the node, which leads; before its broker registers with it."""
    from tailrace.broker.controller.node import ControllerNode

    home = logs.metadata_home
    node = ControllerNode(
        config, runtime, security, directory=home.directory, removals=home.removals
    )
    try:
        node.open()
        await node.start(has_partitions=lambda: any(each.find_partitions() for each in logs.online))
    except BaseException:
        node.kill()
        raise
    return node


async def _wait_unless(asked_to_stop: asyncio.Event, waiting: Coroutine[Any, Any, T]) -> T:
    """The result of a wait for controllers, which may have no end.

    Raises:
        StartAbandonedError: the event was set before.
    """
    asking, task = asyncio.ensure_future(asked_to_stop.wait()), asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([asking, task], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise StartAbandonedError("stopped before the controllers had this broker started")
    finally:
        for each in (asking, task):
            each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([each])


def _check_can_continue(logs: LogManager) -> None:
    """Check that the directory of the metadata log is in service, and one for logs.

    Raises:
        DirectoryError: they are not.
    """
    reason = end_reason(logs)
    if reason is not None:
        raise DirectoryError(reason)


def _open_directories(
    config: BrokerConfig, runtime: Runtime, *, cluster_id: str | None = None
) -> tuple[str, LogManager]:
    """The cluster id, and the manager of the directories, without open logs.

    `cluster_id` is that of new directories, where none has one; None: a new one.

    Raises:
        DirectoryError: as `check_home` and `open_log_directories`, or the device refuses all that
            are for logs.
    """
    home = config.metadata_directory
    check_home(runtime.files, config)
    opened = open_log_directories(
        runtime.files,
        tuple(dict.fromkeys((home, *config.directories))),
        node_id=config.node_id,
        chance=runtime.chance,
        cluster_id=cluster_id,
    )
    # A directory that refuses does not keep the others from serving, as in Kafka (KIP-112).
    left_out = dict(opened.left_out)
    usable: list[DirectoryLogs] = []
    for directory in opened.usable:
        try:
            usable.append(_logs_of(directory, config, runtime))
        except UnusableDirectoryError as error:
            directory.close()
            if not usable:
                for other in opened.usable:
                    other.close()
                raise
            left_out[directory.path] = str(error)
    for path, reason in left_out.items():
        logger.error("directory_left_out path=%s reason=%s", path, reason)
    directories = usable if home in config.directories else usable[1:]
    logs = LogManager(directories, metadata_home=usable[0], left_out=left_out)
    if not directories:
        logs.abandon()
        raise UnusableDirectoryError("; ".join(left_out.values()))
    return opened.usable[0].identity.cluster_id, logs


def _logs_of(directory: LogDirectory, config: BrokerConfig, runtime: Runtime) -> DirectoryLogs:
    return DirectoryLogs.from_checkpoints(
        runtime.files,
        directory,
        clock=runtime.clock,
        chance=runtime.chance,
        producer_expiration_ms=config.producer_expiration_ms,
        has_other_replicas=config.has_controllers,
    )
