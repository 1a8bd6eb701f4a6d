"""`BatchCommitter`: the commit of batches, each exactly once; the part of the driver.

    driver      | recover, token                          promise, count, commit | token, sweep
    task        |                | ticket, begin, token? rows |
    coordinator |                                       | open .............. committed |

A batch is a micro-batch of a stream, or one version of a job: a batch write with a `txnAppId` and a
`txnVersion`, which the user raises from write to write.

Each attempt at a task writes into a transaction of its own and leaves it open. When Spark has an
attempt for each slot (partition of the DataFrame), the driver writes down which transactions make
up the batch: from then on the batch is promised. Then it commits them, and aborts what other
attempts have left open.

No two attempts ever have one transactional id: a producer that gets an identity aborts the open
transaction of that id, and with it rows that Spark counts. Numbers of Spark do not tell attempts
apart: they begin again with each attempt of a stage and with each driver, while tasks of those
before still run. So each attempt draws a ticket of its slot from the cluster, and its id is made of
that. Brokers keep each id for a week, so ids are used again: a note has one for each slot, with the
ticket of the attempt that has used it and has ended. The attempt with the ticket that follows may
use it, and no other one ever draws that.

A driver that starts again finds the newest promise. If Spark has not noted that batch as done, it
commits what was promised, as often as needed: the same end of the same transaction changes nothing.
When Spark then runs the batch again, its tasks write nothing. A batch without a promise never was:
its transactions are aborted, and it is written again. Spark notes nothing about a job, so there the
promise is written down once more when it is kept: nobody has to look for its transactions later,
when their ids are used again and retention may have taken their records.

An attempt may outlive its batch: a speculative twin, or a task that Spark has given up and not yet
killed. So a batch has a fencing token, the epoch of a transactional id that drivers alone use,
which is raised when the batch begins and when it ends. A task gets an identity, and then asks
whether its token is the newest before it sends its first row; a driver raises the token, and then
fences all identities that have no transaction or an open one. The second of the two sees what the
first has done, so nothing is opened after a sweep.

Notes may be older than the cluster: put back from a backup, copied, or in another directory. Then
rows would be written again. So the cluster counts batches too: a promise says the count before it,
and the driver raises the count by one before it commits. A driver that starts finds the count of
its newest note or the next one; if the cluster is ahead of that, it refuses. The request that
raises it names the count before, so that it can be repeated and never counts a batch twice.

A broker aborts a transaction that is open for longer than `transaction.timeout.ms`, promised or
not. Then the commit is refused, the log tells that the transaction was aborted, and its slot is
lost: the query fails, and the next run of the batch writes the lost slots again, and no others, if
each slot has the same rows as before, which digests tell. A job cannot go on with a later version
until that has happened.

Not here: files (`ledger`), requests (`cluster`), the work of tasks (`rows`).

Invariant: a transaction is committed only if a promise names it that was counted, a promise names
one for each slot with rows, and a slot is written again only when its transaction is known to be
aborted. After a sweep no attempt with an older token opens a transaction.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.spark.sink.ledger import (
    ACCEPT,
    GO_BACK,
    NO_COUNT,
    PLACE,
    BatchRecord,
    Count,
    FreeId,
    Ledger,
    Slot,
    SlotState,
    attempts_prefix,
    commits_name,
    tickets_name,
    token_name,
)
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.spark.sink.written import TaskAttempt


class Transactions(Protocol):
    """The transactions of a cluster."""

    def cluster_id(self) -> str:
        """The id of the cluster."""
        ...

    def commit(self, transactions: Collection[PreparedTransaction]) -> set[PreparedTransaction]:
        """Commit transactions; returns those that are not open any more."""
        ...

    def is_committed(self, partition: TopicPartition, *, offset: int, producer_id: int) -> bool:
        """Whether the log has the transaction of a record as a committed one."""
        ...

    def raise_count(self, name: str) -> Count:
        """Raise a counter; nobody else gets the same count."""
        ...

    def raise_count_after(self, name: str, before: Count) -> None:
        """Raise a counter whose newest count is this; once more, it changes nothing."""
        ...

    def count(self, name: str) -> Count:
        """The newest count; `NO_COUNT` if there is no such counter, or none any more."""
        ...

    def fence(self, prefix: str) -> None:
        """Abort every open transaction whose transactional id begins so.

        A producer with such an id that has opened none cannot do so any more.
        """
        ...


class TransactionsLostError(FatalError):
    """A broker has aborted transactions of a batch that was promised."""

    def __init__(self, record: BatchRecord) -> None:
        self.lost = record.lost
        """The slots that are to be written again."""
        super().__init__(
            f"{record.label}: the brokers have aborted the transactions of {len(self.lost)} of "
            f"{len(record.slots)} partitions before they could be committed, and readers of "
            "committed records do not see these rows. Run it again: that writes them again, and "
            "nothing twice. They were open for longer than kafka.transaction.timeout.ms, and then "
            "raise it and the brokers' transaction.max.timeout.ms; or another driver or an admin "
            "has aborted them"
        )


class OtherRowsError(FatalError):
    """A batch that was committed in part has other rows in its second run."""

    def __init__(self, slot: int, record: BatchRecord) -> None:
        super().__init__(
            f"partition {slot} of {record.label} has other rows than when it was first written, "
            f"and {len(record.slots) - len(record.lost)} of its {len(record.slots)} partitions are "
            f"committed, so the lost ones ({', '.join(map(str, record.lost))}) cannot be written "
            "again without doubling or losing rows: the query's plan gives rows in another order "
            "or number each time, as after a shuffle. To write all of it again, and have the "
            f"committed partitions twice, {GO_BACK}"
        )


class AttemptFencedError(FatalError):
    """A task writes for a batch that has ended, or that another driver has begun again."""

    def __init__(self, work_id: str) -> None:
        super().__init__(
            f"this task of {work_id!r} comes too late and writes nothing: its batch has ended, or "
            "another driver writes for the same query or job. Run one driver at a time"
        )


class PartlyCommittedError(FatalError):
    """A later batch is to be written, and the last one has lost transactions."""

    def __init__(self, record: BatchRecord) -> None:
        super().__init__(
            f"{record.label} is committed in part: brokers have aborted the transactions of "
            f"{len(record.lost)} of {len(record.slots)} partitions. Run it again first: that "
            f"writes the missing rows. To go on without them, {GO_BACK}"
        )


class OlderCheckpointError(FatalError):
    """The cluster has seen batches that the notes of a query or job do not know."""

    def __init__(self, work: str, record: BatchRecord | None, count: Count) -> None:
        self.count = count
        """The count of promised batches, with which the user may go on."""
        known = "no batch" if record is None else f"nothing after {record.label}"
        super().__init__(
            f"{PLACE} knows {known}, and the cluster has seen later ones of {work!r}, which may be "
            "visible: the location was put back to an earlier state, is a copy, or is another one "
            "than before. Nothing is written, since it may be there already. Start with the newest "
            "state of the location that wrote last. To go on from this one, and write again what "
            f"it does not know, set option('{ACCEPT}', '{count}') for one start"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """A task's part of the protocol; Spark sends it to the tasks."""

    work_id: str
    """Id of the streaming query or job; no id is the beginning of another one."""
    token: Count
    """A task writes only while this is the newest."""
    record: BatchRecord | None = None
    """The newest promise, as it was recovered."""
    keeps_ids: bool = True
    """Whether later batches use the transactional ids of this one."""
    offsets_of: int = -1
    """The batch whose offsets these are; -1 for none."""
    group_offsets: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Positions by consumer group, to be committed with slot 0."""

    def is_newest(self, transactions: Transactions) -> bool:
        """Whether no driver has ended this batch, or begun it again."""
        return transactions.count(token_name(self.work_id)) == self.token

    def take_id(
        self, attempt: "TaskAttempt", transactions: Transactions
    ) -> tuple[str, Count | None]:
        """The transactional id that this attempt alone uses, and its ticket, if it draws one."""
        slot = attempt.partition_id
        begin = f"{attempts_prefix(self.work_id)}{slot}-"
        if not self.keeps_ids:
            # The work is one job of one SparkContext, which has numbered its attempts.
            return f"{begin}{attempt.task_attempt_id}", None
        ticket = transactions.raise_count(tickets_name(self.work_id, slot))
        free = None if self.record is None else self.record.free_ids.get(slot)
        # Brokers remember each id for a week, and a new one for each micro-batch would be very
        # many.
        if free is not None and ticket.follows(free.ticket):
            return free.transactional_id, ticket
        # A ticket between the two was drawn by an attempt that died or still runs, and it may use
        # the free id: so this one makes a new id.
        return f"{begin}{ticket.producer_id}-{ticket.producer_epoch}", ticket

    def offsets_for(
        self, slot: int, batch_id: int | None
    ) -> Mapping[str, Mapping[TopicPartition, int]]:
        """The positions by consumer group that the transaction of this slot commits."""
        # One slot is enough, since the transactions of a batch are committed together.
        return self.group_offsets if slot == 0 and batch_id == self.offsets_of else {}

    def promised(self, batch_id: int | None) -> BatchRecord | None:
        """Find the promise of this batch in an earlier run; None if it is to be written whole.

        Raises:
            PartlyCommittedError: an earlier batch has lost slots.
            FatalError: a later batch was promised already.
        """
        record = self.record
        if record is None or batch_id is None:
            return None
        if batch_id < record.batch_id:
            if record.app_id is not None:
                raise FatalError(
                    f"txnVersion {batch_id} is lower than {record.batch_id}, the newest that "
                    f"{record.app_id!r} has written, and versions of a txnAppId have to rise. To "
                    f"write lower ones, whatever of them is there already, remove {PLACE}, and "
                    "start with the option that the next error names"
                )
            raise FatalError(
                f"batch {batch_id} is to be written, and batch {record.batch_id} is committed "
                "already: the checkpoint was put back to an earlier state. To write the batches "
                "since then once more, remove its tailrace-commits, and start with the option "
                "that the next error names"
            )
        if record.is_void:
            return None
        if batch_id == record.batch_id:
            return record
        # After the sweep, so that nothing is left open while Spark decides whether to run the batch
        # again.
        if record.lost:
            raise PartlyCommittedError(record)
        return None


class BatchCommitter:
    """Commits the batches of one query or job."""

    def __init__(
        self,
        query_id: str,
        *,
        ledger: Ledger,
        transactions: Transactions,
        is_done: Callable[[int], bool] | None = None,
        app_id: str | None = None,
        accepted: Count | None = None,
    ) -> None:
        """A stream has `is_done`, which tells whether Spark has noted a batch as done.

        A job has an `app_id`, and its notes tell that themselves. `accepted` is the count of
        promised batches with which older notes are taken.
        """
        self._query_id = query_id
        self._app_id = app_id
        self._ledger = ledger
        self._transactions = transactions
        self._is_done = is_done
        self._accepted = accepted

    def recover(self) -> TransactionPlan:
        """Finish what was promised, and abort the rest; before the tasks of a batch start.

        The plan has the newest promise: a batch that Spark may run again, or one that is done.

        Raises:
            OlderCheckpointError: the cluster has seen a later batch than the ledger.
            FatalError: the ledger is another query's.
            CorruptionError: the newest file of the ledger is damaged.
            TailraceError, OSError: brokers or checkpoint do not answer; nothing is decided by it.
        """
        record = self._checked(self._newest())
        if record is not None and not (self._is_done and self._is_done(record.batch_id)):
            record = self._finish(record)
        return TransactionPlan(work_id=self._query_id, token=self._sweep(), record=record)

    def commit(
        self, batch_id: int, slots: Mapping[int, Slot], free_ids: Mapping[int, FreeId] | None = None
    ) -> None:
        """Promise and commit a batch, given what its tasks have written.

        `free_ids` are the transactional ids of these tasks, which have ended.

        Raises:
            TransactionsLostError: brokers have aborted some of it; the next run writes that again.
            FatalError: a lost slot was not written again.
            TailraceError, OSError: as `recover`; the promise may be written or not.
        """
        record = self._newest()
        free_ids = {**(record.free_ids if record else {}), **(free_ids or {})}
        if record is None or record.batch_id != batch_id or record.is_void:
            record = BatchRecord(
                query_id=self._query_id,
                app_id=self._app_id,
                batch_id=batch_id,
                cluster_id=self._transactions.cluster_id(),
                slots=slots,
            )
        # Spark has run a committed batch again, since it had not noted it; there is nothing to
        # write.
        elif not record.lost:
            return
        else:
            record = _completed(record, slots)
        count = self._transactions.count(commits_name(self._query_id))
        record = replace(record, free_ids=free_ids, commits_before=count)
        # From here on the batch is promised.
        self._ledger.write(record)
        record = self._finish(record)
        self._sweep()
        if record.lost:
            raise TransactionsLostError(record)

    def abort(self, batch_id: int) -> None:
        """Abort what the tasks of a batch have left open, unless the batch was promised."""
        record = self._newest()
        if record is None or record.batch_id != batch_id or record.is_void:
            self._sweep()

    def _newest(self) -> BatchRecord | None:
        record = self._ledger.newest()
        # Two queries with one location would take each other's promises for their own.
        if record is not None and record.query_id != self._query_id:
            raise FatalError(
                f"{PLACE} is that of {record.app_id or record.query_id!r}, and this is "
                f"{self._app_id or self._query_id!r}: give each query, and each txnAppId, a "
                "location of its own"
            )
        return record

    def _checked(self, record: BatchRecord | None) -> BatchRecord | None:
        """The newest record, unless the cluster has counted a later one.

        The count is that of the record, or the next one if its batch was counted before it was
        committed. It may be missing, because no batch came for a week; and a cluster that was put
        back, or is another one, knows less than the record.
        """
        count = self._transactions.count(commits_name(self._query_id))
        if record is None:
            if count not in {NO_COUNT, self._accepted}:
                raise OlderCheckpointError(self._app_id or self._query_id, record, count)
            return record
        before = record.commits_before
        # Another cluster has counted other batches, so its count says nothing of this note.
        is_elsewhere = record.cluster_id != self._transactions.cluster_id()
        if before is None or is_elsewhere or count == before or count.follows(before):
            return record
        # A counter that was forgotten, or a cluster that was put back: nothing is there that the
        # note does not know.
        is_cluster_older = count == NO_COUNT or (
            count.producer_id == before.producer_id and count < before
        )
        if not is_cluster_older and count != self._accepted:
            raise OlderCheckpointError(self._app_id or self._query_id, record, count)
        record = replace(record, commits_before=count)
        self._ledger.write(record)
        return record

    def _finish(self, record: BatchRecord) -> BatchRecord:
        """Commit what is promised; the record with what became of it."""
        promised = {
            slot.transaction: number
            for number, slot in record.slots.items()
            if slot.state is SlotState.PROMISED and slot.transaction is not None
        }
        # The numbers of a transaction mean another one in another cluster.
        here = self._transactions.cluster_id()
        if promised and record.cluster_id != here:
            raise FatalError(
                f"{record.label} was written to the cluster {record.cluster_id!r} and may not be "
                f"committed there, and the brokers are of {here!r} now. Run it with the old ones "
                "once, or give it another checkpointLocation"
            )
        # Counted before the first commit: a cluster that has committed something has always counted
        # it.
        if promised and record.commits_before is not None:
            self._transactions.raise_count_after(
                commits_name(self._query_id), record.commits_before
            )
        gone = self._transactions.commit(list(promised))
        slots = {
            number: slot if slot.state is SlotState.LOST else slot.becomes(SlotState.COMMITTED)
            for number, slot in record.slots.items()
        }
        for transaction in gone:
            number = promised[transaction]
            if not self._was_committed(slots[number], transaction):
                slots[number] = slots[number].becomes(SlotState.LOST)
        finished = replace(record, slots=slots)
        # For a stream, Spark's own note says that the batch is done; a job has only this one.
        if gone or (promised and self._is_done is None):
            self._ledger.write(finished)
        return finished

    def _was_committed(self, slot: Slot, transaction: PreparedTransaction) -> bool:
        place = next(iter(slot.last_offsets.items()), None)
        if place is None:
            # It has offsets of a group and no rows; to commit these offsets twice is no harm.
            return False
        return self._transactions.is_committed(
            place[0], offset=place[1], producer_id=transaction.producer_id
        )

    def _sweep(self) -> Count:
        return _sweep(self._query_id, self._transactions)


class JobCommitter:
    """Commits what the tasks of a batch write without a version have written; notes nothing."""

    def __init__(self, job_id: str, transactions: Transactions) -> None:
        self._job_id = job_id
        self._transactions = transactions

    def begin(self) -> TransactionPlan:
        """Begin the job.

        Raises:
            FatalError: the brokers have no transactions, or none that can be listed.
            TailraceError: brokers do not answer.
        """
        token = _sweep(self._job_id, self._transactions)
        return TransactionPlan(work_id=self._job_id, token=token, keeps_ids=False)

    def commit(self, written: Collection[PreparedTransaction]) -> None:
        """Commit the transaction of each task, and abort those of other attempts.

        Raises:
            FatalError: brokers have aborted some; readers see the others.
            TailraceError: brokers do not answer; readers see none, some or all.
        """
        gone = self._transactions.commit(written)
        # Attempts that Spark did not count, as those of speculation.
        self.abort()
        if gone:
            raise FatalError(
                f"the brokers have aborted {len(gone)} of {len(written)} transactions of this "
                "write before they could be committed, and the rows of the others are visible. "
                "They were open for longer than kafka.transaction.timeout.ms, and then raise it "
                "and the brokers' transaction.max.timeout.ms; or an admin has aborted them. Write "
                "into a new topic"
            )

    def abort(self) -> None:
        """Abort what any task has left open; those that still run open nothing more."""
        _sweep(self._job_id, self._transactions)


def _completed(record: BatchRecord, slots: Mapping[int, Slot]) -> BatchRecord:
    """The record with the lost slots as they were written again."""
    # Spark gives no message for a slot that has no partition any more.
    missing: Sequence[int] = [number for number in record.lost if number not in slots]
    if missing:
        raise OtherRowsError(missing[0], record)
    again = {number: slots[number] for number in record.lost}
    return replace(record, slots={**record.slots, **again})


def _sweep(work_id: str, transactions: Transactions) -> Count:
    """Abort what attempts have left open; those with an older token can open nothing more."""
    # First the token, then the fencing: a task that gets an identity after the fencing asks for the
    # token after it was raised, and stops.
    token = transactions.raise_count(token_name(work_id))
    transactions.fence(attempts_prefix(work_id))
    return token
