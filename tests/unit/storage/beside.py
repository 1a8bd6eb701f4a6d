"""Changes of a broker to a log while somebody reads it: every state of the disk in between."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from tailrace.errors import OffsetsDeletedError
from tailrace.records.builder import records_of
from tailrace.storage import shrink
from tailrace.storage.log import Log
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import ChangingFiles, MemoryFiles, RecordingFiles
from tests.unit.storage.builders import append, bases, batch, settings
from tests.unit.storage.cleaner.houses import House, keyed
from tests.unit.storage.transactional import TransactionalProducer

Rows = list[tuple[int, bytes | None]]
"""Offset and value of records."""


class Change(NamedTuple):
    """A log before, in the middle of and after what a broker does to it."""

    states: tuple[MemoryFiles, ...]
    before: Rows
    """All data records."""
    after: Rows
    start: int
    """The log start offset in the end."""
    aborted: frozenset[int]
    """Offsets of records that belong to aborted transactions."""


def _change(fill: Callable[[Log], frozenset[int]], act: Callable[[House, Log], object]) -> Change:
    disk = RecordingFiles()
    house = House(disk)
    log = house.open(
        config=settings(
            cleanup_policy="compact,delete", segment_bytes=500, index_interval_bytes=60,
            file_delete_delay_ms=0, delete_retention_ms=0,
        )
    )  # fmt: skip
    aborted = fill(log)
    log.advance_high_watermark(log.end_offset)
    house.home.checkpoint()
    before = _rows(log)
    disk.states.clear()
    act(house, log)
    states = (*disk.states, disk.copy())
    return Change(states, before, _rows(log), log.start_offset, aborted)


def _rows(log: Log) -> Rows:
    """All records that are no markers; each batch is checked."""
    found: Rows = []
    for each in log.batches(log.start_offset):
        each.check()
        if not each.is_control:
            found += [(record.offset, record.value) for record in records_of(each)]
    return found


def _fill_keys(log: Log) -> frozenset[int]:
    keyed(log, "abcdefababcdabababab")
    return frozenset()


def _fill_transactions(log: Log) -> frozenset[int]:
    """Two producers take turns; every other transaction is aborted."""
    aborted: set[int] = set()
    producers = [TransactionalProducer(log, number) for number in (1, 2)]
    for turn in range(8):
        producer = producers[turn % 2]
        offsets = [producer.append(value=b"%d" % turn).base_offset for _ in range(2)]
        append(log, batch(b"plain %d" % turn, key=b"p%d" % (turn % 3)))
        if turn % 4 < 2:
            producer.abort()
            aborted.update(offsets)
        else:
            producer.commit()
    return frozenset(aborted)


def _clean(house: House, log: Log) -> None:
    assert house.clean() == log.folder.partition
    house.home.removals.remove_due(house.clock.now_ms())


def _delete(house: House, log: Log) -> None:
    """DeleteRecords up to the middle of the log, then what retention does with it."""
    raise_log_start(log, sorted(bases(log))[len(log.segments) // 2])
    house.home.checkpoint()
    assert shrink.delete_old_segments(log, house.clock.now_ms())
    house.home.removals.remove_due(house.clock.now_ms())


@cache
def cleaning() -> Change:
    """A round of the cleaner, which makes one segment of several, and deletes the old ones."""
    return _change(_fill_keys, _clean)


@cache
def cleaning_transactions() -> Change:
    """The same of a log with aborted transactions."""
    return _change(_fill_transactions, _clean)


@cache
def deletion() -> Change:
    """Retention, which takes the first half of a log."""
    return _change(_fill_keys, _delete)


def every_moment(change: Change, read: Callable[[ChangingFiles], object]) -> Iterator[str]:
    """Calls `read` with the change at every one of its calls, to the end and part of the way.

    Every state of the disk has its turn. Says each time where it is, before it reads.
    """
    count = ChangingFiles(change.states, at=10**9, to=0)
    read(count)
    last = len(change.states) - 1
    assert count.calls > 20
    assert last > 5
    for at in range(count.calls):
        for place in (last, 1 + 2 * at % last, 1 + (2 * at + 1) % last):
            yield f"state {place} of {last} from call {at} on"
            read(ChangingFiles(change.states, at=at, to=place))
        yield f"a state further with each call from {at} on"
        read(ChangingFiles(change.states, at=at, to=0, is_stepwise=True))


def check_rows(change: Change, found: Rows, error: OffsetsDeletedError | None) -> None:
    """Holds what somebody read against what they may: in order, nothing twice, nothing missing."""
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    assert set(found) <= set(change.before)
    if error is None:
        assert set(found) >= set(change.after)
    else:
        assert change.start > 0
        assert error.log_start_offset > error.offset
        assert error.log_start_offset <= change.start
        assert found == [row for row in change.before if row[0] < error.offset]
