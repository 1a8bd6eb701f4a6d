"""Files of records: what is in them, and that they are whole or not there."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.errors import CorruptionError, StorageError
from tailrace.model import (
    OFFSETS_TOPIC,
    AppendOrigin,
    Codec,
    IsolationLevel,
    LeaderEpoch,
    TimestampType,
    TopicPartition,
)
from tailrace.offline.cat import Choice
from tailrace.offline.export import ExportFormat, export_records
from tailrace.offline.show import ShownRecord, to_json
from tailrace.reading.located import Skipped
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.runtime.files import DiskFiles
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    filled,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import ABORT, marker

FORMATS = list(ExportFormat)


def exported(
    files: MemoryFiles,
    form: ExportFormat,
    *,
    partition: TopicPartition = PARTITION,
    told: list[Skipped] | None = None,
    **choice: object,
) -> list[dict[str, object]]:
    """The rows of the file that an export makes, timestamps in milliseconds, bytes as bytes."""
    files.make_directory("out")
    target = f"out/records{form.suffix}"
    count, _ = export_records(
        files,
        {partition: FOLDER},
        Choice(**choice),  # type: ignore[arg-type]
        to=target,
        form=form,
        on_skip=None if told is None else told.append,
    )
    assert files.list("out") == [f"records{form.suffix}"]
    content = files.content(target)
    if form is ExportFormat.JSON:
        rows = [json.loads(line) for line in content.splitlines()]
    else:
        table = pq.read_table(pa.BufferReader(content))
        table = table.set_column(3, "timestamp", table.column("timestamp").cast(pa.int64()))
        rows = table.to_pylist()
    assert len(rows) == count
    return rows


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_every_field_of_a_record_is_in_the_file(form: ExportFormat, codec: Codec) -> None:
    """Text, bytes that are none, nulls, headers, and who has set the timestamp."""
    files = MemoryFiles()
    log = open_at(files)
    builder = BatchBuilder(codec=codec)
    builder.append(b"k", b"\xff\x00", timestamp=NOW, headers=[("h", b"x"), ("n", None)])
    builder.append(None, None, timestamp=NOW + 1)
    append(log, bytearray(builder.build()))
    stop_cleanly(log)
    first, second = exported(files, form)
    is_json = form is ExportFormat.JSON
    assert list(first) == [
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
    ]  # fmt: skip
    assert first == {
        "topic": "flights", "partition": 0, "offset": 0, "timestamp": NOW, "timestampType": 0,
        "key": "k" if is_json else b"k",
        "value": {"hex": "ff00"} if is_json else b"\xff\x00",
        "headers": [["h", "x"], ["n", None]] if is_json else [
            {"key": "h", "value": b"x"}, {"key": "n", "value": None},
        ],
    }  # fmt: skip
    assert (second["offset"], second["key"], second["value"]) == (1, None, None)
    assert second["headers"] == ([] if is_json else None)


@pytest.mark.parametrize("form", FORMATS)
def test_the_type_of_a_timestamp_is_that_of_its_batch(form: ExportFormat) -> None:
    """0 where the producer has set it, 1 where the broker has."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, batch(b"a"))
    stop_cleanly(log)
    log = open_at(files, config=settings(message_timestamp_type="LogAppendTime"), is_clean=True)
    append(log, batch(b"b"), now_ms=NOW + 9)
    stop_cleanly(log)
    rows = exported(files, form)
    assert [(row["timestampType"], row["timestamp"]) for row in rows] == [(0, NOW), (1, NOW + 9)]


@pytest.mark.parametrize("form", FORMATS)
def test_records_are_chosen_by_offset_and_time(form: ExportFormat) -> None:
    """The bounds are those of `cat`."""
    files = MemoryFiles()
    log = open_at(files)
    for timestamp in (5, 3, 9, 4, 8, 2):
        append(log, batch(b"v", timestamps=[NOW + timestamp]))
    stop_cleanly(log)

    def offsets(**choice: object) -> list[object]:
        return [row["offset"] for row in exported(files, form, **choice)]  # type: ignore[arg-type]

    assert offsets(from_offset=1, to_offset=3) == [1, 2]
    assert offsets(from_time_ms=NOW + 4) == [0, 2, 3, 4]
    assert offsets(to_time_ms=NOW + 9) == [0, 1]
    assert offsets(from_time_ms=NOW + 4, to_time_ms=NOW + 8) == [0]
    assert offsets(from_offset=99) == []


@pytest.mark.parametrize("form", FORMATS)
def test_markers_are_left_out_and_aborted_records_on_request(form: ExportFormat) -> None:
    """A marker is no record of anybody's."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0,
                      is_transactional=True))  # fmt: skip
    data = bytearray(marker(ABORT, producer_id=1).view)
    log.append(
        memoryview(data), leader_epoch=LeaderEpoch(0), now_ms=NOW, origin=AppendOrigin.COORDINATOR
    )
    append(log, batch(b"plain"))
    stop_cleanly(log)
    assert [row["offset"] for row in exported(files, form)] == [0, 2]
    rows = exported(files, form, isolation=IsolationLevel.READ_COMMITTED)
    assert [row["offset"] for row in rows] == [2]


@pytest.mark.parametrize("form", FORMATS)
def test_damage_is_told_and_stepped_over(form: ExportFormat) -> None:
    """The file has all that is sound."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20, config=settings(segment_bytes=400)))
    flip(files, path(5, ".log"), 70)
    told: list[Skipped] = []
    rows = exported(files, form, told=told)
    assert [row["offset"] for row in rows] == [each for each in range(20) if each != 5]
    assert [(each.first_offset, each.next_offset) for each in told] == [(5, 6)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_cannot_be_whole_is_not_there(form: ExportFormat) -> None:
    """Neither under its name nor under another, and an older one stays as it is."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20, config=settings(segment_bytes=400)))
    files.make_directory("out")
    target = f"out/records{form.suffix}"
    files.open(target, create=True).close()
    files.overwrite(target, b"older")
    flip(files, path(5, ".log"), 70)
    with pytest.raises(CorruptionError):
        export_records(files, {PARTITION: FOLDER}, Choice(), to=target, form=form)
    assert files.list("out") == [f"records{form.suffix}"]
    assert files.content(target) == b"older"


@pytest.mark.parametrize("form", FORMATS)
def test_a_directory_that_is_not_there_is_said_in_one_sentence(form: ExportFormat) -> None:
    """The error names the file and says why it cannot be written."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 3))
    with pytest.raises(StorageError, match="cannot write nowhere/records: no such file"):
        export_records(files, {PARTITION: FOLDER}, Choice(), to="nowhere/records", form=form)


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    """For root the export took the name of /dev/null, which all programs need."""
    pipe, output = tmp_path / "pipe", tmp_path / "stdout"
    os.mkfifo(pipe)
    with (tmp_path / "own").open("wb") as own:
        output.symlink_to(f"/proc/self/fd/{own.fileno()}")
        before = sorted(tmp_path.iterdir())
        for each in (pipe, output):
            with pytest.raises(StorageError, match=f"cannot write {each}: it is no file"):
                export_records(DiskFiles(), {}, Choice(), to=str(each), form=ExportFormat.JSON)
    assert pipe.is_fifo()
    assert output.is_symlink()
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_each_line_is_that_of_the_record_by_itself(timestamp_type: TimestampType) -> None:
    """Whatever bytes and headers it has."""
    files = MemoryFiles()
    log = open_at(files)
    builder = BatchBuilder(timestamp_type=timestamp_type)
    builder.append(b'"k"', b"\xff", timestamp=NOW, headers=[("h", b"x"), ("n", None)])
    builder.append(None, "\u00fc".encode(), timestamp=NOW + 1)
    append(log, bytearray(builder.build()))
    (stored,) = log.batches(0)
    expected = [
        to_json(ShownRecord(PARTITION, record, False, stored.timestamp_type), is_export=True)  # noqa: FBT003
        for record in records_of(stored)
    ]
    stop_cleanly(log)
    assert [json.dumps(row, ensure_ascii=False) for row in exported(files, FORMATS[0])] == expected


def test_records_of_groups_are_exported_as_they_are_stored() -> None:
    """They are not decoded, so the file has every byte."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, batch(b"\0\x63", key=b"\0\2\0\1g"))
    stop_cleanly(log)
    partition = TopicPartition(OFFSETS_TOPIC, 0)
    (row,) = exported(files, ExportFormat.JSON, partition=partition)
    assert (row["key"], row["value"]) == ("\0\2\0\1g", "\0c")
