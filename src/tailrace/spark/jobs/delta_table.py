"""A Delta Lake table over the files of an archive, by the project's own writer `deltalake`.

    lake/_delta_log/00000000000000000000.json     protocol, columns, the first files, txn: round 1
    lake/_delta_log/00000000000000000001.json     the files of round 2,               txn: round 2

The id of the archive is the version of another txn in each of them.

The table is the directory of the archive, and its paths are relative, so both can be moved. What a
commit says of a file is in the manifest: no file is read.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions

from tailrace.errors import FatalError
from tailrace.spark.jobs.tables import TableFile, told_as

if TYPE_CHECKING:
    import pyarrow as pa

APPLICATION: Final = "tailrace.archive"
"""The application of the transactions; their version is the number of a round."""


IDENTITY: Final = "tailrace.archive.id"
"""The application of the transactions whose version is the id of the archive."""


class DeltaLakeTable:
    """See `tables.Table`; `options` are those of the store, as the library names them."""

    def __init__(self, target: str, options: Mapping[str, str]) -> None:
        self._target = target
        self._options = dict(options) or None
        self._opened: DeltaTable | None = None

    def last_round(self) -> int:
        """The version of the newest transaction of the archive."""
        table = self._table()
        if table is None:
            return -1
        with told_as(f"the Delta table {self._target} cannot be read"):
            version = table.transaction_version(APPLICATION)
        if version is None:
            raise FatalError(
                f"{self._target} has a Delta table that no archive made; choose another target"
            )
        return int(version)

    def archive_id(self) -> int | None:
        """The version of the newest transaction that is for the id."""
        table = self._table()
        if table is None:
            return None
        with told_as(f"the Delta table {self._target} cannot be read"):
            version = table.transaction_version(IDENTITY)
        return None if version is None else int(version)

    def add(
        self,
        files: Sequence[TableFile],
        *,
        number: int,
        archive_id: int | None,
        schema: "pa.Schema",
    ) -> None:
        """One commit; it fails if another run has committed meanwhile."""
        now_ms = int(time.time() * 1000)
        actions = [_action(each, now_ms) for each in files]
        columns = list(files[0].path_values)
        transactions = [Transaction(APPLICATION, number)]
        if archive_id is not None:
            transactions.append(Transaction(IDENTITY, archive_id))
        properties = CommitProperties(app_transactions=transactions)
        table = self._table()
        with told_as(f"the Delta table {self._target} cannot be written"):
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
        """The paths of all files in the table."""
        import pyarrow as pa

        table = self._table()
        if table is None:
            return set()
        with told_as(f"the Delta table {self._target} cannot be read"):
            return set(pa.table(table.get_add_actions()).column("path").to_pylist())

    def close(self) -> None:
        """Do nothing: the library holds nothing open."""

    def _table(self) -> DeltaTable | None:
        """The table as it is now."""
        with told_as(f"the Delta table {self._target} cannot be read"):
            if self._opened is not None:
                self._opened.update_incremental()
            elif DeltaTable.is_deltatable(self._target, self._options):
                self._opened = DeltaTable(self._target, storage_options=self._options)
        return self._opened


def _action(added: TableFile, now_ms: int) -> AddAction:
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
        data_change=True,
        stats=json.dumps(statistics),
    )
