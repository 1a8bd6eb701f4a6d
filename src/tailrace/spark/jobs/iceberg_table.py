"""An Apache Iceberg table over the files of an archive, by the project's own writer `pyiceberg`.

    lake/_iceberg/catalog.db      a catalog in SQLite, if no other one is given
    lake/_iceberg/metadata/       the table's metadata; its files stand in lake/topic=…

A commit adds files and sets the property `tailrace.round`, which outlives the snapshots. What it
says of a file is in the manifest: no file is read. The columns that are only in paths are identity
partitions, which readers take from the metadata as for tables that come from Hive; all others are
found by their names, since the files have no ids.

Iceberg's paths are absolute, so the table does not survive a move of the archive; it can be made
anew.

Not here: the removal of metadata that no snapshot needs any more. Old `metadata.json` go by a
setting of the table, and so that the newest one stays small, old snapshots are expired; the
manifests of those stay until an engine removes orphan files.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from tailrace.errors import FatalError
from tailrace.spark.jobs.tables import CATALOG_OPTION, TABLE_OPTION, TableFile, told_as

if TYPE_CHECKING:
    import pyarrow as pa

ROUND: Final = "tailrace.round"
"""Property of the table and of snapshots: the last round that is in them."""

ARCHIVE: Final = "tailrace.archive"
"""Property of the table: the directory of the archive."""

IDENTITY: Final = "tailrace.archive.id"
"""Property of the table: the id of the archive."""

OWN_CATALOG: Final = "tailrace"
OWN_TABLE: Final = "tailrace.archive"
"""Names of a catalog of its own, and of the table in it."""

SNAPSHOTS_MAX: Final = 200
"""Snapshots with which the older half is expired: each commit writes all of them."""

_PROPERTIES: Final = {"write.metadata.delete-after-commit.enabled": "true"}


class IcebergTable:
    """See `tables.Table`; `options` are properties of a catalog and the name of the table in it."""

    def __init__(self, target: str, options: Mapping[str, str]) -> None:
        self._location = (target if "://" in target else f"file://{target}").rstrip("/")
        self._own = None if options else f"{self._location.removeprefix('file://')}/_iceberg"
        """Directory of a catalog of its own."""
        self._options = dict(options)
        self._name = self._options.pop(TABLE_OPTION, OWN_TABLE)
        self._catalog_name = self._options.pop(CATALOG_OPTION, OWN_CATALOG)
        self._subject = f"the Iceberg table {self._name} of {target}"

    def last_round(self) -> int:
        """The number in the properties of the table."""
        table = self._table()
        if table is None:
            return -1
        archive = table.properties.get(ARCHIVE)
        if archive != self._location or ROUND not in table.properties:
            of = f"is of {archive}" if archive else "was made by no archive"
            raise FatalError(
                f"{self._subject} {of}; give another table, or drop it to have it made anew"
            )
        return int(table.properties[ROUND])

    def archive_id(self) -> int | None:
        """The id in the properties of the table."""
        table = self._table()
        found = None if table is None else table.properties.get(IDENTITY)
        return None if found is None else int(found)

    def add(
        self,
        files: Sequence[TableFile],
        *,
        number: int,
        archive_id: int | None,
        schema: "pa.Schema",
    ) -> None:
        """One commit, and another one for old snapshots when there are many."""
        if self._own is not None:
            os.makedirs(self._own, exist_ok=True)
        table = self._table()
        with told_as(f"{self._subject} cannot be written"):
            work = self._creation(files, schema) if table is None else table.transaction()
            with work:
                noted = {ROUND: str(number)}
                identity = {} if archive_id is None else {IDENTITY: str(archive_id)}
                work.set_properties(noted | identity)
                with work.update_snapshot(snapshot_properties=noted).merge_append() as append:
                    for each in files:
                        append.append_data_file(self._data_file(each, work.table_metadata))
        if table is not None:
            self._expire(table)

    def names(self) -> set[str]:
        """The paths of all data files of the newest snapshot."""
        table = self._table()
        if table is None:
            return set()
        with told_as(f"{self._subject} cannot be read"):
            paths = table.inspect.data_files().column("file_path").to_pylist()
        return {path.removeprefix(f"{self._location}/") for path in paths}

    def close(self) -> None:
        """Close the catalog, if it was used."""
        if "_catalog" in self.__dict__:
            self._catalog.close()

    @cached_property
    def _catalog(self) -> Catalog:
        properties = self._options
        if self._own is not None:
            properties = {"type": "sql", "uri": f"sqlite:///{self._own}/catalog.db"}
        return load_catalog(self._catalog_name, **properties)

    def _table(self) -> Table | None:
        """The table as it is now."""
        if self._own is not None and not os.path.isdir(self._own):
            return None
        with told_as(f"{self._subject} cannot be read"):
            try:
                return self._catalog.load_table(self._name)
            except NoSuchTableError:
                return None
            except FileNotFoundError as error:
                if self._own is None:
                    raise
                raise FatalError(
                    f"{self._subject} stood elsewhere, and Iceberg's paths are absolute; remove "
                    f"{self._own}, and the next run makes the table anew"
                ) from error

    def _creation(self, files: Sequence[TableFile], schema: "pa.Schema") -> Transaction:
        self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        work = self._catalog.create_table_transaction(
            self._name,
            schema=schema,
            location=f"{self._location}/_iceberg",
            properties={**_PROPERTIES, ARCHIVE: self._location},
        )
        with work.update_spec() as spec:
            for name in files[0].path_values:
                spec.add_identity(name)
        mapping = work.table_metadata.schema().name_mapping.model_dump_json()
        work.set_properties({"schema.name-mapping.default": mapping})
        return work

    def _data_file(self, added: TableFile, metadata: TableMetadata) -> Any:  # noqa: ANN401
        file, schema = added.file, metadata.schema()
        bounds = {"partition": (added.partition,) * 2, "offset": (file.first, file.last)}
        fields = {name: schema.find_field(name) for name in bounds}

        def by_field(values: Mapping[str, Any]) -> dict[int, Any]:
            return {fields[name].field_id: value for name, value in values.items()}

        lower, upper = (
            {name: to_bytes(fields[name].field_type, pair[at]) for name, pair in bounds.items()}
            for at in (0, 1)
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._location}/{file.name}",
            file_format=FileFormat.PARQUET,
            partition=Record(*map(_stored, added.path_values.values())),
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            value_counts=by_field(dict.fromkeys(bounds, file.rows)),
            null_value_counts=by_field(dict.fromkeys(bounds, 0)),
            lower_bounds=by_field(lower),
            upper_bounds=by_field(upper),
            spec_id=metadata.default_spec_id,
        )

    def _expire(self, table: Table) -> None:
        snapshots = sorted(each.timestamp_ms for each in table.metadata.snapshots)
        if len(snapshots) < SNAPSHOTS_MAX:
            return
        limit = datetime.fromtimestamp(snapshots[-SNAPSHOTS_MAX // 2] / 1000, UTC)
        with told_as(f"old snapshots of {self._subject} cannot be expired"):
            table.maintenance.expire_snapshots().older_than(limit).commit()


def _stored(value: str | date | int | None) -> str | int | None:
    """The value of a partition as manifests have it: a date is days since 1970."""
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value
