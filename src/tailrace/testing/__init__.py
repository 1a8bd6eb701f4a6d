"""The test kit, part of the package: doubles for every seam of `tailrace.runtime`.

    with virtual_runtime() as outside:                 # memory disk, memory network, jumping clock
        outside.run(my_coroutine())

It may import any module of Tailrace, and no other module imports it.
"""

from tailrace.testing.clock import JumpingLoop, VirtualClock
from tailrace.testing.files import DiskFault, MemoryFiles, ProcessKilledError
from tailrace.testing.hanging import HangingDevice, HungLoopError
from tailrace.testing.interleaving import ChangingFiles, RecordingFiles
from tailrace.testing.network import MemoryNetwork, MemorySocket
from tailrace.testing.outside import Outside, virtual_runtime
from tailrace.testing.peer import Peer
from tailrace.testing.watchdog import Watchdog

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
    "VirtualClock",
    "Watchdog",
    "virtual_runtime",
]
