"""A real Kafka on loopback: one node, broker and controller in one, on a directory that is given.

    with Kafka(java, class_path, directory) as kafka:    formatted if new, started, ready
        … kafka.bootstrap_servers …
    # stopped in order; `kill()` before the end leaves it as a crash does

    directory/
        logs/          the partitions: what both sides read and write
        metadata/      Kafka's own: its metadata log, of which Tailrace knows nothing
        kafka-1.log    what the first start has printed, kafka-2.log the second, …

Invariant: no process outlives the one that started it. On any error the broker is killed; the
kernel kills it if we are killed ourselves.
"""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from compat.artifacts import KAFKA
from tailrace.errors import FatalError

NODE_ID = 1
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
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
    ) -> None:
        self.directory = directory
        self.settings = dict(settings)
        """Over the harness's own; may be changed between two starts."""
        self.bootstrap_servers = ""
        self._java = java
        self._class_path = class_path
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | None = None
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
        """What the latest start prints."""
        return self.directory / f"kafka-{self._starts}.log"

    @property
    def pid(self) -> int:
        """Of the broker that runs."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def start(self) -> None:
        """Start, and return when it serves.

        Raises:
            FatalError: it ended or was not ready in time; the message has its last words.
        """
        assert self._process is None
        self._starts += 1
        port, controller_port = _free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{port}"
        given = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller_port}",
            "log.dirs": str(self.logs),
            "metadata.log.dir": str(self.directory / "metadata"),
            **self.settings,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        if not (self.logs / "meta.properties").exists():
            run_java(
                self._java, self._class_path,
                ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)],
            )  # fmt: skip
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the Java that was found
                java_command(
                    self._java, self._class_path, ["kafka.Kafka", str(config)], jvm=self._jvm
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Of its own, so that Ctrl-C reaches us only, and we stop it.
                start_new_session=True,
            )
        try:
            self._wait_until_started()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop in order.

        Raises:
            FatalError: it did not; it is killed.
        """
        process = self._process
        if process is None:
            return
        try:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise FatalError(f"Kafka has not stopped in {STOP_SECONDS_MAX} s") from error
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash does; nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def printed(self) -> list[str]:
        """The lines that the latest start has printed so far."""
        return self.output.read_text(errors="replace").splitlines()

    def dump(self, paths: Iterable[Path]) -> list[str]:
        """What Kafka's DumpLogSegments prints of these files, records and indexes included.

        Raises:
            FatalError: it failed.
        """
        files = ",".join(map(str, paths))
        arguments = ["--deep-iteration", "--print-data-log", "--files", files]
        return run_java(
            self._java,
            self._class_path,
            ["org.apache.kafka.tools.DumpLogSegments", *arguments],
        ).splitlines()

    def _wait_until_started(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while not any(STARTED in line for line in self.printed()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                errors = [line for line in self.printed() if "ERROR" in line or "xception" in line]
                said = (errors or self.printed()[-1:] or ["nothing"])[0]
                raise FatalError(f"Kafka {KAFKA.version} did not start; it said: {said[:500]}")
            time.sleep(0.05)


def run_java(java: Path, class_path: str, arguments: Sequence[str]) -> str:
    """What a main class prints, what it says of errors last.

    Raises:
        FatalError: it failed; with the end of what it said.
    """
    answer = subprocess.run(  # noqa: S603 - the Java that was found
        java_command(java, class_path, arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS_MAX,
    )
    if answer.returncode:
        raise FatalError(f"{arguments[0]} failed: {(answer.stdout + answer.stderr)[-500:]}")
    return answer.stdout + answer.stderr


def java_command(
    java: Path, class_path: str, arguments: Sequence[str], *, jvm: Sequence[str] = SMALL_JVM
) -> list[str]:
    """A Java that dies with us, where the machine can see to that."""
    setpriv = shutil.which("setpriv")
    return [
        *([setpriv, "--pdeathsig", "KILL"] if setpriv else []),
        str(java), *jvm, "-cp", class_path, "-Dorg.slf4j.simpleLogger.logFile=System.out",
        *arguments,
    ]  # fmt: skip


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
