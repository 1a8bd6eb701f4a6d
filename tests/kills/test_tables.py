"""Archives with a table whose writers are killed: each row is in the table once."""

from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog

from tests.kills.changes import Changes
from tests.kills.drivers import Driver, Drivers, Job, Victim, survive
from tests.kills.logs import PARTITIONS, RECORDS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FILE_BYTES = 30_000

CHANGES = {"delta": 150, "iceberg": 195}
"""Changes to the files of an archive while it is written."""


def offsets_in(lake: Path, form: str) -> list[tuple[int, int]]:
    """Partition and offset of each row of the table, in their order."""
    if form == "delta":
        reader = QueryBuilder().register("t", DeltaTable(str(lake)))
        found = pa.table(reader.execute('SELECT partition, "offset" FROM t'))
    else:
        catalog = load_catalog("tailrace", type="sql", uri=f"sqlite:///{lake}/_iceberg/catalog.db")
        found = catalog.load_table("tailrace.archive").scan().to_arrow()
        catalog.close()
    columns = (found.column(name).to_pylist() for name in ("partition", "offset"))
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.slow)])
def test_a_table_is_whole_after_a_kill(
    drivers: Drivers, victim: Victim, seed: int, *, form: str, data: Path, tmp_path: Path
) -> None:
    """Whether it comes before the manifest, between it and the table, or behind both."""

    def begin(driver: Driver, lake: Path) -> Changes:
        changes = Changes(lake)
        driver.begin("archive", data=data, lake=lake, file_bytes=FILE_BYTES, form=form)
        return changes

    job = Job(begin=begin, moments=CHANGES[form])
    lake = survive(drivers, job, victim=victim, seed=seed, folder=tmp_path)
    assert offsets_in(lake, form) == list(product(range(PARTITIONS), range(RECORDS)))
    assert drivers.run("verify", data=data, lake=lake) == []
