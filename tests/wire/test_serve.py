"""`tailrace serve` as a process: its lines, its exit codes, and what a kill leaves."""

import gc
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tailrace import Admin, Producer
from tailrace.client.admin import NewTopic
from tests.unit.cli.running import said
from tests.wire.clients import CLIENTS

pytestmark = pytest.mark.wire

COMMAND = [sys.executable, "-m", "tailrace", "serve"]


@contextmanager
def serving(
    data: Path, *options: str, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker process and its address; killed at the end if it still runs.

    With `variables` these are all that is given besides the options.
    """
    command = [*COMMAND, "--data", str(data), "--listen", "127.0.0.1:0", *options]
    environment = None
    if variables is not None:
        command, environment = [*COMMAND, *options], {**os.environ, **variables}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line == "[KafkaServer id=1] started\n":
                    break
            address = re.search(r"listening on (\S+),", "".join(lines))
            assert address is not None, lines
            yield process, address[1]
        finally:
            process.kill()


@pytest.mark.usefixtures("hears_hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_broker_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """The exit code is 0, and the directory has the mark of an orderly stop."""
    with serving(tmp_path / "data") as (process, _):
        process.send_signal(number)
        assert process.wait(60) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.usefixtures("hears_hangups")
def test_a_broker_stops_in_order_when_its_terminal_goes(tmp_path: Path) -> None:
    """Nobody can read its last lines then, which changes neither the stop nor the exit code."""
    terminal, other_end = pty.openpty()
    # The first that a session's leader opens becomes the terminal of the session.
    script = 'tty=$1; shift; exec "$@" <"$tty" >"$tty" 2>&1'
    command = ["sh", "-c", script, "sh", os.ttyname(other_end), *COMMAND]
    options = ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, *options], start_new_session=True) as process:
        try:
            printed = b""
            while b"] started" not in printed:
                printed += os.read(terminal, 4096)
            os.close(other_end)
            os.close(terminal)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_broker_whose_first_lines_nobody_takes_serves_all_the_same(tmp_path: Path) -> None:
    """The pipe is closed before its first line, or the file's device is full, and it stays."""
    command = [*COMMAND, "--listen", "127.0.0.1:0", "--data"]
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    for number, output in enumerate((writing, full)):
        data = tmp_path / str(number)
        with subprocess.Popen(
            [*command, str(data)], stdout=output, stderr=subprocess.PIPE, text=True
        ) as process:
            os.close(output)
            assert process.stderr is not None
            try:
                started = next(line for line in process.stderr if "broker_started" in line)
                address = started.rpartition("listen=")[2].strip()
                with Admin(bootstrap_servers=address) as admin:
                    admin.create_topics([NewTopic("t", 1)]).results()
                process.terminate()
                assert process.wait(60) == 0
            finally:
                process.kill()
        assert (data / ".kafka_cleanshutdown").exists()


def test_a_broker_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    """SIGHUP is ignored where it was ignored before the start, as by Java."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serving(tmp_path / "data") as (process, address):
            process.send_signal(signal.SIGHUP)
            with Admin(bootstrap_servers=address) as admin:
                admin.create_topics([NewTopic("t", 1)]).results()
            assert process.poll() is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_broker_takes_variables_when_it_is_asked_to(tmp_path: Path) -> None:
    """Settings and the cluster are those of the variables, and a fault names its variable."""
    variables = {
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0", "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KAFKA_HEAP_OPTS": "-Xmx1g", "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
        "KAFKA_NUM_PARTITIONS": "5",
    }  # fmt: skip
    with (
        serving(tmp_path, "--env", variables=variables) as (_, address),
        Admin(bootstrap_servers=address) as admin,
    ):
        admin.create_topics([NewTopic("t", -1)]).results()
        assert len(admin.describe_topics(["t"]).results()["t"].partitions) == 5
    assert "cluster.id=5L6g3nShT-eMCtK--X86sw" in (tmp_path / "data/meta.properties").read_text()
    done = subprocess.run(
        [*COMMAND, "--env"], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **variables, "KAFKA_NUM_PARTITION": "hunter2"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "did you mean num.partitions? (it is from the variable KAFKA_NUM_P" in done.stderr
    assert "hunter2" not in done.stderr


@contextmanager
def ready(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A node with --print-ready: the process, and both fields of its line; stopped at the end."""
    command = [*COMMAND, "--print-ready", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            fields = process.stdout.readline().split()
            assert fields[0] == "ready"
            yield process, fields[1], fields[2].removeprefix("listeners=")
            process.terminate()
            assert process.stdout.read() == ""
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_script_reads_one_line_with_the_ports_that_were_chosen(tmp_path: Path) -> None:
    """The first of several listeners is the address for clients."""
    listeners = "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0"
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"
    own = ("--data", str(tmp_path / "data"), "--listen", listeners, "--override", protocols)
    with ready(*own) as (_, address, addresses):
        first, second = addresses.split(",")
        assert first == f"PLAINTEXT://{address}"
        for each in (address, second.removeprefix("INSIDE://")):
            with Admin(bootstrap_servers=each) as admin:
                assert len(admin.describe_cluster().brokers) == 1


def test_a_node_of_a_cluster_is_ready_when_it_may_lead(tmp_path: Path) -> None:
    """A controller at once, a broker when it is unfenced: a new topic has a leader then."""
    names = "controller.listener.names=C"
    controller = (
        "--data", str(tmp_path / "c"), "--node-id", "100", "--listen", "C://127.0.0.1:0",
        "--override", "process.roles=controller", "--override", names,
    )  # fmt: skip
    with ready(*controller) as (_, quorum, listeners):
        assert listeners == f"C://{quorum}"
        broker = (
            "--data", str(tmp_path / "b"), "--listen", "PLAINTEXT://127.0.0.1:0",
            "--override", "process.roles=broker", "--override", names,
            "--override", f"controller.quorum.bootstrap.servers={quorum}",
        )  # fmt: skip
        with ready(*broker) as (_, address, _), Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("t", 1, 1)]).results()
            # The controller has the topic; the broker may know it some milliseconds later, for
            # which a producer waits, and a description does not.
            with Producer(bootstrap_servers=address) as producer:
                producer.send("t", b"first").result(60)
            assert admin.describe_topics(["t"]).result("t").partitions[0].leader == 1


def code_of(*options: object) -> int:
    """The exit code of a node that does not start; its error is one line."""
    done = subprocess.run(
        [*COMMAND, *map(str, options)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr.splitlines()[-1].startswith(("tailrace: ", "Error: "))
    assert "Traceback" not in done.stderr
    return done.returncode


def test_exit_codes_say_who_must_act(tmp_path: Path) -> None:
    """A script that starts a node knows whether to correct something, or to try again."""
    at = ("--listen", "127.0.0.1:0")
    assert code_of("--data", tmp_path / "new", "--listen", "nowhere") == 1
    assert code_of("--data", tmp_path / "new", "--node-id", "one") == 2
    with serving(tmp_path / "data") as (_, address):
        assert code_of("--data", tmp_path / "data", *at) == 3
        assert code_of("--data", tmp_path / "new", "--listen", address) == 4
        member = (
            "process.roles=broker", "controller.listener.names=C",
            # A broker is there, and no controller.
            f"controller.quorum.bootstrap.servers={address}",
            "initial.broker.registration.timeout.ms=500",
        )  # fmt: skip
        options = [word for each in member for word in ("--override", each)]
        assert code_of("--data", tmp_path / "other", *at, *options) == 5
    (tmp_path / "file").write_text("")
    assert code_of("--data", tmp_path / "file", *at) == 3


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    """A port that another process has is told with what to do, and leaves the directory free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = said("serve", "--data", tmp_path / "data", "--listen", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in line
    assert "choose another port" in line
    with serving(tmp_path / "data"):
        pass


def test_a_program_that_runs_the_command_keeps_its_own_objects_in_collections(
    tmp_path: Path,
) -> None:
    """Only the process of `tailrace serve` itself freezes objects, and it does."""
    mine: list[object] = []
    holder = [mine]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ["--data", str(tmp_path / "data"), "--listen", address]
        assert "choose another port" in said("serve", *options)
        gc.collect()
        assert any(each is holder for each in gc.get_referrers(mine)), "it is frozen"
        script = "import atexit, gc; from tailrace.cli import main\n"
        script += "atexit.register(lambda: print(gc.get_freeze_count())); main()"
        command = [sys.executable, "-c", script, "serve", *options]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert int(ended.stdout.splitlines()[-1]) > 10_000


def test_a_locked_directory_is_one_line(tmp_path: Path) -> None:
    """A directory that a live broker has is refused to the second one."""
    with serving(tmp_path / "data"):
        line = said("serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0")
    assert "in use by another process" in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("version=1\nnode.id=7\ncluster.id=abc\n", "belongs to node 7"),
        ("version=0\nbroker.id=3\n", "--node-id 3"),
        ("version=9\nnode.id=1\n", "version 9"),
        ("version=one\n", "cannot be understood"),
        ("\x00\xff", "cannot be understood"),
    ],
)
def test_a_foreign_directory_is_one_line(tmp_path: Path, content: str, words: str) -> None:
    """A directory of another node, or whose meta.properties means nothing, is not touched."""
    data = tmp_path / "data"
    data.mkdir()
    meta = data / "meta.properties"
    meta.write_bytes(content.encode("latin-1"))
    assert words in said("serve", "--data", data, "--listen", "127.0.0.1:0")
    assert meta.read_bytes() == content.encode("latin-1")


def test_every_wrong_setting_is_told(tmp_path: Path) -> None:
    """Three faults are three lines, with the names of the settings and what they may be."""
    faults = (
        "--listen", "nowhere",
        "--override", "num.partitions=0",
        "--override", "log.segment.bites=1",
    )  # fmt: skip
    done = subprocess.run(
        [*COMMAND, "--data", str(tmp_path / "data"), *faults],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert all(line.startswith("tailrace: ") for line in lines)
    assert len(lines) == 3
    assert any("num.partitions" in line and "1 to 10000" in line for line in lines)
    assert any("did you mean log.segment.bytes" in line for line in lines)
    assert any("nowhere" in line for line in lines)


@pytest.mark.parametrize("round_number", range(3))
def test_a_killed_broker_has_every_acknowledged_record(tmp_path: Path, round_number: int) -> None:
    """After SIGKILL the log is what was sent up to some record behind all acknowledged ones."""
    data, topic = tmp_path / "data", "t"
    acknowledged: list[int] = []
    sent: list[bytes] = []
    kill_after = 2000 + 3000 * round_number

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.offset())

    small = NewTopic(topic, 1, configs={"internal.segment.bytes": "200000"})
    with serving(data) as (process, address):
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([small]).results()
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 50,
                # One request at a time and no second try: what is in the log twice was sent twice.
                "max.in.flight": 1,
                "message.send.max.retries": 0,
                "log_level": 0,
            }
        )
        while len(acknowledged) < kill_after:
            value = b"record %d of round %d" % (len(sent), round_number)
            producer.produce(topic, value, partition=0, on_delivery=delivered)
            sent.append(value)
            producer.poll(0 if len(sent) - len(acknowledged) < 5000 else 0.01)
        process.kill()
        process.wait()
        producer.purge()
        producer.flush(5)

    assert acknowledged == list(range(len(acknowledged)))
    with serving(data) as (_, address):
        consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "none"})
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), 60)
        consumer.close()
        assert low == 0
        assert len(acknowledged) <= high <= len(sent)
        found = CLIENTS["confluent-kafka"].read(address, topic, 0, count=high)
    assert [record.value for record in found] == sent[:high]


def test_a_file_of_apache_kafka_starts_a_broker(tmp_path: Path) -> None:
    """Its directory and its listeners are used, and one line of the log has what has no effect."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        port, own = one.getsockname()[1], two.getsockname()[1]
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/data\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{own}\n"
        "controller.listener.names=CONTROLLER\nnum.io.threads=8\n"
    )
    command = [*COMMAND, "--config", str(file), "--override", "num.network.threads=3"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            first = process.stdout.readline()
            listening = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{own}"
            assert first == f"listening on {listening}, data in {tmp_path}/data\n"
        finally:
            process.terminate()
            log = process.stderr.read().splitlines()
    ignored = [line for line in log if "settings_ignored" in line]
    assert len(ignored) == 1
    assert "names=num.io.threads,num.network.threads reason=" in ignored[0]


@pytest.mark.parametrize("where", ["--config", "--override"])
def test_a_name_that_kafka_does_not_know_is_refused(tmp_path: Path, where: str) -> None:
    """The name may come from a file or the command line; the error has the name that was meant."""
    given = "num.io.thread=8"
    if where == "--config":
        (tmp_path / "server.properties").write_text(given)
        given = str(tmp_path / "server.properties")
    line = said("serve", "--data", tmp_path / "data", where, given)
    assert line == "num.io.thread: no such setting; did you mean num.io.threads?"
