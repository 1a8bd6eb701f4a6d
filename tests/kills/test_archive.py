"""Archives whose writers are killed."""

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kills.changes import Changes
from tests.kills.drivers import Driver, Drivers, Job, Victim, survive
from tests.kills.logs import PARTITIONS, RECORDS, record, write_logs

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


def rows(lake: Path) -> list[dict[str, Any]]:
    """All rows of all files that Spark would read, with the directories that they are in."""
    tables = []
    for path in lake.glob("topic=*/**/*.parquet"):
        table = pq.ParquetFile(path).read()
        period = pa.array([path.parent.name] * len(table))
        tables.append(table.append_column("period", period))
    whole = pa.concat_tables(tables)
    order = [("partition", "ascending"), ("offset", "ascending")]
    found: list[dict[str, Any]] = whole.sort_by(order).to_pylist()
    return found


def row(partition: int, offset: int) -> dict[str, Any]:
    """The row of a record of the logs; their batches have no producer."""
    written = record(partition, offset)
    time = datetime.fromtimestamp(written.timestamp / 1000, UTC)
    return {
        "key": written.key,
        "value": written.value,
        "partition": partition,
        "offset": offset,
        "timestamp": time,
        "timestampType": 0,
        "headers": [{"key": key, "value": value} for key, value in written.headers],
        "codec": "none",
        "producerId": -1,
        "producerEpoch": -1,
        "sequence": -1,
        "leaderEpoch": 0,
        "isTransactional": False,
        "period": f"date={time.date()}",
    }


def test_an_archive_is_whole_after_a_kill(
    drivers: Drivers,
    victim: Victim,
    seed: int,
    *,
    data: Path,
    grown: Path,
    tmp_path: Path,
) -> None:
    """The archive has each record of the logs as one row, although they grow meanwhile."""

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
    assert rows(lake) == [row(*place) for place in product(range(PARTITIONS), range(GROWN))]
    assert not list(lake.glob("_staging/*"))
    assert drivers.run("verify", data=grown, lake=lake) == []
