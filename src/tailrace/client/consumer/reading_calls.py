"""`ReadingCalls`: the calls that return records, commit, and end the reading.

A rebalance is carried out inside of them, on the thread or task of the caller, since its hooks are
the caller's code.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from tailrace.client.consumer.arguments import Partitions, offsets_of, partitions_of
from tailrace.client.consumer.calls import ConsumerCalls, reading
from tailrace.client.consumer.errors import ConcurrentCallError, WakeupError
from tailrace.client.consumer.fetched import deserialized
from tailrace.client.consumer.group import ConsumerGroup
from tailrace.client.consumer.membership import RebalanceStep, StepKind
from tailrace.client.consumer.metadata import describe_silence
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.consumer.subscription import RebalanceHooks
from tailrace.client.drive.operation import operation
from tailrace.client.drive.steps import CallUser, Steps, Until
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.pending import T
from tailrace.errors import TailraceError, kind_of
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.runtime.extras import check_extra

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.client.consumer.columns import Collector

log = logging.getLogger(__name__)

_GLANCE_S: Final = 0.1
"""Longest wait for records before a table looks at the positions again."""


class ReadingCalls(ConsumerCalls):
    """A consumer with all calls; `Consumer` and `AsyncConsumer` run them."""

    @reading
    def poll(self, timeout: float | None = 1.0) -> Steps[list[ConsumerRecord]]:
        """The next records, at most `max.poll.records`; an empty list after `timeout` seconds.

        `None` waits without a limit. Records that were returned before count as handled: with
        `enable.auto.commit` their offsets are committed from time to time, inside of this call.
        Rebalances of the group take place here, and so do the hooks of `subscribe`.

        Raises:
            SubscriptionError: there is nothing to read; call `subscribe` or `assign`.
            DamagedRecordsError: the next records are damaged; the error says where to seek to.
            RecordDeserializationError: a deserializer failed on the next record.
            NoOffsetForPartitionError, PositionOutOfRangeError: `auto.offset.reset` is `none`.
            TopicAuthorizationError, GroupAuthorizationError, ...: the user lacks a right.
            WakeupError: `wakeup` was called.
            ClosedConsumerError: the consumer was closed.
        """
        deadline = self._deadline(timeout, is_poll=True)
        return self._poll(deadline, self._engine.config.max_poll_records)

    @reading
    def poll_columns(
        self, timeout: float | None = 1.0, *, columns: Sequence[str] | None = None
    ) -> Steps["pa.RecordBatch"]:
        """The next records as an Arrow record batch, without a Python object for each record.

        It has up to 65,536 rows or 8 MiB and the last batches whole, from any of the partitions;
        no rows after `timeout` seconds. `columns` are names of docs/reading.md: key, value, topic,
        partition, offset, timestamp, timestampType and headers if none are given. Needs pyarrow:
        `pip install 'tailrace[arrow]'`. Deserializers are not called.

        Raises:
            MissingExtraError: the extra `arrow` is not installed.
            ConfigError: there is no such column.
            As `poll`.
        """
        deadline = self._deadline(timeout, is_poll=True)
        return self._columns(deadline, columns)

    @reading
    def to_arrow(
        self,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        bytes_max: int | None = None,
    ) -> Steps["pa.Table"]:
        """All records from the positions to the ends of the partitions, as one Arrow table.

        The ends are those at the time of the call, so it comes to an end while others write. The
        table has fewer records after `timeout` seconds, or once it has `bytes_max` bytes, and none
        of partitions that are paused; the next call continues after them. The columns are those of
        `poll_columns`.

        Raises:
            MissingExtraError: the extra `arrow` is not installed.
            ConfigError: there is no such column.
            ConsumerTimeoutError: the ends were not known in time; nothing was read.
            TypeError: `bytes_max` is no number.
            As `poll`.
        """
        deadline = self._deadline(timeout, is_poll=True)
        check_extra("arrow", "to_arrow()")
        import pyarrow as pa

        if bytes_max is not None and not isinstance(bytes_max, int):
            raise TypeError(
                f"bytes_max is {kind_of(bytes_max)} ({bytes_max!r}); give a number of bytes"
            )
        engine = self._engine
        ends: dict[TopicPartition, int] | None = None
        batches: list[pa.RecordBatch] = []
        size = 0
        while True:
            if ends is None and engine.subscription.assigned:
                asked = dict.fromkeys(engine.subscription.assigned, int(SpecialTimestamp.LATEST))
                found = yield from self._offsets_at(asked, deadline)
                ends = {each: end.offset for each, end in found.items() if end is not None}
            if ends is not None:
                # Of the partitions that are still assigned: the others are read by other members.
                # Nothing comes from those that are paused, and their ends would not be reached.
                assigned = engine.subscription.assigned
                places = [
                    (assigned[each].position, end)
                    for each, end in ends.items()
                    if each in assigned and not assigned[each].is_paused
                ]
                if all(at is not None and at.offset >= end for at, end in places):
                    # One more turn without a wait, for what has been fetched.
                    deadline = self._clock()
            # A glance, since the marker of a transaction moves the position and gives no rows.
            glance = min(deadline, self._clock() + _GLANCE_S)
            try:
                batch = yield from self._columns(glance, columns, is_more=bool(batches))
            except WakeupError:
                if not size:
                    raise
                engine.wakeup()
                return pa.Table.from_batches(batches)
            except TailraceError:
                # The next call raises it again, as the position stays there.
                if not size:
                    raise
                return pa.Table.from_batches(batches)
            if batch.num_rows or not batches:
                batches.append(batch)
                size += batch.nbytes
            is_full = bytes_max is not None and size >= bytes_max
            if is_full or self._clock() >= deadline:
                return pa.Table.from_batches(batches)

    @operation
    def commit(self, offsets: object = None, *, timeout: float | None = None) -> Steps[None]:
        """Store offsets in the group, and wait until they are.

        Without offsets, those after all records that were returned; in an iteration, after the
        record that was handed out last. `offsets` may be a record or several (the offsets after
        them), or a mapping of partitions to offsets or `OffsetAndMetadata`: of the next record to
        read, not the last that was read.

        Raises:
            CommitFailedError: others may have the partitions; records are read again.
            RebalanceInProgressError: call `poll`, then commit again.
        """
        deadline = self._deadline(timeout)
        group = self._group_for("commit")
        places = self._handling.returned() if offsets is None else offsets_of(offsets)
        pending = group.commit(places, deadline=deadline)
        about = f"commit of group {self._engine.config.group_id}"
        yield from self._result(pending, deadline, about=about)
        self._handling.committed(places)

    @operation
    def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """The offset that the group has stored for each partition; None if there is none."""
        deadline = self._deadline(timeout)
        group = self._group_for("committed")
        places = partitions_of(partitions)
        pending = group.committed(places, deadline=deadline)
        about = f"committed offsets of group {self._engine.config.group_id}"
        found = yield from self._result(pending, deadline, about=about)
        return {each: found.get(each) for each in places}

    @operation
    def unsubscribe(self, timeout: float | None = None) -> Steps[None]:
        """Remove the subscription; a member leaves its group, after `on_revoked`."""
        deadline = self._deadline(timeout)
        self._check_no_hook()
        self._mark_last_handled()
        with self._reading():
            engine = self._engine
            engine.check_open()
            group = engine.group
            failure: Exception | None = None
            if group is not None and engine.subscription.is_by_group:
                engine.handling.put_back()
                group.member.leave("the consumer unsubscribed from all topics", self._clock())
                try:
                    yield from self._rebalance()
                except Exception as error:  # noqa: BLE001 - raised once nothing is subscribed to
                    failure = error
                yield Until(lambda: group.member.is_left, deadline)
            engine.handling.drop(engine.subscription.assigned)
            engine.subscription.unsubscribe()
            engine.subscription_changed(self._clock())
            self._hooks = RebalanceHooks()
            if failure is not None:
                raise failure

    # -- reading -------------------------------------------------------------------------------

    def _poll(self, deadline: float, count_max: int) -> Steps[list[ConsumerRecord]]:
        """Records that iteration has left over, or the next ones."""
        engine = self._engine
        handling = engine.handling
        if handling.ahead:
            yield from self._polled()
        if handling.ahead:
            # A `for` loop has taken them before, so they come first.
            ahead = handling.ahead
            return [ahead.popleft() for _ in range(min(count_max, len(ahead)))]

        def take() -> list[list[ConsumerRecord]]:
            return engine.fetches.records(count_max)

        while True:
            taken = yield from self._wait_for_records(take, deadline)
            if not taken:
                return []
            records = yield from self._deserialize(taken)
            if records:
                return records

    def _fill_ahead(self) -> Steps[None]:
        """Have records for an iteration; do what the group wants, though some are left."""
        engine = self._engine
        handling = engine.handling
        if handling.ahead:
            yield from self._polled()
        while not handling.ahead:
            more = yield from self._poll(inf, engine.config.max_poll_records)
            handling.ahead.extend(more)
        handling.must_poll = engine.has_urgent_news
        handling.is_taking = False

    def _columns(
        self, deadline: float, names: Sequence[str] | None, *, is_more: bool = False
    ) -> Steps["pa.RecordBatch"]:
        """Records as columns; with `is_more`, the call has taken others and not returned them."""
        check_extra("arrow", "poll_columns()")
        from tailrace.client.consumer.columns import DEFAULT_COLUMNS, Collector

        engine = self._engine
        engine.handling.put_back()
        wanted = DEFAULT_COLUMNS if names is None else tuple(names)
        # One entry: programs ask for the same columns again, and its buffers are large.
        if wanted not in self._collectors:
            self._collectors = {wanted: Collector(wanted)}
        collector = self._collectors[wanted]

        def take() -> "Collector | None":
            engine.fetches.columns(collector)
            return collector if collector.row_count else None

        try:
            yield from self._wait_for_records(take, deadline, is_more=is_more)
            return collector.finish()
        except BaseException:
            # Its rows are read again.
            self._collectors = {}
            raise

    def _polled(self) -> Steps[None]:
        """Count all that was returned as handled, and do what the group wants."""
        engine = self._engine
        engine.check_readable()
        engine.polled(self._clock())
        engine.raise_woken()
        yield from self._rebalance()
        engine.check_readable()

    def _wait_for_records(
        self, take: Callable[[], T], deadline: float, *, is_more: bool = False
    ) -> Steps[T | None]:
        """The result of `take`, once there is something in it; None at the deadline."""
        engine = self._engine
        engine.check_readable()
        if is_more:
            engine.reads_on(self._clock())
        else:
            engine.polled(self._clock())
        while True:
            yield from self._rebalance()
            yield from self._report()
            engine.check_readable()
            engine.raise_woken()
            engine.raise_error()
            taken = take()
            if taken:
                return taken
            if not is_more:
                engine.handling.passed()
            # `on_metrics` is due while this waits, so the wait ends for it.
            due_at = self._metrics_call.due_at
            engine.handling.is_waiting = True
            try:
                has_news = yield Until(lambda: engine.has_news, min(deadline, due_at))
            finally:
                engine.handling.is_waiting = False
            if not has_news:
                engine.check_readable()
                if not due_at <= self._clock() < deadline:
                    return None

    def _report(self) -> Steps[None]:
        """Call the program's `on_metrics`, if it is due."""
        due = self._metrics_call.take(self._clock())
        if due is not None:
            try:
                yield CallUser(due, ())
            except Exception:
                # Metrics must not end the reading.
                log.exception("user_code_failed name=on_metrics")

    def _deserialize(self, taken: list[list[ConsumerRecord]]) -> Steps[list[ConsumerRecord]]:
        """Records as they are returned; user code makes keys and values without the lock."""
        key, value = self._key_deserializer, self._value_deserializer
        if key is None and value is None:
            return taken[0] if len(taken) == 1 else list(chain.from_iterable(taken))
        subscription = self._engine.subscription
        places = {records[0].topic_partition for records in taken}
        versions = {each: subscription.of(each).version for each in places}
        found: list[ConsumerRecord] = []
        for index, records in enumerate(taken):
            try:
                # Not under the lock: a deserializer may call the consumer, or take long.
                made, error = yield CallUser(deserialized, (records, key, value))
            except BaseException:
                self._hold_back(taken, versions)
                raise
            found += made
            if error is not None:
                # Before the record that failed, and before all that came after it.
                self._hold_back([records[len(made) :], *taken[index + 1 :]], versions)
                if not found:
                    self._engine.metrics.error_count += 1
                    raise error
                break
        return found

    def _hold_back(
        self, taken: list[list[ConsumerRecord]], versions: Mapping[TopicPartition, int]
    ) -> None:
        """Put the positions before these records, unless the program has sought meanwhile."""
        first = {each[0].topic_partition: each[0].offset for each in reversed(taken)}
        current = self._engine.subscription.current
        self._engine.handling.hold_back(
            {each: at for each, at in first.items() if current(each, versions[each]) is not None}
        )

    # -- the group -----------------------------------------------------------------------------

    def _rebalance(self, deadline: float = inf) -> Steps[None]:
        """Do what the group wants to be done on this thread.

        Raises:
            Exception: the first error of a hook, after all steps are done.
            ConcurrentCallError: it is called by a hook.
        """
        group = self._engine.group
        failure: BaseException | None = None
        while group is not None and (step := group.member.next_step()) is not None:
            self._check_no_hook()
            if self._stepper is None:
                found = yield from self._rebalance_step(group, step)
                failure = failure or found
            # `close` has come from another thread or task, and the hook of this step is running.
            elif not (yield Until(lambda: self._stepper is None, deadline)):
                break
        if failure is not None:
            raise failure

    def _check_no_hook(self) -> None:
        """Raise ConcurrentCallError in a hook."""
        if self._stepper is not None and self._stepper == self._caller():
            raise ConcurrentCallError(
                "a hook of subscribe has called poll, unsubscribe, or another call that does what "
                "the group wants, which waits for this hook; seek, pause, commit and close can be "
                "called there"
            )

    def _rebalance_step(
        self, group: ConsumerGroup, step: RebalanceStep
    ) -> Steps[BaseException | None]:
        """Do one step; returns the error of its hook."""
        self._stepper = self._caller()
        try:
            return (yield from self._hooked_step(group, step))
        finally:
            self._stepper = None
            self._woken()

    def _hooked_step(
        self, group: ConsumerGroup, step: RebalanceStep
    ) -> Steps[BaseException | None]:
        hooks = self._hooks
        match step.kind:
            case StepKind.ASSIGN:
                hook = hooks.on_assigned
            case StepKind.REVOKE:
                hook = hooks.on_revoked
            case _:
                hook = hooks.on_lost or hooks.on_revoked
        group.begin_step(step)
        if step.kind is not StepKind.ASSIGN:
            # An iteration may have taken records of them ahead; others would read these, too.
            self._engine.handling.put_back(step.partitions)
        # `close` has committed already, before it left the group.
        if step.kind is StepKind.REVOKE and group.commits_by_itself and self._closer is None:
            yield from self._last_commit(
                self._clock() + self._engine.config.request_timeout_ms / 1000
            )
        failure: BaseException | None = None
        if hook is not None and (step.partitions or step.kind is StepKind.ASSIGN):
            try:
                yield CallUser(hook, (list(step.partitions),))
            except Exception as error:  # noqa: BLE001 - raised once the rebalance is carried out
                # The other partitions still have to be given up, or the group waits for this
                # member.
                failure = error
            except BaseException:
                group.step_done(step, self._clock())
                raise
        group.step_done(step, self._clock())
        return failure

    def _last_commit(self, deadline: float) -> Steps[None]:
        """Commit what is handled before partitions go away; a failure is logged."""
        group = self._engine.group
        assert group is not None, "without a group nothing is committed"
        pending = group.commit_handled(deadline=deadline)
        if not pending.is_done:
            yield Until(lambda: pending.is_done, deadline)
        pending.is_abandoned = True
        if pending.error is not None or not pending.is_done:
            log.warning(
                "commit_failed group=%s effect=records are read again reason=%s",
                self._engine.config.group_id,
                pending.error
                or pending.reason
                or describe_silence(self._engine.metadata, self._engine.nodes),
            )

    def _close_steps(self, deadline: float, *, is_over: bool | None) -> Steps[bool]:
        """Commit and leave the group; `is_over`: see `_mark_last_handled`.

        A second call, by another thread or task, waits for the first. Returns False for one inside
        of the first, in a hook.
        """
        engine, closer = self._engine, self._caller()
        self._mark_last_handled(is_over=is_over)
        if engine.is_closing:
            # A hook calls `close` inside of `close`: a wait here would be for itself.
            if closer is self._closer:
                return engine.closed_error is not None
            yield Until(lambda: engine.closed_error is not None, deadline)
            return True
        engine.is_closing = True
        self._closer = closer
        self._woken()
        engine.handling.put_back()
        group = engine.group
        failure: Exception | None = None
        try:
            if group is not None:
                if group.commits_by_itself:
                    yield from self._last_commit(deadline)
                if engine.subscription.is_by_group:
                    group.member.leave("the consumer is being closed", self._clock())
                    try:
                        yield from self._rebalance(deadline)
                    except Exception as error:  # noqa: BLE001 - raised once the member has left
                        failure = error
                # Without an answer the coordinator would keep the member until its session ends.
                yield Until(lambda: group.is_idle, deadline)
        finally:
            engine.begin_close()
        if failure is not None:
            raise failure
        return True
