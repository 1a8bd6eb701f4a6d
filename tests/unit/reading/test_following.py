"""A log that is followed: what is appended is read, and the waiting ends when it should."""

import threading
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from tailrace.errors import (
    CorruptionError,
    DirectoryError,
    OffsetOutOfRangeError,
    OffsetsDeletedError,
)
from tailrace.reading.log import FOLLOW_SECONDS, Log
from tailrace.reading.transactions import find_open_transactions
from tailrace.storage.checkpoints import write_partition_metadata
from tailrace.storage.log import Log as BrokerLog
from tailrace.testing import MemoryFiles
from tests.unit.reading.logs import FORMATS, a_log, offsets_as, offsets_in
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    append_values,
    batch,
    filled,
    open_at,
    path,
    settings,
)
from tests.unit.storage.transactional import TransactionalProducer, append_plain


class Pauses:
    """Does the next of some steps whenever a reader waits; closes the log behind the last."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.log: Log
        self.seconds: list[float] = []
        self._steps: Iterator[Callable[[], object]] = iter(steps)

    def __call__(self, seconds: float) -> None:
        """A reader waits."""
        self.seconds.append(seconds)
        next(self._steps, self.log.close)()


def followed(files: MemoryFiles, *steps: Callable[[], object], **options: str) -> Log:
    """A log in which a step is done at each pause of its reader."""
    pauses = Pauses(*steps)
    pauses.log = a_log(files, pause=pauses, **options)
    return pauses.log


def note_topic_id(files: MemoryFiles, number: int) -> None:
    """Write the file with the id of the topic."""
    write_partition_metadata(files, FOLDER, "partition.metadata", topic_id=UUID(int=number))


def growing(files: MemoryFiles) -> tuple[BrokerLog, list[Callable[[], object]]]:
    """A broker's log with 3 records, and steps that append 10 more and roll segments."""
    log = filled(files, 3, config=settings(segment_bytes=400))
    return log, [lambda: append_values(log, b"x", b"y")] * 5


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_appended_is_read_until_the_log_is_closed(form: str) -> None:
    """Across segments, each offset once, in order; without a pause while there is more."""
    files = MemoryFiles()
    _, steps = growing(files)
    log = followed(files, *steps)
    assert offsets_as(form, log, follow=True) == list(range(13))


@pytest.mark.parametrize("form", FORMATS)
def test_following_ends_at_the_limit(form: str) -> None:
    """The limit is an offset, or the first record as young as a time, which may come later."""
    files = MemoryFiles()
    writer, steps = growing(files)
    assert offsets_as(form, followed(files, *steps), limit=6, follow=True) == list(range(6))
    late = followed(files, *steps, lambda: append(writer, batch(b"z", timestamps=[NOW + 99])))
    end = writer.end_offset
    found = offsets_as(form, late, start=end - 1, limit_time=NOW + 50, follow=True)
    assert found == list(range(end - 1, writer.end_offset - 1))


def test_following_waits_for_the_first_record_that_is_young_enough() -> None:
    """Records with smaller timestamps that arrive meanwhile are left out."""
    files = MemoryFiles()
    writer = filled(files, 3)
    log = followed(
        files,
        lambda: append(writer, batch(b"old", timestamps=[NOW + 4])),
        lambda: append(writer, batch(b"young", timestamps=[NOW + 9])),
        lambda: append(writer, batch(b"behind it", timestamps=[NOW + 5])),
    )
    assert offsets_as("records", log, start_time=NOW + 9, follow=True) == [4, 5]


def test_a_reader_pauses_between_looks() -> None:
    """It does not look again at once when nothing is there."""
    files = MemoryFiles()
    filled(files, 1)
    pauses = Pauses(*[lambda: None] * 3)
    pauses.log = a_log(files, pause=pauses)
    assert offsets_as("records", pauses.log, follow=True) == [0]
    assert len(pauses.seconds) == 4
    assert min(pauses.seconds) >= FOLLOW_SECONDS


def test_a_waiting_reader_ends_when_another_thread_closes_the_log() -> None:
    """The reader ends although it pauses as it does outside of tests."""
    files = MemoryFiles()
    filled(files, 2)
    log, found, has_read = a_log(files), [], threading.Event()

    def read() -> None:
        for record in log.records(follow=True):
            found.append(record.offset)
            if len(found) == 2:
                has_read.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert has_read.wait(30)
    log.close()
    thread.join(30)
    assert not thread.is_alive()
    assert found == [0, 1]


def test_a_reader_that_lags_ends_before_its_next_record() -> None:
    """It does not finish its backlog first."""
    files = MemoryFiles()
    filled(files, 20)
    log = a_log(files)
    records = iter(offsets_in("records", log, follow=True))
    assert next(records) == 0
    log.close()
    assert list(records) == []


def test_committed_records_come_when_their_transaction_ends() -> None:
    """Aborted ones never; each look reads only what is new for it."""
    files = MemoryFiles()
    writer = open_at(files)
    first, second = TransactionalProducer(writer, 1), TransactionalProducer(writer, 2)
    first.append(2)
    second.append()
    log = followed(
        files,
        lambda: append_plain(writer),
        second.abort,
        first.commit,
        second.append,
        second.commit,
        isolation="read_committed",
    )
    assert offsets_as("records", log, follow=True) == [0, 1, 3, 6]


def test_open_transactions_are_known_from_one_look_to_the_next() -> None:
    """Known batches are not read again, and the result equals that of a new search."""
    files = MemoryFiles()
    writer = open_at(files)
    producers = [TransactionalProducer(writer, number) for number in (1, 2, 3)]
    known = None
    for turn in range(24):
        producer = producers[turn * 7 % 3]
        if turn % 4 == 3:
            producer.commit()
        else:
            producer.append()
        log = a_log(files, isolation="read_committed")
        log.refresh()
        view = log._looked()
        segments, end = view.reader.segments, view.reader.end_offset
        fresh = find_open_transactions(files, FOLDER, segments, end=end)
        known = find_open_transactions(files, FOLDER, segments, end=end, known=known)
        assert known.first_offset == fresh.first_offset
        assert known.walk.open_transactions() == fresh.walk.open_transactions()


def test_retention_that_overtakes_a_reader_is_told() -> None:
    """The error has the offset where the log begins now."""
    files = MemoryFiles()
    writer, _ = growing(files)

    def delete() -> None:
        append_values(writer, *[b"x"] * 17)
        for base in (0, 5):
            files.remove(path(base, ".log"))

    with pytest.raises(OffsetsDeletedError) as caught:
        offsets_as("records", followed(files, delete), follow=True)
    assert (caught.value.offset, caught.value.log_start_offset) == (3, 10)


def test_a_log_that_was_cut_is_told() -> None:
    """The reader's offset is no longer in the log, as after the loss of a machine."""
    files = MemoryFiles()
    filled(files, 3)
    size = len(files.content(path(0, ".log"))) // 3

    def cut() -> None:
        files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[:size])

    with pytest.raises(OffsetOutOfRangeError, match="offset 3 is not in the log, which has 0 to 1"):
        offsets_as("records", followed(files, cut), follow=True)


def test_damage_that_is_appended_is_told() -> None:
    """Half a batch is waited for, bytes that are none are an error with their position."""
    files = MemoryFiles()
    filled(files, 1)
    whole = files.content(path(0, ".log"))
    log = followed(
        files,
        lambda: files.overwrite(path(0, ".log"), whole + bytes(batch())[:30]),
        lambda: files.overwrite(path(0, ".log"), whole + b"\xff" * 100),
    )
    with pytest.raises(CorruptionError) as caught:
        offsets_as("records", log, follow=True)
    assert (caught.value.path, caught.value.position) == (path(0, ".log"), len(whole))
    assert str(PARTITION) in log.folder


def test_a_topic_that_was_created_again_is_told() -> None:
    """Its records are not given out as if they followed those of the old topic."""
    files = MemoryFiles()
    filled(files, 3)
    note_topic_id(files, 1)

    def create_again() -> None:
        files.remove_tree(FOLDER)
        filled(files, 9)
        note_topic_id(files, 2)

    log = followed(files, create_again)
    records = log.records(follow=True)
    assert [next(records).offset for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DirectoryError, match="flights was deleted and created again"):
        next(records)
    assert offsets_as("records", log) == list(range(9))


def test_a_tail_that_was_replaced_between_two_looks_is_read_anew() -> None:
    """Nothing of a transaction is shown that began where the log had other records before."""
    files = MemoryFiles()
    append_plain(open_at(files), 6)
    log = a_log(files, isolation="read_committed")
    assert log.latest_offset() == 6
    files.remove_tree(FOLDER)
    writer = open_at(files)
    append_plain(writer, 2)
    TransactionalProducer(writer, 1).append(2)
    append_plain(writer, 4)
    log.refresh()
    assert log.latest_offset() == 2
    assert offsets_as("records", log) == [0, 1]
