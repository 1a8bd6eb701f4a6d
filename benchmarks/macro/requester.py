"""A client in a process of its own: prebuilt requests over raw sockets, and what they cost.

    python -m benchmarks.macro.requester JOB        a `Job` as JSON; prints a `Result` as JSON

Only the correlation id of a request is set anew, so that the client costs little and the broker is
what is measured. CPU time is the broker's, read before and after.
"""

import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path

from benchmarks.macro.load import connected
from benchmarks.measure import cpu_seconds
from tailrace.client import BrokerAddress
from tailrace.protocol.fields import Buffer
from tailrace.protocol.frames import SIZE_BYTES

ROOT = Path(__file__).parents[2]
ID_AT = 8
"""Position of the correlation id in a request."""
DESCRIPTORS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Requests to send, and how."""

    host: str
    port: int
    process_id: int
    """The process whose CPU time is read."""
    frames: tuple[str, ...]
    """The requests as hexadecimal digits; they are sent in turn. All answers have one size."""
    count: int
    at_once: int = 1
    """Requests that are sent together; the next ones go when all are answered."""
    idle_connections: int = 0
    """Connections that are open meanwhile and send nothing."""
    active_connections: int = 1
    """Connections of which each sends `at_once` requests, all before the first answer is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Times of the answers, and the broker's CPU time."""

    p50_us: float
    p99_us: float
    p999_us: float
    cpu_us: float
    """For one request."""
    requests_per_second: float
    answer: str
    """The last answer, as hexadecimal digits."""


def run_job(job: Job) -> Result:
    """Run a job in another process."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name],
        input=json.dumps(asdict(job)), capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the client failed: {done.stderr}")
    return Result(**json.loads(done.stdout))


def _run(job: Job) -> Result:
    frames = [bytearray.fromhex(each) for each in job.frames]
    with ExitStack() as open_connections:
        address = BrokerAddress(job.host, job.port)
        opened = [
            open_connections.enter_context(connected(address))
            for _ in range(job.idle_connections + job.active_connections)
        ]
        channels = opened[job.idle_connections :]
        sizes = set()
        for channel, frame in zip(cycle(channels), frames, strict=False):
            channel.sendall(frame)
            size = int.from_bytes(channel.recv(SIZE_BYTES, socket.MSG_WAITALL))
            sizes.add(len(channel.recv(size, socket.MSG_WAITALL)) + SIZE_BYTES)
        assert len(sizes) == 1, f"answers of {sizes} bytes"
        answer = memoryview(bytearray(sizes.pop() * job.at_once))
        seconds: list[float] = []
        began, cpu_before = time.perf_counter(), cpu_seconds(job.process_id)
        for number in range(job.count // (job.at_once * len(channels))):
            burst = _burst(frames, number * job.at_once, job.at_once)
            started = time.perf_counter()
            for channel in channels:
                channel.sendall(burst)
            for channel in channels:
                _receive(channel, answer)
            seconds.append(time.perf_counter() - started)
        cpu, elapsed = cpu_seconds(job.process_id) - cpu_before, time.perf_counter() - began
    seconds.sort()
    sent = len(seconds) * job.at_once * job.active_connections
    p50, p99, p999 = (seconds[int(part * len(seconds))] * 1e6 for part in (0.5, 0.99, 0.999))
    return Result(
        p50_us=p50,
        p99_us=p99,
        p999_us=p999,
        cpu_us=cpu / sent * 1e6,
        requests_per_second=sent / elapsed,
        answer=bytes(answer[-len(answer) // job.at_once :]).hex(),
    )


def _burst(frames: Sequence[bytearray], number: int, count: int) -> Buffer:
    """The next requests, with their correlation ids."""
    chosen = list(islice(cycle(frames), number % len(frames), number % len(frames) + count))
    if len(frames) == 1 and count == 1:
        frames[0][ID_AT : ID_AT + 4] = number.to_bytes(4, "big")
        return frames[0]
    parts = []
    for place, frame in enumerate(chosen):
        frame[ID_AT : ID_AT + 4] = (number + place).to_bytes(4, "big")
        parts.append(bytes(frame))
    return b"".join(parts)


def _receive(channel: socket.socket, answer: memoryview) -> None:
    received = channel.recv_into(answer, len(answer), socket.MSG_WAITALL)
    if received < len(answer):
        raise ConnectionError(f"{received} of {len(answer)} bytes came, then the end")


def main() -> None:
    """Run the job on standard input."""
    job = Job(**json.load(sys.stdin))
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    print(json.dumps(asdict(_run(job))))


if __name__ == "__main__":
    main()
