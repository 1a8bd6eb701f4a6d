"""The writers that Spark asks for: of a DataFrame and of a stream.

    driver, for each write or micro-batch    open_writer, open_stream_writer; pickled for the tasks
    each task                                write
    driver, when all tasks have written      commit; or abort, if one failed for good

Spark runs each of these steps in a Python process that may be another one each time, and makes a
new writer for the commit of a stream. So a writer has no state: a batch write has an id from the
beginning, and what the driver of a stream or of a job with versions knows is in its checkpoint.

Not here: the work of a task (`rows`), the protocol of exactly-once delivery (`commits`).

Invariant: a process loads only its own step. The driver has two for each stream, and neither needs
PyArrow's functions, a codec or the producer; without transactions it needs no client at all.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from tailrace.errors import ConfigError
from tailrace.spark.brief_errors import brief_errors
from tailrace.spark.pyspark_versions import DataSourceStreamArrowWriter
from tailrace.spark.sink.commits import BatchCommitter, JobCommitter, TransactionPlan
from tailrace.spark.sink.ledger import FreeId, Slot
from tailrace.spark.sink.options import Delivery, JobVersion, SinkOptions, parse_sink
from tailrace.spark.sink.written import TaskAttempt, WrittenRows, task_attempt

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.spark.sink.checkpoint import Checkpoint
    from tailrace.spark.sink.cluster import ClusterTransactions

log = logging.getLogger(__name__)


@brief_errors
class TailraceWriter(DataSourceArrowWriter):  # type: ignore[misc]  # PySpark is untyped here
    """Writes a DataFrame; Spark sends it to the tasks, so it holds options and a plan only."""

    def __init__(self, options: SinkOptions, *, plan: TransactionPlan | None = None) -> None:
        """With a `plan` the rows are written in transactions of its job."""
        self._options = options
        self._plan = plan

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRows:
        """Write the rows of one task; raises as `write_rows` or `write_in_transaction`."""
        # Without a plan: at least once.
        if self._plan is None:
            return _write_rows(iterator, self._options)
        return _write_in_transaction(iterator, self._options, self._plan, attempt=task_attempt())

    def commit(self, messages: Sequence[WrittenRows | None]) -> None:
        """Make the rows of all tasks visible, if they are in transactions.

        Raises:
            FatalError: brokers have aborted transactions; readers see the others.
            TailraceError: brokers do not answer.
        """
        if self._plan is not None:
            written = [each.transaction for each in messages if each is not None]
            _committer(self._options, self._plan.work_id).commit(
                [each for each in written if each is not None]
            )

    def abort(self, messages: Sequence[WrittenRows | None]) -> None:
        """Abort what the tasks have left open."""
        del messages
        if self._plan is not None:
            _committer(self._options, self._plan.work_id).abort()


@brief_errors
class JobVersionWriter(DataSourceArrowWriter):  # type: ignore[misc]  # likewise
    """Writes a DataFrame as one version of a job, exactly once however often the job runs.

    The job was recovered before, when the writer was opened; `plan` is what that has found.
    """

    def __init__(self, options: SinkOptions, version: JobVersion, *, plan: TransactionPlan) -> None:
        self._options = options
        self._version = version
        self._plan = plan

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRows:
        """Write the rows of one task; raises as `write_in_transaction`."""
        attempt = replace(
            task_attempt(), query_id=self._version.work_id, batch_id=self._version.number
        )
        return _write_in_transaction(iterator, self._options, self._plan, attempt=attempt)

    def commit(self, messages: Sequence[WrittenRows | None]) -> None:
        """Promise the version and make its rows visible; raises as `BatchCommitter.commit`."""
        self._committer().commit(self._version.number, _slots(messages), _free_ids(messages))

    def abort(self, messages: Sequence[WrittenRows | None]) -> None:
        """Abort what the tasks have left open, unless the version was promised."""
        del messages
        self._committer().abort(self._version.number)

    def _committer(self) -> BatchCommitter:
        return _job_committer(self._options, self._version)


@brief_errors
class TailraceStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # likewise
    """Writes micro-batches, at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRows:
        """Write the rows of one task of a micro-batch; raises as `write_rows`."""
        return _write_rows(iterator, self._options)


@brief_errors
class ExactlyOnceWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # likewise
    """Writes micro-batches, each exactly once.

    Spark pickles a writer on the driver before it starts the tasks, and only then; that is when
    earlier batches are recovered, because it must not be done between tasks and commit.
    """

    def __init__(self, options: SinkOptions, *, plan: TransactionPlan | None = None) -> None:
        self._options = options
        self._plan = plan

    def __reduce__(self) -> "tuple[Callable[..., ExactlyOnceWriter], tuple[object, ...]]":
        if self._plan is None:
            # Here and not in the constructor: Spark also makes a writer for the commit, in another
            # process.
            self._plan = self._recovered()
        return _planned, (self._options, self._plan)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRows:
        """Write the rows of one task of a micro-batch; raises as `write_in_transaction`."""
        assert self._plan is not None, "a task has the writer that was pickled"
        return _write_in_transaction(iterator, self._options, self._plan, attempt=task_attempt())

    def commit(self, messages: Sequence[WrittenRows | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Promise the batch and make its rows visible; raises as `BatchCommitter.commit`."""
        self._committer().commit(batchId, _slots(messages), _free_ids(messages))

    def abort(self, messages: Sequence[WrittenRows | None], batchId: int) -> None:  # noqa: N803
        """Abort what the tasks have left open, unless the batch was promised."""
        del messages
        self._committer().abort(batchId)

    def _recovered(self) -> TransactionPlan:
        checkpoint = self._checkpoint()
        plan = self._committer().recover()
        offsets_of, group_offsets = checkpoint.group_offsets()
        return replace(plan, offsets_of=offsets_of, group_offsets=group_offsets)

    def _committer(self) -> BatchCommitter:
        checkpoint = self._checkpoint()
        return BatchCommitter(
            checkpoint.query_id(),
            ledger=checkpoint.ledger(),
            transactions=_transactions(self._options),
            is_done=checkpoint.is_committed,
            accepted=self._options.accepted,
        )

    def _checkpoint(self) -> "Checkpoint":
        from tailrace.spark.sink.checkpoint import Checkpoint

        assert self._options.checkpoint is not None, "it was asked for when the writer was opened"
        return Checkpoint(self._options.checkpoint)


def _write_rows(rows: "Iterator[pa.RecordBatch]", options: SinkOptions) -> WrittenRows:
    from tailrace.spark.sink.rows import write_rows

    return write_rows(rows, options)


def _write_in_transaction(
    rows: "Iterator[pa.RecordBatch]",
    options: SinkOptions,
    plan: TransactionPlan,
    *,
    attempt: TaskAttempt,
) -> WrittenRows:
    from tailrace.spark.sink.rows import write_in_transaction

    return write_in_transaction(
        rows, options, plan, attempt=attempt, transactions=_transactions(options)
    )


def _planned(options: SinkOptions, plan: TransactionPlan) -> ExactlyOnceWriter:
    return ExactlyOnceWriter(options, plan=plan)


def open_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> TailraceWriter | JobVersionWriter:
    """The writer of a DataFrame; asks brokers only for exactly-once delivery.

    A job with versions is recovered: an earlier write is finished, or nothing is left of it.

    Raises:
        ConfigError: the options or the columns have faults, or the mode is overwrite; all faults.
        FatalError: the delivery is exactly-once, and the brokers have no transactions; or the job
            has written a later version.
        OlderCheckpointError: the notes of the job are older than the cluster.
        PartlyCommittedError: an earlier version of the job has to be run again first.
        TailraceError, OSError: as `BatchCommitter.recover`.
    """
    # All faults at once, those of the mode among them.
    faults = []
    if overwrite:
        faults.append("mode: records can only be appended to a topic; say mode('append')")
    try:
        parsed = parse_sink(options, schema)
    except ConfigError as error:
        raise ConfigError(faults + error.faults) from None
    if faults:
        raise ConfigError(faults)
    if parsed.delivery is Delivery.AT_LEAST_ONCE:
        return TailraceWriter(parsed)
    if parsed.job is not None:
        return _recovered_job(parsed, parsed.job)
    # A write without a version has an id of its own, since Spark gives it none.
    return TailraceWriter(parsed, plan=_committer(parsed, uuid.uuid4().hex).begin())


def open_stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> TailraceStreamWriter | ExactlyOnceWriter:
    """The writer of a stream; `overwrite` is the output mode complete, whose rows are added too.

    Raises:
        ConfigError: the options or the columns have faults, or the delivery is exactly-once and
            the location of the checkpoint is not known; all faults.
    """
    # Spark sets it for the output mode complete, in which its own sink adds the rows too.
    del overwrite
    parsed = parse_sink(options, schema, is_stream=True)
    if parsed.delivery is Delivery.AT_LEAST_ONCE:
        return TailraceStreamWriter(parsed)
    return ExactlyOnceWriter(parsed)


def _recovered_job(options: SinkOptions, version: JobVersion) -> JobVersionWriter:
    plan = _job_committer(options, version).recover()
    promised = plan.promised(version.number)
    # A warning, since the user may have meant to write a new version.
    if promised is not None and not promised.lost:
        log.warning("%s was written by an earlier run: nothing is written", promised.label)
    return JobVersionWriter(options, version, plan=plan)


def _committer(options: SinkOptions, job_id: str) -> JobCommitter:
    return JobCommitter(job_id, _transactions(options))


def _job_committer(options: SinkOptions, version: JobVersion) -> BatchCommitter:
    from tailrace.spark.sink.checkpoint import Checkpoint

    return BatchCommitter(
        version.work_id,
        ledger=Checkpoint(version.location).ledger(),
        transactions=_transactions(options),
        app_id=version.app_id,
        accepted=options.accepted,
    )


def _transactions(options: SinkOptions) -> "ClusterTransactions":
    from tailrace.spark.sink.cluster import transactions_of

    return transactions_of(options.producer)


def _slots(messages: Sequence[WrittenRows | None]) -> dict[int, Slot]:
    """The slots of a batch, by the number of the DataFrame's partition."""
    return {each.attempt.partition_id: each.slot() for each in messages if each is not None}


def _free_ids(messages: Sequence[WrittenRows | None]) -> dict[int, FreeId]:
    """The transactional ids that a later batch may use, by the number of the partition."""
    found = {each.attempt.partition_id: each.free_id() for each in messages if each is not None}
    return {number: each for number, each in found.items() if each is not None}
