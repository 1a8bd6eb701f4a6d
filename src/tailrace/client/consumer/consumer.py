"""`Consumer`: reads records on an ordinary thread.

with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
    consumer.subscribe("orders")
    for record in consumer:
        print(record.offset, record.value)
"""

import os
import random
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tailrace.client.consumer.arguments import Partitions
from tailrace.client.consumer.base_consumer import BaseConsumer
from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.driver import ThreadDriver, take_again
from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.errors import ClosedConsumerError, WakeupError
from tailrace.client.consumer.metrics import OnMetrics
from tailrace.client.consumer.records import ConsumerRecord, OffsetAndTimestamp
from tailrace.client.consumer.rows import Deserializer
from tailrace.client.consumer.steps import Call, Steps
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.interval_call import check_on_metrics
from tailrace.client.listings import PartitionInfo
from tailrace.client.pending import T
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.runtime.polling import PollingNetwork

if TYPE_CHECKING:
    import pyarrow as pa

CLOSE_S = 30.0
"""Time for `close` to commit and to leave the group, as in Kafka's client."""


class Consumer(BaseConsumer):
    """Reads records of a Kafka cluster, alone or as a member of a group.

    Nothing has to be called for liveness: a thread of its own fetches ahead and keeps the member
    alive in its group. Only if `poll` is not called for `max.poll.interval.ms`, the consumer
    leaves the group, as its program seems to hang.

    One thread polls or iterates. Any thread may call the other methods, and any thread or signal
    handler `wakeup` and `close`, which end a `for` loop, and a `poll` that waits with an error.
    Every call that waits takes a `timeout` in seconds (None: `default.api.timeout.ms`), and raises
    a ConsumerTimeoutError.

    Settings have Kafka's names, dotted in a mapping or with underscores as keyword arguments; see
    docs/configuration.md. A deserializer is called with the bytes of a key or value; null stays
    None. `on_metrics(metrics, statistics)` is called every `statistics.interval.ms` with what the
    methods of these names return, inside of `poll`; its exceptions are logged.

    Raises:
        ConfigError: unknown or contradictory settings, all of them at once.
        TypeError: `settings` is no mapping of names to values.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_metrics: OnMetrics | None = None,
        **more_settings: object,
    ) -> None:
        check_on_metrics(on_metrics)
        config = parse_consumer_config(settings, more_settings)
        network = PollingNetwork.open()
        self._driver = ThreadDriver(network)
        try:
            engine = ConsumerEngine(
                config,
                network=network,
                wall=time.time,
                chance=random.Random(os.urandom(16)),  # noqa: S311 - spreads load and pauses
                stirred=_nothing,
            )
            self._settle(
                engine,
                clock=time.monotonic,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                on_metrics=on_metrics,
            )
            self._driver.start(engine)
        except BaseException:
            network.close()
            raise
        _living.add(self)

    # -- reading ------------------------------------------------------------------------------

    def poll(self, timeout: float | None = 1.0) -> list[ConsumerRecord]:
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
        with self._reading(threading.current_thread()):
            deadline = self._deadline(timeout, is_poll=True)
            count = self._engine.config.max_poll_records
            return self._run(self._polls.poll(deadline, count))

    def poll_columns(
        self, timeout: float | None = 1.0, *, columns: Sequence[str] | None = None
    ) -> "pa.RecordBatch":
        """The next records as an Arrow record batch, without a Python object for each record.

        It has up to 65,536 rows or 8 MiB and the last batches whole, from any of the partitions;
        no rows after `timeout` seconds. `columns` are names of docs/reading.md: key, value, topic,
        partition, offset, timestamp, timestampType and headers if none are given. Needs pyarrow:
        `pip install 'tailrace[arrow]'`. Deserializers are not called.

        Raises:
            ConfigError: there is no such column.
            As `poll`.
        """
        with self._reading(threading.current_thread()):
            deadline = self._deadline(timeout, is_poll=True)
            return self._run(self._polls.columns(deadline, columns))

    def to_arrow(
        self,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        bytes_max: int | None = None,
    ) -> "pa.Table":
        """All records from the positions to the ends of the partitions, as one Arrow table.

        The ends are those at the time of the call, so it comes to an end while others write. The
        table has fewer records after `timeout` seconds, or once it has `bytes_max` bytes; the next
        call goes on behind them. The columns are those of `poll_columns`.

        Raises:
            ConfigError: there is no such column.
            ConsumerTimeoutError: the ends were not known in time; nothing was read.
            As `poll`.
        """
        with self._reading(threading.current_thread()):
            deadline = self._deadline(timeout, is_poll=True)
            return self._run(self._polls.table(deadline, columns, bytes_max=bytes_max))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over records as they come, until `wakeup` or `close` is called.

        The position follows record by record. A record counts as handled when the next one is
        asked for; the group gets its turn between two records, as in `poll`.
        """
        self._engine.check_open()
        loop = self._records()
        self._handling.begin_loop(loop)
        return loop

    def _records(self) -> Iterator[ConsumerRecord]:
        handling, clock = self._handling, self._clock
        while True:
            ahead = handling.ahead
            if handling.must_poll or not ahead:
                if not self._look_ahead():
                    return
                continue
            # Without the lock; see the invariant of `handling`. A call of `hand_out` costs more.
            record = handling.in_hand = ahead[0]
            ahead.popleft()
            handling.taken_at = clock()
            yield record

    def __next__(self) -> ConsumerRecord:
        """The next record; waits for it."""
        while (record := self._handling.hand_out(self._clock())) is None:
            if not self._look_ahead():
                raise StopIteration
        return record

    def _look_ahead(self) -> bool:
        """Have records for an iteration; False if that was ended."""
        try:
            with self._reading(threading.current_thread()):
                self._run(self._polls.look_ahead(self._engine.config.max_poll_records))
        except (WakeupError, ClosedConsumerError) as error:
            return self._is_not_end(error)
        return True

    # -- positions and offsets ----------------------------------------------------------------

    def position(
        self, partition: TopicPartition | tuple[str, int], timeout: float | None = None
    ) -> int:
        """The offset of the next record that is returned; waits until it is known."""
        return self._run(self._offsets.position(partition, self._deadline(timeout)))

    def seek_to_time(
        self, timestamp_ms: int, *partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Have the next `poll` read from the first record of that time on; returns its offset.

        Of all assigned partitions if none are given. None, and the end of the log, where no record
        is as late.
        """
        deadline = self._deadline(timeout)
        return self._run(self._offsets.seek_to_time(timestamp_ms, partitions, deadline))

    def beginning_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition; these need not be assigned."""
        deadline = self._deadline(timeout)
        return self._run(self._offsets.ends(partitions, SpecialTimestamp.EARLIEST, deadline))

    def end_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, by `isolation.level`."""
        deadline = self._deadline(timeout)
        return self._run(self._offsets.ends(partitions, SpecialTimestamp.LATEST, deadline))

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record from a time on (ms since 1970), by partition; None if there is none."""
        return self._run(self._offsets.offsets(timestamps, self._deadline(timeout)))

    def lag(self, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Records behind the position of each assigned partition, as the last fetch has told."""
        return self._run(self._offsets.lag(self._deadline(timeout)))

    def commit(self, offsets: object = None, *, timeout: float | None = None) -> None:
        """Store offsets in the group, and wait until they are.

        Without offsets, those after all records that were returned; in an iteration, after the
        record that was handed out last. `offsets` may be a record or several (the offsets after
        them), or a mapping of partitions to offsets or `OffsetAndMetadata`: of the next record to
        read, not the last that was read.

        Raises:
            CommitFailedError: others may have the partitions; records are read again.
            RebalanceInProgressError: call `poll`, then commit again.
        """
        self._run(self._group.commit(offsets, self._deadline(timeout)))

    def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offset that the group has stored for each partition; None if there is none."""
        return self._run(self._group.committed(partitions, self._deadline(timeout)))

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Read nothing any more; a member leaves its group, after `on_revoked`."""
        with self._engine.lock:
            self._settle_last()
        with self._reading(threading.current_thread()):
            self._run(self._group.unsubscribe(self._deadline(timeout)))

    # -- topics -------------------------------------------------------------------------------

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, with leader and replicas.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        return self._run(self._offsets.partitions_for(topic, self._deadline(timeout)))

    def list_topics(self, timeout: float | None = None) -> Mapping[str, tuple[PartitionInfo, ...]]:
        """All topics that the user may see, with their partitions."""
        return self._run(self._offsets.list_topics(self._deadline(timeout)))

    # -- ending -------------------------------------------------------------------------------

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit (with `enable.auto.commit`), leave the group, and close the connections.

        `on_revoked` is called for what is assigned. Waits `timeout` seconds at most. A second call
        waits for the first. Records at which the program is still at work are not committed: the
        present one of a `for` loop, those of the last poll of another thread, and those whose
        handling an exception has ended.

        In a signal handler that has interrupted a call of this consumer it returns at once. That
        call ends, and closes the consumer before it returns.
        """
        self._close(timeout, is_over=None)

    def wakeup(self) -> None:
        """End the `for` loop, or the reading call that waits, or else the next one.

        A loop ends as if there were no more records, a call raises a WakeupError; either counts
        all records before as handled. Any thread and any signal handler may call it.
        """
        self._engine.wakeup()
        self._driver.ring()

    def _close(self, timeout: float, *, is_over: bool | None) -> None:
        """Close; `is_over` says whether the last records are handled, None: find out."""
        deadline = self._deadline(timeout)
        if self._driver.is_interrupted:
            self._engine.close_by = deadline
            self._handling.must_poll = True
            self._driver.ring()
            return
        has_ended = True
        try:
            with self._engine.lock:
                self._settle_last(is_over=is_over)
            closer = threading.current_thread()
            has_ended = self._run(self._group.close(deadline, closer, self._woken))
        finally:
            if has_ended:
                with self._engine.lock:
                    self._driver.stop()
                self._driver.join()

    def __enter__(self) -> Self:
        """The consumer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; after an exception, the record in hand or the last poll is not committed."""
        self._close(CLOSE_S, is_over=kind is None)

    def __del__(self) -> None:
        """End the own thread of a consumer that was not closed."""
        driver = getattr(self, "_driver", None)
        if driver is not None and not driver.is_over and getattr(driver, "_engine", None):
            driver.abandon()

    # -- internal -----------------------------------------------------------------------------

    def _woken(self) -> None:
        self._driver.wake()

    def _has_ended(self, reader: object) -> bool:
        # Another thread may have ended by an exception, which nobody can tell from here.
        return reader is threading.current_thread()

    def _run(self, steps: Steps[T]) -> T:
        """Run an operation, and then a `close` that was called in a signal handler meanwhile."""
        self._driver.check_not_interrupted()
        try:
            return self._run_steps(steps)
        finally:
            close_by = self._engine.close_by
            if close_by is not None and not self._work.is_closing:
                self._close(max(0.0, close_by - self._clock()), is_over=None)

    def _run_steps(self, steps: Steps[T]) -> T:
        """Wait under the lock, call user code without it."""
        driver, lock = self._driver, self._engine.lock
        with lock:
            try:
                sent: Any = None
                failure: BaseException | None = None
                while True:
                    request = steps.send(sent) if failure is None else steps.throw(failure)
                    sent = failure = None
                    if isinstance(request, Call):
                        sent, failure = _call(request, lock)
                    else:
                        driver.move()
                        sent = driver.until(request.is_done, request.deadline)
            except StopIteration as end:
                if self._engine.fetches.is_stirred:
                    driver.move()
                result: T = end.value
                return result
            finally:
                steps.close()


def _call(request: Call, lock: threading.RLock) -> tuple[Any, BaseException | None]:
    """The result of user code, or its exception; it runs without the lock."""
    try:
        lock.release()
        return request.function(*request.arguments), None
    except BaseException as error:  # noqa: BLE001 - the operation handles it
        return None, error
    finally:
        take_again(lock)


def _nothing() -> None:
    """The kernel wakes the thread that waits for the socket."""


_living: "weakref.WeakSet[Consumer]" = weakref.WeakSet()


def _forked() -> None:
    for each in list(_living):
        each._driver.forked()


os.register_at_fork(after_in_child=_forked)
