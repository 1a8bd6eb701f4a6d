"""A reader while a broker exchanges or deletes the files under it, between any two of its calls."""

from collections.abc import Callable

import pytest

from tailrace.errors import CorruptionError, DirectoryError, OffsetsDeletedError
from tailrace.model import Offset
from tailrace.reading.listing import list_segment_files
from tailrace.reading.reader import open_log_reader
from tailrace.records.builder import records_of
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import ChangingFiles, MemoryFiles
from tests.unit.storage.beside import (
    Change,
    Rows,
    check_rows,
    cleaning,
    cleaning_transactions,
    deletion,
    every_moment,
)
from tests.unit.storage.builders import (
    FOLDER,
    append_values,
    bases,
    filled,
    flip,
    path,
    stop_cleanly,
)


def read(files: ChangingFiles) -> tuple[Rows, OffsetsDeletedError | None]:
    """Read a whole log; return the rows and the error that ended the read early."""
    rows: Rows = []
    reader = open_log_reader(files, FOLDER)
    try:
        for each in reader.batches(reader.start_offset, reader.end_offset):
            if not each.is_control:
                rows += [(record.offset, record.value) for record in records_of(each)]
    except OffsetsDeletedError as error:
        return rows, error
    return rows, None


@pytest.mark.parametrize("change", [cleaning, cleaning_transactions, deletion])
def test_a_reader_beside_a_broker_reads_what_is_left(change: Callable[[], Change]) -> None:
    """Never damage, never a record twice or out of order; what is deleted is told as that."""
    known = change()

    def once(files: ChangingFiles) -> None:
        rows, error = read(files)
        check_rows(known, rows, error)

    for _ in every_moment(known, once):
        pass


def test_damage_is_still_damage_after_an_exchange() -> None:
    """A file that is listed anew and is still bad is told with its place, once."""
    change = cleaning()
    last = change.states[-1].crash(keep_unsynced=True)
    segments, _ = list_segment_files(last, FOLDER)
    flip(last, segments[0].path, 70)
    told = set()
    for at in range(40):
        files = ChangingFiles((change.states[0], last), at=at, to=1)
        try:
            # A reader that had opened the sound file has read all of it.
            assert read(files)[0][: len(change.before)]
        except CorruptionError as error:
            told.add((error.path, error.position))
    assert told == {(segments[0].path, 0)}


def test_an_exchange_that_was_left_half_done_is_read_whole() -> None:
    """A broker that died there finishes it when it starts; nobody has to wait for that."""
    change = cleaning()
    for state in change.states:
        rows, error = read(ChangingFiles([state], at=0, to=0))
        check_rows(change, rows, error)


def test_a_folder_that_is_gone_is_told_as_that() -> None:
    """A topic that is deleted while it is read is no missing file."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    reader = open_log_reader(files, FOLDER)
    batches = reader.batches(Offset(0), Offset(20))
    next(batches)
    files.rename(FOLDER, "data/flights-0.abc-delete")
    with pytest.raises(DirectoryError, match="deleted or moved while it was read"):
        list(batches)


def test_deleted_offsets_are_told_with_the_start_of_the_log() -> None:
    """The error has the log start offset, so that a reader can go on there."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20))
    reader = open_log_reader(files, FOLDER)
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(path(0, suffix))
    with pytest.raises(OffsetsDeletedError) as caught:
        list(reader.batches(Offset(0), Offset(20)))
    start = reader.start_offset
    assert (caught.value.offset, caught.value.log_start_offset) == (0, start)
    assert start > 0
    assert f"it begins at offset {start} now" in str(caught.value)
    assert len(list(reader.batches(start, Offset(20)))) == 20 - start


@pytest.mark.parametrize(
    ("checkpoint", "start"),
    [
        pytest.param(b"0\n7\n", 9, id="malformed"),
        pytest.param(b"0\n1\nflights 0 90\n", 9, id="of another life of the log"),
        pytest.param(b"0\n1\nflights 0 11\n", 11, id="sound"),
    ],
)
def test_a_log_listed_anew_starts_where_it_starts_for_a_broker(
    checkpoint: bytes, start: int
) -> None:
    """The leader epochs have the start when the checkpoint does not tell any more."""
    files = MemoryFiles()
    log = filled(files, 20)
    reader = open_log_reader(files, FOLDER)
    first, second = bases(log)[:2]
    assert first < second < 9
    raise_log_start(log, 9)
    log.epochs.save()
    files.remove(path(first, ".log"))
    put(files, "data/log-start-offset-checkpoint", checkpoint)
    with pytest.raises(OffsetsDeletedError) as caught:
        list(reader.batches(Offset(0), Offset(20)))
    assert caught.value.log_start_offset == reader.start_offset == start
    assert reader.end_offset == 20


def test_a_log_start_behind_the_end_at_opening_counts_once_the_log_has_grown() -> None:
    """It is held against the end of the log as it is now, if no leader epoch tells of it."""
    files = MemoryFiles()
    log = filled(files, 20)
    reader = open_log_reader(files, FOLDER)
    append_values(log, *(b"value %d" % number for number in range(20, 30)))
    log.epochs.save()
    files.remove(f"{FOLDER}/leader-epoch-checkpoint")
    files.remove(path(0, ".log"))
    put(files, "data/log-start-offset-checkpoint", b"0\n1\nflights 0 25\n")
    with pytest.raises(OffsetsDeletedError) as caught:
        list(reader.batches(Offset(0), Offset(20)))
    assert caught.value.log_start_offset == 25
    put(files, "data/log-start-offset-checkpoint", b"0\n1\nflights 0 90\n")
    assert open_log_reader(files, FOLDER).start_offset == bases(log)[1]


def put(files: MemoryFiles, name: str, content: bytes) -> None:
    """A file with this content."""
    files.open(name, create=True)
    files.overwrite(name, content)
