"""Tables over the files of an archive, by the projects' own writers, `deltalake` and `pyiceberg`.

    lake/_delta_log/00000000000000000000.json     protocol, columns, the first files, txn: round 1
    lake/_delta_log/00000000000000000001.json     the files of round 2,               txn: round 2

    lake/_iceberg/catalog.db      a catalog in SQLite, if no other one is given
    lake/_iceberg/metadata/       the table's metadata; its files are in lake/topic=…

What a commit says of a file is in the manifest, so no file is read. The number of the last round is
in the same commit as the files: as the version of an application's transaction in Delta Lake, as a
property of the table in Iceberg, where it outlives the snapshots.

A Delta table is the directory of the archive, and its paths are relative, so both can be moved.
Iceberg's paths are absolute, so after a move of the archive the table has to be made again.

Not here: which rounds a table lacks (`tables`). Nor the removal of Iceberg's metadata that no
snapshot needs any more: old `metadata.json` go by a setting of the table, and old snapshots are
expired; the manifests of those stay until an engine removes orphan files.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from tailrace.errors import FatalError, StorageError, TailraceError
from tailrace.spark.jobs.archive_files import DataFile
from tailrace.values import dataclass

# Both libraries are extras, and take 0.3 s or more to import: only a table imports its own.
if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as OpenedTable
    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata

CATALOG_OPTION: Final = "catalog"
"""The name of a catalog of Iceberg, which may be one that PyIceberg's configuration file has."""

TABLE_OPTION: Final = "table"
"""The name of a table in it; all other options are properties of the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A file to add to a table."""

    file: DataFile
    partition: int
    """The number of its partition of the topic."""
    path_values: Mapping[str, str | date | int | None]
    """Values of the columns that are in its path."""


class Table(Protocol):
    """A table; what its library raises comes as a StorageError."""

    def last_round(self) -> int:
        """The last round of the manifest that is in it; -1 if none is, or there is no table.

        Raises:
            FatalError: there is a table that is not of this archive.
        """
        ...

    def archive_id(self) -> int | None:
        """The id of the archive that it is of; None in one that is older than these ids."""
        ...

    def add(
        self,
        files: Sequence[TableFile],
        *,
        number: int,
        archive_id: int | None,
        schema: "pa.Schema",
    ) -> None:
        """Add files, and note the number of the last round; makes the table if there is none."""
        ...

    def names(self) -> set[str]:
        """The files in it, below the directory of the archive; others as the table names them."""
        ...

    def close(self) -> None:
        """Let go of what it has open."""
        ...


@contextmanager
def as_storage_error(what: str) -> Iterator[None]:
    """Errors of a library as a StorageError that says what it was about."""
    try:
        yield
    except TailraceError:
        raise
    except Exception as error:  # Iceberg's errors have no other class in common.
        raise StorageError(f"{what}: {error}") from error


_DELTA_ROUND: Final = "tailrace.archive"
"""The application of Delta's transactions whose version is the number of a round."""

_DELTA_ID: Final = "tailrace.archive.id"
"""The application of Delta's transactions whose version is the id of the archive."""


class DeltaLakeTable:
    """See `Table`; `options` are those of the store, as the library names them."""

    def __init__(self, target: str, options: Mapping[str, str]) -> None:
        self._target = target
        self._options = dict(options) or None
        self._opened: DeltaTable | None = None

    def last_round(self) -> int:
        table = self._table()
        if table is None:
            return -1
        with as_storage_error(f"the Delta table {self._target} cannot be read"):
            version = table.transaction_version(_DELTA_ROUND)
        if version is None:
            raise FatalError(
                f"{self._target} has a Delta table that no archive made; choose another target"
            )
        return int(version)

    def archive_id(self) -> int | None:
        table = self._table()
        if table is None:
            return None
        with as_storage_error(f"the Delta table {self._target} cannot be read"):
            version = table.transaction_version(_DELTA_ID)
        return None if version is None else int(version)

    def add(
        self,
        files: Sequence[TableFile],
        *,
        number: int,
        archive_id: int | None,
        schema: "pa.Schema",
    ) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import create_table_with_add_actions

        # One commit; it fails if another run has committed meanwhile.
        now_ms = int(time.time() * 1000)
        actions = [_action(each, now_ms) for each in files]
        columns = list(files[0].path_values)
        transactions = [Transaction(_DELTA_ROUND, number)]
        if archive_id is not None:
            transactions.append(Transaction(_DELTA_ID, archive_id))
        properties = CommitProperties(app_transactions=transactions)
        table = self._table()
        with as_storage_error(f"the Delta table {self._target} cannot be written"):
            if table is None:
                create_table_with_add_actions(
                    self._target,
                    Schema.from_arrow(schema),
                    actions,
                    partition_by=columns,
                    storage_options=self._options,
                    commit_properties=properties,
                )
            else:
                table.create_write_transaction(
                    actions,
                    mode="append",
                    schema=table.schema(),
                    partition_by=columns,
                    commit_properties=properties,
                )

    def names(self) -> set[str]:
        import pyarrow as pa

        table = self._table()
        if table is None:
            return set()
        with as_storage_error(f"the Delta table {self._target} cannot be read"):
            return set(pa.table(table.get_add_actions()).column("path").to_pylist())

    def close(self) -> None:
        """Do nothing: the library holds nothing open."""

    def _table(self) -> "DeltaTable | None":
        from deltalake import DeltaTable

        with as_storage_error(f"the Delta table {self._target} cannot be read"):
            if self._opened is not None:
                self._opened.update_incremental()
            elif DeltaTable.is_deltatable(self._target, self._options):
                self._opened = DeltaTable(self._target, storage_options=self._options)
        return self._opened


def _action(added: TableFile, now_ms: int) -> Any:  # noqa: ANN401 - the library's
    from deltalake.transaction import AddAction

    file = added.file
    statistics = {
        "numRecords": file.rows,
        "minValues": {"partition": added.partition, "offset": file.first},
        "maxValues": {"partition": added.partition, "offset": file.last},
        "nullCount": {"partition": 0, "offset": 0},
    }
    return AddAction(
        path=file.name,
        size=file.bytes,
        partition_values={
            name: None if value is None else str(value) for name, value in added.path_values.items()
        },
        modification_time=now_ms,
        # Streams that read the table take only such files.
        data_change=True,
        stats=json.dumps(statistics),
    )


ROUND: Final = "tailrace.round"
"""Property of the table and of snapshots: the last round that is in them."""

ARCHIVE: Final = "tailrace.archive"
"""Property of the table: the directory of the archive."""

_ICEBERG_ID: Final = "tailrace.archive.id"
"""Property of the table: the id of the archive."""

OWN_CATALOG: Final = "tailrace"
OWN_TABLE: Final = "tailrace.archive"
"""Names of a catalog of its own, and of the table in it."""

SNAPSHOTS_MAX: Final = 200
"""Snapshots with which the older half is expired: each commit writes all of them."""

_PROPERTIES: Final = {"write.metadata.delete-after-commit.enabled": "true"}


class IcebergTable:
    """See `Table`; `options` are properties of a catalog and the name of the table in it."""

    def __init__(self, target: str, options: Mapping[str, str]) -> None:
        # PyIceberg ends the path of a URI at ? and #, and takes a bare path whole.
        is_plain = not any(mark in target for mark in ("://", "?", "#"))
        self._location = (f"file://{target}" if is_plain else target).rstrip("/")
        self._own = None if options else f"{self._location.removeprefix('file://')}/_iceberg"
        """Directory of a catalog of its own."""
        self._options = dict(options)
        self._name = self._options.pop(TABLE_OPTION, OWN_TABLE)
        self._catalog_name = self._options.pop(CATALOG_OPTION, OWN_CATALOG)
        self._subject = f"the Iceberg table {self._name} of {target}"

    def last_round(self) -> int:
        table = self._table()
        if table is None:
            return -1
        archive = table.properties.get(ARCHIVE)
        if archive != self._location or ROUND not in table.properties:
            of = f"is of {archive}" if archive else "was made by no archive"
            raise FatalError(
                f"{self._subject} {of}; give another table, or drop it to have it made again"
            )
        return int(table.properties[ROUND])

    def archive_id(self) -> int | None:
        table = self._table()
        found = None if table is None else table.properties.get(_ICEBERG_ID)
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
            # SQLite makes no directories.
            os.makedirs(self._own, exist_ok=True)
        table = self._table()
        with as_storage_error(f"{self._subject} cannot be written"):
            work = self._creation(files, schema) if table is None else table.transaction()
            with work:
                # Also on the snapshot, where people look for what a commit was.
                noted = {ROUND: str(number)}
                identity = {} if archive_id is None else {_ICEBERG_ID: str(archive_id)}
                work.set_properties(noted | identity)
                with work.update_snapshot(snapshot_properties=noted).merge_append() as append:
                    for each in files:
                        append.append_data_file(self._data_file(each, work.table_metadata))
        if table is not None:
            self._expire(table)

    def names(self) -> set[str]:
        table = self._table()
        if table is None:
            return set()
        with as_storage_error(f"{self._subject} cannot be read"):
            paths = table.inspect.data_files().column("file_path").to_pylist()
        return {path.removeprefix(f"{self._location}/") for path in paths}

    def close(self) -> None:
        # `cached_property` keeps it there; asking for the attribute would open a catalog only to
        # close it.
        if "_catalog" in self.__dict__:
            self._catalog.close()

    @cached_property
    def _catalog(self) -> "Catalog":
        from pyiceberg.catalog import load_catalog

        properties = self._options
        if self._own is not None:
            from sqlalchemy import URL

            # Version 2.1 reads escapes in a path, and 2.0 does not; each writes what it reads.
            uri = URL.create("sqlite", database=f"{self._own}/catalog.db")
            properties = {"type": "sql", "uri": uri.render_as_string()}
        return load_catalog(self._catalog_name, **properties)

    def _table(self) -> "OpenedTable | None":
        from pyiceberg.exceptions import NoSuchTableError

        if self._own is not None and not os.path.isdir(self._own):
            return None
        with as_storage_error(f"{self._subject} cannot be read"):
            try:
                return self._catalog.load_table(self._name)
            except NoSuchTableError:
                return None
            except FileNotFoundError as error:
                if self._own is None:
                    raise
                raise FatalError(
                    f"{self._subject} was moved, and Iceberg's paths are absolute; remove "
                    f"{self._own}, and the next run makes the table again"
                ) from error

    def _creation(self, files: Sequence[TableFile], schema: "pa.Schema") -> "Transaction":
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
        # The Parquet files have no field ids, since they were written before the table; readers
        # need the names.
        mapping = work.table_metadata.schema().name_mapping.model_dump_json()
        work.set_properties({"schema.name-mapping.default": mapping})
        return work

    def _data_file(self, added: TableFile, metadata: "TableMetadata") -> Any:  # noqa: ANN401
        from pyiceberg.conversions import to_bytes
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        file, schema = added.file, metadata.schema()
        # Bounds let engines leave out files; a manifest of the archive has them for these two
        # columns.
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

    def _expire(self, table: "OpenedTable") -> None:
        snapshots = sorted(each.timestamp_ms for each in table.metadata.snapshots)
        # The half, and not one each time: an expiry is a commit of its own.
        if len(snapshots) < SNAPSHOTS_MAX:
            return
        limit = datetime.fromtimestamp(snapshots[-SNAPSHOTS_MAX // 2] / 1000, UTC)
        with as_storage_error(f"old snapshots of {self._subject} cannot be expired"):
            table.maintenance.expire_snapshots().older_than(limit).commit()


def _stored(value: str | date | int | None) -> str | int | None:
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value
