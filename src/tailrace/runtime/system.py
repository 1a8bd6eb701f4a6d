"""`Runtime`: all seams in one value, and those of the real machine."""

import random

from tailrace.runtime.clock import Clock, SystemClock
from tailrace.runtime.files import DiskFiles, Files
from tailrace.runtime.network import Network, SocketNetwork
from tailrace.runtime.threads import Threads, WorkerThreads
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """All seams in one value, for the code that builds a broker."""

    clock: Clock
    files: Files
    network: Network
    threads: Threads
    chance: random.Random
    """Source of random ids and jitter: the system's entropy, or a seed in tests."""


def system_runtime(*, is_synced: bool = True, network: Network | None = None) -> Runtime:
    """The seams of the real machine; without `is_synced` its files never wait for the device.

    `network` is one that has inherited sockets; else a new one.
    """
    return Runtime(
        clock=SystemClock(),
        files=DiskFiles(is_synced=is_synced),
        network=network or SocketNetwork(),
        threads=WorkerThreads(),
        chance=random.SystemRandom(),
    )
