"""SQL over an archive and the live log as one table, in which each record is once.

    query(spark, "lake", {"kafka.bootstrap.servers": …, "subscribe": "flights"},
          sql="SELECT date(timestamp), count(*) FROM log GROUP BY 1").show()

    archive   ├───────────────────────┤
    log                 ├─────────────────────────┤
    table     ├── Parquet files ──────┼── source ─┤
                         end of the archive by its manifest

The files are those that the manifest counts at the time of the call, and the log is read from
exactly their end to its own. Both are bound by the call: a table that is used twice, or while the
archive takes more, is the same. What only the archive or only the log has, is in it too. A log of
another topic of the name is refused: it has other records at these offsets.

Not here: what the log has lost after the end of the archive; that is an error, unless
`failOnDataLoss` is false. With `kafka.isolation.level` as it was when the archive was written,
both parts have the same sort of records.
"""

import json
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from tailrace.errors import ConfigError, FatalError
from tailrace.model import TopicPartition
from tailrace.spark.folder import open_folder
from tailrace.spark.jobs.archive import (
    FORMAT,
    archived_ends,
    compare_archived,
    ranges_of,
    require_archive,
)
from tailrace.spark.jobs.archive_files import ARCHIVED, JSON, archive_ranges, find_shorter
from tailrace.spark.jobs.json_values import arrow_type, parse_values
from tailrace.spark.jobs.manifest import Manifest
from tailrace.spark.jobs.topics import Identities, identities_of, late_starts
from tailrace.spark.offsets import choose_partitions
from tailrace.spark.options import SourceOptions, parse_job_options
from tailrace.spark.stores import open_store
from tailrace.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VIEW: Final = "log"

_BOUNDS: Final = ("starting", "ending", "subscribe", "assign", "columns", "include")
"""Beginnings of the options that the call has bound, in lower case."""

logger = logging.getLogger(__name__)

Ranges = Mapping[TopicPartition, tuple[int, int]]


def query(
    spark: "SparkSession",
    archive: str,
    source_options: Mapping[str, str],
    *,
    sql: str | None = None,
    view: str = VIEW,
) -> "DataFrame":
    """The result of `sql`, or the whole table; it is the temporary view `view` afterwards.

    Columns are those of the archive with `topic`. If it has typed JSON, and a single topic is
    selected, there is `json` too, parsed from the log's values by the schema of the archive.
    Options are those of the source `tailrace`; where it starts counts for partitions that the
    archive does not have.

    Raises:
        ConfigError: faults of the options; the log does not reach back to the end of the archive,
            or not up to it, or is of another topic.
        FatalError: there is no archive at this path or URI.
        CorruptionError: its manifest is damaged.
    """
    options = parse_job_options(source_options)
    folder = open_folder(archive)
    manifest = Manifest.open(folder, form=FORMAT)
    require_archive(manifest)
    # All that follows is bound to this reading of the manifest: a round that comes later is in
    # neither part.
    archived = ranges_of(manifest)
    cut = _cut(options, manifest)
    for each in cut.warnings:
        logger.warning("%s", each)
    chosen, live = cut.chosen, cut.live
    files = [
        f"{folder.path.rstrip('/')}/{file.name}"
        for each in archived
        if TopicPartition(each.topic, each.partition) in chosen
        for file in each.files
    ]
    columns = ["topic", *manifest.settings["columns"]]
    value_schema = _value_schema(manifest, {each.topic for each in chosen})
    parts = []
    if files:
        parts.append(
            _archived(spark, folder.path, files, schema=_table_schema(columns, value_schema))
        )
    if live or not files:
        parts.append(_live(spark, source_options, live, columns=columns, value_schema=value_schema))
        # The source has looked topics up by name just now, after `_cut` had compared their ids.
        _check_still(options, live, cut.found)
    frame = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    frame.createOrReplaceTempView(view)
    return frame if sql is None else spark.sql(sql)


def check_query(options: SourceOptions, archive: str) -> None:
    """Raise what would end `query` before Spark reads a record, except for faults of the SQL.

    Raises:
        ConfigError, CorruptionError, FatalError: as `query`.
    """
    manifest = Manifest.open(open_folder(archive), form=FORMAT)
    require_archive(manifest)
    _cut(options, manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """The end of the archive, and the log from there on."""

    chosen: set[TopicPartition]
    """The partitions that are selected."""
    live: Ranges
    """The parts of them that are read from the log."""
    found: Identities
    """The topics of the log."""
    warnings: list[str]
    """Sentences about topics that are not checked, and about records that are gone."""


def _cut(options: SourceOptions, manifest: Manifest) -> _Cut:
    ends = archived_ends(ranges_of(manifest))
    store = open_store(options)
    try:
        in_log = store.partitions(options.selection)
        # A topic that was deleted is still in the archive, and may be selected.
        chosen = choose_partitions(options.selection, in_log | ends.keys())
        extents = store.extents([each for each in chosen if each in in_log])
        found = identities_of(extents, store.cluster_id)
        compared = compare_archived(manifest, found, ends)
        if compared.others:
            raise ConfigError(compared.faults("query an archive of this one, or select others"))
        live = archive_ranges(options, extents, ends=ends, offset_at=store.offset_at)
    finally:
        store.close()
    begun = {each: extents[each] for each in extents if each in ends}
    late = late_starts(options, begun, ends=ends, noted_as=ARCHIVED)
    warnings = [*compared.unchecked, *map(str, late), *find_shorter(extents, ends).values()]
    return _Cut(chosen=set(chosen), live=live, found=found, warnings=warnings)


def _check_still(options: SourceOptions, live: Ranges, found: Identities) -> None:
    """Find that the source has bound offsets of these topics, which it knows by their names.

    Raises:
        FatalError: a topic was created again in between; no id comes back.
    """
    store = open_store(options)
    try:
        store.partitions(options.selection)
        again = identities_of(store.extents(live.keys()), store.cluster_id)
    finally:
        store.close()
    for topic, here in again.items():
        if found[topic].is_other(here):
            raise FatalError(f"{topic} was deleted and created again meanwhile; query again")


def _value_schema(manifest: Manifest, topics: Iterable[str]) -> str | None:
    """Spark's JSON of the typed columns; None if there are none, or different ones."""
    schemas: Mapping[str, str] = manifest.settings["value_schemas"]
    [*found] = topics
    # A column has one type, and two topics have two schemas.
    return schemas.get(found[0]) if len(found) == 1 else None


def _archived(
    spark: "SparkSession", path: str, files: list[str], *, schema: "StructType"
) -> "DataFrame":
    # Given the schema, Spark opens no file before it has to, and no topic becomes a number.
    # Names are no patterns: an archive's path may have brackets or a star.
    reader = spark.read.schema(schema).options(basePath=path, __globPaths__="false")
    return reader.parquet(*files).select(*schema.names)


def _live(
    spark: "SparkSession",
    source_options: Mapping[str, str],
    ranges: Ranges,
    *,
    columns: list[str],
    value_schema: str | None,
) -> "DataFrame":
    plain = _table_schema(columns, None)
    if not ranges:
        # No partition has live records, and Spark's source would refuse an empty assignment.
        schema = _table_schema(columns, value_schema)
        return spark.createDataFrame([], schema)
    # Offsets are bound by partition here, so the user's own bounds must go; all other options stay.
    bound = {
        name: value
        for name, value in source_options.items()
        if not name.lower().startswith(_BOUNDS)
    }
    bound |= {
        "assign": _by_topic({each: each.partition for each in ranges}, is_list=True),
        "startingOffsets": _by_topic({each: start for each, (start, _) in ranges.items()}),
        "endingOffsets": _by_topic({each: limit for each, (_, limit) in ranges.items()}),
    }
    frame = spark.read.format("tailrace").schema(plain).options(**bound).load()
    if value_schema is None:
        return frame
    # By the archive's parser and not by `from_json`, which takes values that the archive refuses.
    parse = partial(_with_json, kind=arrow_type(value_schema))
    with warnings.catch_warnings():
        # It asks for pandas without using it, and warns of every major version after 2.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return frame.mapInArrow(parse, _table_schema(columns, value_schema))


def _by_topic(numbers: Mapping[TopicPartition, int], *, is_list: bool = False) -> str:
    """Spark's JSON of partitions, with an offset each or without."""
    found: dict[str, dict[str, int]] = {}
    for partition, number in numbers.items():
        found.setdefault(partition.topic, {})[str(partition.partition)] = number
    if is_list:
        return json.dumps({topic: [*each.values()] for topic, each in found.items()})
    return json.dumps(found)


def _with_json(
    batches: "Iterator[pa.RecordBatch]", *, kind: "pa.StructType"
) -> "Iterator[pa.RecordBatch]":
    """Runs on an executor: the rows with their values parsed as the archive parses them."""
    for batch in batches:
        rows, _ = parse_values(batch.column("value"), kind)
        yield batch.append_column(JSON, rows)


def _table_schema(columns: Iterable[str], value_schema: str | None) -> "StructType":
    from pyspark.sql.types import StructField, StructType

    from tailrace.spark.source import COLUMNS

    fields = [StructField(name, COLUMNS[name]) for name in columns]
    if value_schema is not None:
        fields.append(StructField(JSON, StructType.fromJson(json.loads(value_schema))))
    return StructType(fields)
