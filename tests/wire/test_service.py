"""`tailrace serve` under a service manager: notifications, inherited sockets, and stops in time."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace import Admin
from tailrace.runtime.machine import read_machine
from tests.wire.test_serve import COMMAND, ready, serving

pytestmark = pytest.mark.wire

INHERIT = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff")
"""A whole ApiVersions request of version 0, without a client id."""


@contextmanager
def managed(
    data: Path, listening: socket.socket, notify: Path, *options: str, name: str = "plaintext"
) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """A broker with a socket of the test as systemd would start it, and what it sends."""
    variables: Mapping[str, str] = {
        "LISTEN_FDS": "1", "LISTEN_FDNAMES": name, "NOTIFY_SOCKET": str(notify),
        "WATCHDOG_USEC": "200000",
    }  # fmt: skip
    command = [*COMMAND, "--data", str(data)]
    notify.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(str(notify))
        receiving.settimeout(60)
        with subprocess.Popen(
            [sys.executable, "-c", INHERIT, str(listening.fileno()), *command, *options],
            env={**os.environ, **variables},
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(listening.fileno(),),
        ) as process:
            try:
                yield process, receiving
            finally:
                process.kill()


def wait_for(receiving: socket.socket, assignment: str) -> list[str]:
    """The assignments that a node sends until it sends this."""
    found: list[str] = []
    while assignment not in found:
        found += receiving.recv(1000).decode().split("\n")
    return found


def test_a_restart_refuses_no_connection(tmp_path: Path) -> None:
    """Clients that connect while no broker runs are answered by the next one.

    READY=1 comes when requests are answered, and WATCHDOG=1 again and again while it serves.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        own = ("--listen", f"127.0.0.1:{port}")
        with managed(tmp_path / "data", listening, tmp_path / "notify", *own) as (process, sent):
            wait_for(sent, "READY=1")
            with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
                assert [each.port for each in admin.describe_cluster().brokers] == [port]
            wait_for(sent, "WATCHDOG=1")
            wait_for(sent, "WATCHDOG=1")
            process.terminate()
            wait_for(sent, "STOPPING=1")
            assert process.wait(60) == 0
        with socket.create_connection(("127.0.0.1", port), timeout=60) as early:
            early.sendall(API_VERSIONS)
            with managed(tmp_path / "data", listening, tmp_path / "notify", *own):
                assert early.recv(8)[4:] == API_VERSIONS[8:12]
        other = (*own, "--override", "advertised.listeners=PLAINTEXT://127.0.0.1:1")
        with managed(tmp_path / "data", listening, tmp_path / "notify", *other, name="other") as (
            process,
            _,
        ):
            assert process.stderr is not None
            [line] = process.stderr.read().splitlines()
            assert line.startswith("tailrace: listeners: there is no other, for which")
            assert process.wait(60) == 1


@contextmanager
def leased(path: Path) -> Iterator[socket.socket]:
    """Have each open of a file wait until the end, for 45 s at most, as on a device that hangs.

    The socket gets a byte when somebody waits.
    """
    asked, asking = socket.socketpair()
    asking.settimeout(0)
    before = signal.signal(signal.SIGIO, lambda *_: None)
    wakeup = signal.set_wakeup_fd(asking.fileno())
    try:
        with asked, asking, path.open("r+") as held:
            asked.settimeout(60)
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            yield asked
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGIO, before)


def test_a_stop_that_hangs_is_broken_off(tmp_path: Path) -> None:
    """The exit code says so, and the directory has no mark of a clean shutdown.

    Until then others see that it is in use. The loop may hang, too, in a start on the same
    directory, where no task could see the signal.
    """
    data, limit = tmp_path / "data", ("--override", "tailrace.shutdown.timeout.ms=1000")
    with serving(data, *limit) as (process, _):
        [used] = read_machine(directories=[str(data)], addresses=[], secrets=[]).directories
        assert used.is_in_use
        mark = data / ".kafka_cleanshutdown.tmp"
        mark.touch()
        with leased(mark):
            process.terminate()
            assert process.wait(30) == 6
    assert not (data / ".kafka_cleanshutdown").exists()
    command = [*COMMAND, "--data", str(data), "--listen", "127.0.0.1:0", *limit]
    [log] = (data / "__cluster_metadata-0").glob("*.log")
    with leased(log) as asked, subprocess.Popen(command) as process:
        asked.recv(1)
        process.terminate()
        assert process.wait(30) == 6


def test_a_stop_without_controllers_is_orderly_and_in_time(tmp_path: Path) -> None:
    """One that is silent is waited for no longer than half of the time, and the logs are closed."""
    names = ("--override", "controller.listener.names=C")
    controller = (
        "--data", str(tmp_path / "c"), "--node-id", "100", "--listen", "C://127.0.0.1:0",
        "--override", "process.roles=controller", *names,
    )  # fmt: skip
    with ready(*controller) as (silent, quorum, _):
        broker = (
            "--data", str(tmp_path / "b"), "--listen", "PLAINTEXT://127.0.0.1:0",
            "--override", "process.roles=broker", *names,
            "--override", f"controller.quorum.bootstrap.servers={quorum}",
            # Half of it is for the controller; the rest is enough where the machine is busy.
            "--override", "tailrace.shutdown.timeout.ms=8000",
        )  # fmt: skip
        with ready(*broker):
            silent.send_signal(signal.SIGSTOP)
        assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
        silent.send_signal(signal.SIGCONT)
