"""`ConsumerEngine`: the part of a consumer that needs neither a thread nor an event loop.

    poll    metadata, group, offsets, fetches -> nodes -> answers -> parts       (the driver)
    taking  parts -> rows or columns; the positions move                        (the caller)

`Consumer` adds waiting by threads, `AsyncConsumer` on an event loop (`tailrace.client.drive`).

Invariant: everything here happens under `lock`; user code (hooks, deserializers) never does.
"""

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from math import inf

from tailrace.client.cluster_metadata import NOBODY
from tailrace.client.cluster_requests import ClusterRequests
from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.errors import (
    ClosedConsumerError,
    ConcurrentCallError,
    InvalidTopicNameError,
    NoOffsetForPartitionError,
    SubscriptionError,
    TopicAuthorizationError,
    WaitingErrors,
    WakeupError,
    consumer_error,
)
from tailrace.client.consumer.fetching import Fetches
from tailrace.client.consumer.group import ConsumerGroup
from tailrace.client.consumer.handling import Handling
from tailrace.client.consumer.lookups import OffsetLookups
from tailrace.client.consumer.metadata import ConsumerMetadata, topics_with
from tailrace.client.consumer.metrics import ConsumerMetrics
from tailrace.client.consumer.subscription import (
    Assigned,
    Phase,
    Position,
    SubscriptionState,
)
from tailrace.client.drive.locks import renew
from tailrace.client.nodes import Backoff, ConnectionPool, Node
from tailrace.client.nodes.versions import VERSION_LIMITS
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.runtime.network import Connector

log = logging.getLogger(__name__)

_LIMITS = {**VERSION_LIMITS, ApiKey.FETCH: 17}
"""Topic ids and leader epochs, which the producer and readers of ranges do without."""

_OF_TOPICS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopicNameError,
}
"""Errors that the metadata of a topic may have for the program."""

_REENTRANT = (
    "this thread is in the middle of another call of the same consumer, which a signal handler, a "
    "finalizer or a logging handler has interrupted; call wakeup() or close() there, or set a flag "
    "and call the consumer after the interrupted call has returned"
)


class ConsumerEngine:
    """The state of one consumer; `Consumer` or `AsyncConsumer` calls it."""

    kind = "consumer"

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        network: Connector,
        wall: Callable[[], float],
        chance: random.Random,
        wake: Callable[[], None],
    ) -> None:
        self.config = config
        self.client_id = config.client_id
        self.lock = threading.RLock()
        self.calls: deque[Callable[[], None]] = deque()
        self.is_done_by_one_poll = False
        self.metrics = ConsumerMetrics()
        self.closed_error: ClosedConsumerError | None = None
        self.is_closing = False
        """Whether polls are refused, while hooks may still commit."""
        self.now = 0.0
        """The time of the present `poll`."""
        self.subscription = SubscriptionState(config.auto_offset_reset)
        self.nodes = ConnectionPool(
            config,
            network=network,
            chance=chance,
            wake=wake,
            version_limits=_LIMITS,
            candidates=lambda: self.metadata.nodes,
        )
        self.metadata = ConsumerMetadata(
            [Node(-n, *each) for n, each in enumerate(config.bootstrap_servers, 1)],
            Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance),
            max_age_ms=config.metadata_max_age_ms,
            may_rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        )
        self.cluster = ClusterRequests(
            self.metadata,
            self.nodes,
            timeout_ms=config.request_timeout_ms,
            may_create_topics=lambda: config.allow_auto_create_topics,
            clock=lambda: self.now,
            error_of=consumer_error,
        )
        self.errors = WaitingErrors()
        """Errors of what it does by itself, for the next calls that read."""
        self.fetches = Fetches(
            config,
            subscription=self.subscription,
            metadata=self.metadata,
            nodes=self.nodes,
            metrics=self.metrics,
            errors=self.errors,
            clock=lambda: self.now,
        )
        self.lookups = OffsetLookups(
            config,
            subscription=self.subscription,
            metadata=self.metadata,
            nodes=self.nodes,
            errors=self.errors,
            clock=lambda: self.now,
            wall_ms=lambda: int(wall() * 1000),
            is_busy=self.fetches.has_flight,
        )
        self.handling = Handling(self.subscription, rescan=self.fetches.rescan)
        self.close_by: float | None = None
        """The deadline of a `close` that has interrupted another call, which is to carry it out."""
        self.group: ConsumerGroup | None = None
        if config.group_id is not None:
            self.group = ConsumerGroup(
                config,
                subscription=self.subscription,
                metadata=self.metadata,
                nodes=self.nodes,
                errors=self.errors,
                chance=chance,
                clock=lambda: self.now,
                handling=self.handling,
                any_node=self.cluster.any_node,
            )
        self._seen_metadata = -1
        self._was_waiting = False

    # -- the driver ----------------------------------------------------------------------------

    def poll(self, now: float) -> None:
        """Take in what has arrived, and send what is due."""
        self.now = now
        if self.group is not None:
            self.group.check_progress(now)
        self.nodes.poll(now)
        # Answers have come in by now. New metadata is looked at first, since what follows sends to
        # leaders.
        if self.metadata.version != self._seen_metadata:
            self._seen_metadata = self.metadata.version
            self._metadata_changed()
        waiting = [
            each for each in self.subscription.assigned.values() if each.phase is not Phase.FETCHING
        ]
        if waiting or self._was_waiting:
            # An answer may have given one of them its position.
            self._was_waiting = bool(waiting)
            self.fetches.rescan()
            self._initialize(waiting)
        if self.group is not None:
            self.group.send(now)
        self.lookups.send(now)
        # After the group and the look-ups: these may have given partitions their positions.
        self.fetches.send(now)
        self.cluster.send(now)
        if self.handling.ahead:
            self.handling.must_poll = self.has_urgent_news

    def next_deadline(self, now: float) -> float:
        """The time by which `poll` has to be called again; it may be too early."""
        nodes_at = self.nodes.next_deadline()
        return min(
            self.cluster.next_deadline(now),
            inf if nodes_at is None else nodes_at,
            self.lookups.next_deadline(),
            self.fetches.next_deadline(),
            inf if self.group is None else self.group.next_deadline(now),
        )

    def should_move(self) -> bool:
        """Whether there are partitions to fetch that no request is on its way for."""
        return self.fetches.needs_scan

    def abandoned(self, now: float) -> bool:  # noqa: ARG002
        """End a consumer that nobody can call any more, without a commit."""
        self.begin_close()
        return True

    def reentrant_error(self) -> ConcurrentCallError:
        """The error of a call by a signal handler that has interrupted another call."""
        return ConcurrentCallError(_REENTRANT)

    def _metadata_changed(self) -> None:
        metadata = self.metadata
        self.fetches.rescan()
        if self.group is not None:
            self.group.metadata_changed(self.now)
        wanted = self.subscription.topics_in_use()
        for code, error in _OF_TOPICS.items():
            topics = topics_with(metadata, code) & wanted
            if topics:
                self.errors.add(error(topics), is_true=partial(self._is_refused, topics, code))
        for partition, state in self.subscription.assigned.items():
            leader = metadata.leader(partition)
            position = state.position
            # Another leader may lack records that this consumer has read: it is asked first
            # (KIP-320).
            if leader is not None and position is not None and leader != position.leader:
                state.await_validation(leader)

    def _is_refused(self, topics: frozenset[str], code: ErrorCode) -> bool:
        """Whether one of these topics is still read, and still has this error."""
        return not topics.isdisjoint(
            topics_with(self.metadata, code) & self.subscription.topics_in_use()
        )

    def _initialize(self, waiting: Collection[Assigned]) -> None:
        """Give partitions without a position their beginning."""
        unknown = [each for each in waiting if each.phase is Phase.INITIALIZING]
        if self.group is not None:
            # The hook is running and may seek: its position counts, and not the committed one.
            if self.group.is_assigning:
                return
            unknown = self.group.without_offsets(unknown)
        for state in unknown:
            policy = self.config.auto_offset_reset
            if policy.name == "none":
                error = NoOffsetForPartitionError(frozenset({state.partition}))
                self.errors.add(error, is_true=partial(self._has_no_offset, state, state.version))
            else:
                state.await_reset(policy)

    def _has_no_offset(self, state: Assigned, version: int) -> bool:
        is_same = self.subscription.current(state.partition, version) is state
        return is_same and state.phase is Phase.INITIALIZING

    # -- the caller ----------------------------------------------------------------------------

    def polled(self, now: float) -> None:
        """Note that the caller polls: it has handled all that was returned before."""
        self.now = now
        self.metrics.poll_count += 1
        self.handling.polled()
        if self.group is not None:
            self.group.polled(now)

    def reads_on(self, now: float) -> None:
        """Note that a call of the program that reads for long is at work, not the program."""
        self.now = now
        if self.group is not None:
            self.group.reads_on(now)

    def check_open(self) -> None:
        """Raise ClosedConsumerError if the consumer was closed, or in a fork of its process."""
        error = self.closed_error
        if error is not None:
            # A new instance: a shared one would keep the notes and traceback of every raise.
            raise ClosedConsumerError(*error.args)

    def check_readable(self) -> None:
        """Raise if nothing can be read.

        Raises:
            ClosedConsumerError: the consumer was closed, or is being closed.
            SubscriptionError: there is nothing to read.
        """
        self.check_open()
        if self.is_closing or self.close_by is not None:
            raise ClosedConsumerError("the consumer is closed")
        if not self.subscription.assigned and not self.subscription.is_by_group:
            raise SubscriptionError(
                "this consumer reads nothing yet: call subscribe with topics, or assign with "
                "partitions"
            )

    def wakeup(self) -> None:
        """End the reading call that waits, or the next one.

        A signal handler may call it at any point of any thread, so it takes no lock.
        """
        self.handling.is_woken = True
        self.handling.must_poll = True

    def raise_woken(self) -> None:
        if self.handling.is_woken:
            self.handling.is_woken = False
            raise WakeupError

    def raise_error(self) -> None:
        """Raise the oldest error that no call has raised yet."""
        # It is raised by each poll: who is refused by the group does not come back (decision 42).
        if self.group is not None and self.group.error is not None:
            self.metrics.error_count += 1
            raise self.group.error
        # The cluster has one error at most: a refused login.
        for errors in (self.cluster.errors, self.errors):
            if errors:
                self.metrics.error_count += 1
                raise errors.pop()

    @property
    def has_error(self) -> bool:
        if self.group is not None and self.group.error is not None:
            return True
        return bool(self.cluster.errors or self.errors)

    @property
    def has_news(self) -> bool:
        """Whether a poll would return records, raise, or have something to do."""
        return self.has_urgent_news or self.has_error or self.fetches.has_some

    @property
    def has_urgent_news(self) -> bool:
        """Whether a poll would have something to do before it returns records."""
        if self.is_closing or self.close_by is not None or self.handling.is_woken:
            return True
        return self.group is not None and self.group.member.next_step() is not None

    def seek(self, partition: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Read on at an offset; one with an epoch is validated first."""
        state = self.subscription.of(partition)
        leader = self.metadata.leader(partition) or NOBODY
        state.seek_unvalidated(Position(offset, epoch, leader))
        self.fetches.rescan()

    def subscription_changed(self, now: float) -> None:
        """Have the metadata of what is subscribed to and assigned, and tell the group."""
        self.now = now
        if self.group is None:
            self.metadata.want(self.subscription.topics_in_use())
        else:
            self.group.subscription_changed(now)
        self.fetches.rescan()

    # -- ending --------------------------------------------------------------------------------

    def begin_close(self) -> bool:
        """Refuse calls from now on; returns False if that was so already."""
        self.is_closing = True
        if self.closed_error is not None:
            return False
        self.closed_error = ClosedConsumerError("the consumer is closed")
        return True

    def end_close(self) -> None:
        """End the fetch sessions, and close the connections."""
        if self.group is not None:
            self.group.close(ClosedConsumerError("the consumer was closed meanwhile"))
        # Brokers keep a limited number of sessions, of which others then have more (KIP-227).
        self.fetches.close_sessions(self.now)
        self.subscription.unsubscribe()
        self.nodes.close()

    def give_up(self, error: BaseException) -> None:
        """Close after an interrupted step has left the state unknown."""
        self.is_closing = True
        self.closed_error = ClosedConsumerError(
            f"the consumer was stopped by {error!r} while it changed its state; make a new one"
        )
        try:
            self.nodes.close()
        except Exception:
            log.exception("consumer_close_failed client_id=%s", self.config.client_id)

    def forked(self) -> None:
        """Disable the consumer in a forked child, which shares the parent's sockets."""
        # Another thread may have held it, and only the forking one lives on in the child.
        renew(self.lock)
        self.is_closing = True
        self.closed_error = ClosedConsumerError(
            "this process is a fork of the one that created the consumer; create a new consumer "
            "in this process"
        )
