"""A broker process over two log directories, while the device of one refuses calls with EIO.

The refusing device is `failing_device.c`, preloaded into the broker; it needs a C compiler.
"""

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace import Producer
from tailrace.errors import TailraceError

pytestmark = pytest.mark.wire

CALLS = ("pread", "pwrite", "sync", "ftruncate", "stat", "open", "rename", "unlink", "mkdir")
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "log.flush.interval.ms": "200",
    "log.flush.scheduler.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
    # Its logs are made beside the others: of many, a new topic may get none in directory b.
    "offsets.topic.num.partitions": "2",
}
SEGMENTS = {"internal.segment.bytes": "20000"}
WAIT_S = 60


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "needs a C compiler: install gcc"
    library = tmp_path_factory.mktemp("shim") / "failing_device.so"
    source = Path(__file__).with_name("failing_device.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library


class NotStartedError(Exception):
    """The broker has ended before it took requests."""

    def __init__(self, exit_code: int, log: str) -> None:
        super().__init__(log)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Two log directories, and the faults of their device."""

    root: Path
    shim: Path

    @property
    def log(self) -> Path:
        """The file with the broker's stderr."""
        return self.root / "broker.log"

    def refuse(self, call: str, directory: str) -> None:
        """Have calls in a directory fail from now on."""
        # Replaced whole: the broker reads it at each call.
        new = self.root / "faults.new"
        new.write_text(f"{call} {self.root / directory}/\n")
        new.rename(self.root / "faults")

    @property
    def refused(self) -> set[str]:
        """The calls that have failed so far."""
        path = self.root / "faults.refused"
        return set(path.read_text().split()) if path.exists() else set()

    def heal(self) -> None:
        """Have all calls go through again."""
        (self.root / "faults").unlink(missing_ok=True)

    @contextmanager
    def serving(self) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A broker process and its address; killed at the end."""
        overrides = [f"--override={name}={value}" for name, value in SETTINGS.items()]
        command = [
            sys.executable, "-m", "tailrace", "serve",
            "--data", f"{self.root / 'a'},{self.root / 'b'}", "--listen", "127.0.0.1:0",
            *overrides,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self.shim),
            "FAULT_FILE": str(self.root / "faults"),
        }
        with (
            self.log.open("a") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            ) as process,
        ):
            assert process.stdout is not None
            try:
                lines = []
                for line in process.stdout:
                    lines.append(line)
                    if line.endswith("started\n"):
                        break
                address = re.search(r"listening on (\S+),", "".join(lines))
                if address is None:
                    raise NotStartedError(process.wait(WAIT_S), self.log.read_text())
                yield process, address[1]
            finally:
                process.kill()


@pytest.fixture
def place(tmp_path: Path, shim: Path) -> Place:
    """Directories in which nothing has failed yet."""
    return Place(root=tmp_path, shim=shim)


class Writer:
    """Sends numbered records and keeps which were acknowledged."""

    def __init__(self, address: str) -> None:
        self._producer = Producer(
            bootstrap_servers=address, delivery_timeout_ms=4000, request_timeout_ms=2000,
            linger_ms=0, max_block_ms=4000,
        )  # fmt: skip
        self.acknowledged: dict[str, list[bytes]] = {"one": [], "two": []}
        self.sent = 0

    def send(self, topic: str) -> bool:
        """Send a record of 1 KB; whether it was acknowledged."""
        value = b"%d " % self.sent + b"x" * 1000
        self.sent += 1
        try:
            self._producer.send(topic, value, partition=0).result(10)
        except TailraceError:
            return False
        self.acknowledged[topic].append(value)
        return True

    def close(self) -> None:
        """Release the connections."""
        self._producer.close(0)


def read_all(address: str, topic: str) -> list[bytes]:
    """The values of a topic's partition 0, up to its end."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "none"})
    partition = confluent_kafka.TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
    consumer.assign([partition])
    values: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < end and time.monotonic() < deadline:
        values += [
            message.value() for message in consumer.consume(500, 0.5) if message.error() is None
        ]
    consumer.close()
    return values


def try_to_read(address: str, topic: str) -> None:
    """Read a little, with whatever outcome."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    consumer.consume(50, 0.5)
    consumer.close()


def wait_for_logs(address: str, topic: str) -> None:
    """Return when the four logs of a new topic are made, since ListOffsets waits for them."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "none"})
    for number in range(4):
        partition = confluent_kafka.TopicPartition(topic, number)
        consumer.get_watermark_offsets(partition, timeout=WAIT_S)
    consumer.close()


def create(address: str, topic: str) -> None:
    """Make a topic with partitions in both directories, with whatever outcome."""
    admin = AdminClient({"bootstrap.servers": address})
    outcome = admin.create_topics([NewTopic(topic, 4, 1, config=SEGMENTS)], request_timeout=WAIT_S)[
        topic
    ]
    outcome.exception(WAIT_S)


def delete(address: str, topic: str) -> None:
    """Remove it, with whatever outcome."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic], request_timeout=WAIT_S)[topic].exception(WAIT_S)


def filled(address: str) -> Writer:
    """Topic `one` in directory a and `two` in b, with a few segments each."""
    writer = Writer(address)
    for _ in range(60):
        assert writer.send("one")
        assert writer.send("two")
    return writer


def check_nothing_is_lost(place: Place, writer: Writer) -> None:
    """Start on a sound device: every acknowledged record is there, in order."""
    place.heal()
    with place.serving() as (_, address):
        for topic, expected in writer.acknowledged.items():
            # What was not acknowledged may be there too, in its place.
            wanted = set(expected)
            assert [each for each in read_all(address, topic) if each in wanted] == expected


@pytest.mark.parametrize("call", CALLS)
def test_a_device_that_refuses_while_serving_takes_only_its_directory(
    place: Place, call: str
) -> None:
    """The process lives, the other directory serves on, and nothing acknowledged is lost."""
    with place.serving() as (process, address):
        writer = filled(address)
        create(address, "gone")
        wait_for_logs(address, "gone")
        place.refuse(call, "b")
        create(address, "more")
        delete(address, "gone")
        deadline = time.monotonic() + 2 * WAIT_S
        for count in itertools.count():
            writer.send("two")
            assert writer.send("one"), place.log.read_text()
            try_to_read(address, "two")
            if count >= 5 and call in place.refused:
                break
            assert time.monotonic() < deadline, f"{call} was never refused"
        assert writer.send("one")
        assert process.poll() is None
        assert read_all(address, "one") == writer.acknowledged["one"]
        text = place.log.read_text()
        assert "Traceback" not in text
        if call in {"pread", "pwrite", "sync", "ftruncate", "open", "rename"}:
            assert f"directory_failed path={place.root / 'b'}" in text
        writer.close()
    check_nothing_is_lost(place, writer)


@pytest.mark.parametrize("call", [call for call in CALLS if call != "mkdir"])
def test_a_device_that_refuses_at_a_start_takes_only_its_directory(place: Place, call: str) -> None:
    """After a kill, so that logs are checked: the broker comes up and serves the other one.

    No directory is made at a start, and a file is removed only after an orderly stop: its mark.
    """
    with place.serving() as (process, address):
        writer = filled(address)
        writer.close()
        if call == "unlink":
            process.terminate()
            process.wait(WAIT_S)
    place.refuse(call, "b")
    with place.serving() as (process, address):
        assert read_all(address, "one") == writer.acknowledged["one"]
        assert process.poll() is None
    assert "Traceback" not in place.log.read_text()
    assert call in place.refused
    check_nothing_is_lost(place, writer)


@pytest.mark.parametrize("call", ["pread", "open", "pwrite"])
def test_the_only_device_that_refuses_at_a_start_ends_it_with_one_line(
    place: Place, call: str
) -> None:
    """Exit code 3 and a sentence with the directory; on a sound device everything is there."""
    with place.serving() as (_, address):
        writer = filled(address)
        writer.close()
    place.refuse(call, "a")
    with pytest.raises(NotStartedError) as ended, place.serving():
        pass
    assert ended.value.exit_code == 3
    lines = place.log.read_text().splitlines()
    assert lines[-1].startswith("tailrace: "), lines
    assert str(place.root / "a") in lines[-1]
    assert not any("Traceback" in line for line in lines)
    check_nothing_is_lost(place, writer)


def test_the_device_of_the_metadata_log_that_refuses_ends_a_broker(place: Place) -> None:
    """Exit code 6 and a sentence with the directory; on a sound device everything is there."""
    with place.serving() as (process, address):
        writer = filled(address)
        place.refuse("pwrite", "a")
        with contextlib.suppress(TailraceError):
            create(address, "more")
        assert process.wait(WAIT_S) == 6
        writer.close()
    lines = place.log.read_text().splitlines()
    assert lines[-1].startswith("tailrace: stopped: "), lines
    assert str(place.root / "a") in lines[-1]
    check_nothing_is_lost(place, writer)
