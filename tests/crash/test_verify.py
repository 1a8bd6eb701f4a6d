"""`log verify` of a directory whose broker was killed: what its next start mends is no finding."""

from collections.abc import Callable

import pytest

from tailrace.offline.findings import Severity
from tailrace.offline.verify import verify
from tailrace.reading.directory import find_partitions
from tailrace.testing import MemoryFiles
from tests.crash import workloads
from tests.crash.workloads import WORKLOADS, Broker
from tests.steps import Steps


@pytest.mark.parametrize(
    "workload",
    # Only a replica that follows another one is truncated, and for the moment until it has written
    # its checkpoint nothing tells that from a lost tail.
    [each for each in WORKLOADS if each not in {workloads.truncations, workloads.failed_rolls}],
    ids=lambda w: w.__name__,
)
def test_a_killed_broker_leaves_no_fault(workload: Callable[[Broker], None], steps: Steps) -> None:
    """At any operation, with none or a part of the last write: all is information."""
    for stop_at in steps(range(20, workloads.operation_count(workload) + 1)):
        for partial in (0, 30):
            files = MemoryFiles()
            files.stop_at, files.stop_partial_bytes = stop_at, partial
            workloads.run(workload, files)
            disk = files.crash(keep_unsynced=True)
            found = verify(disk, find_partitions(disk, "data"))
            assert [str(each) for each in found if each.severity is not Severity.INFO] == []
