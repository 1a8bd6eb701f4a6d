"""Topics to Parquet: every record with every byte, exactly once, and runs that can be resumed.

    summary = archive(spark, {"path": "data", "subscribe": "flights"}, "lake")
    archive(spark, {…}, "lake", settings=ArchiveSettings(format="delta"))
    for summary in follow_archive(spark, {…}, "lake"): …      # until the caller stops

A run plans the offsets from the end of the archive to the end of the logs, has Spark tasks write
them as Parquet (`archive_files`), and makes each round of tasks count by one file of the manifest.
With the format `delta` or `iceberg` the files are in a table too (`tables`). The layout, and what a
reader may rely on, is in docs/formats/archive.md.

Not here: transactions. With `kafka.isolation.level` `read_committed` the archive has what committed
readers see; else it has aborted records too, which nothing tells from others.

Invariant: a run that is killed at any point and run again comes to the same rows as one that was
not, and each offset is in one range of the manifest. The same holds for each file of a table.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import ConfigError, FatalError, StorageError, TailraceError
from tailrace.model import TopicPartition
from tailrace.spark.corruption import write_report
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.archive_files import NAME, ArchiveTask, StagedRange, row_groups, write_item
from tailrace.spark.jobs.archive_plan import (
    ARCHIVED,
    RangeFiles,
    archive_ranges,
    find_shorter,
    plan_items,
    range_of,
)
from tailrace.spark.jobs.identities import (
    SOURCES,
    Comparison,
    Identities,
    compare_identities,
    format_identities,
    identities_of,
    known_identities,
    parse_identities,
)
from tailrace.spark.jobs.json_values import infer_type
from tailrace.spark.jobs.manifest import Entry, Manifest, open_manifest
from tailrace.spark.jobs.remaining import late_starts
from tailrace.spark.jobs.tables import (
    PARQUET,
    Table,
    archive_id_settings,
    changed_table_faults,
    checked_round,
    fill_table,
    format_of,
    open_table,
    table_faults,
    table_schema,
    table_settings,
)
from tailrace.spark.jobs.value_schema import arrow_type, schema_json
from tailrace.spark.jobs.work import check_visible, count_cores, run_in_rounds
from tailrace.spark.offsets import LateStart, choose_partitions
from tailrace.spark.options import SourceOptions, parse_job_options
from tailrace.spark.options.names import COLUMNS, HEADERS, METADATA
from tailrace.spark.planning import OffsetRange
from tailrace.spark.stores import measure_ranges, open_store
from tailrace.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT: Final = "tailrace.archive/1"

LOSSLESS: Final = tuple(
    name for name in (*COLUMNS, *HEADERS, *METADATA) if name not in {"topic", "file", "position"}
)
"""Columns of an archive: all of the source's but the topic, which is in the path, and the log file
and position."""

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")

INFER: Final = "infer"

_SAMPLE_ROWS: Final = 1000
"""Values of each topic from which a schema is inferred."""

Progress = Callable[[int, int], None]
"""Takes how many offsets of a run are done, and how many it has."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """Settings of an archive; `by`, the schema and a table stay what they were at the first run."""

    by: str = "date"
    """Directories by `date` or by `hour`, of the record timestamps in UTC."""
    target_file_bytes: int = 128 * 1024 * 1024
    """Size at which a Parquet file ends."""
    codec: str = "zstd"
    """One of `CODECS`."""
    value_schema: str | None = None
    """Schema of JSON values: Spark's DDL or JSON, or `infer`; None: values are not parsed."""
    format: str = PARQUET
    """`parquet`, or `delta` or `iceberg` to have a table of the files; plain files may get one."""
    table_options: Mapping[str, str] = field(default_factory=dict)
    """For Delta Lake, options of the store; for Iceberg, properties of a catalog, and as `catalog`
    and `table` the names of both. They are not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary:
    """Counts of one run."""

    rows: int = 0
    bytes: int = 0
    """Size of the Parquet files."""
    files: int = 0
    dead_letters: int = 0
    """Rows whose value is not what the schema says."""
    lost: int = 0
    """Offsets behind the end of the archive that the log no longer had."""
    never_archived: int = 0
    """Offsets that the logs no longer had when this run was their first, or that have no record."""
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> int:
        """0 where there was nothing to do."""
        return int(self.rows / self.seconds) if self.rows else 0


def check_arguments(
    source_options: Mapping[str, str], target: str, settings: ArchiveSettings
) -> SourceOptions:
    """The options, parsed, if an archive can be started with all of these.

    Raises:
        ConfigError: what is wrong with them, all of it.
        MissingExtraError: the packages of the format are not installed.
    """
    faults = []
    if settings.by not in {"date", "hour"}:
        faults.append(f"by: date or hour, not {settings.by!r}")
    if settings.codec not in CODECS:
        faults.append(f"codec: one of {', '.join(CODECS)}, not {settings.codec!r}")
    if settings.target_file_bytes < 1:
        faults.append(f"target_file_bytes: at least 1, not {settings.target_file_bytes}")
    if not target:
        faults.append("target: a directory or a URI")
    else:
        try:
            path = open_folder(target).path
            faults += table_faults(settings.format, path, settings.table_options)
        except ConfigError as error:
            faults += error.faults
    try:
        options = parse_job_options({"failOnDataLoss": "true", **source_options})
    except ConfigError as error:
        raise ConfigError(faults + error.faults) from error
    if faults:
        raise ConfigError(faults)
    return options


def check_archive(options: SourceOptions, target: str, settings: ArchiveSettings) -> None:
    """Raise what would end a run before its first record, without Spark.

    Raises:
        ConfigError, CorruptionError, FatalError: as `archive`.
    """
    folder = open_folder(target)
    manifest = Manifest.open(folder, form=FORMAT)
    _check_settings(manifest, settings, _schema_of(settings))
    with open_table(settings.format, folder, settings.table_options) as table:
        if table is not None:
            checked_round(table, manifest)
    plan_archive(options, manifest, archived_ends(ranges_of(manifest)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """The ranges of a run, and what it has to say and to note before them."""

    ranges: list[OffsetRange]
    late: list[LateStart]
    """Logs that begin above the end of the archive, or above what is asked for."""
    warnings: list[str]
    """Sentences about topics that are not checked, and about logs that are left out."""
    sources: Identities
    """The topics of the archive."""


def plan_archive(
    options: SourceOptions, manifest: Manifest, ends: Mapping[TopicPartition, int]
) -> ArchivePlan:
    """Plan the ranges that the logs have behind the `ends` of the archive.

    Raises:
        ConfigError: something is selected that does not exist, or the logs lack offsets, or are of
            other topics than the archive.
        CorruptionError: the end of a log is damaged.
        OSError: the report of what was skipped cannot be written.
    """
    store = open_store(options)
    try:
        chosen = choose_partitions(options.selection, store.partitions(options.selection))
        extents = store.extents(chosen)
        compared = compare_archived(manifest, identities_of(extents, store.cluster_id), ends)
        if compared.others:
            raise ConfigError(compared.faults("choose another target"))
        found = archive_ranges(options, extents, ends=ends, offset_at=store.offset_at)
        ranges = measure_ranges(store, found)
    finally:
        store.close()
    if options.corruption_report is not None:
        write_report(options.corruption_report, "log-ends.jsonl", store.skipped or ())
    begun = {each.partition.topic for each in ranges} | {each.topic for each in ends}
    return ArchivePlan(
        ranges=ranges,
        late=late_starts(options, extents, ends=ends, noted_as=ARCHIVED),
        warnings=[*compared.unchecked, *find_shorter(extents, ends).values()],
        sources=known_identities(compared.noted, begun),
    )


def compare_archived(
    manifest: Manifest, found: Identities, ends: Mapping[TopicPartition, int]
) -> Comparison:
    """Hold the topics of logs against those that an archive has up to these ends."""
    return compare_identities(
        parse_identities(manifest.settings, SOURCES),
        found,
        begun={each.topic for each in ends},
        what="the archive has records",
    )


def require_archive(manifest: Manifest) -> None:
    """Raise if there is no archive.

    Raises:
        FatalError: the folder has no manifest.
    """
    if not manifest.settings:
        raise FatalError(f"{manifest.folder.path} is no archive: it has no manifest")


def archive(
    spark: "SparkSession",
    source_options: Mapping[str, str],
    target: str,
    *,
    settings: ArchiveSettings | None = None,
    progress: Progress | None = None,
) -> ArchiveSummary:
    """Take what the logs have now into the archive at `target`, a path or URI.

    Options are those of the source `tailrace`; where it starts counts for the first run only.

    Raises:
        ConfigError: faults of the arguments, all of them; the archive was begun with others; the
            logs do not reach back to the end of the archive; a topic is not the one that was
            archived, but has its name.
        CorruptionError: a log or the manifest is damaged.
        FatalError: the target cannot be used, an executor does not see what the driver sees, the
            table is of someone else.
    """
    with _opened(spark, source_options, target, settings=settings or ArchiveSettings()) as run:
        return run.once(progress)


def follow_archive(
    spark: "SparkSession",
    source_options: Mapping[str, str],
    target: str,
    *,
    settings: ArchiveSettings | None = None,
    trigger_seconds: float = 10.0,
) -> Generator[ArchiveSummary, None, None]:
    """`archive` again and again, with what has come meanwhile; each summary is one run.

    It ends when the caller asks no more; what was yielded then counts. Rounds start
    `trigger_seconds` apart, and runs that find nothing are not yielded.

    Raises:
        ConfigError, CorruptionError, FatalError: as `archive`.
    """
    with _opened(spark, source_options, target, settings=settings or ArchiveSettings()) as run:
        while True:
            began = time.monotonic()
            summary = run.once(None)
            if summary.rows or summary.lost:
                yield summary
            time.sleep(max(0.0, trigger_seconds - (time.monotonic() - began)))


class _Run:
    """An archive that is open for writing."""

    def __init__(
        self,
        spark: "SparkSession",
        manifest: Manifest,
        task: ArchiveTask,
        *,
        value_schema: str | None,
        table: Table | None,
    ) -> None:
        self._spark = spark
        self._manifest = manifest
        self._task = task
        self._value_schema = value_schema
        self._table = table
        self._ends = archived_ends(ranges_of(manifest))
        self._warned: set[str] = set()
        self._core_count = count_cores(spark)
        check_visible(
            spark,
            directories=[each for each in task.options.directories if "://" not in each],
            target=task.target,
            core_count=self._core_count,
        )

    def once(self, progress: Progress | None) -> ArchiveSummary:
        """Archive what the logs have behind the end of the archive."""
        began = time.monotonic()
        plan = plan_archive(self._task.options, self._manifest, self._ends)
        self._warn([*plan.warnings, *map(str, plan.late)])
        if format_identities(plan.sources) != self._manifest.settings.get(SOURCES, {}):
            # Before the first range, so that none counts whose topic is not known.
            self._manifest.add([], settings={SOURCES: format_identities(plan.sources)})
        ranges = plan.ranges
        lost = [
            RangeFiles(
                topic=each.partition.topic, partition=each.partition.partition,
                start=each.asked, limit=each.start, rows=0, is_lost=True,
            )
            for each in plan.late if each.partition in self._ends
        ]  # fmt: skip
        task = replace(self._task, value_types=self._value_types(ranges))
        summary = ArchiveSummary(
            lost=sum(each.limit - each.start for each in lost),
            never_archived=sum(
                each.missing for each in plan.late if each.partition not in self._ends
            ),
        )
        total = sum(each.length for each in ranges)
        done = 0
        items = plan_items(ranges, item_bytes=task.file_bytes)
        for results in run_in_rounds(
            self._spark, items, partial(write_item, task), core_count=self._core_count
        ):
            staged = [each for result in results for each in result]
            self._commit(staged, lost)
            lost = []
            summary = _added(summary, [each.entry for each in staged])
            done += sum(each.entry.limit - each.entry.start for each in staged)
            if progress is not None:
                progress(done, total)
        if lost:  # Nothing has come behind what is gone.
            self._commit([], lost)
        return replace(summary, seconds=time.monotonic() - began)

    def _warn(self, sentences: Sequence[str]) -> None:
        """Log what the run before did not: an archive that follows its logs plans often."""
        for each in sentences:
            if each not in self._warned:
                logger.warning("%s", each)
        self._warned = {*sentences}

    def _commit(self, staged: Sequence[StagedRange], lost: Sequence[RangeFiles]) -> None:
        """First names, then the manifest: so a leftover can be told from what counts."""
        entries = [*lost, *(each.entry for each in staged)]
        self._manifest.folder.publish(
            {written: final for each in staged for written, final in each.renamed.items()}
        )
        self._manifest.add([asdict(each) for each in entries])
        if self._table is not None:
            fill_table(self._table, self._manifest)
        self._ends |= archived_ends(entries)

    def _value_types(self, ranges: Sequence[OffsetRange]) -> "dict[str, pa.StructType]":
        """Types of JSON values by topic: from the manifest, or else given or inferred now."""
        if self._value_schema is None:
            return {}
        known: dict[str, str] = self._manifest.settings["value_schemas"]
        new = sorted({each.partition.topic for each in ranges} - known.keys())
        added = {}
        for topic in new:
            if self._value_schema == INFER:
                of_topic = [each for each in ranges if each.partition.topic == topic]
                added[topic] = self._inferred(topic, of_topic)
            else:
                added[topic] = schema_json(self._value_schema)
        if added:
            if self._table is not None:
                table_schema(self._manifest.settings | {"value_schemas": known | added})
            self._manifest.add([], settings={"value_schemas": known | added})
        return {topic: arrow_type(text) for topic, text in (known | added).items()}

    def _inferred(self, topic: str, ranges: Sequence[OffsetRange]) -> str:
        import pyarrow as pa
        from pyspark.sql.pandas.types import from_arrow_schema

        sampled = (
            value
            for each in ranges
            for table in row_groups(replace(self._task, columns=("value", "timestamp")), each)
            for value in table.column("value").drop_null().slice(0, _SAMPLE_ROWS).to_pylist()
        )
        try:
            found = infer_type(list(islice(sampled, _SAMPLE_ROWS)))
        except FatalError as error:
            raise FatalError(f"topic {topic!r}: {error}") from error
        if found is None:
            raise FatalError(f"topic {topic!r} has no JSON objects to infer from; give a schema")
        return str(from_arrow_schema(pa.schema(list(found))).json())


@contextmanager
def _opened(
    spark: "SparkSession",
    source_options: Mapping[str, str],
    target: str,
    *,
    settings: ArchiveSettings,
) -> Iterator[_Run]:
    options = check_arguments(source_options, target, settings)
    schema = _schema_of(settings)
    folder = open_folder(target)
    try:
        manifest = open_manifest(folder, form=FORMAT, files_of=files_of, owned=NAME)
        _settle(manifest, settings, schema)
        task = ArchiveTask(
            options=options,
            target=folder.path,
            columns=tuple(manifest.settings["columns"]),
            by=settings.by,
            file_bytes=settings.target_file_bytes,
            codec=settings.codec,
        )
        with open_table(settings.format, folder, settings.table_options) as table:
            if table is not None:
                fill_table(table, manifest)
            yield _Run(spark, manifest, task, value_schema=schema, table=table)
    except TailraceError:
        raise
    except OSError as error:
        raise StorageError(f"{folder.path} cannot be used: {error}") from error
    finally:
        folder.unlock()


def _schema_of(settings: ArchiveSettings) -> str | None:
    """The schema of JSON values as Spark's JSON, `infer`, or None.

    Raises:
        ConfigError: it is no schema of JSON values.
    """
    schema = settings.value_schema
    if schema in {None, INFER}:
        return schema
    schema = schema_json(str(schema))
    arrow_type(schema)
    return schema


def _settle(manifest: Manifest, settings: ArchiveSettings, schema: str | None) -> None:
    """Note the settings of a new archive, or find that they are those of the old one."""
    _check_settings(manifest, settings, schema)
    noted: dict[str, Any] = archive_id_settings(settings.format, manifest)
    if not manifest.settings:
        noted |= {
            "by": settings.by,
            "columns": LOSSLESS,
            "has_json": schema is not None,
            "value_schemas": {},
            **table_settings(settings.format, settings.table_options),
        }
    elif format_of(manifest.settings) != settings.format:
        table_schema(manifest.settings)
        noted |= table_settings(settings.format, settings.table_options)
    if noted:
        manifest.add([], settings=noted)


def _check_settings(manifest: Manifest, settings: ArchiveSettings, schema: str | None) -> None:
    """Raise if an archive was begun with other settings.

    Raises:
        ConfigError: a sentence for each setting.
    """
    known = manifest.settings
    if not known:
        return
    faults = []
    if known["by"] != settings.by:
        faults.append(f"by: the archive is by {known['by']}, and stays so")
    if known["has_json"] != (schema is not None):
        there = "typed columns" if known["has_json"] else "no typed columns"
        faults.append(f"value_schema: the archive was begun with {there}, and stays so")
    elif schema not in {None, INFER, *known["value_schemas"].values()} and known["value_schemas"]:
        faults.append("value_schema: the archive was begun with another one, and keeps it")
    faults += changed_table_faults(known, settings.format, settings.table_options)
    if faults:
        raise ConfigError(faults)


def files_of(entry: Entry) -> tuple[str, ...]:
    """The files of an entry of the manifest."""
    return range_of(entry).names


def ranges_of(manifest: Manifest) -> list[RangeFiles]:
    """Return all ranges of an archive, in the order in which they were added."""
    return [range_of(entry) for entry in manifest.entries]


def archived_ends(ranges: Sequence[RangeFiles]) -> dict[TopicPartition, int]:
    """The offset behind the archive by partition."""
    ends: dict[TopicPartition, int] = {}
    for each in ranges:
        partition = TopicPartition(each.topic, each.partition)
        ends[partition] = max(ends.get(partition, 0), each.limit)
    return ends


def _added(summary: ArchiveSummary, ranges: Sequence[RangeFiles]) -> ArchiveSummary:
    files = [file for each in ranges for file in each.files]
    dead = [each.dead_letters for each in ranges if each.dead_letters is not None]
    return replace(
        summary,
        rows=summary.rows + sum(each.rows for each in ranges),
        bytes=summary.bytes + sum(each.bytes for each in (*files, *dead)),
        files=summary.files + len(files) + len(dead),
        dead_letters=summary.dead_letters + sum(each.rows for each in dead),
    )
