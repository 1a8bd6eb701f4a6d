"""The variables of a service manager, and messages to it, on real sockets."""

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.errors import ListenError
from tailrace.runtime.service_manager import open_service_manager

OWN = str(os.getpid())


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_service_manager_receives_what_it_is_sent(tmp_path: Path, is_abstract: bool) -> None:  # noqa: FBT001
    """On a path or in the abstract namespace; a status is one line."""
    name = f"@tailrace-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(name.replace("@", "\0") if is_abstract else name)
        with closing(open_service_manager({"NOTIFY_SOCKET": name})) as manager:
            manager.notify("READY=1", "STATUS=a\nb")
        assert receiving.recv(100) == b"READY=1\nSTATUS=a b"


def test_a_service_manager_that_is_gone_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node serves on without it."""
    with closing(open_service_manager({"NOTIFY_SOCKET": str(tmp_path / "gone")})) as manager:
        manager.notify("WATCHDOG=1")
        manager.notify("WATCHDOG=1")
    assert [each.split()[0] for each in caplog.messages] == ["service_manager_not_notified"]


@pytest.mark.parametrize(
    ("variables", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": OWN}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_watchdog_is_for_one_process(
    variables: dict[str, str], watchdog_s: float | None
) -> None:
    """Variables that are meant for the parent count for none of its children."""
    assert open_service_manager(variables).watchdog_s == watchdog_s


def given(names: str, *, count: int = 1, pid: str = OWN) -> dict[str, str]:
    """The variables of inherited sockets."""
    return {"LISTEN_FDS": str(count), "LISTEN_PID": pid, "LISTEN_FDNAMES": names}


def test_sockets_are_inherited_by_name() -> None:
    """And closed in whatever this process starts; those for another process stay where they are."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = os.dup(server.fileno())
        os.set_inheritable(first, True)  # noqa: FBT003 - it has no keyword
        assert open_service_manager(given("one", pid="1"), first_descriptor=first).sockets == {}
        with open_service_manager(given("one"), first_descriptor=first).sockets["one"] as found:
            assert found.getsockname() == server.getsockname()
            assert not os.get_inheritable(first)


@pytest.mark.parametrize(
    ("family", "kind", "is_listening"),
    [
        (socket.AF_INET, socket.SOCK_STREAM, False),
        (socket.AF_INET, socket.SOCK_DGRAM, False),
        (socket.AF_UNIX, socket.SOCK_STREAM, True),
    ],
)
def test_other_sockets_are_refused(
    tmp_path: Path, family: socket.AddressFamily, kind: socket.SocketKind, *, is_listening: bool
) -> None:
    """A connection of a unit with Accept=yes, a socket for datagrams, a socket of this machine."""
    with socket.socket(family, kind) as other:
        if is_listening:
            other.bind(str(tmp_path / "socket"))
            other.listen()
        first = os.dup(other.fileno())
        with pytest.raises(ListenError, match=r"socket one of .* no TCP socket that listens"):
            open_service_manager(given("one"), first_descriptor=first)
