"""Archives whose writers are killed."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kills.changes import Changes
from tests.kills.drivers import Driver, Drivers, Job, Victim, survive
from tests.kills.logs import PARTITIONS, RECORDS, write_logs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FILE_BYTES = 30_000
GROWN = 1180
"""Records that each partition has when an archive goes on, which cuts what is left elsewhere."""

CHANGES = 135
"""Changes to the files of an archive while it is written."""


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of `data`, later."""
    directory = tmp_path_factory.mktemp("grown") / "data"
    write_logs(directory, limit=GROWN)
    return directory


@pytest.fixture(scope="session")
def undisturbed(
    drivers: Drivers, grown: Path, tmp_path_factory: pytest.TempPathFactory
) -> pa.Table:
    """The rows of an archive of `grown` that was written at one go."""
    lake = tmp_path_factory.mktemp("undisturbed")
    drivers.run("archive", data=grown, lake=lake, file_bytes=FILE_BYTES)
    return rows(lake)


def rows(lake: Path) -> pa.Table:
    """All rows of all files that Spark would read, with the directories that they are in."""
    tables = []
    for path in lake.glob("topic=*/**/*.parquet"):
        table = pq.ParquetFile(path).read()
        period = pa.array([path.parent.name] * len(table))
        tables.append(table.append_column("period", period))
    return pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])


def test_an_archive_is_whole_after_a_kill(
    drivers: Drivers,
    victim: Victim,
    seed: int,
    *,
    data: Path,
    grown: Path,
    undisturbed: pa.Table,
    tmp_path: Path,
) -> None:
    """The archive has exactly the rows of an undisturbed run, although logs grow meanwhile."""

    def begin(driver: Driver, lake: Path) -> Changes:
        logs = grown if any(lake.iterdir()) else data
        changes = Changes(lake)
        driver.begin("archive", data=logs, lake=lake, file_bytes=FILE_BYTES)
        return changes

    lake = survive(
        drivers, Job(begin=begin, moments=CHANGES), victim=victim, seed=seed, folder=tmp_path
    )
    assert len(rows(lake)) == PARTITIONS * (GROWN if victim is Victim.DRIVER else RECORDS)
    drivers.run("archive", data=grown, lake=lake, file_bytes=FILE_BYTES)
    assert rows(lake).equals(undisturbed)
    assert not list(lake.glob("_staging/*"))
    assert drivers.run("verify", data=grown, lake=lake) == []
