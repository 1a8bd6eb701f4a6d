"""Brokers as processes that are killed and come back on the same port, behind a proxy."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from compat.artifacts import KAFKA, class_path, old_release
from compat.processes import Server, bound_to_us, free_ports
from tailrace.testing.proxy import Proxy
from tests.chaos.consuming import SESSION_TIMEOUTS


class Killable(Protocol):
    """A broker that can be killed, stopped and started again."""

    @property
    def pid(self) -> int:
        """Process id; only while it runs."""
        ...

    def start(self) -> None:
        """Start it, and return when it serves."""
        ...

    def stop(self) -> None:
        """Stop it in order."""
        ...

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        ...


class Ours:
    """`tailrace serve` on one directory and port."""

    def __init__(
        self,
        directory: Path,
        port: int,
        advertised: str,
        *,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        self._directory = directory
        self._options = ["--listen", f"127.0.0.1:{port}", "--advertise", advertised]
        self._options += [f"--override={name}={value}" for name, value in settings.items()]
        self._environment = environment
        self._server: Server | None = None
        self._starts = 0

    @property
    def pid(self) -> int:
        """Process id; only while it runs."""
        assert self._server is not None
        return self._server.pid

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
            environment=self._environment,
        )

    def stop(self) -> None:
        """Stop it in order."""
        if self._server is not None:
            server, self._server = self._server, None
            server.stop()

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        if self._server is not None:
            self._server.kill()
            self._server = None


def settings_of(timeout_ms: int) -> dict[str, str]:
    """Settings of the broker: short sessions, and more than one partition of a coordinator."""
    return {
        "group.min.session.timeout.ms": str(timeout_ms),
        "group.consumer.min.session.timeout.ms": str(timeout_ms),
        "group.consumer.session.timeout.ms": str(SESSION_TIMEOUTS * timeout_ms),
        "group.consumer.min.heartbeat.interval.ms": str(timeout_ms // 4),
        "group.consumer.heartbeat.interval.ms": str(timeout_ms // 4),
        "group.initial.rebalance.delay.ms": "100",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }


@contextmanager
def behind_proxy(
    directory: Path,
    *,
    kafka: str = "",
    settings: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[Killable, Proxy]]:
    """A broker that serves, and the proxy that clients know it by; killed at the end.

    It is ours, or Apache Kafka of the version `kafka`.
    """
    port, controller_port = free_ports(2)
    with Proxy(f"127.0.0.1:{port}") as proxy:
        broker: Killable
        if kafka:
            listeners = {
                "listeners": f"PLAINTEXT://127.0.0.1:{port},"
                f"CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": f"PLAINTEXT://{proxy.address}",
                "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            }
            broker = _kafka(
                kafka, directory, settings={**settings, **listeners}, environment=environment
            )
        else:
            broker = Ours(
                directory, port, proxy.address, settings=settings, environment=environment
            )
        try:
            broker.start()
            yield broker, proxy
        finally:
            broker.kill()


def _kafka(
    version: str, directory: Path, *, settings: Mapping[str, str], environment: Mapping[str, str]
) -> Killable:
    """Apache Kafka, where Java and Maven are there."""
    from compat.kafka import Kafka
    from tailrace.spark.java import find_java

    release = KAFKA if version == KAFKA.version else old_release(version)
    return Kafka(
        find_java(os.environ).home / "bin" / "java",
        class_path(release, os.environ),
        directory,
        settings=settings,
        environment=environment,
    )
