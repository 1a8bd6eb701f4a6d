"""The test kit, part of the package: doubles for every seam of `tailrace.runtime`.

    with virtual_runtime() as outside:                 # memory disk, memory network, jumping clock
        outside.run(my_coroutine())

For tests of programs that use Kafka there are `TestBroker`, a whole broker on real sockets with
faults, `TestCluster`, several with replicas, `TestRegistry`, a schema registry, and
`SimulatedCluster`, brokers and a controller in virtual time; they are imported when first used.

It may import any module of Tailrace, and of them only `pytest_plugin` imports it.
"""

from typing import TYPE_CHECKING

from tailrace.testing.clock import JumpingLoop, VirtualClock
from tailrace.testing.files import DiskFault, MemoryFiles, ProcessKilledError
from tailrace.testing.hanging import HangingDevice, HungLoopError
from tailrace.testing.interleaving import ChangingFiles, RecordingFiles
from tailrace.testing.network import MemoryNetwork, MemorySocket
from tailrace.testing.outside import Outside, virtual_runtime
from tailrace.testing.peer import Peer
from tailrace.testing.watchdog import Watchdog

if TYPE_CHECKING:
    from tailrace.testing.broker import TestBroker
    from tailrace.testing.broker_cluster import TestCluster
    from tailrace.testing.registry import TestRegistry
    from tailrace.testing.simulated import SimulatedCluster

__all__ = [
    "ChangingFiles",
    "DiskFault",
    "HangingDevice",
    "HungLoopError",
    "JumpingLoop",
    "MemoryFiles",
    "MemoryNetwork",
    "MemorySocket",
    "Outside",
    "Peer",
    "ProcessKilledError",
    "RecordingFiles",
    "SimulatedCluster",
    "TestBroker",
    "TestCluster",
    "TestRegistry",
    "VirtualClock",
    "Watchdog",
    "virtual_runtime",
]


def __getattr__(name: str) -> object:
    if name == "TestBroker":
        from tailrace.testing.broker import TestBroker

        return TestBroker
    if name == "TestCluster":
        from tailrace.testing.broker_cluster import TestCluster

        return TestCluster
    if name == "TestRegistry":
        from tailrace.testing.registry import TestRegistry

        return TestRegistry
    if name == "SimulatedCluster":
        from tailrace.testing.simulated import SimulatedCluster

        return SimulatedCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
