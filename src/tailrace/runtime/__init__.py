"""The only door to the outside: clock, files, network, threads and chance.

Everything that could differ between two runs goes through one of these seams, so that a test can
put a double in its place (`tailrace.testing`). Nothing here knows Kafka.
"""

import random
from dataclasses import dataclass

from tailrace.runtime.clock import Clock, SystemClock
from tailrace.runtime.files import DiskFiles, Files
from tailrace.runtime.network import Network, SocketNetwork
from tailrace.runtime.threads import Threads, WorkerThreads


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One value that carries every seam to whoever assembles a broker."""

    clock: Clock
    files: Files
    network: Network
    threads: Threads
    chance: random.Random
    """Where ids and jitter come from: the system's entropy, or a seed in tests."""


def system_runtime() -> Runtime:
    """The real machine."""
    return Runtime(
        clock=SystemClock(),
        files=DiskFiles(),
        network=SocketNetwork(),
        threads=WorkerThreads(),
        chance=random.SystemRandom(),
    )
