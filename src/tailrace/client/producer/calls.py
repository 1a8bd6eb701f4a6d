"""`ProducerCalls`: the calls of a producer that wait, written once for threads and event loops.

Not here: `send`, which does not wait as long as an open batch takes the record (`send_call`).
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from tailrace.client.drive.operation import operation
from tailrace.client.drive.steps import CallUser, LetOthersRun, Steps, Until
from tailrace.client.listings import Listing, PartitionInfo
from tailrace.client.producer.batch_receipt import BatchReceipt
from tailrace.client.producer.errors import ClosedProducerError, TransactionAbortedError
from tailrace.client.producer.intake.arguments import plain_topic
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.many import SendSummary
from tailrace.client.producer.outcome import BatchOutcome
from tailrace.client.producer.producer_batch import ProducerBatch, check_batch
from tailrace.client.producer.transaction_calls import TransactionCalls
from tailrace.client.producer.waiting.sending_waits import memory_granted, topic_known
from tailrace.client.producer.waiting.topic_wait import listed_in, partitions_in
from tailrace.runtime.extras import check_extra

if TYPE_CHECKING:
    from tailrace.client.producer.intake.slices import ColumnSlice
    from tailrace.client.producer.queue.sealed_batch import FilledRecords


class ProducerCalls(TransactionCalls):
    """The calls that send much at a time, ask for topics, and wait for outcomes."""

    @operation
    def send_many(
        self, topic: str, rows: object, *, progress: Callable[[int], object] | None = None
    ) -> Steps[SendSummary]:
        """Send many rows and wait until each has its outcome.

        `rows` is a pyarrow Table, RecordBatch or reader, a data frame that offers Arrow, a mapping
        of columns, or an iterable of values, of (key, value) pairs or of named tuples;
        `tailrace.client.producer.intake.columns` lists the columns. Rows of a partition keep their
        order. Each batch is encoded by one kernel call, without a Python object per row, unless
        interceptors, serializers or a custom partitioner are to be called for each. `progress` is
        called with the number of rows that have got their outcome since the last call. In a
        transaction, a row that cannot be sent fails the transaction, as in `send`.

        Returns a summary of the outcomes; a row that cannot be sent does not affect the others.
        Every exception, also of `rows` or `progress`, has the summary until then as its attribute
        `summary`: rows that were acknowledged, that are still being sent, and that were not sent.

        Raises:
            MissingExtraError: the extra `arrow` is not installed.
            TypeError, ValueError: `rows` or its columns cannot be made into records.
            MetadataTimeoutError, UnknownTopicError, ...: the topic's metadata is not available.
            BufferExhaustedError: `buffer.memory` stayed full for `max.block.ms`; rows that were
                taken before are still sent.
        """
        check_extra("arrow", "send_many()", packages=("numpy",))
        from tailrace.client.producer.row_plans import plan_rows, rows_of

        engine = self._engine
        topic = plain_topic(topic)
        engine.preparation.check_name(topic)
        summary = SendSummary(topic, progress)
        with summary.accounting():
            chunks = rows_of(engine, topic, rows)
            while True:
                self._check_open()
                # Rows, serializers and partitioners may be code of the user.
                chunk = yield CallUser(next, (chunks, None))
                if chunk is None:
                    break
                self._check_open()
                yield from topic_known(engine, ProducerRecord(topic), self._max_block())
                summary.row_count += chunk.row_count
                plan = yield CallUser(plan_rows, (engine, topic, chunk))
                yield CallUser(self._refuse_rows, (summary, plan.refused))
                for columns in plan.slices:
                    yield from self._lines_served(topic)
                    outcome = yield from self._place_slice(topic, columns, self._max_block())
                    self._rows_placed(outcome, columns)
                    summary.add(outcome, columns)
                    self._driver.move()
                    summary.settle()
                    yield CallUser(summary.tell, ())
                yield LetOthersRun()
            while not summary.is_over:
                yield Until(summary.has_news, inf)
                yield CallUser(summary.tell, ())
        return summary

    @operation
    def send_batch(self, batch: ProducerBatch, *, partition: int) -> Steps[BatchReceipt]:
        """Queue a batch of `create_batch` to be sent whole, and return a receipt for it.

        It is written, retried and counted as the batches of `send`: at once or not at all, once
        and in order, and as a part of the open transaction. Waits for the topic's metadata and for
        memory, `max.block.ms` at most. After an error nothing was sent, and the same batch may be
        sent again.

        Raises:
            TypeError, ValueError: an argument is wrong, the batch has no records, or another
                producer has made it.
            ClosedBatchError: the batch was sent before.
            MetadataTimeoutError, UnknownTopicError, ...: the partition is not known.
            BufferExhaustedError: `buffer.memory` stayed full for `max.block.ms`.
            TransactionStateError: no transaction is open, and there is a `transactional.id`.
        """
        check_batch(batch)
        self._check_open()
        engine, deadline = self._engine, self._max_block()
        with batch.sending(engine, partition) as columns:
            record = ProducerRecord(batch.topic, partition=columns.partition)
            yield from topic_known(engine, record, deadline)
            yield from self._lines_served(batch.topic)
            outcome = yield from self._place_slice(batch.topic, columns, deadline)
        columns.note_placed(outcome, engine.interceptors)
        self._driver.move()
        return BatchReceipt(outcome, columns.record_count)

    @operation
    def send_slice(self, topic: str, rows: "ColumnSlice") -> Steps[BatchOutcome]:
        """Queue rows that `plan_chunk` has made one batch of, and return its outcome.

        For callers who cut the batches, and know from an `identity` which numbers their records
        get. Serializers and the partitioner are not called. A broker that refuses a batch because
        of its size gets it in parts, which the outcome then has. After `flush()`, it is done.

        Raises:
            TransactionStateError: with an `identity`, a batch before it has failed.
            MetadataTimeoutError, InvalidTopicError, ...: the topic's metadata is not available.
            BufferExhaustedError: `buffer.memory` stayed full for `max.block.ms`.
        """
        self._check_open()
        engine, deadline = self._engine, self._max_block()
        if engine.metadata.partition_count(topic) is None:
            yield from topic_known(engine, ProducerRecord(topic), deadline)
        yield from self._lines_served(topic)
        outcome = yield from self._place_slice(topic, rows, deadline)
        self._rows_placed(outcome, rows)
        self._driver.move()
        return outcome

    @operation
    def partitions_for(self, topic: str) -> Steps[list[PartitionInfo]]:
        """The partitions of a topic, with leader and replicas, as a broker knows them now.

        Waits `max.block.ms` at most. A broker may create the topic, as for a record.

        Raises:
            UnknownTopicError: the topic was deleted meanwhile.
            MetadataTimeoutError: it did not become known in time.
            InvalidTopicError, AuthorizationError: the topic cannot be used.
        """
        topic = plain_topic(topic)
        self._engine.preparation.check_name(topic)
        self._check_open()
        deadline = self._max_block()
        yield from topic_known(self._engine, ProducerRecord(topic), deadline)
        return partitions_in((yield from self._listed([topic], deadline)), topic)

    @operation
    def list_topics(self, timeout: float | None = None) -> Steps[Listing]:
        """All topics that the user may see, with their partitions, by name.

        Waits `timeout` seconds at most; None stands for `max.block.ms`.

        Raises:
            MetadataTimeoutError: no broker has answered in time.
            AuthenticationError: no broker takes the login.
        """
        self._check_open()
        deadline = self._max_block() if timeout is None else self._deadline(timeout)
        return (yield from self._listed(None, deadline))

    @operation
    def flush(self, timeout: float | None = None) -> Steps[None]:
        """Send all that waits, and wait until everything sent before has its outcome.

        The callbacks of those records have run then, except for a flush in a callback.

        Raises:
            TimeoutError: that took longer than `timeout` seconds; the records are still sent.
            ReentrantCallError: called by a signal handler that has interrupted another call.
        """
        engine, driver, deadline = self._engine, self._driver, self._deadline(timeout)
        if self._lines is not None:
            is_served = self._lines.served()
            if not (yield Until(is_served, deadline)) and not driver.is_over:
                raise TimeoutError(f"not everything got into a batch within {timeout} s")
        with engine.flushing() as is_over:
            if not (yield Until(is_over, deadline)):
                raise TimeoutError(f"not everything was acknowledged within {timeout} s")
            are_made = driver.calls_made()
            if not (yield Until(are_made, deadline)) and not driver.is_over:
                raise TimeoutError(
                    f"all records have their outcome, and a callback runs for over {timeout} s"
                )

    # -- steps --------------------------------------------------------------------------------

    def _close_steps(self, timeout: float | None) -> Steps[None]:
        """Send what waits, wait for its outcome, and stop the driver."""
        engine, driver, lines = self._engine, self._driver, self._lines
        deadline = self._deadline(timeout)
        # Each caller waits until its own deadline and then stops the driver. So it need not rely on
        # another one, which may be interrupted or have a later deadline.
        if driver.is_over:
            return
        try:
            is_first, self._is_closing = not self._is_closing, True
            engine.open_batches.halt()
            if is_first and timeout != 0 and engine.abort_open():
                self._end_lines(TransactionAbortedError("not sent: the producer was closed"))
            if lines is not None:
                yield Until(lines.served(), deadline)
            engine.begin_close()
            yield Until(lambda: not engine.accumulator.incomplete, deadline)
            end_by = min(deadline, self._max_block())
            yield Until(engine.is_settled, end_by)
            # The commit waits for the last batch, and may have failed only with that one.
            if timeout != 0 and engine.abort_open():
                yield Until(engine.is_settled, end_by)
        finally:
            engine.begin_close()
            self._end_lines(ClosedProducerError("the producer was closed"))
            driver.stop()

    def _lines_served(self, topic: str) -> Steps[None]:
        """Wait until records of this topic that were sent before are in batches."""
        if self._lines is not None:
            yield Until(self._lines.served(topic), inf)

    def _place_slice(
        self, topic: str, columns: "ColumnSlice | FilledRecords", deadline: float
    ) -> Steps[BatchOutcome]:
        """Queue a whole batch, and wait for its memory before."""
        engine = self._engine
        self._check_open()
        append = partial(engine.append_slice, topic, columns)
        outcome = self._appended(partial(append, now=engine.monotonic()))
        if outcome is None:
            size = engine.accumulator.supply.memory_for_slice(columns)
            granted = yield from memory_granted(engine, size, deadline)
            with engine.pool.returning(granted):
                outcome = self._appended(partial(append, now=engine.monotonic(), granted=granted))
        assert outcome is not None, "memory was granted for this batch"
        return outcome

    def _listed(self, topics: list[str] | None, deadline: float) -> Steps[Listing]:
        """These topics, or all, with their partitions."""
        pending = self._engine.sender.cluster.listings.ask(topics)
        try:
            yield Until(lambda: pending.is_done, deadline)
        finally:
            pending.is_abandoned = True
        return listed_in(self._engine, pending)
