"""`WrittenRows`: the message by which a task tells the driver about the rows that it has written.

Not here: the work of a task (`rows`), and with it PyArrow and the producer: a driver that commits
loads neither.
"""

from collections.abc import Mapping
from dataclasses import field

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.model import TopicPartition
from tailrace.spark.sink.ledger import Count, FreeId, Slot, SlotState
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """Identity of a task's work."""

    query_id: str | None = None
    """Id of the streaming query, the same after a restart from its checkpoint, or of a job with
    versions; None in another batch."""
    batch_id: int | None = None
    """Number of the micro-batch or version, the same when it is replayed; None likewise."""
    partition_id: int = 0
    """Number of the DataFrame's partition."""
    task_attempt_id: int = 0
    """Number that no other attempt of the same SparkContext has. An attempt is not known by its
    `attemptNumber`: that begins with 0 for each attempt of its stage, while tasks of the one before
    may still run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows(WriterCommitMessage):  # type: ignore[misc]  # PySpark is untyped here
    """Counts of the rows that a task has written."""

    attempt: TaskAttempt
    row_count: int
    size: int
    """Bytes of the rows in Arrow's form, before they were made into records."""
    last_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Last offset in each partition that rows went to; none with acks=0."""
    digest: str = ""
    """Digest of the rows; only of those that were written in a transaction, or would be."""
    transaction: PreparedTransaction | None = None
    """The open transaction of the rows; None outside of transactions, and if there is nothing to
    commit."""
    ticket: Count | None = None
    """The number of the attempt in its query or job; None without a transaction."""

    def free_id(self) -> FreeId | None:
        """The transactional id that is free when the transaction has ended."""
        if self.transaction is None or self.ticket is None:
            return None
        return FreeId(self.transaction.transactional_id, self.ticket)

    def slot(self) -> Slot:
        """The slot of the batch that these rows are."""
        is_committed = self.transaction is None
        return Slot(
            row_count=self.row_count,
            digest=self.digest,
            transaction=self.transaction,
            last_offsets=self.last_offsets,
            state=SlotState.COMMITTED if is_committed else SlotState.PROMISED,
        )


def task_attempt() -> TaskAttempt:
    """The identity of the present task; that of no task outside of Spark."""
    context = TaskContext.get()
    if context is None:
        return TaskAttempt()
    # Spark sets both for the tasks of a micro-batch (QUERY_ID_KEY of StreamExecution, BATCH_ID_KEY
    # of MicroBatchExecution).
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return TaskAttempt(
        query_id=context.getLocalProperty("sql.streaming.queryId"),
        batch_id=None if batch_id is None else int(batch_id),
        partition_id=context.partitionId(),
        task_attempt_id=context.taskAttemptId(),
    )
