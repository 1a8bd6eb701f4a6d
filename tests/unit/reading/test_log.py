"""One partition's log, as a program reads it: ranges, formats, isolation, damage, errors."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import (
    ConfigError,
    CorruptionError,
    DirectoryError,
    FatalError,
    OffsetOutOfRangeError,
    OffsetsDeletedError,
)
from tailrace.model import Codec
from tailrace.reading.columns import DEFAULT_COLUMNS
from tailrace.reading.log import Log
from tailrace.records import layout
from tailrace.spark.options import names
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles
from tests.unit.reading.logs import FORMATS, a_log, offsets_as, rows_of
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    append_values,
    batch,
    filled,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.transactional import TransactionalProducer, append_plain

FIVE_A_SEGMENT = settings(segment_bytes=400)


def twenty() -> MemoryFiles:
    """20 batches of one record in segments of five; offset n has timestamp NOW + n."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20, config=FIVE_A_SEGMENT))
    return files


@pytest.mark.parametrize("form", FORMATS)
def test_every_range_of_offsets_is_read_in_each_format(form: str) -> None:
    """A range includes its first offset and excludes its last; nothing on the disk changes."""
    files = twenty()
    files.operations.clear()
    log = a_log(files)
    for start in range(0, 21, 3):
        for limit in range(start, 21, 4):
            assert offsets_as(form, log, start=start, limit=limit) == list(range(start, limit))
    assert not files.operations


@pytest.mark.parametrize("form", FORMATS)
def test_a_range_without_ends_is_the_whole_log(form: str) -> None:
    """A range that ends beyond the log ends with it."""
    log = a_log(twenty())
    assert offsets_as(form, log) == list(range(20))
    assert offsets_as(form, log, limit=1000) == list(range(20))
    assert offsets_as(form, log, start=20) == []
    assert offsets_as(form, log, start=7, limit=5) == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_range_of_time_begins_and_ends_at_the_first_record_as_young(form: str) -> None:
    """The bounds are those of Kafka's offsetsForTimes, from milliseconds or datetimes."""
    log = a_log(twenty())
    bounds = {"start_time": NOW + 6, "limit_time": NOW + 9}
    assert offsets_as(form, log, **bounds) == [6, 7, 8]
    assert offsets_as(form, log, start=7, limit_time=NOW + 9) == [7, 8]
    assert offsets_as(form, log, start_time=NOW + 18, limit=19) == [18]
    assert offsets_as(form, log, start_time=NOW + 20) == []
    moment = datetime.fromtimestamp(NOW // 1000, UTC) + timedelta(milliseconds=17)
    assert offsets_as(form, log, start_time=moment) == [17, 18, 19]
    # 0.5 ms later, the record of that millisecond is too old.
    assert offsets_as(form, log, start_time=moment + timedelta(microseconds=500)) == [18, 19]


def test_records_are_objects_with_all_that_a_producer_sent() -> None:
    """A record is a value: key, value, headers, offset and milliseconds."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, batch(b"v", key=None, codec=Codec.GZIP))
    stop_cleanly(log)
    assert list(a_log(files).records()) == [(0, NOW, None, b"v", ())]


def test_batches_tell_their_headers_and_places_and_decode_nothing() -> None:
    """Damage in a compressed payload is not met, but the checksum is."""
    files = MemoryFiles()
    writer = open_at(files)
    append(writer, batch(b"a" * 50, codec=Codec.ZSTD))
    append(writer, batch(b"b", b"c"))
    stop_cleanly(writer)
    first, second = a_log(files).batches()
    assert (first.batch.codec, first.batch.record_count, first.position) == (Codec.ZSTD, 1, 0)
    assert (second.path, second.position) == (path(0, ".log"), first.batch.size)
    assert (second.batch.base_offset, second.batch.last_offset) == (1, 2)
    flip(files, path(0, ".log"), 65)
    with pytest.raises(CorruptionError):
        list(a_log(files).batches())


def test_arrow_has_the_columns_of_the_spark_source() -> None:
    """The same names and types, any of them, in the order that is asked for."""
    every = (*names.COLUMNS, *names.HEADERS, *names.METADATA)
    log = a_log(twenty())
    assert (*names.COLUMNS, *names.HEADERS) == DEFAULT_COLUMNS
    assert log.arrow().schema.names == list(DEFAULT_COLUMNS)
    table = log.arrow(every, start=5, limit=7).read_all()
    assert table.schema.names == list(every)
    first = table.to_pylist()[0]
    assert (first["topic"], first["partition"], first["offset"]) == ("flights", 0, 5)
    assert (first["key"], first["value"], first["codec"]) == (b"k", b"value 5", "none")
    assert (first["file"], first["position"]) == (path(5, ".log"), 0)
    assert first["timestamp"] == datetime.fromtimestamp(NOW // 1000, UTC) + timedelta(
        milliseconds=5
    )


def test_arrow_keeps_an_error_as_it_is() -> None:
    """Through PyArrow's reader, with file and position, after the rows before it."""
    files = twenty()
    flip(files, path(10, ".log"), 70)
    reader = a_log(files).arrow(["offset"])
    with pytest.raises(CorruptionError) as caught:
        reader.read_all()
    assert (caught.value.path, caught.value.position) == (path(10, ".log"), 0)


def test_without_pyarrow_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call itself fails; records and batches need no PyArrow."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    log = a_log(twenty())
    with pytest.raises(FatalError, match=r"needs pyarrow: pip install 'tailrace\[arrow\]'"):
        log.arrow()
    assert len(list(log.records())) == 20


def test_offsets_are_found_for_the_ends_and_for_times() -> None:
    """The offset is None if no record has so large a timestamp."""
    log = a_log(twenty())
    assert (log.earliest_offset(), log.latest_offset()) == (0, 20)
    assert [log.offset_at(NOW + each) for each in (-5, 0, 7, 19, 20)] == [0, 0, 7, 19, None]


def test_a_log_is_as_it_was_when_it_was_looked_at() -> None:
    """Until it is refreshed; the start too."""
    files = MemoryFiles()
    writer = filled(files, 5)
    log = a_log(files)
    assert log.latest_offset() == 5
    append_values(writer, b"more", b"more")
    assert offsets_as("records", log) == list(range(5))
    raise_log_start(writer, 2)
    writer.epochs.save()
    files.open("data/log-start-offset-checkpoint", create=True)
    files.overwrite("data/log-start-offset-checkpoint", b"0\n1\nflights 0 2\n")
    log.refresh()
    assert (log.earliest_offset(), log.latest_offset()) == (2, 7)
    assert offsets_as("records", log) == [2, 3, 4, 5, 6]


def test_a_start_outside_of_the_log_is_an_error_that_says_what_there_is() -> None:
    """A reader is told that records were deleted, and does not start behind them silently."""
    log = a_log(twenty())
    for start in (-1, 21):
        with pytest.raises(OffsetOutOfRangeError, match="the log, which has 0 to 20"):
            list(log.records(start))


def test_deleted_offsets_are_told_with_where_to_go_on() -> None:
    """The first segment is deleted while the log is read."""
    files = twenty()
    log = a_log(files)
    assert log.latest_offset() == 20
    for suffix in (".log", ".index", ".timeindex"):
        files.remove(path(0, suffix))
    with pytest.raises(OffsetsDeletedError) as caught:
        list(log.records())
    assert offsets_as("records", log, start=caught.value.log_start_offset) == list(range(5, 20))


def test_a_deleted_partition_is_told_as_that() -> None:
    """Reads and further looks raise a DirectoryError that names the folder."""
    files = twenty()
    log = a_log(files)
    log.refresh()
    files.rename(FOLDER, "data/flights-0.abc-delete")
    with pytest.raises(DirectoryError, match="data/flights-0 is gone"):
        list(log.records())
    with pytest.raises(DirectoryError, match="cannot read data/flights-0"):
        log.refresh()


def transactions() -> MemoryFiles:
    """Aborted, committed, plain and open: offsets 0-1 (marker 2), 3-4 (5), 6, 7-8."""
    files = MemoryFiles()
    log = open_at(files)
    first = TransactionalProducer(log, 1)
    first.append(2)
    first.abort()
    first.append(2)
    first.commit()
    append_plain(log)
    first.append(2)
    log.advance_high_watermark(log.end_offset)
    return files


@pytest.mark.parametrize("form", ["records", "arrow"])
def test_committed_records_are_those_that_a_consumer_gets(form: str) -> None:
    """No aborted record, and nothing from the first open transaction on; never a marker."""
    files = transactions()
    everything = a_log(files)
    assert offsets_as(form, everything) == [0, 1, 3, 4, 6, 7, 8]
    committed = a_log(files, isolation="read_committed")
    assert (everything.latest_offset(), committed.latest_offset()) == (9, 7)
    assert offsets_as(form, committed) == [3, 4, 6]
    assert offsets_as(form, committed, start=4, limit=9) == [4, 6]


def test_markers_are_batches() -> None:
    """Their headers say that they are control batches."""
    found = {
        each.batch.base_offset: each.batch.is_control for each in a_log(transactions()).batches()
    }
    assert found == {0: False, 2: True, 3: False, 5: True, 6: False, 7: False}


@pytest.mark.parametrize("form", FORMATS)
def test_damage_is_raised_with_file_and_position(form: str) -> None:
    """When the reading gets there; what is not asked for is not met."""
    files = twenty()
    flip(files, path(10, ".log"), 70)
    log = a_log(files)
    with pytest.raises(CorruptionError) as caught:
        offsets_as(form, log)
    assert (caught.value.path, caught.value.position) == (path(10, ".log"), 0)
    assert offsets_as(form, log, limit=10) == list(range(10))
    assert offsets_as(form, log, start=12) == list(range(12, 20))


@pytest.mark.parametrize("form", FORMATS)
def test_skipped_damage_is_a_value(form: str) -> None:
    """Once, however often it is met; the records around it are read."""
    files = twenty()
    flip(files, path(10, ".log"), 70)
    log = a_log(files, on_damage="skip")
    for _ in range(2):
        assert offsets_as(form, log) == [*range(10), *range(11, 20)]
    [skipped] = log.skipped
    assert skipped[:5] == (PARTITION, path(10, ".log"), 0, 10, 11)
    assert "CRC-32C" in skipped.reason
    assert log.statistics().skipped_count == 1


def test_committed_records_behind_damage_are_read() -> None:
    """In skip mode the search for open transactions continues behind the damage too."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=100_000))
    append(log, batch(b"plain"))
    damaged = log.segments.active.size
    append(log, batch(b"damaged"))
    append(log, batch(b"plain"))
    TransactionalProducer(log, 1).append()
    stop_cleanly(log)
    for name in list(files.list(FOLDER)):
        if name.endswith(".snapshot"):
            files.remove(f"{FOLDER}/{name}")
    flip(files, path(0, ".log"), damaged + 70)
    found = a_log(files, isolation="read_committed", on_damage="skip")
    assert offsets_as("records", found) == [0, 2]
    assert found.latest_offset() == 3


@pytest.mark.parametrize("form", ["records", "arrow"])
def test_a_record_that_breaks_a_rule_is_damage(form: str) -> None:
    """The checksum is right, and the record is not: its batch is told, or left out."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 3))
    content = bytearray(files.content(path(0, ".log")))
    size = len(content) // 3
    damaged = content[size : 2 * size]
    damaged[layout.RECORDS_POSITION] = 2  # The size of the record, as a zigzag varint: 1.
    crc = crc32c.crc32c(bytes(damaged[layout.ATTRIBUTES_POSITION :]))
    layout.CRC.pack_into(damaged, layout.CRC_POSITION, crc)
    content[size : 2 * size] = damaged
    files.overwrite(path(0, ".log"), bytes(content))
    with pytest.raises(CorruptionError) as caught:
        offsets_as(form, a_log(files))
    assert (caught.value.path, caught.value.position) == (path(0, ".log"), size)
    skipping = a_log(files, on_damage="skip")
    assert offsets_as(form, skipping) == [0, 2]
    assert [(each.first_offset, each.next_offset) for each in skipping.skipped] == [(1, 2)]


def test_damage_at_the_end_is_raised_behind_all_that_is_sound() -> None:
    """A log whose last bytes are bad can be opened and read up to them."""
    files = twenty()
    last = path(15, ".log")
    files.overwrite(last, files.content(last) + b"\xff" * 100)
    log = a_log(files)
    assert log.latest_offset() == 20
    found: list[int] = []
    with pytest.raises(CorruptionError) as caught:
        found.extend(record.offset for record in log.records())
    assert found == list(range(20))
    assert caught.value.path == last
    assert offsets_as("records", log, limit=20) == list(range(20))
    skipping = a_log(files, on_damage="skip")
    assert offsets_as("records", skipping) == list(range(20))
    assert [(each.file, each.first_offset) for each in skipping.skipped] == [(last, 20)]


def test_an_append_in_progress_is_left_out() -> None:
    """A batch that is not whole at the very end is no damage."""
    files = twenty()
    last = path(15, ".log")
    files.overwrite(last, files.content(last) + bytes(batch())[:40])
    assert offsets_as("records", a_log(files)) == list(range(20))


def test_statistics_are_a_frozen_value() -> None:
    """Statistics are those of the log as it was when it was opened or refreshed."""
    files = twenty()
    found = a_log(files).statistics()
    assert (found.partition, found.folder, found.segment_count) == (PARTITION, FOLDER, 4)
    assert (found.earliest_offset, found.latest_offset, found.skipped_count) == (0, 20, 0)
    assert found.size_bytes == sum(
        len(files.content(path(base, ".log"))) for base in (0, 5, 10, 15)
    )
    with pytest.raises(AttributeError):
        found.folder = "other"  # type: ignore[misc]


def test_a_log_that_is_made_has_read_nothing() -> None:
    """A constructor starts nothing: the folder need not even be there."""
    log = Log(MemoryFiles(), "nowhere/flights-0", PARTITION)
    assert repr(log) == "Log('nowhere/flights-0')"
    with pytest.raises(DirectoryError, match="cannot read nowhere/flights-0"):
        log.latest_offset()


@pytest.mark.parametrize("form", FORMATS)
def test_a_closed_log_is_not_read(form: str) -> None:
    """A range that was begun is not finished either: it is given whole or with an error."""
    log = a_log(twenty())
    with log:
        found = iter(log.records())
        next(found)
    with pytest.raises(ValueError, match="is closed; open it again"):
        next(found)
    with pytest.raises(ValueError, match="is closed"):
        offsets_as(form, log)
    with pytest.raises(ValueError, match="is closed"):
        log.refresh()


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"start": "5"}, "start is '5'; it must be an offset"),
        ({"start": True}, "start is True"),
        ({"limit": 1.5}, "limit is 1.5"),
        ({"start_time": "2024"}, "start_time is '2024'; it must be a datetime"),
        ({"limit_time": True}, "limit_time is True"),
        ({"start_time": datetime(2024, 1, 1)}, "names no zone"),  # noqa: DTZ001
        ({"follow": 1}, "follow is 1; it must be True or False"),
    ],
)
def test_wrong_types_are_told_at_the_call(bounds: dict[str, Any], told: str) -> None:
    """The error does not wait for the iteration, which may begin somewhere else."""
    log = a_log(twenty())
    for read in (log.records, log.batches, log.arrow):
        with pytest.raises(TypeError, match=told):
            read(**bounds)


def test_wrong_words_are_told_at_the_call() -> None:
    """Two beginnings, unknown columns, isolation levels and ways to treat damage are refused."""
    log = a_log(twenty())
    with pytest.raises(ConfigError, match="start, start_time: give one of them"):
        log.records(5, start_time=NOW)
    with pytest.raises(ConfigError, match="no column 'offsets'; there are: key, value, topic"):
        log.arrow(["offsets"])
    with pytest.raises(ConfigError, match="one is named twice"):
        log.arrow(["offset", "offset"])
    with pytest.raises(TypeError, match="columns is 'offset'"):
        log.arrow("offset")
    with pytest.raises(ConfigError, match="'dirty' is none of read_uncommitted, read_committed"):
        a_log(MemoryFiles(), isolation="dirty")
    with pytest.raises(ConfigError, match="'ignore' is none of raise, skip"):
        a_log(MemoryFiles(), on_damage="ignore")


def test_integers_of_numpy_are_offsets() -> None:
    """An offset from a column of an Arrow table can be used as a start."""
    log = a_log(twenty())
    assert rows_of(log, start=np.int64(18), limit=np.int32(19)) == [(18, b"value 18")]


def test_the_names_are_in_the_package() -> None:
    """They are loaded when they are used first, and listed before that."""
    assert {"Log", "open_log", "list_partitions"} <= set(dir(tailrace))
    assert tailrace.Log is Log
    assert isinstance(a_log(twenty()).arrow(), pa.RecordBatchReader)
