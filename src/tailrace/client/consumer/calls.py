"""`ConsumerCalls`: what to read, from where on, and questions about offsets and topics.

Calls that wait are generators, written once; an `operation` is made of each for threads
(`consumer`) and for event loops (`aio`).

Not here: reading, and what a member of a group does meanwhile (`reading_calls`).
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Concatenate

from tailrace.client.cluster_metadata import PartitionInfo
from tailrace.client.consumer.arguments import (
    Partitions,
    all_partitions,
    hook_of,
    names_of,
    offset_of,
    partition_of,
    partitions_of,
    pattern_of,
    timeout_of,
    topic_of,
)
from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.errors import (
    ClosedConsumerError,
    ConcurrentCallError,
    ConsumerTimeoutError,
    InvalidTopicNameError,
    SubscriptionError,
    TopicAuthorizationError,
    UnknownTopicError,
    WakeupError,
)
from tailrace.client.consumer.fetched import Deserializer
from tailrace.client.consumer.group import ConsumerGroup
from tailrace.client.consumer.metadata import describe_silence, describe_wait
from tailrace.client.consumer.metrics import ConsumerStatistics, OnMetrics, lags_of, statistics_of
from tailrace.client.consumer.records import OffsetAndTimestamp
from tailrace.client.consumer.subscription import (
    EARLIEST,
    LATEST,
    Hook,
    RebalanceHooks,
    ResetPolicy,
)
from tailrace.client.drive.operation import C, Operation, P, operation
from tailrace.client.drive.steps import Steps, Until
from tailrace.client.group_offsets import ConsumerGroupMetadata
from tailrace.client.interval_call import IntervalCall, figures_call
from tailrace.client.pending import Pending, T
from tailrace.errors import kind_of
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tailrace.client.consumer.columns import Collector


_LASTING = (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""Codes of a topic in Metadata that do not change by waiting."""


class ConsumerCalls:
    """A consumer without the calls that read or commit."""

    _engine: ConsumerEngine
    _clock: Callable[[], float]
    """Monotonic seconds."""

    def _set_up(
        self,
        engine: ConsumerEngine,
        *,
        clock: Callable[[], float],
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        on_metrics: OnMetrics | None,
    ) -> None:
        """Set the parts, in the constructor."""
        self._engine = engine
        self._clock = clock
        due = IntervalCall(engine.config.statistics_interval_ms)
        if on_metrics is not None:
            call = figures_call(
                engine, on_metrics, metrics=self.metrics, statistics=self.statistics
            )
            due.begin(call, clock())
        self._metrics_call = due
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._handling = engine.handling
        self._hooks = RebalanceHooks()
        self._stepper: object = None
        """The thread or task that carries out a step of a rebalance, and runs its hook."""
        self._closer: object = None
        """The thread or task whose `close` has begun, which commits once for all."""
        # One poll after the other asks for the same columns.
        self._collectors: dict[tuple[str, ...], Collector] = {}
        """The columns of the last call, whose buffers have the right size for the next."""
        self._reader: object = None
        """The thread or task that polls right now."""
        self._last_reader: object = None
        """The one that has polled last."""

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
    ) -> None:
        """Read topics as a member of the group `group.id`, which assigns their partitions.

        `topics` is one name or several; a new call replaces those of the last. `pattern` instead
        is a regular expression over the whole name: topics that match later are read then. A `str`
        with `group.protocol=consumer` is matched by the broker (RE2), else by this client.

        The hooks are called with a list of partitions inside of `poll`; see `RebalanceHooks`.

        Raises:
            SubscriptionError: no group.id, no topic, no regular expression, or `assign` was called
                before.
            TypeError: an argument is of a wrong type.
        """
        engine = self._engine
        if (topics is None) == (pattern is None):
            raise SubscriptionError("subscribe to topics, or to a pattern: give one of the two")
        names = frozenset[str]() if topics is None else names_of(topics)
        if pattern is not None:
            is_of_broker = engine.config.group_protocol == "consumer"
            pattern = pattern_of(pattern, is_of_broker=is_of_broker)
        hooks = RebalanceHooks(
            on_assigned=hook_of(on_assigned, "on_assigned"),
            on_revoked=hook_of(on_revoked, "on_revoked"),
            on_lost=hook_of(on_lost, "on_lost"),
        )
        # All arguments are checked before anything changes.
        if engine.config.group_id is None:
            raise SubscriptionError(
                "subscribe needs a group that assigns partitions: set group.id, or call assign"
            )
        with self._changing():
            self._hooks = hooks
            if pattern is None:
                engine.subscription.subscribe(names)
            else:
                engine.subscription.subscribe_pattern(pattern)
            engine.subscription_changed(self._clock())

    def assign(self, partitions: Partitions) -> None:
        """Read these partitions, without being a member of a group, instead of those before.

        A partition begins at the offset that `group.id` has committed, or where
        `auto.offset.reset` says; one that was assigned before keeps its position. With
        `enable.auto.commit`, the positions of partitions that are given up are committed in the
        background, since no later commit has them.

        Raises:
            SubscriptionError: `subscribe` was called before; call `unsubscribe` first.
            TypeError: partitions is none, and has none.
        """
        places = partitions_of(partitions)
        with self._changing():
            engine = self._engine
            # No later commit has what is given up here, so it is committed now.
            given_up = set(engine.subscription.assigned) - set(places)
            self._mark_last_handled()
            handled = engine.handling.handled()
            if not engine.subscription.is_by_group:
                engine.handling.put_back(given_up)
            engine.subscription.assign(places)
            handled = {each: at for each, at in handled.items() if each in given_up}
            if engine.group is not None and engine.group.commits_by_itself and handled:
                engine.group.commit_given_up(handled, self._clock())
            engine.subscription_changed(self._clock())

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        with self._engine.lock:
            return set(self._engine.subscription.assigned)

    def subscription(self) -> set[str]:
        """The topics that are subscribed to; with a pattern, those that match."""
        with self._engine.lock:
            return set(self._engine.subscription.topics)

    def seek(self, partition: TopicPartition | tuple[str, int], offset: object) -> None:
        """Have the next `poll` read a partition from an offset on.

        `offset` is a number or an `OffsetAndMetadata`; with a leader epoch in it, the leader is
        asked first whether its log still has that record (KIP-320).

        Raises:
            SubscriptionError: the partition is not assigned.
            TypeError: an argument is of a wrong type.
            ValueError: the offset is negative.
        """
        place, target = partition_of(partition), offset_of(offset, what="offset")
        if target.offset < 0:
            raise ValueError(
                f"offset {target.offset} is negative; seek_to_beginning and seek_to_end exist"
            )
        with self._changing():
            self._engine.seek(place, target.offset, target.leader_epoch)
            self._engine.handling.drop({place})

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Have the next `poll` read from the first offsets; of all assigned partitions if none."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Have the next `poll` read what comes after now; of all assigned partitions if none."""
        self._reset(partitions, LATEST)

    def pause(self, *partitions: Partitions) -> None:
        """Return no records of these partitions until `resume`; they stay assigned."""
        places = all_partitions(partitions)
        with self._changing():
            self._engine.subscription.set_paused(places, is_paused=True)
            # An iteration may have taken records of them ahead; they are read again after `resume`.
            self._handling.put_back(set(places))

    def resume(self, *partitions: Partitions) -> None:
        """Return records of paused partitions again."""
        places = all_partitions(partitions)
        with self._changing():
            self._engine.subscription.set_paused(places, is_paused=False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._engine.lock:
            assigned = self._engine.subscription.assigned.items()
            return {each for each, state in assigned if state.is_paused}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group and this member, for `Producer.send_offsets_to_transaction`.

        Raises:
            SubscriptionError: there is no group.id.
        """
        with self._engine.lock:
            return self._group_for("group_metadata").producer_metadata

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Have the group distribute its partitions again, in the next calls of `poll`."""
        if not isinstance(reason, str):
            raise TypeError(f"reason is {kind_of(reason)}; give a str")
        with self._changing():
            self._group_for("enforce_rebalance").member.request_rejoin(reason, self._clock())

    def statistics(self) -> ConsumerStatistics:
        """Counters, and the state of each partition and connection, right now."""
        with self._engine.lock:
            return statistics_of(self._engine)

    def metrics(self) -> dict[str, float]:
        """Counters under Kafka's names of them."""
        with self._engine.lock:
            found = self._engine.metrics
            lags = [each for each in lags_of(self._engine).values() if each is not None]
            return {
                "records-consumed-total": found.record_count,
                "bytes-consumed-total": found.fetched_bytes,
                "fetch-total": found.fetch_count,
                "poll-total": found.poll_count,
                "poll-error-total": found.error_count,
                "records-lag-max": max(lags, default=0),
                "assigned-partitions": len(self._engine.subscription.assigned),
            }

    # -- calls that wait -----------------------------------------------------------------------

    @operation
    def position(
        self, partition: TopicPartition | tuple[str, int], timeout: float | None = None
    ) -> Steps[int]:
        """The offset of the next record that is returned; waits until it is known."""
        return self._position(partition, self._deadline(timeout))

    @operation
    def beginning_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """The first offset of each partition; these need not be assigned."""
        return self._ends(partitions, SpecialTimestamp.EARLIEST, self._deadline(timeout))

    @operation
    def end_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """The offset after the last record of each partition, by `isolation.level`."""
        return self._ends(partitions, SpecialTimestamp.LATEST, self._deadline(timeout))

    @operation
    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        timeout: float | None = None,
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """The first record from a time on (ms since 1970), by partition; None if there is none.

        Raises:
            ValueError: a time is negative.
        """
        return self._offsets_of_times(timestamps, self._deadline(timeout))

    @operation
    def seek_to_time(
        self, timestamp_ms: int, *partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Have the next `poll` read from the first record of that time on; returns its offset.

        Of all assigned partitions if none are given. None, and the end of the log, where no record
        is as late.

        Raises:
            ValueError: the time is negative.
        """
        engine = self._engine
        places = all_partitions(partitions) or tuple(engine.subscription.assigned)
        for each in places:
            engine.subscription.of(each)
        at = dict.fromkeys(places, timestamp_ms)
        found = yield from self._offsets_of_times(at, self._deadline(timeout))
        for each, place in found.items():
            # A rebalance may have taken it away while the leader was asked.
            if each not in engine.subscription.assigned:
                continue
            if place is None:
                # The next record to come is the first that is late enough.
                engine.subscription.of(each).await_reset(LATEST)
            else:
                engine.seek(each, place.offset)
        engine.handling.drop(places)
        return found

    @operation
    def lag(self, timeout: float | None = None) -> Steps[dict[TopicPartition, int]]:
        """The lag of each assigned partition: its end offset minus the position.

        The end is that of the last fetch, or is asked for where there was none yet.
        """
        engine, deadline = self._engine, self._deadline(timeout)
        lags = lags_of(engine)
        for each in lags:
            yield from self._position(each, deadline)
        lags = lags_of(engine)
        # A fetch brings the end of its partition along, so only the others are asked for.
        unknown = {each: int(SpecialTimestamp.LATEST) for each, lag in lags.items() if lag is None}
        ends = yield from self._offsets_at(unknown, deadline)
        for each, end in ends.items():
            state = engine.subscription.assigned.get(each)
            if state is not None and state.position is not None and end is not None:
                lags[each] = max(0, end.offset - state.position.offset)
        return {each: lag for each, lag in lags.items() if lag is not None}

    @operation
    def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> Steps[list[PartitionInfo]]:
        """The partitions of a topic, with leader and replicas.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        engine, deadline = self._engine, self._deadline(timeout)
        engine.check_open()
        metadata, refused = engine.metadata, engine.cluster.errors
        topic = topic_of(topic)
        # A topic that is not subscribed to would be left out of the next refresh.
        metadata.add_guest(topic)
        try:

            def is_known() -> bool:
                known = metadata.topics.get(topic)
                return bool(refused) or (known is not None and known.error in _LASTING)

            if not is_known():
                yield Until(is_known, deadline)
            known = metadata.topics.get(topic)
            if known is not None and not known.error:
                return list(known.partitions)
            engine.check_open()
            if refused:
                raise refused.pop()
            why = describe_wait(metadata, engine.nodes, topic)
            match None if known is None else known.error:
                case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise TopicAuthorizationError(frozenset({topic}))
                case ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise InvalidTopicNameError(frozenset({topic}))
                case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicError(f"topic {topic!r} does not exist ({why})")
            raise ConsumerTimeoutError(why)
        finally:
            metadata.remove_guest(topic)

    @operation
    def list_topics(
        self, timeout: float | None = None
    ) -> Steps[Mapping[str, tuple[PartitionInfo, ...]]]:
        """All topics that the user may see, with their partitions."""
        deadline = self._deadline(timeout)
        self._engine.check_open()
        pending = self._engine.cluster.listings.ask()
        return (yield from self._result(pending, deadline, about="the list of topics"))

    # -- internal ------------------------------------------------------------------------------

    def _position(self, partition: TopicPartition | tuple[str, int], deadline: float) -> Steps[int]:
        engine = self._engine
        engine.check_open()
        place = partition_of(partition)
        state = engine.subscription.of(place)
        # The position is that of the program, and not after records that an iteration took ahead.
        engine.handling.put_back((place,))

        def is_known() -> bool:
            return state.has_position or engine.has_error

        # A rebalance or a reset may take the position away again before this call continues.
        while not state.has_position:
            is_in_time = yield Until(is_known, deadline)
            engine.check_open()
            engine.raise_error()
            if not is_in_time and not state.has_position:
                why = describe_wait(
                    engine.metadata, engine.nodes, place.topic, partition=place.partition
                )
                raise ConsumerTimeoutError(
                    f"the position of {place} is not known in time: it waits for "
                    f"{state.phase.value}; {why}"
                )
        assert state.position is not None, "the wait has ended"
        return state.position.offset

    def _offsets_of_times(
        self,
        timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        deadline: float,
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """The offsets of times that a program has given.

        Raises:
            TypeError: a partition is none, or a timestamp is no number.
            ValueError: a timestamp is negative, which the protocol has for the ends of a log.
        """
        self._engine.check_open()
        if not isinstance(timestamps, Mapping):
            raise TypeError(
                f"timestamps is {kind_of(timestamps)}; give a mapping of partitions to ms since "
                "1970"
            )
        asked = dict(zip(map(partition_of, timestamps), timestamps.values(), strict=True))
        for partition, timestamp in asked.items():
            if not isinstance(timestamp, int):
                raise TypeError(
                    f"the time for {partition} is {kind_of(timestamp)}; give ms since 1970 as int"
                )
            if timestamp < 0:
                raise ValueError(
                    f"the time {timestamp} for {partition} is negative; the ends of logs are those "
                    "of beginning_offsets and end_offsets, seek_to_beginning and seek_to_end"
                )
        return (yield from self._offsets_at(asked, deadline))

    def _offsets_at(
        self, asked: Mapping[TopicPartition, int], deadline: float
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """ListOffsets for each partition: of a time, or of an end."""
        self._engine.check_open()
        query = self._engine.lookups.ask(dict(asked))
        about = "offsets of " + ", ".join(map(str, sorted(asked)))
        return (yield from self._result(query, deadline, about=about))

    def _ends(
        self, partitions: Partitions, timestamp: SpecialTimestamp, deadline: float
    ) -> Steps[dict[TopicPartition, int]]:
        """The offset at one end of each log."""
        asked = dict.fromkeys(partitions_of(partitions), int(timestamp))
        found = yield from self._offsets_at(asked, deadline)
        return {each: 0 if end is None else end.offset for each, end in found.items()}

    def _caller(self) -> object:
        """The present thread or task."""
        raise NotImplementedError

    def _woken(self) -> None:
        """Have all that wait look again; called under the lock."""

    def _group_for(self, what: str) -> ConsumerGroup:
        """The group.

        Raises:
            SubscriptionError: there is no `group.id`.
        """
        self._engine.check_open()
        group = self._engine.group
        if group is None:
            raise SubscriptionError(f"{what} needs a group, which has the offsets: set group.id")
        return group

    def _result(self, pending: Pending[T], deadline: float, *, about: str) -> Steps[T]:
        """The value of a pending call.

        Raises:
            ConsumerAuthenticationError: no broker takes the login.
            ConsumerTimeoutError: at the deadline.
        """
        engine = self._engine
        refused = engine.cluster.errors
        try:
            if not pending.is_done:
                yield Until(lambda: pending.is_done or bool(refused), deadline)
            # A login that no broker takes ends the wait at once: it would fail at the deadline
            # anyway.
            if refused and (not pending.is_done or pending.error is not None):
                raise refused.pop()
            if not pending.is_done:
                engine.check_open()
                why = pending.reason or describe_silence(engine.metadata, engine.nodes)
                raise ConsumerTimeoutError(f"{about}: not known in time: {why}")
            return pending.result()
        finally:
            # Nobody wants the outcome any more, so no further request is sent for it.
            pending.is_abandoned = True

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A change of the subscription, under the lock."""
        with self._engine.lock:
            self._engine.check_open()
            yield
            # The driver may be waiting for a socket, while there is something to send now.
            self._engine.fetches.rescan()
            self._woken()

    def _deadline(self, timeout: float | None, *, is_poll: bool = False) -> float:
        """The end of a call: for `poll` none if no timeout is given, else the default."""
        if timeout is None:
            if is_poll:
                return inf
            timeout = self._engine.config.default_api_timeout_ms / 1000
        return self._clock() + timeout_of(timeout)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Keep out other threads or tasks while one polls."""
        before, reader = self._reader, self._caller()
        if before is not None and before != reader:
            raise ConcurrentCallError(
                "another thread or task polls this consumer right now; one may read, give each "
                "thread a consumer of its own"
            )
        self._reader = self._last_reader = reader
        try:
            yield
        except BaseException:
            with self._engine.lock:
                # Ctrl-C, a task that was cancelled, or a hook that has raised in a call that had
                # read: the records have not reached the program.
                self._handling.take_back()
            raise
        finally:
            self._handling.is_taking = False
            self._reader = before

    def _mark_last_handled(self, *, is_over: bool | None = None) -> None:
        """Count what was returned last as handled, if the work on it `is_over`; under the lock.

        By itself it is not over inside of a `for` loop, and if an exception has ended it. Nor is
        it while another thread or task reads.
        """
        if is_over is None:
            # An exception may have ended the work on the last records: in doubt they are read
            # twice, and not lost (decision 60).
            is_over = sys.exception() is None and not self._handling.is_in_loop
        reader = self._last_reader
        if is_over and self._reader is None and (reader is None or self._has_ended(reader)):
            self._handling.polled()
            self._handling.is_taking = False

    def _has_ended(self, reader: object) -> bool:
        """Whether a thread or task is the present one, or has surely come to its end in order."""
        raise NotImplementedError

    def _close_later(self, deadline: float) -> bool:
        """Have the call that runs this hook close; False if this is no hook, or one of `close`."""
        if self._closer is not None or self._stepper is None or self._stepper != self._caller():
            return False
        self._engine.close_by = deadline
        self._handling.must_poll = True
        return True

    def _is_not_end(self, error: WakeupError | ClosedConsumerError) -> bool:
        """False if an iteration ends by `wakeup` or `close`; else raises the error."""
        if isinstance(error, WakeupError) or self._closer is not None:
            return False
        raise error

    def _reset(self, partitions: tuple[Partitions, ...], policy: ResetPolicy) -> None:
        given = all_partitions(partitions)
        with self._changing():
            places = given or tuple(self._engine.subscription.assigned)
            # The list first: an unassigned partition raises before any of them has changed.
            for state in [self._engine.subscription.of(each) for each in places]:
                state.await_reset(policy)
            self._handling.drop(set(places))


def reading(steps: Callable[Concatenate[C, P], Steps[T]]) -> Operation[C, P, T]:
    """An `operation` that keeps out other readers, until its records have reached the caller."""
    return Operation(steps, runner="_read")
