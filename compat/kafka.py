"""A real Kafka on loopback: one node, broker and controller in one, on a directory that is given.

    with Kafka(java, class_path, directory) as kafka:    formatted if new, started, ready
        … kafka.bootstrap_servers …
    # stopped in order; `kill()` before the end leaves it as a crash does

    directory/
        logs/          as Kafka lays it out by default: partitions, and its metadata log beside them
        kafka-1.log    what the first start has printed, kafka-2.log the second, …

Invariant: no Kafka outlives the one that started it; see `processes`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from compat.artifacts import KAFKA
from compat.processes import START_SECONDS_MAX, Server, bound_to_us, free_ports, run

NODE_ID = 1
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SMALL_JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a proof: it comes up fast and leaves memory to others. Not for a measurement."""
STARTED = "Kafka Server started"

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # The smallest it takes is 1 MB, half of which is for keys.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "100",
}


class Kafka:
    """A Kafka on one directory; each `with` is one start."""

    def __init__(
        self,
        java: Path,
        class_path: str,
        directory: Path,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        jvm: Sequence[str] = SMALL_JVM,
        environment: Mapping[str, str] = MappingProxyType({}),
        format_options: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        """`format_options` are those of its storage tool, beside the settings.

        `prefix` begins its command, as in `networks`.
        """
        self.directory = directory
        self.settings = dict(settings)
        """Settings that override the harness's own; may be changed between two starts."""
        self.bootstrap_servers = ""
        self._java = java
        self._class_path = class_path
        self._jvm = jvm
        self._environment = environment
        self._format_options = tuple(format_options)
        self._prefix = tuple(prefix)
        self._server: Server | None = None
        self._starts = len(list(directory.glob("kafka-*.log")))

    def moved_to(self, directory: Path) -> "Kafka":
        """A Kafka on a copy of the directory, with the same settings."""
        return Kafka(self._java, self._class_path, directory, settings=self.settings, jvm=self._jvm)

    @property
    def logs(self) -> Path:
        """The log directory, `log.dirs`."""
        return self.directory / "logs"

    @property
    def output(self) -> Path:
        """File with the output of the latest start."""
        return self.directory / f"kafka-{self._starts}.log"

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._server is not None
        return self._server.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def start(self) -> None:
        """Start, and return when it serves.

        Raises:
            FatalError: it ended or was not ready in time; the message has its last words.
        """
        assert self._server is None
        self._starts += 1
        port, controller_port = free_ports(2)
        node_id = self.settings.get("node.id", NODE_ID)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        write_properties(
            config,
            {
                **_SETTINGS,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},"
                f"CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.quorum.voters": f"{node_id}@127.0.0.1:{controller_port}",
                "log.dirs": str(self.logs),
                **self.settings,
            },
        )
        if not (self.logs / "meta.properties").exists():
            run_java(
                self._java, self._class_path,
                ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config),
                 *self._format_options],
            )  # fmt: skip
        self._server = Server(
            f"{KAFKA.name} {KAFKA.version}, on port {port} and {controller_port},",
            [
                *self._prefix,
                *java_command(
                    self._java, self._class_path, ["kafka.Kafka", str(config)], jvm=self._jvm
                ),
            ],
            self.output,
            ready=STARTED,
            environment=self._environment,
        )

    def stop(self) -> None:
        """Stop in order; nothing if it does not run.

        Raises:
            FatalError: it did not; it is killed.
        """
        if self._server is not None:
            server, self._server = self._server, None
            server.stop()

    def kill(self) -> None:
        """End it at once, as a crash does; nothing if it does not run."""
        if self._server is not None:
            self._server.kill()
            self._server = None

    def printed(self) -> list[str]:
        """The lines that the latest start has printed so far."""
        return self.output.read_text(errors="replace").splitlines()

    def dump(self, paths: Iterable[Path], *options: str) -> list[str]:
        """The lines that Kafka's DumpLogSegments prints of these files, with their records.

        Raises:
            FatalError: it failed.
        """
        files = ",".join(map(str, paths))
        arguments = ["--deep-iteration", "--print-data-log", "--files", files]
        return self.run_tool("DumpLogSegments", *arguments, *options).splitlines()

    def run_tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's command-line tools and return its output.

        Raises:
            FatalError: it failed.
        """
        main_class = f"org.apache.kafka.tools.{name}"
        return run_java(self._java, self._class_path, [main_class, *arguments])


def run_java(java: Path, class_path: str, arguments: Sequence[str]) -> str:
    """Run a main class and return its output, with standard error last.

    Raises:
        FatalError: it failed, with the line that says most; or it takes too long.
    """
    command = java_command(java, class_path, arguments)
    return run(command, name=arguments[0], seconds_max=START_SECONDS_MAX)


def java_command(
    java: Path, class_path: str, arguments: Sequence[str], *, jvm: Sequence[str] = SMALL_JVM
) -> list[str]:
    """A Java command that dies with this process, where the machine supports that."""
    logging = "-Dorg.slf4j.simpleLogger.logFile=System.out"
    return bound_to_us([str(java), *jvm, "-cp", class_path, logging, *arguments])


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Write a file of settings, as Kafka and ZooKeeper read it."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
