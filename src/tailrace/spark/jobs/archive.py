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
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import ConfigError, FatalError
from tailrace.model import TopicPartition
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.archive_files import (
    ARCHIVED,
    NAME,
    ArchiveTask,
    RangeFiles,
    StagedRange,
    archive_ranges,
    count_offsets,
    find_shorter,
    plan_items,
    range_of,
    row_groups,
    write_item,
)
from tailrace.spark.jobs.json_values import arrow_type, infer_type, schema_json
from tailrace.spark.jobs.manifest import Entry, Manifest, held_manifest
from tailrace.spark.jobs.table_formats import Table
from tailrace.spark.jobs.tables import (
    PARQUET,
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
from tailrace.spark.jobs.topics import (
    SOURCES,
    Comparison,
    Identities,
    compare_identities,
    identities_of,
    known_identities,
    late_starts,
    note_identities,
    parse_identities,
)
from tailrace.spark.jobs.work import Job, Progress
from tailrace.spark.losses import write_report
from tailrace.spark.offsets import LateStart, choose_partitions
from tailrace.spark.options import SourceOptions, parse_job_options
from tailrace.spark.planning import OffsetRange
from tailrace.spark.stores import measure_ranges, open_store
from tailrace.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT: Final = "tailrace.archive/1"

# Written down, and not taken from `Column`: verify_archive compares these columns, and readers have
# them in their schemas, so a new column of the source must not be in an archive by accident.
LOSSLESS: Final = (
    "key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "codec",
    "producerId", "producerEpoch", "sequence", "leaderEpoch", "isTransactional",
)  # fmt: skip
"""Columns of a new archive, with every byte of a record; its manifest keeps them."""

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")

INFER: Final = "infer"

_SAMPLE_ROWS: Final = 1000
"""Values of each topic from which a schema is inferred."""

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
    """Offsets after the end of the archive that the log no longer had."""
    never_archived: int = 0
    """Offsets that the logs no longer had when this run was their first, or that have no record."""
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> int:
        """Rows of this run in a second of it."""
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
    """Plan the ranges that the logs have after the `ends` of the archive.

    Raises:
        ConfigError: something is selected that does not exist, or the logs lack offsets, or are of
            other topics than the archive.
        CorruptionError: the end of a log is damaged.
        OSError: the report of what was skipped cannot be written.
    """
    # A store of its own for the plan: tasks open others, and an archive that follows its logs would
    # keep connections open between two runs.
    store = open_store(options)
    try:
        chosen = choose_partitions(options.selection, store.partitions(options.selection))
        extents = store.extents(chosen)
        # Before any offset is looked at: those of another topic of the name mean other records.
        compared = compare_archived(manifest, identities_of(extents, store.cluster_id), ends)
        if compared.others:
            raise ConfigError(compared.faults("choose another target"))
        found = archive_ranges(options, extents, ends=ends, offset_at=store.offset_at)
        ranges = measure_ranges(store, found)
    finally:
        store.close()
    # Ends of logs are read by the plan alone, so no task reports the damage that is skipped there.
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
    settings = settings or ArchiveSettings()
    with _opened(spark, source_options, target, settings=settings, progress=progress) as run:
        return run.once()


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
    settings = settings or ArchiveSettings()
    with _opened(spark, source_options, target, settings=settings, progress=None) as run:
        while True:
            began = time.monotonic()
            # Without progress: nobody knows how much there will be to follow.
            summary = run.once()
            if summary.rows or summary.lost:
                yield summary
            # Counted from the beginning of the run, so that rounds keep their pace whatever a run
            # takes.
            time.sleep(max(0.0, trigger_seconds - (time.monotonic() - began)))


class _Run:
    """An archive that is open for writing."""

    def __init__(
        self,
        job: Job,
        manifest: Manifest,
        task: ArchiveTask,
        *,
        value_schema: str | None,
        table: Table | None,
    ) -> None:
        self._job = job
        self._manifest = manifest
        self._task = task
        self._value_schema = value_schema
        self._table = table
        # Kept between the runs of one call, since the manifest of an old archive is long.
        self._ends = archived_ends(ranges_of(manifest))
        self._warned: set[str] = set()

    def once(self) -> ArchiveSummary:
        """Archive what the logs have after the end of the archive."""
        began = time.monotonic()
        plan = plan_archive(self._task.options, self._manifest, self._ends)
        self._warn([*plan.warnings, *map(str, plan.late)])
        note_identities(self._manifest, **{SOURCES: plan.sources})
        ranges = plan.ranges
        # Lost offsets become entries too, so that the ranges of a partition follow on each other
        # and a verification can tell a loss from a gap.
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
        items = plan_items(ranges, item_bytes=task.file_bytes)
        for results in self._job.rounds(items, partial(write_item, task), amount=count_offsets):
            staged = [each for _, result in results for each in result]
            self._commit(staged, lost)
            lost = []
            summary = _added(summary, [each.entry for each in staged])
        # Noted with the first round, and here only if there was none.
        if lost:  # Nothing has come after what is gone.
            self._commit([], lost)
        return replace(summary, seconds=time.monotonic() - began)

    def _warn(self, sentences: Sequence[str]) -> None:
        """Log what the run before did not: an archive that follows its logs plans often."""
        for each in sentences:
            # A follower plans every ten seconds, and would repeat each sentence as often.
            if each not in self._warned:
                logger.warning("%s", each)
        self._warned = {*sentences}

    def _commit(self, staged: Sequence[StagedRange], lost: Sequence[RangeFiles]) -> None:
        """First names, then the manifest: so a leftover can be distinguished from what counts."""
        # Final names come before the manifest. A crash in between leaves files that the next run
        # removes by their names; the other order would have the manifest name files that are not
        # there.
        entries = [*lost, *(each.entry for each in staged)]
        self._manifest.folder.publish(
            {written: final for each in staged for written, final in each.renamed.items()}
        )
        self._manifest.add([asdict(each) for each in entries])
        if self._table is not None:
            # The table comes last, because it can be filled from the manifest and not the other way
            # round.
            fill_table(self._table, self._manifest)
        self._ends |= archived_ends(entries)

    def _value_types(self, ranges: Sequence[OffsetRange]) -> "dict[str, pa.StructType]":
        """Types of JSON values by topic: from the manifest, or else given or inferred now."""
        if self._value_schema is None:
            return {}
        # A topic keeps its first schema: files of one column with two types could not be read as
        # one table.
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

        # All ranges of the topic in turn, until there are enough values: the first one may have
        # tombstones only.
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
        # An empty schema would put every later value among the dead letters.
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
    progress: Progress | None,
) -> Iterator[_Run]:
    options = check_arguments(source_options, target, settings)
    schema = _schema_of(settings)
    with held_manifest(target, form=FORMAT, files_of=files_of, owned=NAME) as manifest:
        folder = manifest.folder
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
            # A run that was killed between manifest and table is completed first, so that its files
            # are in the table even if this run finds nothing new.
            if table is not None:
                fill_table(table, manifest)
            job = Job(spark, directories=options.directories, target=folder.path, progress=progress)
            yield _Run(job, manifest, task, value_schema=schema, table=table)


def _schema_of(settings: ArchiveSettings) -> str | None:
    """The schema of JSON values as Spark's JSON, `infer`, or None.

    Raises:
        ConfigError: it is no schema of JSON values.
    """
    schema = settings.value_schema
    # A schema is normalized to Spark's JSON, in which the manifest keeps it, so that two spellings
    # of one schema are not two schemas.
    if schema in {None, INFER}:
        return schema
    schema = schema_json(str(schema))
    arrow_type(schema)
    return schema


def _settle(manifest: Manifest, settings: ArchiveSettings, schema: str | None) -> None:
    _check_settings(manifest, settings, schema)
    noted: dict[str, Any] = archive_id_settings(settings.format, manifest)
    if not manifest.settings:
        # What readers need to know of the layout. Sizes and codecs of files may change from run to
        # run.
        noted |= {
            "by": settings.by,
            "columns": LOSSLESS,
            "has_json": schema is not None,
            "value_schemas": {},
            **table_settings(settings.format, settings.table_options),
        }
    elif format_of(manifest.settings) != settings.format:
        # A table may be added to an archive of plain files, but only if it can have their columns;
        # this raises.
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
    # An inferred schema is compared with nothing: the topics keep those that were inferred at
    # first.
    elif schema not in {None, INFER, *known["value_schemas"].values()} and known["value_schemas"]:
        faults.append("value_schema: the archive was begun with another one, and keeps it")
    faults += changed_table_faults(known, settings.format, settings.table_options)
    if faults:
        raise ConfigError(faults)


def files_of(entry: Entry) -> tuple[str, ...]:
    return range_of(entry).names


def ranges_of(manifest: Manifest) -> list[RangeFiles]:
    """Return all ranges of an archive, in the order in which they were added."""
    return [range_of(entry) for entry in manifest.entries]


def archived_ends(ranges: Sequence[RangeFiles]) -> dict[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for each in ranges:
        partition = TopicPartition(each.topic, each.partition)
        # Entries are in the order of rounds. A range that was lost is noted before those after it.
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
