"""Plants one anomaly of each kind in a history that has none.

    lose(history, chance)      the history with one record that nobody has read

What is planted is chosen at random. A plant may bring other anomalies with it: a record that
vanishes from one poll is also one that this poll has skipped.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from tests.histories.anomalies import Kind
from tests.histories.history import (
    Action,
    Assign,
    Commit,
    EndTransaction,
    Operation,
    Outcome,
    Poll,
    Record,
    See,
    Send,
)

History = list[Operation]
T = TypeVar("T")


class NoPlaceError(Exception):
    """A history has nothing that this anomaly could be planted in."""


def _choice(chance: Random, found: Sequence[T]) -> T:
    if not found:
        raise NoPlaceError
    return chance.choice(found)


def _sends(history: History) -> list[tuple[Operation, Send]]:
    return [(each, each.action) for each in history if isinstance(each.action, Send)]


def _polls(history: History) -> list[tuple[Operation, Poll]]:
    return [(each, each.action) for each in history if isinstance(each.action, Poll)]


def _read(history: History) -> dict[str, Record]:
    """The records that committed readers have returned, by value."""
    polls = [poll for _, poll in _polls(history) if poll.is_committed]
    return {record.value: record for poll in polls for record in poll.records}


def _with(history: History, old: Operation, new: Operation) -> History:
    return [new if each is old else each for each in history]


def _acting(history: History, operation: Operation, action: Action) -> History:
    return _with(history, operation, replace(operation, action=action))


def _polling(history: History, change: Callable[[Record], Record | None]) -> History:
    """Change or drop records in all polls."""
    changed = []
    for each in history:
        if isinstance(each.action, Poll):
            records = tuple(filter(None, map(change, each.action.records)))
            changed.append(replace(each, action=replace(each.action, records=records)))
        else:
            changed.append(each)
    return changed


def _without(history: History, value: str) -> History:
    return _polling(history, lambda record: None if record.value == value else record)


def _endings(history: History, outcome: Outcome) -> dict[str, Operation]:
    """The commits of transactions with an outcome, by transaction."""
    return {
        each.action.transaction: each
        for each in history
        if isinstance(each.action, EndTransaction)
        and each.action.is_commit
        and each.outcome is outcome
    }


def _certain(history: History) -> list[tuple[Operation, Commit]]:
    """The acknowledged commits of offsets without a transaction."""
    return [
        (each, each.action)
        for each in history
        if isinstance(each.action, Commit)
        and each.outcome is Outcome.OK
        and each.action.transaction is None
    ]


def _end_s(history: History) -> float:
    return max(each.start_s for each in history) + 10


def lose(history: History, chance: Random) -> History:
    """Nobody has read an acknowledged record."""
    read = _read(history)
    kept = [
        send
        for each, send in _sends(history)
        if each.outcome is Outcome.OK and send.transaction is None and send.value in read
    ]
    return _without(history, _choice(chance, kept).value)


def lose_committed(history: History, chance: Random) -> History:
    """Nobody has read a record of a committed transaction."""
    committed = _endings(history, Outcome.OK)
    kept = [send for _, send in _sends(history) if send.transaction in committed]
    return _without(history, _choice(chance, kept).value)


def invent(history: History, chance: Random) -> History:
    """A record was read whose send has failed."""
    read = _read(history)
    kept = [
        each for each, send in _sends(history) if send.transaction is None and send.value in read
    ]
    chosen = _choice(chance, kept)
    return _with(history, chosen, replace(chosen, outcome=Outcome.FAIL))


def abort(history: History, chance: Random) -> History:
    """A transaction that was read was aborted."""
    read = _read(history)
    names = {send.transaction for _, send in _sends(history) if send.value in read}
    endings = _endings(history, Outcome.OK)
    chosen = _choice(chance, [each for name, each in endings.items() if name in names])
    assert isinstance(chosen.action, EndTransaction)
    return _acting(history, chosen, replace(chosen.action, is_commit=False))


def read_early(history: History, chance: Random) -> History:
    """A transaction was read before its commit was asked for."""
    read = _read(history)
    names = {send.transaction for _, send in _sends(history) if send.value in read}
    endings = _endings(history, Outcome.OK)
    chosen = _choice(chance, [each for name, each in endings.items() if name in names])
    end_s = _end_s(history)
    return _with(history, chosen, replace(chosen, start_s=end_s, end_s=end_s + 1))


def tear(history: History, chance: Random) -> History:
    """A record is missing of a transaction that was committed without an acknowledgement."""
    unknown = _endings(history, Outcome.INFO)
    read = _read(history)
    parts: dict[str, list[str]] = {}
    for _, send in _sends(history):
        if send.transaction in unknown and send.value in read:
            parts.setdefault(send.transaction or "", []).append(send.value)
    several = [values for values in parts.values() if len(values) > 1]
    return _without(history, _choice(chance, _choice(chance, several)))


def diverge(history: History, chance: Random) -> History:
    """Two polls have returned different values at one offset."""
    operation, poll = _choice(chance, _polls(history))
    index = chance.randrange(len(poll.records))
    record = poll.records[index]
    others = [send.value for _, send in _sends(history) if send.value != record.value]
    changed = list(poll.records)
    changed[index] = record._replace(value=_choice(chance, others))
    return _acting(history, operation, replace(poll, records=tuple(changed)))


def acknowledge_elsewhere(history: History, chance: Random) -> History:
    """A record was acknowledged with an offset at which it does not lie."""
    read = _read(history)
    operation, send = _choice(
        chance,
        [
            (each, send)
            for each, send in _sends(history)
            if each.outcome is Outcome.OK and send.value in read
        ],
    )
    return _acting(history, operation, replace(send, offset=100_000))


def double(history: History, chance: Random) -> History:
    """A value lies at two offsets, and all readers say so."""
    read = list(_read(history).values())
    first, second = _choice(chance, read), _choice(chance, read)
    if first.value == second.value:
        raise NoPlaceError
    place = second.partition, second.offset
    return _polling(
        history,
        lambda each: each._replace(value=first.value) if each[:2] == place else each,
    )


def disorder_sends(history: History, chance: Random) -> History:
    """A producer has sent two records in the order opposite to that of their offsets."""
    sent: dict[tuple[str, str], list[Operation]] = {}
    read = _read(history)
    for each, send in _sends(history):
        if send.value in read:
            sent.setdefault((each.process, send.partition), []).append(each)
    several = [each for each in sent.values() if len(each) > 1]
    first, second = chance.sample(_choice(chance, several), 2)
    changed = _with(history, first, replace(first, number=second.number))
    return _with(changed, second, replace(second, number=first.number))


def _pairs(history: History) -> list[tuple[Operation, Poll, int]]:
    """Two neighbours of one partition in one poll: the poll and the index of the second one."""
    return [
        (operation, poll, index)
        for operation, poll in _polls(history)
        for index in range(1, len(poll.records))
        if poll.records[index - 1].partition == poll.records[index].partition
    ]


def disorder_polled(history: History, chance: Random) -> History:
    """A poll has returned two records in the wrong order."""
    operation, poll, index = _choice(chance, _pairs(history))
    changed = list(poll.records)
    changed[index - 1], changed[index] = changed[index], changed[index - 1]
    return _acting(history, operation, replace(poll, records=tuple(changed)))


def poll_twice(history: History, chance: Random) -> History:
    """A consumer has returned the same records from two polls, one after the other."""
    polled, _ = _choice(chance, _polls(history))
    changed = []
    for each in history:
        is_later = each.process == polled.process and each.number > polled.number
        changed.append(replace(each, number=each.number + 1) if is_later else each)
        if each is polled:
            changed.append(replace(each, number=each.number + 1))
    return changed


def skip(history: History, chance: Random) -> History:
    """A poll has left out a record between two others."""
    pairs = _pairs(history)
    visible = _surely_visible(history)
    inner = [
        (operation, poll, index)
        for operation, poll, index in pairs
        if index + 1 < len(poll.records)
        and poll.records[index].partition == poll.records[index + 1].partition
        and poll.records[index].value in visible
        and not _has_polled(history, operation, poll.records[index])
    ]
    operation, poll, index = _choice(chance, inner)
    records = poll.records[:index] + poll.records[index + 1 :]
    return _acting(history, operation, replace(poll, records=records))


def _surely_visible(history: History) -> set[str]:
    """Values of acknowledged records that no transaction can have aborted."""
    return {
        each.action.value
        for each in history
        if isinstance(each.action, Send)
        and each.outcome is Outcome.OK
        and each.action.transaction is None
    }


def _starts(history: History) -> list[tuple[Operation, Operation, Poll]]:
    """Assignments to consumers of groups, each with the next operation if that is a poll of it."""
    found = []
    following = {(each.process, each.number): each for each in history}
    for each in history:
        after = following.get((each.process, each.number + 1))
        if (
            isinstance(each.action, Assign)
            and each.action.group is not None
            and after is not None
            and isinstance(after.action, Poll)
        ):
            found.append((each, after, after.action))
    return found


def _has_polled(history: History, operation: Operation, record: Record) -> bool:
    """Whether a process has come as far as a record before an operation."""
    return any(
        each.process == operation.process
        and each.number < operation.number
        and any(
            other.partition == record.partition and other.offset >= record.offset
            for other in poll.records
        )
        for each, poll in _polls(history)
    )


def skip_at_start(history: History, chance: Random) -> History:
    """A consumer of a group has begun behind a record that its group has not passed."""
    starts = [
        (operation, poll)
        for _, operation, poll in _starts(history)
        if len(poll.records) > 1
        and poll.records[0].partition == poll.records[1].partition
        and not _has_polled(history, operation, poll.records[0])
        and not any(
            isinstance(each.action, Commit)
            and each.action.offsets.get(poll.records[0].partition, -1) > poll.records[0].offset
            and each.start_s < operation.end_s
            for each in history
        )
    ]
    operation, poll = _choice(chance, starts)
    return _acting(history, operation, replace(poll, records=poll.records[1:]))


def forget(history: History, chance: Random) -> History:
    """A consumer has begun before an offset that its group had committed."""
    assigned, _, poll = _choice(chance, _starts(history))
    assert isinstance(assigned.action, Assign)
    record = poll.records[0]
    commit = Operation(
        process="other",
        number=1,
        action=Commit(
            group=assigned.action.group or "",
            offsets={record.partition: record.offset + 1},
        ),
        start_s=assigned.start_s - 0.6,
        end_s=assigned.start_s - 0.3,
    )
    return [*history, commit]


def commit_back(history: History, chance: Random) -> History:
    """A group was moved back by a commit."""
    moved = [
        (each, commit, partition)
        for each, commit in _certain(history)
        for partition, offset in commit.offsets.items()
        if offset > 0
    ]
    operation, commit, partition = _choice(chance, moved)
    end_s = _end_s(history)
    offsets = {partition: commit.offsets[partition] - 1}
    late = replace(
        operation,
        process="other",
        action=replace(commit, offsets=offsets),
        start_s=end_s,
        end_s=end_s + 1,
    )
    return [*history, late]


def _effects(history: History) -> list[tuple[Operation, Send]]:
    """Committed records that were made of others, whose group has certainly passed these."""
    endings = _endings(history, Outcome.OK)
    return [
        (each, send)
        for each, send in _sends(history)
        if send.source is not None and send.transaction in endings
    ]


def double_effect(history: History, chance: Random) -> History:
    """Two records were made of one source record."""
    made = _effects(history)
    if len(made) < 2:
        raise NoPlaceError
    (_, first), (operation, second) = chance.sample(made, 2)
    return _acting(history, operation, replace(second, source=first.source))


def lose_effect(history: History, chance: Random) -> History:
    """Nothing was made of a source record that the group has passed."""
    operation, send = _choice(chance, _effects(history))
    return _acting(history, operation, replace(send, source=None))


def see_less(history: History, chance: Random) -> History:
    """A process was told a high watermark that was over long ago."""
    seen = [
        (each, each.action)
        for each in history
        if isinstance(each.action, See) and each.outcome is Outcome.OK and each.action.watermark > 0
    ]
    operation, see = _choice(chance, seen)
    end_s = _end_s(history)
    late = replace(
        operation,
        action=replace(see, watermark=see.watermark - 1),
        start_s=end_s,
        end_s=end_s + 1,
    )
    return [*history, late]


PLANTS: Final[tuple[tuple[Kind, Callable[[History, Random], History]], ...]] = (
    (Kind.LOST_WRITE, lose),
    (Kind.LOST_WRITE, lose_committed),
    (Kind.PHANTOM, invent),
    (Kind.ABORTED_READ, abort),
    (Kind.PRECOMMITTED_READ, read_early),
    (Kind.TORN_TRANSACTION, tear),
    (Kind.INCONSISTENT_OFFSET, diverge),
    (Kind.INCONSISTENT_OFFSET, acknowledge_elsewhere),
    (Kind.DUPLICATE, double),
    (Kind.DISORDERED_SEND, disorder_sends),
    (Kind.DISORDERED_POLL, disorder_polled),
    (Kind.DISORDERED_POLL, poll_twice),
    (Kind.SKIPPED_RECORD, skip),
    (Kind.SKIPPED_RECORD, skip_at_start),
    (Kind.READ_AGAIN, forget),
    (Kind.STALE_COMMIT, commit_back),
    (Kind.DOUBLED_EFFECT, double_effect),
    (Kind.LOST_EFFECT, lose_effect),
    (Kind.WATERMARK_BACK, see_less),
)
