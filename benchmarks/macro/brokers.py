"""A broker in a process of its own, as a user starts it, and the few requests that set it up."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.client import BrokerAddress, ClusterReader, RemoteBroker
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

STARTED = "[KafkaServer id=1] started\n"
TIMEOUT_SECONDS = 60

ONE_SEGMENT = {"log.segment.bytes": str(2**31 - 1)}
"""No segment ends inside of a round, so no round waits for the device and another does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcess:
    """A broker that takes requests."""

    address: BrokerAddress
    process_id: int
    ready_seconds: float
    """From the start of the process to the line that says so."""
    log: Path
    """The broker's standard error."""

    def create_topic(self, name: str, *, partition_count: int = 1) -> None:
        """Make a topic with one replica."""
        topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
        with self._connected() as connection:
            answer = connection.request(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer

    def stop(self) -> None:
        """Have it stop in order; it has ended when this returns."""
        os.kill(self.process_id, signal.SIGTERM)
        os.waitid(os.P_PID, self.process_id, os.WEXITED | os.WNOWAIT)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its files; they are gone when this returns."""
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),), timeout_ms=60_000)
        with self._connected() as connection:
            answer = connection.request(request, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0, answer

    @contextmanager
    def _connected(self) -> Iterator[RemoteBroker]:
        reader = ClusterReader(
            str(self.address), client_id="benchmark", timeout_ms=TIMEOUT_SECONDS * 1000
        )
        with closing(reader):
            yield reader.any_broker()


@contextmanager
def serving(
    data: Path,
    *,
    settings: Mapping[str, str] = ONE_SEGMENT,
    python: Path = Path(sys.executable),
) -> Iterator[BrokerProcess]:
    """A broker on `data`, of the package that `python` has, killed at the end if it still runs.

    It has one listener, on a free port of loopback, unless the settings have `listeners`; then the
    address is that of the first.

    Raises:
        RuntimeError: it did not start; the message has what it wrote.
    """
    command = [str(python), "-m", "tailrace", "serve", "--data", str(data)]
    if "listeners" not in settings:
        command += ["--listen", "127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--override", f"{name}={value}"]
    log = data.with_name(f"{data.name}.log")
    started = time.perf_counter()
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line == STARTED:
                    break
            ready_seconds = time.perf_counter() - started
            found = re.search(r"listening on (?:[A-Z]+://)?([\d.]+):(\d+)", "".join(lines))
            if found is None:
                raise RuntimeError(f"the broker did not start: {lines} {log.read_text()}")
            yield BrokerProcess(
                address=BrokerAddress(found[1], int(found[2])),
                process_id=process.pid,
                ready_seconds=ready_seconds,
                log=log,
            )
        finally:
            process.kill()
