"""Brokers as processes that are killed and come back on the same port, behind a proxy."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from compat.processes import Server, bound_to_us, free_ports
from tailrace.testing.proxy import Proxy


class Killable(Protocol):
    """A broker that can be killed and started again."""

    def start(self) -> None:
        """Start it, and return when it serves."""
        ...

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        ...


class Ours:
    """`tailrace serve` on one directory and port."""

    def __init__(self, directory: Path, port: int, advertised: str) -> None:
        self._directory = directory
        self._options = ["--listen", f"127.0.0.1:{port}", "--advertise", advertised]
        self._server: Server | None = None
        self._starts = 0

    def start(self) -> None:
        """Start it, and return when it serves."""
        self._starts += 1
        data = str(self._directory / "data")
        self._server = Server(
            "the broker",
            bound_to_us(
                [sys.executable, "-m", "tailrace", "serve", "--data", data, *self._options]
            ),
            self._directory / f"broker-{self._starts}.log",
            ready="] started",
        )

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        if self._server is not None:
            self._server.kill()
            self._server = None


@contextmanager
def behind_proxy(directory: Path, *, is_kafka: bool) -> Iterator[tuple[Killable, Proxy]]:
    """A broker that serves, and the proxy that clients know it by; killed at the end."""
    port, controller_port = free_ports(2)
    with Proxy(f"127.0.0.1:{port}") as proxy:
        broker: Killable
        if is_kafka:
            broker = _kafka(directory, port, controller_port, advertised=proxy.address)
        else:
            broker = Ours(directory, port, proxy.address)
        try:
            broker.start()
            yield broker, proxy
        finally:
            broker.kill()


def _kafka(directory: Path, port: int, controller_port: int, *, advertised: str) -> Killable:
    """Apache Kafka, where Java and Maven are there."""
    from compat.artifacts import KAFKA, class_path
    from compat.kafka import Kafka
    from tailrace.spark.java import find_java

    return Kafka(
        find_java(os.environ).home / "bin" / "java",
        class_path(KAFKA, os.environ),
        directory,
        settings={
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{advertised}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        },
    )
