"""Records of partitions as a file of JSON lines, or of Parquet.

    topic, partition, offset     identify the record
    timestamp, timestampType     milliseconds since 1970; 0 set by the producer, 1 by the broker
    key, value, headers          as they are stored, in every topic

Names are those of the Spark source and the archive. JSON has bytes as text where they are UTF-8 and
as {"hex": "..."} elsewhere, like `log cat`; Parquet has them as they are. Markers of transactions
are left out: no consumer sees them.

With a decoding, key and value are what their schema makes of them: in JSON objects, in Parquet
typed columns. `keyError` and `valueError` say why one could not be decoded: in JSON beside the
stored bytes, in Parquet beside a null.

Invariant: memory is bounded by the largest batch; the file is whole or not there (`whole_file`).
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tailrace.config.settings import INT64_MAX
from tailrace.kernels.showing import Form
from tailrace.model import TopicPartition
from tailrace.offline.cat import Choice, chosen_batches, readable, show_partition
from tailrace.offline.show import Page
from tailrace.offline.whole_file import Output, whole_file
from tailrace.reading.located import OnSkip
from tailrace.reading.view import UNREADABLE, open_view
from tailrace.runtime.extras import check_extra
from tailrace.runtime.files import Files
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.schemas.formats import Decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDecoding:
    """The decodings of keys and values of an export; None: left as they are stored."""

    key: "Decoding | None" = None
    value: "Decoding | None" = None


class ExportFormat(Enum):
    """The format of an exported file."""

    JSON = "json"
    PARQUET = "parquet"

    @property
    def suffix(self) -> str:
        """File name suffix of this format."""
        return ".jsonl" if self is ExportFormat.JSON else ".parquet"


class ExportCounts(NamedTuple):
    """Counts of an exported file."""

    records: int
    undecoded: int
    """Keys and values that could not be decoded."""


def export_records(
    files: Files,
    partitions: dict[TopicPartition, str],
    choice: Choice,
    *,
    to: str,
    form: ExportFormat,
    decoding: ExportDecoding | None = None,
    on_skip: OnSkip | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> ExportCounts:
    """Write the chosen records to the file `to`, in the order of partitions and offsets.

    With `on_skip` damage is reported to it and skipped. `progress` takes bytes of log that have
    been read.
    `choice.key` and `choice.limit` choose in JSON only. For Parquet a decoding has a schema, which
    gives the types of the columns.

    Raises:
        SchemaError, RegistryRefusedError, RegistryUnavailableError: a schema cannot be had or used;
            no file is written then.
        CorruptionError: a batch is damaged and may not be skipped; no file is written then.
        MissingExtraError: Parquet is asked for and PyArrow is not installed.
        DirectoryError: a log file cannot be read.
        StorageError: the file cannot be written.
    """
    write = _write_json if form is ExportFormat.JSON else _write_parquet
    wanted = decoding or ExportDecoding()
    with whole_file(files, to) as output:
        return write(
            files,
            partitions,
            choice,
            output=output,
            decoding=wanted,
            on_skip=on_skip,
            progress=progress,
        )


def _write_json(
    files: Files,
    partitions: dict[TopicPartition, str],
    choice: Choice,
    *,
    output: Output,
    decoding: ExportDecoding,
    on_skip: OnSkip | None,
    progress: Callable[[int], None],
) -> ExportCounts:
    records_max = INT64_MAX if choice.limit is None else choice.limit
    decoder = None
    if decoding.key is not None or decoding.value is not None:
        # Only with a decoding: most exports need no module of schemas.
        from tailrace.schemas.shown import ShownDecoder

        decoder = ShownDecoder(
            key=None if decoding.key is None else decoding.key.deserializer(),
            value=None if decoding.value is None else decoding.value.deserializer(),
        )
    page = Page(Form.JSON, records_max=records_max, is_export=True, decoder=decoder)
    count = 0
    for partition, folder in partitions.items():
        with readable(folder):
            log = open_view(files, folder, partition, isolation=choice.isolation, on_skip=on_skip)
            for lines in show_partition(log, partition, choice, page=page, progress=progress):
                count += lines.count(b"\n")
                output.write(lines)
    lines = page.take()
    output.write(lines)
    count += lines.count(b"\n")
    return ExportCounts(count, 0 if decoder is None else decoder.fault_count)


def _write_parquet(
    files: Files,
    partitions: dict[TopicPartition, str],
    choice: Choice,
    *,
    output: Output,
    decoding: ExportDecoding,
    on_skip: OnSkip | None,
    progress: Callable[[int], None],
) -> ExportCounts:
    # JSON lines do without it.
    check_extra("arrow", "an export to Parquet")
    from tailrace.offline.parquet_rows import ParquetRows

    # The command refuses it before: whole columns are decoded at once.
    assert choice.key is None, "columns are not chosen by key"
    assert choice.limit is None, "nor by number"
    typed = {}
    for name, each in (("key", decoding.key), ("value", decoding.value)):
        if each is not None:
            from tailrace.schemas.columns import ColumnDecoder

            typed[name] = ColumnDecoder(each)
    with ParquetRows(output, choice, typed) as rows:
        for partition, folder in partitions.items():
            rows.begin(partition)
            with readable(folder):
                log = open_view(
                    files, folder, partition, isolation=choice.isolation, on_skip=on_skip
                )
                for stored, start, limit, is_hidden in chosen_batches(log, choice):
                    # The end by time holds for each partition: the next one begins again.
                    if rows.is_late:
                        break
                    if is_hidden or stored.batch.is_control:
                        continue
                    try:
                        rows.add(stored.batch, start_offset=start, limit_offset=limit)
                    except UNREADABLE as error:
                        log.leave_out(stored, error)
                    progress(stored.batch.size)
    return ExportCounts(rows.count, rows.fault_count)
