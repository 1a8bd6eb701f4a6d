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
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.errors import ClosedConsumerError, WakeupError
from tailrace.client.consumer.fetched import Deserializer
from tailrace.client.consumer.metrics import OnMetrics
from tailrace.client.consumer.reading_calls import ReadingCalls
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.drive.operation import BlockingFace
from tailrace.client.drive.steps import Steps
from tailrace.client.drive.thread import ThreadDriver
from tailrace.client.interval_call import check_on_metrics
from tailrace.client.pending import T
from tailrace.runtime.polling import PollingNetwork

if TYPE_CHECKING:
    from tailrace.client.keywords import ConsumerSettings

CLOSE_S = 30.0
"""Time for `close` to commit and to leave the group, as in Kafka's client."""


class Consumer(BlockingFace, ReadingCalls):
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
        **more_settings: "Unpack[ConsumerSettings]",
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
                wake=_nothing,
            )
            self._set_up(
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
            self._read(self._fill_ahead())
        except (WakeupError, ClosedConsumerError) as error:
            return self._is_not_end(error)
        return True

    # -- ending --------------------------------------------------------------------------------

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit (with `enable.auto.commit`), leave the group, and close the connections.

        `on_revoked` is called for what is assigned. Waits `timeout` seconds at most. A second call
        waits for the first. Records at which the program is still at work are not committed: the
        present one of a `for` loop, those of the last poll of another thread, and those whose
        handling an exception has ended.

        In a signal handler that has interrupted a call of this consumer, and in a hook, it returns
        at once. That call ends, and closes the consumer before it returns.
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
            # The interrupted call holds the lock, so nothing can be changed here: it closes when it
            # ends.
            self._engine.close_by = deadline
            self._handling.must_poll = True
            self._driver.ring()
            return
        if self._close_later(deadline):
            return
        has_ended = True
        try:
            has_ended = self._run(self._close_steps(deadline, is_over=is_over))
        finally:
            if has_ended:
                with self._engine.lock:
                    self._driver.stop()
                # Without the lock, which the thread needs to end.
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

    # -- internal ------------------------------------------------------------------------------

    def _woken(self) -> None:
        self._driver.wake()

    def _has_ended(self, reader: object) -> bool:
        # Another thread may have ended by an exception, which nobody can tell from here.
        return reader is threading.current_thread()

    def _caller(self) -> threading.Thread:
        return threading.current_thread()

    def _read(self, steps: Steps[T]) -> T:
        with self._reading():
            return self._run(steps)

    def _run(self, steps: Steps[T]) -> T:
        """Run a call, and then a `close` that was called in a signal handler meanwhile."""
        try:
            return self._driver.run(steps)
        finally:
            close_by = self._engine.close_by
            if close_by is not None and self._closer is None:
                self._close(max(0.0, close_by - self._clock()), is_over=None)


def _nothing() -> None:
    """The kernel wakes the thread that waits for the socket."""
