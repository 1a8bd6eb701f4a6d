"""Transactions in a log: what a reader of committed records may see, and the aborts it is told."""

from collections.abc import Callable

import pytest

from tailrace.model import ProducerId, SpecialTimestamp
from tailrace.records.batch import read_batches
from tailrace.storage.log import Log
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.positions import ReadLimit
from tailrace.storage.producers import CoordinatorFencedError, InvalidProducerEpochError
from tailrace.storage.shrink import (
    delete_old_segments,
    raise_log_start,
    truncate_fully_and_start_at,
    truncate_to,
)
from tailrace.storage.snapshots import NONE
from tailrace.testing import DiskFault, MemoryFiles
from tests.unit.storage.builders import (
    NOW,
    append,
    bases,
    batch,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import (
    aborted_txn,
)
from tests.unit.storage.transactional import (
    TransactionalProducer,
    append_plain,
    follow,
    replicated,
    replicated_marker,
)

BIG = settings(segment_bytes=10**6, segment_index_bytes=1200)


def new_log(files: MemoryFiles | None = None) -> Log:
    """An empty log of one large segment."""
    return open_at(files or MemoryFiles(), config=BIG)


def unstable(log: Log) -> int | None:
    """Return the start of the oldest transaction whose end is not replicated."""
    return log.producers.first_unstable_offset


def raise_to_end(log: Log) -> None:
    """All replicas in sync have everything."""
    log.advance_high_watermark(log.end_offset)


def check_reads(log: Log, limit: ReadLimit) -> None:
    """Hold a read from each offset against where its kind of reader has to stop."""
    end = log.positions.limit(limit)
    for offset in range(log.end_offset + 1):
        view = log.read(offset, bytes_max=10**6, is_first_whole=True, limit=limit).read()
        got = [each for _, each in read_batches(view)]
        assert bool(got) == (offset < end)
        assert all(each.last_offset < end for each in got)


def test_reads_of_committed_records_stop_at_the_first_open_transaction() -> None:
    """The oldest open transaction counts; its end counts once the high watermark has passed it."""
    log = new_log()
    first, second = TransactionalProducer(log, 1), TransactionalProducer(log, 2)
    first.append(5)
    append_plain(log, 3)
    second.append(2)
    first.append(4)
    append_plain(log, 2)
    first.append(10)
    check_reads(log, ReadLimit.LAST_STABLE)
    raise_to_end(log)
    check_reads(log, ReadLimit.LAST_STABLE)
    first.commit()
    assert log.positions.last_stable == 0
    raise_to_end(log)
    assert log.positions.last_stable == 8
    check_reads(log, ReadLimit.LAST_STABLE)
    second.abort()
    assert log.positions.last_stable == 8
    raise_to_end(log)
    assert log.positions.last_stable == log.end_offset
    check_reads(log, ReadLimit.LAST_STABLE)


def test_the_log_knows_its_producers() -> None:
    """Epoch, last sequence, open transaction and coordinator of each."""
    log = new_log()
    producer = TransactionalProducer(log, 1, epoch=5)
    producer.append(5)
    known = log.producers.get(ProducerId(1))
    assert known is not None
    assert (known.epoch, known.last_sequence) == (5, 4)
    assert (known.transaction_start, known.coordinator_epoch) == (0, NONE)
    producer.end(is_commit=True, coordinator_epoch=15)
    known = log.producers.get(ProducerId(1))
    assert known is not None
    assert (known.epoch, known.last_sequence) == (5, 4)
    assert (known.transaction_start, known.coordinator_epoch) == (NONE, 15)
    append(log, batch(b"a", b"b", b"c", producer_id=2, producer_epoch=5, base_sequence=0))
    known = log.producers.get(ProducerId(2))
    assert known is not None
    assert (known.epoch, known.last_sequence) == (5, 2)
    assert (known.transaction_start, known.coordinator_epoch) == (NONE, NONE)


def test_without_transactions_nothing_is_unstable() -> None:
    """The last stable offset is the high watermark."""
    log = new_log()
    append_plain(log, 3)
    assert unstable(log) is None
    raise_to_end(log)
    assert log.positions.last_stable == 3


def test_a_transaction_is_unstable_from_its_first_offset_until_its_end_is_replicated() -> None:
    """More data changes nothing, nor does the marker before the high watermark passes it."""
    log = new_log()
    producer = TransactionalProducer(log, 137)
    append_plain(log, 2)
    producer.append(3)
    assert unstable(log) == 2
    producer.append()
    assert unstable(log) == 2
    marker = producer.commit()
    assert unstable(log) == 2
    log.advance_high_watermark(marker.last_offset)
    assert unstable(log) == 2
    log.advance_high_watermark(marker.last_offset + 1)
    assert unstable(log) is None


def test_a_read_of_committed_records_behind_each_append_is_empty() -> None:
    """The high watermark is before or behind the record of the open transaction."""
    log = new_log()
    producer = TransactionalProducer(log, 15)
    for _ in range(25):
        end = log.end_offset
        producer.append()
        for _ in range(2):
            found = log.read(
                end, bytes_max=10**6, is_first_whole=False, limit=ReadLimit.LAST_STABLE
            )
            assert not found.read()
            raise_to_end(log)
        producer.abort()


EXPECTED = (aborted_txn(1, 0, 29, 8), aborted_txn(2, 8, 74, 36))
"""Entries of the four interleaved transactions in the index."""


def check_four_transactions(log: Log) -> None:
    """The aborts, and where the last stable offset stands as the high watermark moves."""
    assert log.segments.active.transactions.entries() == EXPECTED
    for high_watermark, expected in ((30, 8), (75, 36), (90, None)):
        log.advance_high_watermark(high_watermark)
        assert unstable(log) == expected


def test_aborts_are_noted_with_the_last_stable_offset_of_their_time() -> None:
    """Four interleaved transactions, two of which end in an abort."""
    log = new_log()
    one, two, three, four = (TransactionalProducer(log, each) for each in (1, 2, 3, 4))
    one.append(5)
    append_plain(log, 3)
    two.append(2)
    one.append(4)
    three.append(3)
    append_plain(log, 2)
    one.append(10)
    one.abort()
    two.append(6)
    four.append(3)
    append_plain(log, 10)
    three.append(9)
    three.commit()
    four.append(8)
    two.append(7)
    two.abort()
    append_plain(log, 10)
    four.append(4)
    four.commit()
    assert log.end_offset == 90
    check_four_transactions(log)


def test_a_follower_notes_the_same_aborts() -> None:
    """A follower finds the aborts in its leader's batches, though all come in one append."""
    log = new_log()
    sequences = dict.fromkeys(range(1, 5), 0)
    batches = []
    end = 0
    for producer_id, count in (
        (1, 5), (0, 3), (2, 2), (1, 4), (3, 3), (0, 2), (1, 10), (1, "abort"), (2, 6), (4, 3),
        (0, 10), (3, 9), (3, "commit"), (4, 8), (2, 7), (2, "abort"), (0, 10), (4, 4),
        (4, "commit"),
    ):  # fmt: skip
        if isinstance(count, str):
            batches.append(replicated_marker(end, producer_id, is_commit=count == "commit"))
            end += 1
            continue
        options: dict[str, object] = {}
        if producer_id:
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequences[producer_id],
                "is_transactional": True,
            }
            sequences[producer_id] += count
        batches.append(replicated(end, *[b"v"] * count, **options))  # type: ignore[arg-type]
        end += count
    assert follow(log, *batches) == 90
    check_four_transactions(log)


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    """The log keeps the newest one's epoch over transactions."""
    log = new_log()
    producer = TransactionalProducer(log, 1)
    producer.append(10)
    producer.end(is_commit=False, coordinator_epoch=1)
    producer.append(5)
    producer.end(is_commit=True, coordinator_epoch=2)
    with pytest.raises(CoordinatorFencedError):
        producer.end(is_commit=False, coordinator_epoch=1)
    assert log.end_offset == 17


def test_a_marker_of_an_older_coordinator_is_refused_without_a_transaction_too() -> None:
    """An empty transaction leaves the epoch of its coordinator as well."""
    log = new_log()
    options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    follow(log, replicated(0, *[b"v"] * 10, **options), replicated_marker(10, 1, is_commit=True))
    producer = TransactionalProducer(log, 1)
    producer.end(is_commit=False, coordinator_epoch=2)
    producer.end(is_commit=False, coordinator_epoch=2)
    with pytest.raises(CoordinatorFencedError):
        producer.end(is_commit=False, coordinator_epoch=1)


def test_a_marker_of_an_older_producer_epoch_is_refused() -> None:
    """The producer has been fenced since."""
    log = new_log()
    producer = TransactionalProducer(log, 1, epoch=5)
    producer.end(is_commit=False, coordinator_epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        producer.end(is_commit=False, coordinator_epoch=1, epoch=4)


def with_transaction_over_a_roll() -> Log:
    """A transaction that is open from offset 0 on, in two segments."""
    log = new_log()
    producer = TransactionalProducer(log, 1)
    producer.append(5)
    append_plain(log, 3)
    log.roll()
    producer.append(5)
    raise_to_end(log)
    assert log.positions.last_stable == 0
    return log


def test_the_last_stable_offset_is_not_below_the_log_start() -> None:
    """The log start may be in the middle of a segment: deleted records need no decision."""
    log = with_transaction_over_a_roll()
    raise_log_start(log, 5)
    assert (log.positions.last_stable, len(log.segments)) == (5, 2)
    append_plain(log)
    raise_to_end(log)
    assert log.positions.last_stable == 5


def test_the_last_stable_offset_is_not_below_the_log_start_once_segments_are_gone() -> None:
    """The same holds if the first segment of the transaction is deleted."""
    log = with_transaction_over_a_roll()
    raise_log_start(log, 8)
    delete_old_segments(log, NOW)
    assert (log.positions.last_stable, bases(log)) == (8, [8])


def test_an_abort_that_cannot_be_noted_stops_the_log() -> None:
    """The marker is in the log once, no reader passes it, and the next start notes the abort."""
    files = MemoryFiles()
    log = new_log(files)
    producer = TransactionalProducer(log, 1)
    producer.append(10)
    files.faults.append(DiskFault(operation="open", path_part=".txnindex"))
    with pytest.raises(OSError, match="error"):
        producer.abort()
    files.faults.clear()
    assert (log.end_offset, log.positions.last_stable) == (11, 0)
    with pytest.raises(OSError, match="could not be written to the transaction index"):
        producer.abort()
    assert (log.end_offset, log.positions.last_stable) == (11, 0)
    log.advance_high_watermark(12)
    assert log.positions.last_stable == 0
    with pytest.raises(OSError, match="could not be written to the transaction index"):
        log.finish()
    again = new_log(files.crash(keep_unsynced=True))
    assert again.end_offset == 11
    assert len(again.segments.active.transactions.entries()) == 1
    assert unstable(again) is None


def test_a_failed_log_is_neither_read_nor_written() -> None:
    """Every call raises the error of the first failure."""
    files = MemoryFiles()
    log = new_log(files)
    append_plain(log)
    producer = TransactionalProducer(log, 1)
    producer.append(10)
    files.faults.append(DiskFault(operation="write", path_part=".txnindex"))
    with pytest.raises(OSError, match="error"):
        producer.abort()
    with pytest.raises(OSError, match="could not be written to the transaction index"):
        append_plain(log)
    with pytest.raises(OSError, match="could not be written to the transaction index"):
        log.read(0, bytes_max=4096, is_first_whole=True)


def test_plain_records_between_transactions_wait_for_the_older_ones() -> None:
    """The last stable offset goes from the first open transaction to the next."""
    log = new_log()
    first, second = TransactionalProducer(log, 137), TransactionalProducer(log, 983)
    first.append(3)
    append_plain(log, 3)
    second.append(3)
    assert unstable(log) == 0
    first.abort()
    raise_to_end(log)
    assert unstable(log) == 6
    assert log.positions.last_stable == 6
    second.commit()
    raise_to_end(log)
    assert unstable(log) is None
    assert log.positions.last_stable == 11


def test_an_aborted_transaction_is_told_for_each_of_its_segments() -> None:
    """Its marker is in the last one; a reader of the first needs to know as well."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=100))
    producer = TransactionalProducer(log, 137)
    producer.append(3)
    producer.append(3)
    producer.abort()
    raise_to_end(log)
    assert bases(log) == [0, 3, 6]
    for offset in (0, 3, 6):
        found = log.read(offset, bytes_max=2048, is_first_whole=True, limit=ReadLimit.LAST_STABLE)
        assert found.aborted == (aborted_txn(137, 0, 6, 7),)
    plain = log.read(0, bytes_max=2048, is_first_whole=True)
    assert plain.aborted == ()


def test_aborts_behind_the_bytes_read_are_not_told() -> None:
    """Aborts after the bytes read, or that ended before them, are not returned."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=250))
    producer = TransactionalProducer(log, 1)
    for _ in range(2):
        producer.append(2)
        producer.abort()
        log.roll()
    raise_to_end(log)
    for offset, first_offset in ((0, 0), (3, 3)):
        found = log.read(offset, bytes_max=2048, is_first_whole=True, limit=ReadLimit.LAST_STABLE)
        assert [each.first_offset for each in found.aborted] == [first_offset]


def test_aborts_of_the_same_segment_behind_the_bytes_read_are_not_told() -> None:
    """The offset index bounds what the bytes can hold, as in Kafka."""
    log = open_at(MemoryFiles(), config=settings(segment_bytes=10**6, index_interval_bytes=1))
    producer = TransactionalProducer(log, 1)
    for _ in range(5):
        producer.append(2)
        producer.abort()
    raise_to_end(log)
    for offset in range(0, log.end_offset, 3):
        found = log.read(offset, bytes_max=1, is_first_whole=True, limit=ReadLimit.LAST_STABLE)
        assert [each.first_offset for each in found.aborted] == [offset]
    found = log.read(0, bytes_max=10**6, is_first_whole=True, limit=ReadLimit.LAST_STABLE)
    assert len(found.aborted) == 5


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_start_knows_what_is_open(is_clean: bool) -> None:  # noqa: FBT001
    """A transaction that was open before the stop is; one that had ended is not."""
    files = MemoryFiles()
    log = new_log(files)
    producer = TransactionalProducer(log, 137, epoch=5)
    producer.append(3)
    if is_clean:
        stop_cleanly(log)
    again = open_at(files, config=BIG, is_clean=is_clean)
    assert unstable(again) == again.positions.last_stable == 0
    ended = TransactionalProducer(again, 137, epoch=5).abort()
    again.advance_high_watermark(ended.last_offset + 1)
    assert unstable(again) is None
    if is_clean:
        stop_cleanly(again)
    last = open_at(files, config=BIG, is_clean=is_clean)
    assert unstable(last) is None
    assert last.segments.active.transactions.entries() == (aborted_txn(137, 0, 3, 4),)


@pytest.mark.parametrize("cut", [truncate_to, truncate_fully_and_start_at])
def test_a_transaction_that_is_cut_off_is_not_open(cut: Callable[[Log, int], None]) -> None:
    """After a start, so that nothing but the snapshot and the log can tell of it."""
    files = MemoryFiles()
    log = new_log(files)
    append_plain(log, 3)
    TransactionalProducer(log, 17, epoch=10).append(2)
    assert unstable(log) == 3
    stop_cleanly(log)
    again = open_at(files, config=BIG, is_clean=True)
    assert unstable(again) == 3
    cut(again, 0)
    assert unstable(again) is None
    assert len(again.producers) == 0
    assert again.positions.last_stable == again.end_offset == 0


def test_a_truncation_keeps_what_was_decided_below_the_high_watermark() -> None:
    """Ends below it stay decided, though the markers are replayed."""
    log = new_log()
    producer = TransactionalProducer(log, 1)
    producer.append(3)
    producer.commit()
    append_plain(log, 2)
    raise_to_end(log)
    append_plain(log, 2)
    truncate_to(log, 6)
    assert log.positions.last_stable == log.positions.high_watermark == 6


def test_a_truncation_drops_the_aborts_behind_it() -> None:
    """The transaction is open again, from where it began."""
    log = new_log()
    producer = TransactionalProducer(log, 1)
    producer.append(3)
    producer.abort()
    producer.append(2)
    producer.abort()
    raise_to_end(log)
    truncate_to(log, 6)
    assert log.segments.active.transactions.entries() == (aborted_txn(1, 0, 3, 4),)
    assert log.positions.last_stable == unstable(log) == 4


def test_a_marker_counts_in_a_search_by_time() -> None:
    """A marker has a timestamp, which can be the largest of the log, as in Kafka."""
    log = new_log()
    append(log, batch(b"old", timestamps=[NOW - 10]))
    TransactionalProducer(log, 1).commit()
    raise_to_end(log)
    for timestamp in (SpecialTimestamp.MAX_TIMESTAMP, NOW - 9):
        found = find_offset(log, timestamp)
        assert found is not None
        assert tuple(found[0]) == (NOW, 1)


def test_an_idempotent_log_makes_no_index_of_aborts() -> None:
    """Commits leave no trace in it either."""
    files = MemoryFiles()
    log = new_log(files)
    producer = TransactionalProducer(log, 1)
    producer.append()
    producer.commit()
    assert not files.exists(path(0, ".txnindex"))
    producer.append()
    producer.abort()
    assert len(files.content(path(0, ".txnindex"))) == 34
