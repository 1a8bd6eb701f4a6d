"""The table over the files of an archive, in Delta Lake's or Iceberg's format.

    manifest   ── 0 ─┬─ 1 ─┬─ 2 ─┬─ 3 ─┬─ 4 ──▶      rounds
    table            └─ ≤ 1      └─ ≤ 3              commits, with the number of their last round

The files stay where the archive puts them, as plain Parquet with topic and period in their paths. A
commit adds files to the table and notes the number of the last round that it has, at once: a
transaction of an application in Delta Lake, a property of the table in Iceberg. First a round is in
the manifest, then in the table. So whatever ends a run, the table has all files of the rounds up to
its number, and `fill_table` adds what the manifest has after it: all of it in one commit. A table
that is gone is made again. An archive that is removed and begun again counts its rounds from 0, and
its old table may still be there, as in a catalog; so the table also has the id of its archive.

Not here: dead letters, which have other columns, and stay files; and what else changes a table. If
someone compacts its files, theirs take the place of the archive's in the table, and the archive
adds its files after them.

Invariant: each file of a round up to the table's number was added to it once.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from tailrace.errors import (
    ConfigError,
    CorruptionError,
    FatalError,
)
from tailrace.runtime.extras import check_extra
from tailrace.spark.folder import Folder
from tailrace.spark.jobs.archive_files import RangeFiles, range_of
from tailrace.spark.jobs.json_values import arrow_type
from tailrace.spark.jobs.manifest import Manifest
from tailrace.spark.jobs.table_formats import (
    TABLE_OPTION,
    DeltaLakeTable,
    IcebergTable,
    Table,
    TableFile,
)

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMATS: Final = (PARQUET, DELTA, ICEBERG)

_ID: Final = "table_of"
"""The setting of a manifest with the id that its table has, and the round of which it is."""

_ID_BITS: Final = 62
"""Bits of an id: a version of a transaction of Delta Lake is an int64."""

PERIODS: Final = {"date": ("date",), "hour": ("date", "hour")}
"""Columns of a table that are in the paths of files, after `topic`."""


def table_faults(form: str, target: str, options: Mapping[str, str]) -> list[str]:
    """Faults of the format of an archive and of the options of its table.

    Raises:
        MissingExtraError: the packages of the format are not installed.
    """
    if form not in FORMATS:
        return [f"format: one of {', '.join(FORMATS)}, not {form!r}"]
    if form == PARQUET:
        return (
            ["table_options: plain Parquet files have none; give the format, too"]
            if options
            else []
        )
    check_extra(form, f"an archive with format {form}")
    if form == DELTA:
        # Version 1.6 writes its log there, and looks for it at the path without the escapes.
        is_misread = "://" not in target and (unquote(target) != target or "\\" in target)
        fault = (
            f"target: deltalake misreads {target!r}, with %XX or a backslash; choose another one"
        )
        return [fault] if is_misread else []
    if options.keys() == {TABLE_OPTION}:
        return ["table_options: table is a name in a catalog; give catalog, or type and uri, too"]
    if options and TABLE_OPTION not in options:
        return ["table_options: table, as in table=lake.flights, is missing"]
    if not options and "://" in target.removeprefix("file://"):
        return [f"table_options: a table at {target} needs a catalog; give type, uri and table"]
    return []


def table_settings(form: str, options: Mapping[str, str]) -> dict[str, str | None]:
    return {"format": form, "table": options.get(TABLE_OPTION)}


def archive_id_settings(form: str, manifest: Manifest) -> dict[str, Any]:
    """Settings with an id for the table of an archive, if it has one and no id yet."""
    if form == PARQUET or _ID in manifest.settings:
        return {}
    # Not from a seed or a clock: two archives that are begun at the same moment must differ.
    chosen = random.SystemRandom().getrandbits(_ID_BITS)
    return {_ID: {"id": chosen, "since": manifest.rounds}}


def checked_round(table: Table, manifest: Manifest) -> int:
    """The last round of an archive that is in its table; -1 if none is.

    Raises:
        FatalError: the table is of someone else, or of another archive.
        StorageError: it cannot be read.
    """
    number = table.last_round()
    noted = manifest.settings.get(_ID)
    if number >= 0 and noted is not None:
        found = table.archive_id()
        # A table without the id is older than the id, or it is not of this archive.
        is_other = number >= noted["since"] if found is None else found != noted["id"]
        if is_other:
            raise FatalError(
                f"the table of {manifest.folder.path} has the files of another archive, which was "
                f"there before (id {found}, and this is {noted['id']}); drop the table to have it "
                "made again, or give another one"
            )
    return number


def format_of(settings: Mapping[str, Any]) -> str:
    return str(settings.get("format", PARQUET))


def changed_table_faults(
    settings: Mapping[str, Any], form: str, options: Mapping[str, str]
) -> list[str]:
    """Differences of a format and its options from those of the manifest; a table may be new."""
    known = format_of(settings)
    # Plain files may get a table later; a table is never given up or exchanged.
    if known == PARQUET:
        return []
    if known != form:
        return [f"format: the archive is {known}, and stays so"]
    name = settings["table"]
    if name == options.get(TABLE_OPTION):
        return []
    given = (
        f"{name}; give it, and its catalog" if name else "in a catalog of its own; give no other"
    )
    return [f"table_options: the table of the archive is {given}"]


@contextmanager
def open_noted_table(manifest: Manifest, options: Mapping[str, str]) -> Iterator[Table | None]:
    """The table that an archive has, as `open_table`.

    Raises:
        ConfigError: the options are of another table.
    """
    form = format_of(manifest.settings)
    faults = changed_table_faults(manifest.settings, form, options)
    if faults:
        raise ConfigError(faults)
    with open_table(form, manifest.folder, options) as table:
        yield table


@contextmanager
def open_table(form: str, folder: Folder, options: Mapping[str, str]) -> Iterator[Table | None]:
    """The table of an archive, None for plain Parquet; nothing is made yet."""
    if form == PARQUET:
        yield None
        return
    check_extra(form, f"an archive with format {form}")
    table: Table = (DeltaLakeTable if form == DELTA else IcebergTable)(folder.path, options)
    try:
        yield table
    finally:
        table.close()


def fill_table(table: Table, manifest: Manifest) -> None:
    """Add what the manifest has and the table has not, in one commit.

    Raises:
        CorruptionError: the table has rounds that the manifest has not.
        FatalError: as `checked_round`.
        StorageError: it cannot be read or written.
    """
    number = checked_round(table, manifest)
    # The manifest was put back from an older copy: adding its next rounds would repeat numbers that
    # the table has.
    if number >= manifest.rounds:
        raise CorruptionError(
            f"the table has the files of round {number}, and the manifest ends before it; put the "
            "missing files of the manifest back",
            path=manifest.folder.path,
        )
    files = table_files([range_of(entry) for entry in manifest.entries_since(number + 1)])
    # Rounds of settings alone have no files, and an empty commit says nothing.
    if files:
        table.add(
            files,
            number=manifest.rounds - 1,
            archive_id=manifest.settings.get(_ID, {}).get("id"),
            schema=table_schema(manifest.settings),
        )


def table_files(ranges: Sequence[RangeFiles]) -> list[TableFile]:
    return [
        TableFile(file=file, partition=each.partition, path_values=_path_values(file.name))
        for each in ranges
        for file in each.files
    ]


def table_schema(settings: Mapping[str, Any]) -> "pa.Schema":
    """The columns of a table, with those in the paths of files first.

    Raises:
        ConfigError: topics have different types of JSON values.
    """
    import pyarrow as pa

    from tailrace.spark.jobs.archive_files import JSON, lossless_schema

    kinds = {"topic": pa.string(), "date": pa.date32(), "hour": pa.int32()}
    fields = [pa.field(name, kinds[name]) for name in ("topic", *PERIODS[settings["by"]])]
    for field in lossless_schema(tuple(settings["columns"])):
        # No format of tables has milliseconds; its readers take those of the files.
        is_time = pa.types.is_timestamp(field.type)
        fields.append(field.with_type(pa.timestamp("us", tz="UTC")) if is_time else field)
    schemas: Mapping[str, str] = settings["value_schemas"]
    if len(set(schemas.values())) > 1:
        topics = ", ".join(sorted(schemas))
        sentence = f"a table has one type of JSON values, and not one for each of {topics}"
        raise ConfigError([f"value_schema: {sentence}; give a schema, or each topic a target"])
    if schemas:
        fields.append(pa.field(JSON, arrow_type(next(iter(schemas.values())))))
    return pa.schema(fields)


def _path_values(name: str) -> dict[str, str | date | int | None]:
    from tailrace.spark.jobs.archive_files import NULL_PERIOD

    values: dict[str, str | date | int | None] = {}
    for part in name.split("/")[:-1]:
        column, value = part.split("=", 1)
        if column == "topic":
            values[column] = value
        # Hive's name for a null, by which Spark reads the directory.
        elif value == NULL_PERIOD:
            values[column] = None
        else:
            values[column] = date.fromisoformat(value) if column == "date" else int(value)
    return values
