"""`tailrace cluster start`: processes that a user may kill, and a directory that continues."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace import Admin
from tailrace.broker.local_cluster import LocalCluster, NodeNotStartedError, free_ports
from tailrace.client.admin import NewTopic
from tests.wire.clients import CLIENTS, Sent

pytestmark = pytest.mark.wire

ONE = Sent(b"k", b"one", 1_700_000_000_000)
TWO = Sent(b"k", b"two", 1_700_000_000_001)
THREE = Sent(b"k", b"three", 1_700_000_000_002)
CLIENT = CLIENTS["confluent-kafka"]


@contextmanager
def running(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command on the files of a directory, and the text that it prints at its start."""
    started = (sys.executable, "-m", "tailrace", "cluster", "start", "--data", str(directory))
    command = [*started, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                if line.startswith("Ctrl-C"):
                    break
            yield process, "".join(lines)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def send(servers: str, record: Sent) -> list[int]:
    """The offset of a record that is sent to `t`."""
    return CLIENT.produce(servers, "t", [record], codec="none", is_idempotent=True)


def test_a_cluster_by_hand(tmp_path: Path) -> None:
    """A broker dies, records pass, it is started again; the next start has all records."""
    # The files decide on the ports, so that tests beside this one have others.
    LocalCluster(tmp_path, brokers=3, ports=free_ports(4))
    with running(tmp_path) as (process, text):
        (servers,) = re.findall(r"^bootstrap.servers=(.+)$", text, re.MULTILINE)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("t", replicas={0: (3, 1, 2)})])
        assert send(servers, ONE) == [0]
        (pid,) = re.findall(r"kill -9 (\d+)", text)
        os.kill(int(pid), signal.SIGKILL)
        assert send(servers, TWO) == [1]
        assert process.stdout is not None
        assert "broker-3 has ended (by SIGKILL)" in process.stdout.readline()
        command = process.stdout.readline().split()
        assert command[:3] == ["tailrace", "serve", "--config"]
    assert process.returncode == 0
    with running(tmp_path) as (process, text):
        assert f"bootstrap.servers={servers}\n" in text
        assert send(servers, THREE) == [2]
        assert CLIENT.read(servers, "t", 0, count=3) == [ONE, TWO, THREE]
    assert process.returncode == 0


@pytest.mark.usefixtures("hears_hangups")
def test_nodes_are_stopped_when_the_terminal_goes(tmp_path: Path) -> None:
    """They have sessions of their own, and would run on by themselves."""
    cluster = LocalCluster(tmp_path, brokers=1, ports=free_ports(2))
    with running(tmp_path, "--brokers", "1") as (process, text):
        (pid,) = re.findall(r"kill -9 (\d+)", text)
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    for each in cluster.nodes:
        assert (tmp_path / each.name / ".kafka_cleanshutdown").exists()


def test_nodes_are_stopped_if_one_does_not_start(tmp_path: Path) -> None:
    """The error has the last lines of its log, and no process is left."""
    cluster = LocalCluster(tmp_path, brokers=1, ports=free_ports(2), settings={"log.dirs": "x,x"})
    with pytest.raises(NodeNotStartedError, match=r"broker-1 did not start: .*log\.dirs"):
        cluster.start()
    assert not any(each.is_running for each in cluster.nodes)


@pytest.mark.slow
def test_the_demonstration_loses_nothing(tmp_path: Path) -> None:
    """It ends with status 0 after its own check, and has drawn the picture."""
    picture = tmp_path / "picture.html"
    command = (sys.executable, "-m", "tailrace", "cluster", "demo", "--picture", str(picture))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "none is missing, none is there twice" in done.stdout
    assert picture.read_text().endswith("</svg>\n")
