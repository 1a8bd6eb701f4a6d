"""`find_anomalies`: what a history has that no correct broker and its clients can bring about.

The anomalies are those of Jepsen's Kafka workload, and some more of consumer groups and of
consuming, transforming and producing exactly once:

    lost write          acknowledged or committed, and never read, although later offsets were; or
                        not there when all was read to the end
    phantom             read, and never sent; or its send has certainly failed
    aborted read        a committed reader returned a record of a transaction that was not committed
    precommitted read   a committed reader returned a record before its commit was asked for
    torn transaction    one record of a transaction can be read, another one cannot
    inconsistent offset an offset with two values, or not the offset of the acknowledgement
    duplicate           a value at two offsets, although all producers are idempotent
    disordered send     a producer sent one record before another one, and it lies behind that one
    disordered poll     a consumer returned an offset that it had passed, within one poll or between
    skipped record      a consumer passed a record that it should have returned
    read again          a consumer began before an offset that its group had committed before
    stale commit        a commit moved a group back behind one that had been acknowledged before
    doubled effect      two committed records were made of one source record
    lost effect         a group has committed an offset, and a source record below it has no effect
    watermark back      a process was told a lower high watermark than before

A consumer may begin anew only when a partition is assigned to it. A group's consumer then begins
at an offset that its group may have committed, or where it has stood in that partition before (as
kafka-python does if it has the same partition in two generations), and not below an offset that was
certainly committed before the assignment. Whether an operation came before another one is known
only if it ended before the other began; where this does not hold, both orders are allowed.

Records that are acknowledged and were not read, in a log of which nobody has read later offsets or
its end, are counted as unseen: lag is no anomaly.

Not here: how histories are recorded (`history`), and what goes on in a run (`tests/chaos`).

Invariant: nothing depends on anything but the history; no clock, no file, no chance.
"""

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from tests.histories.history import (
    Action,
    Assign,
    Commit,
    EndTransaction,
    Operation,
    Outcome,
    Poll,
    ReadToEnd,
    Record,
    See,
    Send,
    Source,
)


class Kind(Enum):
    """Kinds of anomalies."""

    LOST_WRITE = "lost write"
    PHANTOM = "phantom"
    ABORTED_READ = "aborted read"
    PRECOMMITTED_READ = "precommitted read"
    TORN_TRANSACTION = "torn transaction"
    INCONSISTENT_OFFSET = "inconsistent offset"
    DUPLICATE = "duplicate"
    DISORDERED_SEND = "disordered send"
    DISORDERED_POLL = "disordered poll"
    SKIPPED_RECORD = "skipped record"
    READ_AGAIN = "read again"
    STALE_COMMIT = "stale commit"
    DOUBLED_EFFECT = "doubled effect"
    LOST_EFFECT = "lost effect"
    WATERMARK_BACK = "watermark back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """An anomaly and the operations that prove it."""

    kind: Kind
    partition: str
    what: str
    """A sentence with offsets and values."""
    evidence: tuple[Operation, ...]

    def __str__(self) -> str:
        lines = [f"{self.kind.value}, {self.partition}: {self.what}"]
        return "\n    ".join(lines + [str(each) for each in self.evidence])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The anomalies of a history, and how much was looked at."""

    anomalies: tuple[Anomaly, ...]
    figures: Counter[str]


def find_anomalies(history: Iterable[Operation]) -> Report:
    """Check a history; the anomalies come in no particular order."""
    facts = _Facts(sorted(history, key=lambda each: (each.start_s, each.process, each.number)))
    anomalies = [
        *_inconsistent_offsets(facts),
        *_duplicates(facts),
        *_lost_writes(facts),
        *_wrong_reads(facts),
        *_torn_transactions(facts),
        *_disordered_sends(facts),
        *_wrong_polls(facts),
        *_stale_commits(facts),
        *_watermarks_back(facts),
        *_wrong_effects(facts),
    ]
    return Report(anomalies=tuple(anomalies), figures=_figures(facts))


class Fate(Enum):
    """Outcome of a transaction."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    """Aborted, or its commit was never asked for."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Transaction:
    """A transaction, as far as a history shows it."""

    fate: Fate
    commit: Operation | None = None
    """The commit, if there was one."""


_UNENDED = _Transaction(fate=Fate.NOT_COMMITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """An offset that a group may have committed."""

    offset: int
    operation: Operation
    start_s: float
    certain_s: float
    """When it was certainly in force; infinite if nobody can know."""
    floor: int
    """The lowest offset that the group can have when it is in force: its own, or that of an earlier
    commit which its process does not know the outcome of and which may be carried out after it."""


@dataclass(frozen=True)
class _Facts:
    """A history, by the questions that are put to it."""

    history: Sequence[Operation]

    @cached_property
    def sends(self) -> dict[str, tuple[Operation, Send]]:
        """By value."""
        return {
            each.action.value: (each, each.action)
            for each in self.history
            if isinstance(each.action, Send)
        }

    @cached_property
    def polls(self) -> list[tuple[Operation, Poll]]:
        """All polls."""
        return [(each, each.action) for each in self.history if isinstance(each.action, Poll)]

    @cached_property
    def transactions(self) -> dict[str, _Transaction]:
        """Transactions whose end was asked for, by name."""
        ends: dict[str, list[tuple[Operation, bool]]] = defaultdict(list)
        for each in self.history:
            if isinstance(each.action, EndTransaction):
                ends[each.action.transaction].append((each, each.action.is_commit))
        found = {}
        for name, asked in ends.items():
            commits = [each for each, is_commit in asked if is_commit]
            possible = [each for each in commits if each.outcome is not Outcome.FAIL]
            is_aborted = any(
                not is_commit and each.outcome is Outcome.OK for each, is_commit in asked
            )
            fate = Fate.UNKNOWN
            if any(each.outcome is Outcome.OK for each in commits):
                fate = Fate.COMMITTED
            elif is_aborted or not possible:
                fate = Fate.NOT_COMMITTED
            found[name] = _Transaction(fate=fate, commit=commits[0] if commits else None)
        return found

    def transaction_of(self, action: Send | Commit) -> _Transaction | None:
        """The transaction that an action is part of, if any."""
        if action.transaction is None:
            return None
        return self.transactions.get(action.transaction, _UNENDED)

    @cached_property
    def reads(self) -> dict[str, dict[tuple[str, int], Operation]]:
        """The places where each value was read, with the first poll that returned it there."""
        found: dict[str, dict[tuple[str, int], Operation]] = defaultdict(dict)
        for operation, poll in self.polls:
            for record in poll.records:
                found[record.value].setdefault((record.partition, record.offset), operation)
        return found

    @cached_property
    def committed_reads(self) -> dict[str, Operation]:
        """The first poll with `read_committed` that returned each value."""
        found: dict[str, Operation] = {}
        for operation, poll in self.polls:
            if poll.is_committed:
                for record in poll.records:
                    found.setdefault(record.value, operation)
        return found

    @cached_property
    def ends(self) -> list[tuple[Operation, ReadToEnd]]:
        """Readings to the end, which have come there."""
        return [
            (each, each.action)
            for each in self.history
            if isinstance(each.action, ReadToEnd) and each.outcome is Outcome.OK
        ]

    def is_read_to_end(self, partition: str, since_s: float, *, is_committed: bool) -> bool:
        """Whether a partition was read to an end that came after a time."""
        return any(
            partition in end.partitions
            and each.start_s >= since_s
            and end.is_committed == is_committed
            for each, end in self.ends
        )

    @cached_property
    def at_ends(self) -> list[tuple[Operation, ReadToEnd, frozenset[str]]]:
        """Readings to the end, each with the values that it has found."""
        found: dict[str, list[tuple[int, Poll]]] = defaultdict(list)
        for operation, poll in self.polls:
            found[operation.process].append((operation.number, poll))
        return [
            (
                each,
                end,
                frozenset(
                    record.value
                    for number, poll in found[each.process]
                    if number > each.number
                    for record in poll.records
                ),
            )
            for each, end in self.ends
        ]

    def is_gone(self, send: Send, since_s: float) -> bool:
        """Whether a record was not found by a reading to the end that began after a time."""
        return any(
            send.partition in end.partitions
            and each.start_s >= since_s
            and send.value not in values
            for each, end, values in self.at_ends
        )

    @cached_property
    def last_read(self) -> dict[str, int]:
        """The highest offset of each partition that any poll returned."""
        found: dict[str, int] = {}
        for _, poll in self.polls:
            for record in poll.records:
                found[record.partition] = max(found.get(record.partition, -1), record.offset)
        return found

    def is_written(self, operation: Operation, send: Send) -> bool:
        """Whether a record is certainly there for committed readers."""
        transaction = self.transaction_of(send)
        if transaction is None:
            return operation.outcome is Outcome.OK
        return transaction.fate is Fate.COMMITTED and operation.outcome is not Outcome.FAIL

    @cached_property
    def visible(self) -> dict[bool, dict[str, list[int]]]:
        """Sorted offsets that certainly have a record, by isolation and partition.

        With True as the first key those that a committed reader sees.
        """
        found: dict[bool, dict[str, set[int]]] = {
            False: defaultdict(set),
            True: defaultdict(set),
        }
        for _, poll in self.polls:
            for partition, offset, _ in poll.records:
                found[False][partition].add(offset)
                if poll.is_committed:
                    found[True][partition].add(offset)
        for operation, send in self.sends.values():
            if send.offset is not None and operation.outcome is Outcome.OK:
                found[False][send.partition].add(send.offset)
                if self.is_written(operation, send):
                    found[True][send.partition].add(send.offset)
        return {
            is_committed: {name: sorted(offsets) for name, offsets in partitions.items()}
            for is_committed, partitions in found.items()
        }

    def first_visible(
        self, partition: str, first: int, limit: int, *, is_committed: bool
    ) -> int | None:
        """The first offset with a record in a range, if there is one."""
        offsets = self.visible[is_committed].get(partition, [])
        index = bisect.bisect_left(offsets, first)
        return offsets[index] if index < len(offsets) and offsets[index] < limit else None

    @cached_property
    def commits(self) -> dict[tuple[str, str], list[_Commit]]:
        """Offsets that may have been committed, by group and partition, in order of beginnings.

        A request that was given up on stays on its way, on a connection of its own: a broker that
        was paused may carry it out after a newer one of the same member, as Kafka does. One from
        before the member's next assignment is refused, by its generation or epoch.
        """
        found: dict[tuple[str, str], list[_Commit]] = defaultdict(list)
        unknown: dict[tuple[str, str], list[int]] = defaultdict(list)
        for operation in self.history:
            action = operation.action
            if isinstance(action, Assign):
                for partition in (*action.added, *action.removed):
                    unknown.pop((operation.process, partition), None)
            if not isinstance(action, Commit) or operation.outcome is Outcome.FAIL:
                continue
            deciding = operation
            transaction = self.transaction_of(action)
            if transaction is not None:
                if transaction.fate is Fate.NOT_COMMITTED or transaction.commit is None:
                    continue
                deciding = transaction.commit
            is_certain = deciding.outcome is Outcome.OK
            for partition, offset in action.offsets.items():
                late = unknown[operation.process, partition]
                if not is_certain and transaction is None:
                    late.append(offset)
                found[action.group, partition].append(
                    _Commit(
                        offset=offset,
                        operation=operation,
                        start_s=deciding.start_s,
                        certain_s=deciding.end_s if is_certain else math.inf,
                        floor=min((offset, *late)),
                    )
                )
        return found

    def place(self, value: str) -> tuple[str, int] | None:
        """Partition and offset of a value, by its acknowledgement or by a poll."""
        operation, send = self.sends[value]
        if send.offset is not None and operation.outcome is Outcome.OK:
            return send.partition, send.offset
        return next(iter(self.reads.get(value, ())), None)


def _inconsistent_offsets(facts: _Facts) -> Iterator[Anomaly]:
    values: dict[tuple[str, int], dict[str, Operation]] = defaultdict(dict)
    for operation, send in facts.sends.values():
        if send.offset is not None and operation.outcome is Outcome.OK:
            values[send.partition, send.offset].setdefault(send.value, operation)
    for value, places in facts.reads.items():
        for place, operation in places.items():
            values[place].setdefault(value, operation)
    for (partition, offset), found in values.items():
        if len(found) > 1:
            yield Anomaly(
                kind=Kind.INCONSISTENT_OFFSET,
                partition=partition,
                what=f"offset {offset} has the values {', '.join(found)}",
                evidence=tuple(found.values()),
            )
    for value, (operation, send) in facts.sends.items():
        places = facts.reads.get(value, {})
        if send.offset is None or operation.outcome is not Outcome.OK or not places:
            continue
        if (send.partition, send.offset) not in places:
            partition, offset = next(iter(places))
            yield Anomaly(
                kind=Kind.INCONSISTENT_OFFSET,
                partition=send.partition,
                what=(
                    f"{value} was acknowledged at offset {send.offset} and read at offset "
                    f"{offset} of {partition}"
                ),
                evidence=(operation, *places.values()),
            )


def _duplicates(facts: _Facts) -> Iterator[Anomaly]:
    for value, places in facts.reads.items():
        if len(places) > 1:
            yield Anomaly(
                kind=Kind.DUPLICATE,
                partition=next(iter(places))[0],
                what=f"{value} lies at {', '.join(f'{name} {at}' for name, at in places)}",
                evidence=(*_sent(facts, value), *places.values()),
            )


def _sent(facts: _Facts, value: str) -> tuple[Operation, ...]:
    return (facts.sends[value][0],) if value in facts.sends else ()


def _known_s(facts: _Facts, operation: Operation, send: Send) -> float:
    """When it was known that a record is written; infinite if it never was."""
    transaction = facts.transaction_of(send)
    if transaction is not None and transaction.commit is not None:
        return transaction.commit.end_s
    return operation.end_s


def _is_passed(facts: _Facts, operation: Operation, send: Send) -> bool:
    """Whether readers have passed the place of an acknowledged record."""
    return (
        operation.outcome is Outcome.OK
        and send.offset is not None
        and facts.last_read.get(send.partition, -1) > send.offset
    )


def _lost_writes(facts: _Facts) -> Iterator[Anomaly]:
    for value, (operation, send) in facts.sends.items():
        if not facts.is_written(operation, send):
            continue
        is_read = value in facts.reads
        is_unread = not is_read and _is_passed(facts, operation, send)
        if is_unread or facts.is_gone(send, _known_s(facts, operation, send)):
            transaction = facts.transaction_of(send)
            commit = () if transaction is None or not transaction.commit else (transaction.commit,)
            at = "an unknown offset" if send.offset is None else f"offset {send.offset}"
            lost = "it was read once, and is gone" if is_read else "nobody could read it"
            yield Anomaly(
                kind=Kind.LOST_WRITE,
                partition=send.partition,
                what=f"{value} was written at {at}, and {lost}",
                evidence=(operation, *commit),
            )


def _wrong_reads(facts: _Facts) -> Iterator[Anomaly]:
    """Phantoms, aborted reads and precommitted reads."""
    for value, places in facts.reads.items():
        (partition, offset), first = next(iter(places.items()))
        at = f"{value} was read at offset {offset}"
        if value not in facts.sends:
            yield Anomaly(
                kind=Kind.PHANTOM,
                partition=partition,
                what=f"{at}, and nobody sent it",
                evidence=(first,),
            )
            continue
        operation, send = facts.sends[value]
        transaction = facts.transaction_of(send)
        if transaction is None:
            if operation.outcome is Outcome.FAIL:
                yield Anomaly(
                    kind=Kind.PHANTOM,
                    partition=partition,
                    what=f"{at}, and its send has failed",
                    evidence=(operation, first),
                )
            continue
        read = facts.committed_reads.get(value)
        if read is None:
            continue
        commit = () if transaction.commit is None else (transaction.commit,)
        if transaction.fate is Fate.NOT_COMMITTED:
            yield Anomaly(
                kind=Kind.ABORTED_READ,
                partition=partition,
                what=f"{at}, and its transaction {send.transaction} was not committed",
                evidence=(operation, *commit, read),
            )
        elif commit and read.end_s < commit[0].start_s:
            yield Anomaly(
                kind=Kind.PRECOMMITTED_READ,
                partition=partition,
                what=f"{at}, before transaction {send.transaction} was committed",
                evidence=(operation, read, *commit),
            )


def _watermarks_back(facts: _Facts) -> Iterator[Anomaly]:
    # A new leader may know a lower one than the old leader; it tells none until it is sure
    # (KIP-207), and a process that has the new leader's epoch is refused by the old one.
    seen: dict[tuple[str, str], tuple[int, Operation]] = {}
    for each in facts.history:
        if not isinstance(each.action, See) or each.outcome is not Outcome.OK:
            continue
        partition, watermark = each.action.partition, each.action.watermark
        before, earlier = seen.get((each.process, partition), (-1, each))
        if watermark < before:
            yield Anomaly(
                kind=Kind.WATERMARK_BACK,
                partition=partition,
                what=f"{each.process} was told {watermark} after {before}",
                evidence=(earlier, each),
            )
        seen[each.process, partition] = watermark, each


def _torn_transactions(facts: _Facts) -> Iterator[Anomaly]:
    parts: dict[str, list[tuple[Operation, Send]]] = defaultdict(list)
    for operation, send in facts.sends.values():
        if send.transaction is not None:
            parts[send.transaction].append((operation, send))
    for name, sent in parts.items():
        fate = facts.transactions.get(name, _UNENDED).fate
        read = [each for each, send in sent if send.value in facts.committed_reads]
        if fate is not Fate.UNKNOWN or not read:
            continue
        for operation, send in sent:
            if (
                operation.outcome is Outcome.OK
                and send.value not in facts.committed_reads
                and facts.is_read_to_end(send.partition, operation.end_s, is_committed=True)
            ):
                yield Anomaly(
                    kind=Kind.TORN_TRANSACTION,
                    partition=send.partition,
                    what=f"transaction {name} can be read, and its record {send.value} cannot",
                    evidence=(operation, read[0]),
                )


def _disordered_sends(facts: _Facts) -> Iterator[Anomaly]:
    last: dict[tuple[str, str], tuple[int, Operation]] = {}
    sent = [each[0] for each in facts.sends.values()]
    for operation in sorted(sent, key=lambda each: (each.process, each.number)):
        assert isinstance(operation.action, Send)
        place = facts.place(operation.action.value)
        if place is None:
            continue
        partition, offset = place
        key = operation.process, partition
        if key in last and offset < last[key][0]:
            yield Anomaly(
                kind=Kind.DISORDERED_SEND,
                partition=partition,
                what=f"offset {offset} was sent after offset {last[key][0]}, by one producer",
                evidence=(last[key][1], operation),
            )
        else:
            last[key] = offset, operation


@dataclass(slots=True, kw_only=True)
class _Position:
    """The position of a consumer in a partition that is assigned to it."""

    assigned: Operation
    before: int = 0
    """The offset behind all that the consumer had returned before this assignment."""
    last: int | None = None
    """The last offset that was returned; None: none since the assignment."""
    poll: Operation | None = None


def _wrong_polls(facts: _Facts) -> Iterator[Anomaly]:
    """Disordered polls, skipped records, and records that are read again."""
    positions: dict[tuple[str, str], _Position] = {}
    behind: dict[tuple[str, str], int] = defaultdict(int)
    for operation in sorted(facts.history, key=lambda each: (each.process, each.number)):
        match operation.action:
            case Assign(added=added, removed=removed):
                for partition in removed:
                    positions.pop((operation.process, partition), None)
                for partition in added:
                    key = operation.process, partition
                    positions[key] = _Position(assigned=operation, before=behind[key])
            case Poll(records=records, is_committed=is_committed):
                for record in records:
                    key = operation.process, record.partition
                    position = positions.get(key)
                    if position is None:
                        continue  # It was fetched before the partition was taken away.
                    if position.last is None:
                        yield from _wrong_start(facts, operation, record, position)
                    else:
                        yield from _wrong_step(
                            facts, operation, record, position, is_committed=is_committed
                        )
                    position.last, position.poll = record.offset, operation
                    behind[key] = record.offset + 1
            case _:
                pass


def _wrong_step(
    facts: _Facts, poll: Operation, record: Record, position: _Position, *, is_committed: bool
) -> Iterator[Anomaly]:
    """Check a record against the one that the consumer returned before it."""
    assert position.last is not None
    assert position.poll is not None
    evidence = (poll,) if position.poll is poll else (position.poll, poll)
    if record.offset <= position.last:
        yield Anomaly(
            kind=Kind.DISORDERED_POLL,
            partition=record.partition,
            what=f"{poll.process} returned offset {record.offset} after {position.last}",
            evidence=evidence,
        )
        return
    skipped = facts.first_visible(
        record.partition, position.last + 1, record.offset, is_committed=is_committed
    )
    if skipped is not None:
        yield Anomaly(
            kind=Kind.SKIPPED_RECORD,
            partition=record.partition,
            what=(
                f"{poll.process} returned offset {record.offset} after {position.last}, and "
                f"offset {skipped} has a record"
            ),
            evidence=evidence,
        )


def _wrong_start(
    facts: _Facts, poll: Operation, record: Record, position: _Position
) -> Iterator[Anomaly]:
    """Check the first record after an assignment against what the group has committed."""
    assigned = position.assigned
    assert isinstance(assigned.action, Assign)
    assert isinstance(poll.action, Poll)
    group = assigned.action.group
    commits = [] if group is None else facts.commits.get((group, record.partition), [])
    in_force = [each for each in commits if each.certain_s < assigned.start_s]
    lowest = max(in_force, key=lambda each: each.floor, default=None)
    if lowest is not None and record.offset < lowest.floor:
        yield Anomaly(
            kind=Kind.READ_AGAIN,
            partition=record.partition,
            what=(
                f"{poll.process} began at offset {record.offset}, and group {group} had committed "
                f"offset {lowest.floor} before"
            ),
            evidence=(lowest.operation, assigned, poll),
        )
        return
    possible = [0] if lowest is None else [lowest.floor]
    possible += [each.offset for each in commits if each.start_s < poll.end_s]
    possible.append(position.before)
    start = max(each for each in possible if possible[0] <= each <= record.offset)
    skipped = facts.first_visible(
        record.partition, start, record.offset, is_committed=poll.action.is_committed
    )
    if skipped is not None:
        yield Anomaly(
            kind=Kind.SKIPPED_RECORD,
            partition=record.partition,
            what=(
                f"{poll.process} began at offset {record.offset}, its group can have committed "
                f"{start} at most, and offset {skipped} has a record"
            ),
            evidence=(*([] if lowest is None else [lowest.operation]), assigned, poll),
        )


def _stale_commits(facts: _Facts) -> Iterator[Anomaly]:
    for (group, partition), commits in facts.commits.items():
        certain = sorted(
            (each for each in commits if each.certain_s < math.inf),
            key=lambda each: each.certain_s,
        )
        done = 0
        highest: _Commit | None = None
        for each in sorted(certain, key=lambda each: each.start_s):
            while certain[done].certain_s < each.start_s:
                if highest is None or certain[done].offset > highest.offset:
                    highest = certain[done]
                done += 1
            if highest is not None and each.offset < highest.offset:
                yield Anomaly(
                    kind=Kind.STALE_COMMIT,
                    partition=partition,
                    what=f"group {group} was moved back from {highest.offset} to {each.offset}",
                    evidence=(highest.operation, each.operation),
                )


def _wrong_effects(facts: _Facts) -> Iterator[Anomaly]:
    """Source records with two effects, or with none although they count as processed."""
    effects: dict[Source, list[Operation]] = defaultdict(list)
    targets = set()
    for value, (operation, send) in facts.sends.items():
        if send.source is not None:
            targets.add(send.partition)
            if value in facts.committed_reads or facts.is_written(operation, send):
                effects[send.source].append(operation)
    for source, made in effects.items():
        if len(made) > 1:
            yield Anomaly(
                kind=Kind.DOUBLED_EFFECT,
                partition=source.partition,
                what=f"offset {source.offset} has {len(made)} committed effects",
                evidence=tuple(made),
            )
    for (group, partition), commits in facts.commits.items():
        certain = [each for each in commits if each.certain_s < math.inf]
        if not certain or group not in {source.group for source in effects}:
            continue
        highest = max(certain, key=lambda each: each.offset)
        if not all(
            facts.is_read_to_end(target, highest.certain_s, is_committed=True) for target in targets
        ):
            continue
        for offset in facts.visible[True].get(partition, []):
            if offset < highest.offset and Source(group, partition, offset) not in effects:
                yield Anomaly(
                    kind=Kind.LOST_EFFECT,
                    partition=partition,
                    what=(
                        f"group {group} has committed offset {highest.offset}, and offset {offset} "
                        "has no effect"
                    ),
                    evidence=(highest.operation,),
                )


_WORDS: Final[dict[type[Action], str]] = {
    Send: "sends",
    Poll: "polls",
    Assign: "assignments",
    Commit: "offset commits",
    EndTransaction: "ends of transactions",
    ReadToEnd: "readings to the end",
    See: "watermarks",
}


def _figures(facts: _Facts) -> Counter[str]:
    figures: Counter[str] = Counter(operations=len(facts.history))
    for each in facts.history:
        figures[f"{_WORDS[type(each.action)]} {each.outcome.value}"] += 1
    figures["records polled"] = sum(len(poll.records) for _, poll in facts.polls)
    for transaction in facts.transactions.values():
        figures[f"transactions {transaction.fate.value}"] += 1
    figures["unseen"] = sum(
        facts.is_written(operation, send) and value not in facts.reads
        for value, (operation, send) in facts.sends.items()
    )
    return figures
