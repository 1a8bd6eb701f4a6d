"""From the files of a metadata log to Arrow batches, with no broker.

A record that cannot be decoded, as one of a later release, has neither type nor fields: its bytes
may be a secret. The format `tailrace` gives them.

Invariant: nothing after the offset that was planned is read, so that a DataFrame which is used
twice has the same rows while its node writes.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa

from tailrace.cluster.metadata.snapshot_files import SnapshotFile, find_snapshots
from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError
from tailrace.model import Offset, Position
from tailrace.offline.cat import readable
from tailrace.offline.metadata import decode_metadata_record
from tailrace.offline.metadata_state import (
    DAMAGED,
    END,
    PARTITION,
    Moment,
    NoMetadataError,
    damage_text,
    metadata_folder,
    metadata_state,
)
from tailrace.reading.located import OnSkip, Skipped
from tailrace.reading.opening import open_directory
from tailrace.reading.view import UNREADABLE, LogView, open_view
from tailrace.records.batch import Batch, read_batches
from tailrace.records.builder import records_of
from tailrace.records.checks import check_records
from tailrace.runtime.files import Files, read_exactly
from tailrace.spark.losses import write_report
from tailrace.spark.metadata.options import MetadataOptions, View
from tailrace.spark.metadata.views import Row, state_rows, view_schema

ROWS_MAX: Final = 8192
"""Rows of an Arrow batch; a batch of the log may have more records."""

REPORT: Final = "metadata.jsonl"
"""The file of the corruption report."""

_MS_MAX: Final = INT64_MAX // 1000


class _Source(NamedTuple):
    files: Files
    folder: str
    on_skip: OnSkip | None
    """Takes what is damaged; None: it is an error."""

    def log(self) -> LogView | None:
        """The log, where there is one."""
        # A controller that has just fetched a snapshot has no segment yet.
        if not any(each.endswith(".log") for each in self.files.list(self.folder)):
            return None
        return open_view(self.files, self.folder, PARTITION, on_skip=self.on_skip)


def plan_limit(options: MetadataOptions) -> int:
    """The offset after the last record that log and snapshots have now.

    Raises:
        NoMetadataError: the directory has no metadata log.
        DirectoryError: it cannot be read.
        CorruptionError: the log cannot be read up to its end, and damage is not skipped.
    """
    # The plan only has to get past damage: the task meets it again, and reports it.
    source = _open(options, None if options.corruption_report is None else lambda _: None)
    with readable(source.folder):
        log = source.log()
        ends = [each.next_offset for each in find_snapshots(source.files, source.folder)]
    return max([*ends, 0 if log is None else log.reader.end_offset])


def read_view(
    options: MetadataOptions, limit: int, *, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a view below the offset `limit`; a report of what is skipped is written.

    Raises:
        CorruptionError: a file is damaged, and damage is not skipped.
        NoMetadataError: the directory has no metadata log, or none that goes back so far.
        UnknownRecordError: a state has records of a release that is not known here.
        DirectoryError: a file cannot be read.
    """
    skipped: list[Skipped] = []
    source = _open(options, None if options.corruption_report is None else skipped.append)
    schema = view_schema(options.view)
    chosen = pa.schema([schema.field(each) for each in columns])
    with _explaining(), readable(source.folder):
        rows = iter(_rows(options, source, limit))
        # Rows of Python, since a metadata log is small: clarity counts more than speed here.
        while part := list(islice(rows, ROWS_MAX)):
            yield pa.RecordBatch.from_pylist(part, chosen)
    if options.corruption_report is not None:
        write_report(options.corruption_report, REPORT, skipped)


def _open(options: MetadataOptions, on_skip: OnSkip | None) -> _Source:
    directory = open_directory(options.path)
    return _Source(directory.files, metadata_folder(directory.files, directory.path), on_skip)


@contextmanager
def _explaining() -> Iterator[None]:
    """Adds the way out to an error of damage."""
    try:
        yield
    except CorruptionError as error:
        hint = "onCorruption=skip with a corruptionReport leaves out what is damaged"
        raise CorruptionError(
            f"{error.rule}; {hint}", path=error.path, position=error.position, offset=error.offset
        ) from error


def _rows(options: MetadataOptions, source: _Source, limit: int) -> Iterable[Row]:
    match options.view:
        case View.RECORDS:
            return _log_rows(source, limit)
        case View.SNAPSHOTS:
            return _snapshot_rows(source, limit)
        case _:
            # The end as it was planned, or a DataFrame that is used twice would show two states.
            at = Moment(offset=limit) if options.at == END else options.at
            on_skip = source.on_skip or _refuse
            state = metadata_state(source.files, source.folder, at, on_skip=on_skip)
            return state_rows(options.view, state.image)


def _refuse(damage: Skipped) -> None:
    raise CorruptionError(damage_text(damage))


def _log_rows(source: _Source, limit: int) -> Iterator[Row]:
    log = source.log()
    if log is None:
        raise NoMetadataError(
            f"{source.folder} has snapshots only; view=snapshots reads their records"
        )
    start, end = log.reader.start_offset, log.reader.end_offset
    for stored in log.batches(start, Offset(max(start, min(limit, end)))):
        try:
            rows = _batch_rows(stored.batch, stored.path)
        except UNREADABLE as error:
            log.leave_out(stored, error)
            continue
        yield from rows
    # Only a reader that comes to the end may report damage there.
    if limit >= end:
        log.finish()


def _snapshot_rows(source: _Source, limit: int) -> Iterator[Row]:
    for found in find_snapshots(source.files, source.folder):
        # It was written after the plan.
        if found.next_offset > limit:
            continue
        try:
            rows = _whole_snapshot(source.files, found)
        except CorruptionError as error:
            if source.on_skip is None:
                raise
            position, end = Position(error.position or 0), Offset(found.next_offset)
            source.on_skip(Skipped(PARTITION, found.path, position, Offset(0), end, error.rule))
            continue
        yield from rows


def _whole_snapshot(files: Files, found: SnapshotFile) -> list[Row]:
    """The rows of a snapshot; raises CorruptionError if it is damaged or not whole."""
    with closing(files.open(found.path, read_only=True)) as file:
        # Whole: no record of a snapshot counts before its footer was seen.
        data = read_exactly(file, found.path, position=0, size=file.size())
    rows: list[Row] = []
    reader = read_batches(memoryview(data))
    try:
        for _, batch in reader:
            batch.check()
            rows += _batch_rows(batch, found.path)
    except DAMAGED as error:
        rule = error.rule if isinstance(error, CorruptionError) else str(error)
        raise CorruptionError(rule, path=found.path, position=reader.position) from error
    # Kafka writes a snapshot under a name of its own and renames it, so one without a footer was
    # cut afterwards.
    if not rows or rows[-1].get("type") != "SnapshotFooter" or reader.position != len(data):
        raise CorruptionError(
            "the snapshot ends without its footer", path=found.path, position=reader.position
        )
    return rows


def _batch_rows(batch: Batch, path: str) -> list[Row]:
    check_records(batch)
    return [
        {
            "offset": each.offset,
            # Microseconds of any int64 of milliseconds would not fit.
            "timestamp": max(-_MS_MAX, min(each.timestamp, _MS_MAX)) * 1000,
            "epoch": batch.leader_epoch,
            "source": path,
            **_decoded(each.key, each.value, is_control=batch.is_control),
        }
        for each in records_of(batch)
    ]


def _decoded(key: bytes | None, value: bytes | None, *, is_control: bool) -> Row:
    fields = decode_metadata_record(key, value, is_control=is_control)
    # Not even its bytes, which may be a secret: a record of a later release.
    if fields is None:
        return {}
    kind, version = fields.pop("type"), fields.pop("version")
    return {
        "type": kind,
        "version": version,
        "record": json.dumps(fields, ensure_ascii=False),
    }
