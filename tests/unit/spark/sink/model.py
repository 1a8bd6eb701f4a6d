"""A small model of what an exactly-once sink works with, and of all that may go wrong.

Every step to the outside asks `Choices` what happens: it goes well, the driver dies before or after
it, its answer is lost, a transaction expires before it, or an attempt at a task that nobody waits
for does its work: a speculative twin, one of another attempt of the stage, one whose driver is
dead, or one that has stalled in the middle of its work and does the rest. Between batches a week
may pass, or notes of an earlier moment may be put back. `explore` runs a scenario with every
sequence of choices that has at most so many faults. Where a batch begins, or the query ends, in a
state that an earlier run was in with as many faults to come, the run is over: what follows is tried
from there.

Real are the committer, its ledger, and the work of a task down to its producer. The model is the
cluster (transactions by id, and one partition), a folder, and how Spark runs batches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa

from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.errors import FatalError, RetriableError
from tailrace.model import TopicPartition
from tailrace.spark.sink.commits import (
    AttemptFencedError,
    BatchCommitter,
    OtherRowsError,
    PartlyCommittedError,
    TransactionPlan,
    TransactionsLostError,
)
from tailrace.spark.sink.ledger import NO_COUNT, BatchRecord, Count, FreeId, Ledger, Slot
from tailrace.spark.sink.options import SinkOptions
from tailrace.spark.sink.rows import write_in_transaction
from tailrace.spark.sink.written import TaskAttempt, WrittenRows

QUERY = "q"
PLACE = TopicPartition("out", 0)
APP = "app"
RUNS_MAX = 12
"""Runs of a query that has at most a few faults, before it counts as stuck."""


class CrashError(Exception):
    """The driver is dead."""


class LostAnswerError(RetriableError):
    """No answer has come."""


class DeletedRecordError(FatalError):
    """The outcome of a transaction is not known, since the log has its records no more."""


class KnownStateError(Exception):
    """An earlier run was in this state."""


@dataclass
class Choices:
    """The choice at each step: a given beginning, and then that all goes well."""

    given: Sequence[int]
    known: set[tuple[int, str]] = field(default_factory=set)
    """States that runs were in, each with the number of faults before it."""
    options: list[int] = field(default_factory=list)
    """The number of choices of each step."""
    names: list[str] = field(default_factory=list)
    """The steps and what happened, for the message of a failure."""

    def take(self, step: str, outcomes: Sequence[str]) -> str:
        """Choose what happens at a step; the first outcome is the good one."""
        at = len(self.options)
        chosen = self.given[at] if at < len(self.given) else 0
        self.options.append(len(outcomes))
        self.names.append(f"{step}: {outcomes[chosen]}")
        return outcomes[chosen]

    def reach(self, state: str) -> None:
        """Say that the run is in a state which, with the choices to come, decides all that follows.

        Raises:
            KnownStateError: an earlier run was in it.
        """
        if len(self.options) < len(self.given):
            return  # That run may be the one whose state this is.
        reached = sum(map(bool, self.given)), state
        if reached in self.known:
            raise KnownStateError
        self.known.add(reached)


def explore(scenario: Callable[[Choices], None], *, faults: int) -> int:
    """Run a scenario with all choices of at most so many faults; how many runs that were."""
    count = 0
    known: set[tuple[int, str]] = set()
    todo: list[tuple[int, ...]] = [()]
    while todo:
        given = todo.pop()
        choices = Choices(given, known)
        try:
            with suppress(KnownStateError):
                scenario(choices)
        except BaseException as error:
            error.add_note("; ".join(choices.names))
            raise
        count += 1
        if sum(map(bool, given)) < faults:
            todo += [
                (*given, *[0] * (at - len(given)), chosen)
                for at in range(len(given), len(choices.options))
                for chosen in range(1, choices.options[at])
            ]
    return count


@dataclass
class Entry:
    """A record of the partition."""

    row: bytes
    producer: tuple[int, int]


class Cluster:
    """Transactions by id, and the records of one partition; `Transactions` of the committer."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.log: list[Entry] = []
        self._log_start = 0
        self.ended: dict[tuple[int, int], bool] = {}
        """Whether each producer's transaction was committed; those that are missing are open."""
        self.groups: dict[str, int] = {}
        """Committed positions of consumer groups."""
        self._pending: dict[tuple[int, int], Mapping[str, int]] = {}
        self._ids: dict[str, tuple[int, int]] = {}
        self._fenced: set[str] = set()
        """The ids that were fenced last, and not used since."""
        self._counts: dict[str, Count] = {}
        self._producer_count = 0

    def __repr__(self) -> str:
        """Everything that decides its later answers."""
        return repr((
            self.log, self._log_start, self.ended, self.groups, self._pending, self._ids,
            sorted(self._fenced), self._counts, self._producer_count,
        ))  # fmt: skip

    def visible(self) -> list[bytes]:
        """The rows that readers of committed records see."""
        return [each.row for each in self.log if self.ended.get(each.producer)]

    def open_ids(self) -> list[str]:
        """The transactional ids with an open transaction."""
        return [
            name
            for name, producer in self._ids.items()
            if producer not in self.ended and self._is_begun(producer)
        ]

    def cluster_id(self) -> str:
        """There is one."""
        return "c"

    def commit(self, transactions: Sequence[PreparedTransaction]) -> set[PreparedTransaction]:
        """See `Transactions`; each has its own faults."""
        gone = set()
        for each in transactions:
            with self._world.step(f"commit {each.transactional_id}", has_answer=True):
                producer = (each.producer_id, each.producer_epoch)
                if self._ids.get(each.transactional_id) != producer or not self.ended.get(
                    producer, True
                ):
                    gone.add(each)
                else:
                    self._end(producer, is_commit=True)
        return gone

    def is_committed(self, partition: TopicPartition, *, offset: int, producer_id: int) -> bool:
        """See `Transactions`."""
        assert partition == PLACE
        if offset < self._log_start:
            raise DeletedRecordError("whether the transaction was committed is not known")
        entry = self.log[offset]
        assert entry.producer[0] == producer_id
        return self.ended[entry.producer]

    def raise_count(self, name: str) -> Count:
        """See `Transactions`."""
        with self._world.step(f"raise {name}", has_answer=False):
            return self.next_count(name)

    def next_count(self, name: str) -> Count:
        """Raise a counter."""
        known = self._counts.get(name)
        next_epoch = known and known.producer_epoch + 1
        self._counts[name] = Count(known.producer_id if known else self._new_id(), next_epoch or 0)
        return self._counts[name]

    def raise_count_after(self, name: str, before: Count) -> None:
        """See `Transactions`."""
        with self._world.step(f"raise {name}", has_answer=True):
            if self.count(name) == before:
                self.next_count(name)
            assert self.count(name).follows(before), "a batch was counted twice, or never"

    def count(self, name: str) -> Count:
        """See `Transactions`; a failure of it is one of the step before."""
        return self._counts.get(name, NO_COUNT)

    def fence(self, prefix: str) -> None:
        """See `Transactions`."""
        is_open = self.open_ids()
        for name, producer in list(self._ids.items()):
            is_empty = producer not in self.ended and name not in self._fenced
            if name.startswith(prefix) and (name in is_open or is_empty):
                with self._world.step(f"fence {name}", has_answer=True):
                    self.begin(name)
                    self._fenced.add(name)

    def delete_records(self) -> None:
        """Delete all that is in the log; `visible` has it all the same."""
        self._log_start = len(self.log)

    def begin(self, name: str) -> tuple[int, int]:
        """A new epoch for a transactional id; what is open under it is aborted."""
        known = self._ids.get(name)
        if known is not None and known not in self.ended:
            self._end(known, is_commit=False)
        self._ids[name] = (self._new_id(), 0) if known is None else (known[0], known[1] + 1)
        self._fenced.discard(name)
        return self._ids[name]

    def _new_id(self) -> int:
        self._producer_count += 1
        return self._producer_count

    def expire(self) -> None:
        """Abort all that is open, as a broker does after `transaction.timeout.ms`."""
        for name in self.open_ids():
            self.begin(name)

    def forget(self) -> None:
        """Forget all transactional ids, as a broker does that nobody asks for a week."""
        self.expire()
        self._ids.clear()
        self._fenced.clear()
        self._counts.clear()

    def append(self, name: str, producer: tuple[int, int], rows: Sequence[bytes]) -> int:
        """Append records and return the last offset; a fenced producer may not."""
        self._check(name, producer)
        self.log += [Entry(row, producer) for row in rows]
        return len(self.log) - 1

    def add_offsets(
        self, name: str, producer: tuple[int, int], positions: Mapping[str, int]
    ) -> None:
        """Add the position of a group to a transaction."""
        self._check(name, producer)
        self._pending[producer] = positions

    def _check(self, name: str, producer: tuple[int, int]) -> None:
        if self._ids.get(name) != producer or producer in self.ended:
            raise LostAnswerError("the producer is fenced")

    def _is_begun(self, producer: tuple[int, int]) -> bool:
        return producer in self._pending or any(each.producer == producer for each in self.log)

    def _end(self, producer: tuple[int, int], *, is_commit: bool) -> None:
        if self.ended.setdefault(producer, is_commit) and producer in self._pending:
            self.groups |= self._pending[producer]


class Tape:
    """The steps of an attempt: those that it has done already, and then those to do."""

    def __init__(self, world: "World", attempt: "Attempt") -> None:
        self.world = world
        self._attempt = attempt
        self._answers: list[Any] = []

    def step(self, name: str, do: Callable[[], Any]) -> Any:
        """The answer of a step, which is done unless it was done before."""
        if len(self._answers) < len(self._attempt.answers):
            return self.see(do)
        rest = replace(self._attempt, answers=tuple(self._answers))
        with self.world.step(name, has_answer=False, late=rest):
            return self.see(do)

    def see(self, do: Callable[[], Any]) -> Any:
        """The same for one that changes nothing: a fault of it is one of the step before."""
        at = len(self._answers)
        known = self._attempt.answers[at : at + 1]
        self._answers.append(known[0] if known else do())
        return self._answers[at]


class TaskTransactions:
    """The requests of a task."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def raise_count(self, name: str) -> Count:
        """Draw a ticket."""
        cluster = self._tape.world.cluster
        return self._tape.step(f"ticket {name}", lambda: cluster.next_count(name))  # type: ignore[no-any-return]

    def count(self, name: str) -> Count:
        """See the token."""
        cluster = self._tape.world.cluster
        return self._tape.see(lambda: cluster.count(name))  # type: ignore[no-any-return]


class ModelProducer:
    """The calls of a producer that a task makes."""

    def __init__(self, settings: Mapping[str, str], tape: Tape) -> None:
        self._name = settings["transactional.id"]
        self._tape = tape
        self._cluster = tape.world.cluster
        self._producer: tuple[int, int] | None = None
        self._is_open = False

    def begin_transaction(self) -> None:
        """Fence those before."""
        self._producer = self._tape.step(
            f"begin {self._name}", lambda: self._cluster.begin(self._name)
        )

    def send_many(self, topic: str, rows: pa.Table) -> Any:
        """Write the rows."""
        assert topic == PLACE.topic
        producer, values = self._producer, rows["value"].to_pylist()
        assert producer is not None

        def write() -> int:
            self._is_open = True
            return self._cluster.append(self._name, producer, values)

        last = self._tape.step(f"write {self._name}", write)
        return _Summary({0: (last, last)})

    def send_offsets_to_transaction(
        self, positions: Mapping[TopicPartition, int], group: str
    ) -> None:
        """Add positions; they are one number here."""
        assert self._producer is not None
        self._is_open = True
        (position,) = positions.values()
        self._cluster.add_offsets(self._name, self._producer, {group: position})

    def prepare_transaction(self) -> PreparedTransaction | None:
        """Leave it open."""
        assert self._producer is not None
        was_open, self._is_open = self._is_open, False
        return PreparedTransaction(self._name, *self._producer) if was_open else None

    def close(self) -> None:
        """Abort what is open, unless the process has died."""
        if self._is_open and not self._tape.world.is_dead:
            with suppress(LostAnswerError):
                assert self._producer is not None
                self._cluster.add_offsets(self._name, self._producer, {})
                self._cluster.begin(self._name)


@dataclass(frozen=True)
class Attempt:
    """An attempt at a task, which may run at any time, also when its driver is given up."""

    plan: TransactionPlan
    rows: Sequence[bytes]
    task: TaskAttempt
    answers: tuple[Any, ...] = ()
    """The answers of the steps that it has done."""

    def run(self, world: "World") -> WrittenRows:
        """Write the rows into an open transaction."""
        tape = Tape(world, self)
        return write_in_transaction(
            batches_of(tuple(self.rows)),
            SinkOptions(topic=PLACE.topic, producer={}),
            self.plan,
            attempt=self.task,
            open_producer=lambda settings: ModelProducer(settings, tape),  # type: ignore[arg-type, return-value]
            transactions=TaskTransactions(tape),  # type: ignore[arg-type]
        )


@cache
def batches_of(rows: tuple[bytes, ...]) -> list[pa.RecordBatch]:
    """The rows as Spark hands them to a task."""
    batches: list[pa.RecordBatch] = pa.table({"value": pa.array(rows, pa.binary())}).to_batches()
    return batches


@dataclass
class _Summary:
    offsets: Mapping[int, tuple[int, int]]
    errors: Mapping[int, Exception] = field(default_factory=dict)

    @property
    def error_count(self) -> int:
        return len(self.errors)


class ModelFolder:
    """A folder in memory; only changes are steps."""

    path = "memory"

    def __init__(self, world: "World") -> None:
        self._world = world
        self._files: dict[str, bytes] = {}

    def __repr__(self) -> str:
        """All files."""
        return repr(sorted(self._files.items()))

    def names(self) -> list[str]:
        """All files."""
        return sorted(self._files)

    def read(self, name: str) -> bytes:
        """A file."""
        return self._files[name]

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, or lose the answer."""
        with self._world.step(f"write {name.lstrip('0')}", has_answer=True):
            self._files[name] = data

    def remove(self, name: str) -> None:
        """Remove a file."""
        del self._files[name]

    def copy(self) -> dict[str, bytes]:
        """All files as they are now."""
        return dict(self._files)

    def put_back(self, files: Mapping[str, bytes]) -> None:
        """Have these files and no others."""
        self._files = dict(files)


class World:
    """A query over batches of rows, run again after each failure until all batches are done.

    Or a job with versions, which is the same except that Spark notes nothing: only the scheduler of
    the job knows that a version has succeeded. After a failure it may go on with the next one.
    """

    def __init__(
        self,
        choices: Choices,
        batches: Sequence[Callable[[int], Sequence[Sequence[bytes]]]],
        *,
        is_job: bool = False,
        has_backups: bool = False,
    ) -> None:
        """Each of `batches` gives, for the number of the run, the rows of each slot.

        With `has_backups` an earlier state of the notes may be put back before a batch, alone or
        with that of Spark.
        """
        self._choices = choices
        self._batches = batches
        self._is_job = is_job
        self.cluster = Cluster(self)
        self._folder = ModelFolder(self)
        self.done: set[int] = set()
        """Batches that Spark, or the scheduler of the job, has noted."""
        self.given_up: set[int] = set()
        """Versions of a job that failed, and were not tried again."""
        self.is_dead = False
        self.run_count = 0
        self._has_backups = has_backups
        self._backups: dict[str, tuple[Mapping[str, bytes], set[int]]] = {"nothing": ({}, set())}
        self._zombies: dict[str, Attempt] = {}
        """Attempts that nobody waits for and that may run, by their names in the choices."""
        self._is_quiet = False

    def step(self, name: str, *, has_answer: bool, late: Attempt | None = None) -> "_Step":
        """A step to the outside, in a `with` block that does it.

        `late` goes on with it, if its task stalls there and is given up, and wakes up later.
        """
        return _Step(self, name, has_answer=has_answer, late=late)

    def outcomes(self, *, has_answer: bool, can_stall: bool) -> list[str]:
        """Everything that may happen at a step."""
        found = ["well", "dies before", "dies after", "fails before"]
        if has_answer:
            found.append("answer lost")
        if self.cluster.open_ids():
            found.append("expiry")
        if can_stall:
            found.append("stalls")
        return [*found, *self._zombies]

    def decide(self, name: str, *, has_answer: bool, late: Attempt | None = None) -> str:
        """Choose what happens at a step."""
        if self._is_quiet:
            return "well"
        outcomes = self.outcomes(has_answer=has_answer, can_stall=late is not None)
        chosen = self._choices.take(name, outcomes)
        if chosen in self._zombies:
            self._wake(chosen)
            chosen = "well"
        if chosen == "stalls" and late is not None:
            self._zombies[f"late {name}"] = late
        if chosen == "expiry":
            self.cluster.expire()
            chosen = "well"
        return chosen

    def wake_all(self) -> None:
        """Let everything run that may still run."""
        for name in list(self._zombies):
            self._wake(name)

    def _wake(self, name: str) -> None:
        was_quiet, self._is_quiet = self._is_quiet, True
        with suppress(LostAnswerError, OtherRowsError, AttemptFencedError, PartlyCommittedError):
            self._zombies.pop(name).run(self)
        self._is_quiet = was_quiet

    def run_to_the_end(self) -> None:
        """Run the query, again after each failure, until all batches are done.

        Raises:
            OtherRowsError, PartlyCommittedError, OlderCheckpointError: the query or job refuses to
                go on.
            AssertionError: a row was seen twice, or the query is stuck.
            KnownStateError: see `Choices.reach`.
        """
        while len(self.done) < len(self._batches):
            self.run_count += 1
            assert self.run_count <= RUNS_MAX, "the query does not come to its end"
            self.is_dead = False
            try:
                self._run()
            except (CrashError, LostAnswerError, TransactionsLostError) as error:
                is_lost = isinstance(error, TransactionsLostError)
                assert not is_lost or self._has_expired(), "an attempt has aborted another one's"
                left = sorted(set(range(len(self._batches))) - self.done)
                if not self._is_job or not left:
                    continue
                if self._choices.take("the scheduler", ["runs it again", "gives up"]) == "gives up":
                    self.given_up.add(left[0])
                    self.done.add(left[0])
        self._choices.reach(self._state())

    def restart(self) -> BatchRecord | None:
        """Start the query once more, undisturbed; it has at most a promise to keep."""
        self._is_quiet = True
        return self._committer().recover().record

    def check(self) -> None:
        """No row is visible twice."""
        seen = self.cluster.visible()
        assert len(seen) == len(set(seen)), f"rows are doubled: {seen}"

    def _committer(self) -> BatchCommitter:
        return BatchCommitter(
            QUERY,
            ledger=Ledger(self._folder),  # type: ignore[arg-type]
            transactions=self.cluster,  # type: ignore[arg-type]
            is_done=None if self._is_job else self.done.__contains__,
            app_id=APP if self._is_job else None,
        )

    def _run(self) -> None:
        for batch_id, rows_of in enumerate(self._batches):
            if batch_id in self.done:
                continue
            self._choices.reach(self._state())
            self._pass_time()
            if batch_id in self.done or set(range(batch_id)) - self.done:
                raise CrashError("Spark's part of the checkpoint is another one")
            recovered = self._committer().recover()
            assert self.cluster.open_ids() == [], "something is open when a batch begins"
            plan = replace(
                recovered,
                offsets_of=-1 if self._is_job else batch_id,
                group_offsets={"g": {TopicPartition("in", 0): batch_id + 1}},
            )
            slots = rows_of(self.run_count)
            try:
                written = [
                    self._task(plan, batch_id=batch_id, slot=slot, rows=rows)
                    for slot, rows in enumerate(slots)
                ]
                self._committer().commit(batch_id, *messages_of(written))
            except (LostAnswerError, TransactionsLostError, OtherRowsError):
                self._committer().abort(batch_id)
                raise
            finally:
                self.check()
            with self.step(f"note {batch_id}", has_answer=False):
                self.done.add(batch_id)
                # Nobody may depend on the log of a batch that is done.
                self.cluster.delete_records()

    def _pass_time(self) -> None:
        """Let a week pass, or the checkpoint be put back to one before, between two batches."""
        outcomes = ["at once", "a week later"]
        if self._has_backups:
            outcomes = ["at once"]
            for name in self._backups:
                outcomes.append(f"notes of {name} put back")
                if not self._is_job:
                    outcomes.append(f"checkpoint of {name} put back")
        chosen = self._choices.take("the query goes on", outcomes)
        if chosen == "a week later":
            self.cluster.forget()
        elif chosen != "at once":
            kind, _, name = chosen.removesuffix(" put back").partition(" of ")
            files, done = self._backups[name]
            self._folder.put_back(files)
            if kind == "checkpoint":
                self.done = set(done)
        if self._has_backups:
            name = f"batch {len(self.done)}"
            self._backups.setdefault(name, (self._folder.copy(), set(self.done)))

    def _task(
        self, plan: TransactionPlan, *, batch_id: int, slot: int, rows: Sequence[bytes]
    ) -> WrittenRows:
        """A task of two attempts at most, of which Spark counts one; a third runs by chance.

        That is a speculative twin, or one of another attempt of the stage. So are the attempts at
        this slot in the batch or run before.
        """
        task = TaskAttempt(query_id=QUERY, batch_id=batch_id, partition_id=slot)
        attempt = Attempt(plan, rows, task)
        twin = f"twin {slot}"
        if twin in self._zombies:
            self._zombies[f"older {slot}"] = self._zombies[twin]
        self._zombies[twin] = attempt
        try:
            return attempt.run(self)
        except LostAnswerError:
            return attempt.run(self)

    def _has_expired(self) -> bool:
        return any("expiry" in each or "week" in each for each in self._choices.names)

    def _state(self) -> str:
        """Everything that decides what follows while no driver is at work in a batch."""
        return repr((
            self.run_count, self.is_dead, sorted(self.done), sorted(self.given_up), self._zombies,
            self.cluster, self._folder, self._has_expired(), self._backups,
        ))  # fmt: skip


class _Step:
    """Does a step, with the fault that was chosen around it."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        has_answer: bool,
        late: Attempt | None,
    ) -> None:
        self._world = world
        self._name = name
        self._has_answer = has_answer
        self._late = late
        self._chosen = "well"

    def __enter__(self) -> None:
        self._chosen = self._world.decide(self._name, has_answer=self._has_answer, late=self._late)
        if self._chosen == "dies before":
            self._die()
        if self._chosen in {"fails before", "stalls"}:
            raise LostAnswerError(self._name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if self._chosen == "dies after":
            self._die()
        if self._chosen == "answer lost":
            raise LostAnswerError(self._name)

    def _die(self) -> None:
        self._world.is_dead = True
        raise CrashError(self._name)


def messages_of(
    written: Sequence[WrittenRows],
) -> tuple[dict[int, Slot], dict[int, FreeId]]:
    """The slots, and the ids for the next batch, in the messages of tasks."""
    free_ids = {each.attempt.partition_id: each.free_id() for each in written}
    return (
        {each.attempt.partition_id: each.slot() for each in written},
        {number: each for number, each in free_ids.items() if each is not None},
    )


def slots(*rows: Sequence[bytes]) -> Callable[[int], Sequence[Sequence[bytes]]]:
    """A batch that has the same rows in every run."""
    return lambda _: rows


def rows_in(batches: Sequence[Callable[[int], Sequence[Sequence[bytes]]]]) -> Iterator[bytes]:
    """All rows of the batches, as in the first run."""
    for rows_of in batches:
        for rows in rows_of(1):
            yield from rows
