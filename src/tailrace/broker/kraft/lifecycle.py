"""`Lifecycle`: this broker's registration with the controllers, and its heartbeats (KIP-631).

    STARTING ──caught up──► RECOVERY ──unfenced──► RUNNING ──controlled_shutdown──► PENDING_…
       │  register, until one accepts        │ ready_to_unfence: logs are open            │
       └─────────────────────────── close ───┴──────────────► SHUTTING_DOWN ◄─────────────┘

One request is under way at a time, and each next one is a heartbeat if the broker is registered,
else a registration: at once if something is to be said, else after `broker.heartbeat.interval.ms`.

A controller fences a broker whose heartbeats stay away for `broker.session.timeout.ms`. Its leaders
are elected elsewhere then, and the next heartbeat ends that. The broker itself serves on meanwhile:
what it may not do, the others refuse.

Beyond Kafka 4.3, whose broker warns for ever where the controllers do not know its registration any
more (STALE_BROKER_EPOCH): this one registers again, with the same incarnation, since it is the same
life of the process. If another broker has got its id meanwhile, the controllers refuse that.

After a crash: the registration has ended with the session at the latest. The next start registers
with a new incarnation, and with the epoch of the last orderly stop, if that was one.

Not here: when the broker is ready to be unfenced, and what it does as its state changes.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Final
from uuid import UUID

from tailrace.broker.kraft.channel import Asker, ControllerChannel
from tailrace.broker.kraft.settings import LifecycleConfig
from tailrace.client.errors import error_words
from tailrace.cluster.metadata.features import FEATURES, KRAFT_VERSION, KRAFT_VERSIONS, Feature
from tailrace.errors import FatalError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tailrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)
from tailrace.protocol.messages.broker_registration import Feature as SupportedFeature
from tailrace.storage.directories import NO_BROKER_EPOCH, LogDirectory
from tailrace.values import dataclass, replace

logger = logging.getLogger(__name__)

STARTING_PAUSE_S: Final = 0.01
"""Pause between heartbeats while the broker catches up, which most often takes no time."""
SHUTDOWN_PAUSE_S: Final = 0.05
"""Pause after the first answer of a controlled shutdown: a few leaders are elected by then."""


class BrokerState(IntEnum):
    """The states of a broker, by Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    """It registers, and reads the cluster's metadata."""
    RECOVERY = 2
    """It has caught up with the metadata, and opens its logs; it is fenced."""
    RUNNING = 3
    """It has been unfenced."""
    PENDING_CONTROLLED_SHUTDOWN = 6
    """It waits until others lead its partitions."""
    SHUTTING_DOWN = 7


class RegistrationError(FatalError):
    """No controller has registered the broker, which cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The data of a broker that registers."""

    broker_id: int
    cluster_id: str
    incarnation: UUID
    """A new id for each start: a registration with another one is of another broker."""
    listeners: Sequence[Listener]
    """The advertised addresses, those for other brokers included."""
    directories: Collection[UUID]
    """Ids of the log directories."""
    previous_epoch: int = NO_BROKER_EPOCH
    """See `previous_epoch`."""


def previous_epoch(directories: Collection[LogDirectory], *, configured: int) -> int:
    """The broker epoch of the last orderly stop; -1 if the last stop was none.

    The controllers take the broker's replicas for complete then (KIP-966), so the marks of all
    `configured` directories have to agree.
    """
    epochs = {each.broker_epoch if each.was_clean else NO_BROKER_EPOCH for each in directories}
    # A directory that is left out may have been written to since.
    if len(epochs) != 1 or len(directories) != configured:
        return NO_BROKER_EPOCH
    return epochs.pop()


def supported_features(features: Mapping[str, Feature] = FEATURES) -> tuple[SupportedFeature, ...]:
    """The levels of each feature that this release can be a broker with."""
    return tuple(
        SupportedFeature(
            name=name, min_supported_version=each.lowest, max_supported_version=each.highest
        )
        # Also those of groups that are not served here: a new cluster of Kafka has them in use, and
        # a controller refuses a broker that does not name a feature in use.
        for name, each in {**features, KRAFT_VERSION: Feature(*KRAFT_VERSIONS)}.items()
    )


class Lifecycle:
    """Registers this broker, and sends its heartbeats from `start` until `close`; for one loop."""

    def __init__(
        self,
        channel: ControllerChannel,
        registration: Registration,
        config: LifecycleConfig,
        *,
        applied_offset: Callable[[], int],
        cordoned: Callable[[], Collection[UUID] | None] = lambda: None,
        can_follow: Callable[[], bool] = lambda: True,
    ) -> None:
        """`channel` is for this alone: a heartbeat must not wait for other requests.

        `applied_offset` gives the offset of the last record of the metadata log that the broker has
        applied. `cordoned` gives the ids of cordoned directories (KIP-1066), or None where the
        level of `metadata.version` is below 30. While `can_follow` is false, the broker asks to be
        fenced.
        """
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = NO_BROKER_EPOCH
        """The epoch of the registration; another one after the controllers have lost it."""
        self.caught_up = asyncio.Event()
        """Set when the broker has read the metadata that there was when it registered."""
        self.unfenced = asyncio.Event()
        """Set when the broker was unfenced for the first time."""
        self.is_fenced = True
        """Whether the last heartbeat's answer said so."""
        self.on_unfenced: Callable[[], None] = lambda: None
        self.on_fenced: Callable[[], None] = lambda: None
        """Called when an answer says so for the first time since the other."""
        self.on_replaced: Callable[[], None] = lambda: None
        """Called with each answer that says that it is fenced, while it cannot follow: others lead
        its partitions, and its image does not say so."""
        self.on_registered: Callable[[int], None] = lambda _: None
        """Called with the broker epoch of each registration, which may be the same as before."""
        self.on_failed: Callable[[str], None] = lambda _: None
        """Called where the broker has to stop, with the reason."""
        self._asker = Asker(channel, logger, self._failure_line)
        self._registration = registration
        self._config = config
        self._applied_offset = applied_offset
        self._cordoned = cordoned
        self._can_follow = can_follow
        self._is_registered = False
        self._was_accepted = False
        """Whether a heartbeat of this registration had success."""
        self._is_ready = False
        self._lacking: frozenset[UUID] = frozenset()
        """The failed directories that the controllers know of since the last registration."""
        self._directories: dict[UUID, bool] = {}
        """Failed directories, and whether a controller knows it."""
        self._timers: list[asyncio.TimerHandle] = []
        self._soon = asyncio.Event()
        """Set when something is to be said at once."""
        self._may_leave = asyncio.Event()
        """Set when the controlled shutdown is not waited for any more."""
        self._is_approved = False
        """Whether a controller has approved it."""
        self._has_shutdown_answer = False
        self._shutdown_s = 0.0
        """Longest time of the controlled shutdown."""
        self._has_told_wait = False
        self._registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def unreported_directories(self) -> list[UUID]:
        """Failed directories that no controller knows of yet."""
        return [each for each, is_known in self._directories.items() if not is_known]

    # -- the broker's side --------------------------------------------------------------------

    async def start(self) -> None:
        """Register, and return when a controller has accepted; heartbeats follow.

        Raises:
            RegistrationError: none has within `initial.broker.registration.timeout.ms`, or they are
                of another cluster.
        """
        interval_ms, session_ms = (
            self._config.heartbeat_interval_ms,
            self._config.session_timeout_ms,
        )
        # A line and no refusal, as in Kafka (KafkaConfig): only the controllers know the session,
        # and the file of a broker may have another one.
        if interval_ms * 2 > session_ms:
            logger.error(
                "heartbeats_too_rare interval_ms=%d session_ms=%d reason=one that is late has the "
                "broker fenced; set broker.heartbeat.interval.ms to half of "
                "broker.session.timeout.ms of the controllers, or less",
                interval_ms, session_ms,
            )  # fmt: skip
        self.state = BrokerState.STARTING
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._config.registration_timeout_ms / 1000):
                await self._registered
        except TimeoutError:
            await self.close()
            raise RegistrationError(
                f"broker {self._registration.broker_id} was not registered within "
                f"{self._config.registration_timeout_ms} ms "
                "(initial.broker.registration.timeout.ms): "
                f"{self._asker.reason or 'no controller has answered'}"
            ) from None
        except BaseException:
            await self.close()
            raise

    def ready_to_unfence(self) -> None:
        """Ask to be unfenced: the logs are open, and the broker can lead and follow."""
        self._is_ready = True
        self._soon.set()

    def failed_directory(self, directory: UUID) -> None:
        """Tell the controllers that a log directory has failed, so that others lead its partitions.

        If that does not succeed in time, `on_failed` is called: the broker must not stay the leader
        of partitions that it cannot serve.
        """
        if directory in self._directories:
            return
        self._directories[directory] = False
        self._soon.set()
        after_s = self._config.directory_failure_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(after_s, self._check_reported, directory))

    def cordoned_changed(self) -> None:
        """Tell the controllers at once which directories are cordoned now."""
        if self._is_registered:
            self._soon.set()

    def register_again(self, listeners: Sequence[Listener] | None = None) -> None:
        """Register once more, with the same incarnation, and with other addresses if given.

        Needed, too, where the registration lacks directories, because it is older than the level of
        `metadata.version` that has them.
        """
        own = self._registration
        # Another object in any case: a registration that is under way does not have this.
        self._registration = replace(
            own, listeners=own.listeners if listeners is None else listeners
        )
        self._is_registered = False
        self._soon.set()

    async def controlled_shutdown(self, *, timeout_s: float) -> bool:
        """Have others lead this broker's partitions; whether a controller has approved the stop.

        False: the time is over, or the broker was never unfenced, and has nothing to hand over.
        The broker still serves meanwhile. Its epoch is for the marks of the clean shutdown, in
        either case: what the others have got since, the controllers know. No heartbeat follows.
        `leave_now` ends the wait.
        """
        if self._config.controlled_shutdown and self.state is BrokerState.RUNNING:
            logger.info("controlled_shutdown broker=%d", self._registration.broker_id)
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._shutdown_s = timeout_s
            self._soon.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._may_leave.wait()
            if not self._is_approved:
                logger.warning(
                    "controlled_shutdown_unapproved broker=%d reason=%s consequence=%s",
                    self._registration.broker_id,
                    self._asker.reason or "the controllers have not found other leaders",
                    "partitions that this broker leads have no leader until its session is over",
                )
        # Another heartbeat would prolong the session, and the next start would have to wait for its
        # end (DUPLICATE_BROKER_REGISTRATION).
        await self.close()
        return self._is_approved

    def leave_now(self) -> None:
        """Wait no more for a controller's approval of the controlled shutdown.

        The controllers may be away for longer than an operator waits, and a broker that is killed
        instead has to recover all its logs.
        """
        self._may_leave.set()

    async def close(self) -> None:
        """Send no more; the controllers fence the broker when its session is over."""
        self.state = BrokerState.SHUTTING_DOWN
        for each in self._timers:
            each.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._registered.cancel()

    # -- the controllers' side ----------------------------------------------------------------

    async def _run(self) -> None:
        while self.state is not BrokerState.SHUTTING_DOWN:
            # Before the request is made: what comes after that is not in it.
            self._soon.clear()
            step = self._beat if self._is_registered else self._register
            pause_s = await step()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._soon.wait()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        logger.error("heartbeats_ended", exc_info=error)
        if not self._registered.done():
            self._registered.set_exception(error)
        # Nobody would notice otherwise: the controllers fence it, and it would serve on for ever.
        self.on_failed(f"heartbeats have ended: {error!r}")

    def _failure_line(self) -> str:
        what = "heartbeat_failed" if self._is_registered else "registration_failed"
        return f"{what} broker={self._registration.broker_id}"

    def _pause_after_failure(self) -> float:
        if self._is_stopping and not self._has_told_wait:
            self._has_told_wait = True
            logger.warning(
                "controlled_shutdown_waits broker=%d reason=%s next=%s",
                self._registration.broker_id,
                self._asker.reason,
                f"it is tried for {self._shutdown_s:g} s; a second signal stops the broker now",
            )
        # Even if something is to be said: what fails at once would fail without an end.
        self._soon.clear()
        return self._interval_s

    @property
    def _is_stopping(self) -> bool:
        return self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN

    @property
    def _interval_s(self) -> float:
        return self._config.heartbeat_interval_ms / 1000

    async def _register(self) -> float:
        own = self._registration
        request = BrokerRegistrationRequest(
            broker_id=own.broker_id,
            cluster_id=own.cluster_id,
            incarnation_id=own.incarnation,
            listeners=tuple(own.listeners),
            features=supported_features(),
            rack=self._config.rack or None,
            log_dirs=tuple(sorted(own.directories)),
            previous_broker_epoch=own.previous_epoch,
        )
        answer = await self._asker.attempt(
            request, BrokerRegistrationResponse, timeout_ms=self._config.heartbeat_interval_ms
        )
        if answer is None:
            return self._pause_after_failure()
        if answer.error_code != ErrorCode.NONE:
            reason = _registration_words(own, answer.error_code)
            is_other_cluster = answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            if is_other_cluster and not self._registered.done():
                # No time heals it: one of the two has the wrong address or the wrong directories.
                self._registered.set_exception(RegistrationError(reason))
            # At a start that is what the controllers say after each quick restart. It fails with
            # the reason where another broker has the id for good.
            is_early = answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION and (
                not self._registered.done()
            )
            self._asker.failed(reason, level=logging.INFO if is_early else logging.WARNING)
            return self._pause_after_failure()
        # Of the same incarnation the epoch stays, and a new one is the offset of a later record.
        if answer.broker_epoch < max(self.broker_epoch, 0):
            self._asker.failed(
                f"a controller has registered broker {own.broker_id} with epoch "
                f"{answer.broker_epoch}, after {self.broker_epoch}: its metadata log has gone back"
            )
            return self._pause_after_failure()
        logger.info("broker_registered broker=%d epoch=%d", own.broker_id, answer.broker_epoch)
        self._asker.succeeded()
        self.broker_epoch = answer.broker_epoch
        # Others may have asked for another one meanwhile.
        self._is_registered, self._was_accepted = self._registration is own, False
        # A registration names all directories.
        self._lacking = frozenset()
        self.on_registered(answer.broker_epoch)
        if not self._registered.done():
            self._registered.set_result(None)
        return 0.0

    async def _beat(self) -> float:
        failed = tuple(sorted(self._directories))
        # The controllers take null for what they know. Only a broker that has caught up knows its
        # own setting, which may have been changed in the metadata.
        cordoned = self._cordoned() if self.caught_up.is_set() else None
        epoch = self.broker_epoch
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=epoch,
            current_metadata_offset=self._applied_offset(),
            # A broker whose image does not follow never learns what it is elected for: a partition
            # would have a leader that does not serve it, as long as heartbeats say all is well.
            # Kafka's ends where it cannot write its metadata log.
            # It would be elected for what is in a directory whose failure this heartbeat tells.
            want_fence=not self._is_ready
            or not self._can_follow()
            or (self.is_fenced and not self._lacking.issuperset(failed)),
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=failed,
            cordoned_log_dirs=None if cordoned is None else tuple(sorted(cordoned)),
        )
        # Of its own time: a heartbeat that comes later than the next one is due is worth nothing.
        answer = await self._asker.attempt(
            request, BrokerHeartbeatResponse, timeout_ms=self._config.heartbeat_interval_ms
        )
        if answer is None:
            return self._pause_after_failure()
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            return self._lost(epoch)
        if answer.error_code != ErrorCode.NONE:
            self._asker.failed(f"the controller answers {error_words(answer.error_code)}")
            return self._pause_after_failure()
        # Those of the request, not what has failed since: Kafka takes those for reported too
        # (`currentOfflineDirs` is a view), and would not stop for them.
        self._directories.update(dict.fromkeys(failed, True))
        self._lacking = frozenset(failed)
        self._asker.succeeded()
        self._was_accepted = True
        self._take_fencing(is_fenced=answer.is_fenced)
        if answer.is_fenced and not self._can_follow():
            self.on_replaced()
        return self._next_state(answer, has_asked_to_stop=request.want_shut_down)

    def _next_state(self, answer: BrokerHeartbeatResponse, *, has_asked_to_stop: bool) -> float:
        """Move on with an answer; returns the pause before the next heartbeat."""
        match self.state:
            case BrokerState.STARTING:
                if answer.is_caught_up:
                    logger.info("broker_caught_up offset=%d", self._applied_offset())
                    self.state = BrokerState.RECOVERY
                    self.caught_up.set()
                return STARTING_PAUSE_S
            case BrokerState.RECOVERY if not answer.is_fenced:
                self.state = BrokerState.RUNNING
                self.unfenced.set()
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN if has_asked_to_stop:
                if answer.should_shut_down:
                    self._approve()
                elif not self._has_shutdown_answer:
                    self._has_shutdown_answer = True
                    return SHUTDOWN_PAUSE_S
        return self._interval_s

    def _approve(self) -> None:
        self._is_approved = True
        self._may_leave.set()

    def _take_fencing(self, *, is_fenced: bool) -> None:
        if is_fenced == self.is_fenced:
            return
        self.is_fenced = is_fenced
        if is_fenced:
            # Its session was over, or a controller has it shut down: others lead its partitions.
            level = logging.INFO if self._is_stopping else logging.WARNING
            logger.log(level, "broker_fenced broker=%d", self._registration.broker_id)
            self.on_fenced()
        else:
            logger.info("broker_unfenced broker=%d", self._registration.broker_id)
            self.on_unfenced()

    def _lost(self, epoch: int) -> float:
        """Register again: the controllers do not know this registration any more."""
        if self._is_stopping:
            # Nothing is led by a broker that is not registered, so there is nothing to wait for.
            self._approve()
            return self._interval_s
        logger.warning(
            "registration_lost broker=%d epoch=%d next=%s",
            self._registration.broker_id,
            epoch,
            "it registers again; look who has unregistered it, or started another with its id",
        )
        self._take_fencing(is_fenced=True)
        self._is_registered = False
        # Controllers that register the broker and forget it again would be asked without an end.
        return 0.0 if self._was_accepted else self._interval_s

    def _check_reported(self, directory: UUID) -> None:
        if not self._directories[directory]:
            limit_ms = self._config.directory_failure_timeout_ms
            self.on_failed(
                f"no controller has taken the report that log directory {directory} has failed "
                f"within {limit_ms} ms (log.dir.failure.timeout.ms)"
            )


def _registration_words(own: Registration, code: int) -> str:
    """Why a controller refuses a registration, and what to do."""
    advice = {
        ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers are of another cluster than "
        f"{own.cluster_id} (meta.properties); check the addresses of the controllers and log.dirs",
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: "the session of its last life is not over "
        "(broker.session.timeout.ms), or another broker with this id is alive; it asks again",
        ErrorCode.INVALID_REGISTRATION: "no directory may be that of another broker, and the "
        "features must include those of the cluster",
        ErrorCode.UNSUPPORTED_VERSION: "a feature of the cluster is at a level that this release "
        "does not know; start a newer one",
    }.get(ErrorCode(code) if code in set(ErrorCode) else ErrorCode.NONE)
    words = f"the controllers refuse to register broker {own.broker_id}: {error_words(code)}"
    return f"{words}; {advice}" if advice else words
