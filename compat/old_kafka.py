"""Apache Kafka 3.9 on loopback, with the ZooKeeper that it needs to write formats v0 and v1.

    with OldKafka(java, class_path, directory) as kafka:    both started, Kafka ready
        … kafka.bootstrap_servers …
    # stopped in order; `kill()` before the end leaves it as a crash does

Kafka 3 obeys `message.format.version` only as long as `inter.broker.protocol.version` is below 3.0,
and with KRaft it never is.

    directory/
        logs/            the partitions
        zookeeper/       ZooKeeper's own
        Kafka.log, QuorumPeerMain.log    what the two have printed since the latest start
"""

from pathlib import Path
from typing import Self

from compat.artifacts import OLD_KAFKA
from compat.kafka import NODE_ID, java_command, write_properties
from compat.processes import Server, free_ports

PROTOCOL = "2.8"
"""The newest with which the older formats can be written."""

WITHOUT_TOPIC_IDS = "2.7"
"""The newest with which topics have no ids."""

_SETTINGS = {
    "broker.id": str(NODE_ID),
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "100",
}

_READY = "Recorded new ZK controller"
"""Not "started", which it says before its metadata names a controller: a librdkafka that asks in
between waits for one until its time is over.
"""

_ZOOKEEPER_SETTINGS = {
    "clientPortAddress": "127.0.0.1",
    "admin.enableServer": "false",
}


class OldKafka:
    """A Kafka 3.9 and its ZooKeeper on one directory; each `with` is one start."""

    def __init__(
        self, java: Path, class_path: str, directory: Path, *, protocol: str = PROTOCOL
    ) -> None:
        self.directory = directory
        self._protocol = protocol
        self.bootstrap_servers = ""
        self._java = java
        self._class_path = class_path
        self._zookeeper: Server | None = None
        self._kafka: Server | None = None

    @property
    def logs(self) -> Path:
        """The log directory, `log.dirs`."""
        return self.directory / "logs"

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start(*free_ports(2))
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._kafka is not None:
                self._kafka.stop()
        finally:
            self.kill()

    def kill(self) -> None:
        """End both at once, as a crash does; nothing if they do not run."""
        for server in (self._kafka, self._zookeeper):
            if server is not None:
                server.kill()
        self._kafka = self._zookeeper = None

    def _start(self, port: int, zookeeper_port: int) -> None:
        self._zookeeper = self._server(
            f"ZooKeeper, on port {zookeeper_port},",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            {
                **_ZOOKEEPER_SETTINGS,
                "clientPort": str(zookeeper_port),
                "dataDir": str(self.directory / "zookeeper"),
            },
            ready="Snapshot taken",
        )
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._kafka = self._server(
            f"{OLD_KAFKA.name} {OLD_KAFKA.version}, on port {port},",
            "kafka.Kafka",
            {
                **_SETTINGS,
                "inter.broker.protocol.version": self._protocol,
                "log.message.format.version": self._protocol,
                "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
                "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
                "log.dirs": str(self.logs),
            },
            ready=_READY,
        )

    def _server(self, name: str, main: str, settings: dict[str, str], *, ready: str) -> Server:
        config = self.directory / f"{main.rpartition('.')[2]}.properties"
        write_properties(config, settings)
        command = java_command(self._java, self._class_path, [main, str(config)])
        return Server(name, command, config.with_suffix(".log"), ready=ready)
