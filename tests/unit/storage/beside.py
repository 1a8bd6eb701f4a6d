"""Changes of a broker to a log while somebody reads it: every state of the disk in between."""

import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

from tailrace.errors import OffsetsDeletedError
from tailrace.records.builder import records_of
from tailrace.storage import shrink
from tailrace.storage.log import Log
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import ChangingFiles, MemoryFiles, RecordingFiles
from tests.unit.storage.builders import PARTITION, append, bases, batch, settings
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


_SMALL = {"segment_bytes": 500, "index_interval_bytes": 60}
_LARGE = {"segment_bytes": 150_000, "index_interval_bytes": 4000}
"""Segments that are read in several windows."""

KEYS = "abcdefababcdabababab"


def _change(
    fill: Callable[[Log], frozenset[int]],
    act: Callable[[House, Log], Log | None],
    sizes: dict[str, int] = _SMALL,
) -> Change:
    """Record what `act` does to a log; it returns the log of the end, None if there is none."""
    disk = RecordingFiles()
    house = House(disk)
    config = settings(
        cleanup_policy="compact,delete", file_delete_delay_ms=0, delete_retention_ms=0, **sizes
    )
    log = house.open(config=config)
    aborted = fill(log)
    log.advance_high_watermark(log.end_offset)
    house.home.checkpoint()
    before = _rows(log)
    disk.states.clear()
    last = act(house, log)
    states = (*disk.states, disk.copy())
    after, start = ([], 0) if last is None else (_rows(last), last.start_offset)
    return Change(states, before, after, start, aborted)


def _rows(log: Log) -> Rows:
    """All records that are no markers; each batch is checked."""
    found: Rows = []
    for each in log.batches(log.start_offset):
        each.check()
        if not each.is_control:
            found += [(record.offset, record.value) for record in records_of(each)]
    return found


def _fill_keys(log: Log) -> frozenset[int]:
    keyed(log, KEYS)
    return frozenset()


def _fill_large(log: Log, keys: str = KEYS, *, name: bytes = b"old") -> frozenset[int]:
    """A batch for each letter, as large as others in no order."""
    for key in keys:
        offset = log.end_offset
        padding = bytes(20_000 + offset * offset * 37 % 11_003)
        append(log, batch(b"%s %d" % (name, offset) + padding, key=key.encode()))
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


def _clean(house: House, log: Log) -> Log:
    assert house.clean() == log.folder.partition
    house.home.removals.remove_due(house.clock.now_ms())
    return log


def _delete(house: House, log: Log) -> Log:
    """DeleteRecords up to the middle of the log, then what retention does with it."""
    raise_log_start(log, sorted(bases(log))[len(log.segments) // 2])
    house.home.checkpoint()
    assert shrink.delete_old_segments(log, house.clock.now_ms())
    house.home.removals.remove_due(house.clock.now_ms())
    return log


def _remove(house: House, log: Log) -> None:
    """Delete the topic, and at last its files."""
    house.logs.take_out(log.folder.partition, "f" * 32)()
    house.clock.pause(60)
    house.home.removals.remove_due(house.clock.now_ms())


def _make_again(house: House, log: Log, *, keys: str) -> Log:
    """Delete the topic, and make one of the same name with other records."""
    config = log.config
    _remove(house, log)
    made = house.logs.create(PARTITION, topic_id=uuid.UUID(int=9), config=config)
    _fill_large(made, keys, name=b"new")
    house.home.checkpoint()
    return made


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


@cache
def cleaning_large() -> Change:
    """A round of the cleaner over segments that are read in several windows."""
    return _change(_fill_large, _clean, _LARGE)


@cache
def deletion_large() -> Change:
    """Retention of such segments."""
    return _change(_fill_large, _delete, _LARGE)


@cache
def removal() -> Change:
    """A topic that is deleted."""
    return _change(_fill_large, _remove, _LARGE)


@cache
def making_shorter() -> Change:
    """A topic that is deleted and made again with fewer records."""
    return _change(_fill_large, partial(_make_again, keys="xyzxyz"), _LARGE)


@cache
def making_longer() -> Change:
    """A topic that is deleted and made again with more records."""
    return _change(_fill_large, partial(_make_again, keys="xyz" * 10), _LARGE)


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
