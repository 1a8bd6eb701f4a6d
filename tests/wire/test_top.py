"""`tailrace top` on a broker: its tables once, and its screen in a terminal, with keys."""

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from select import select

import pytest

from tailrace import Consumer, Producer
from tailrace.testing import TestBroker
from tests.unit.cli.running import lines, objects, said

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker, and the group `billing`, which lags by 3 records of `orders`."""
    with TestBroker() as broker:
        broker.create_topic("orders", partitions=2)
        servers = broker.bootstrap_servers
        with Producer(bootstrap_servers=servers) as producer:
            for _ in range(5):
                producer.send("orders", b"v", partition=1)
        with Consumer(
            bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest",
            max_poll_records=2, enable_auto_commit=False,
        ) as consumer:  # fmt: skip
            consumer.subscribe(["orders"])
            while not consumer.poll(1):
                pass
            consumer.commit()
        yield servers


def test_tables_once(bootstrap: str) -> None:
    """Without a terminal the tables are printed, and with --json all their columns."""
    found = objects("top", "--once", "--interval", 0.2, "-b", bootstrap)
    assert [each["type"] for each in found if each["type"] != "topic"] == ["group", "broker"]
    topic = next(each for each in found if each.get("topic") == "orders")
    assert (topic["partitions"], topic["records_per_s"], topic["leaderless"]) == (2, 0, 0)
    group = next(each for each in found if each["type"] == "group")
    assert (group["group"], group["lag"], group["state"]) == ("billing", 3, "Empty")
    printed = lines("top", "--view", "groups", "--interval", 0.2, "-b", bootstrap)
    assert printed[0].split()[:2] == ["group", "state"]
    assert printed[1].startswith("billing  Empty")
    assert len(printed) == 2
    assert "'9404' is no URL" in said("top", "--metrics", "9404", "-b", bootstrap)


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", screen: int, tty: int) -> None:
        self.process = process
        self._screen = screen
        self._tty = tty
        self._seen = b""
        self.painted = b""
        """Everything that the program has written so far."""
        self.settings_before: list[object] = termios.tcgetattr(tty)

    @property
    def settings(self) -> list[object]:
        """The present modes of the terminal."""
        return termios.tcgetattr(self._tty)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._screen, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read until this has been painted since the last call."""
        deadline = time.monotonic() + 60
        while text.encode() not in self._seen:
            ready, _, _ = select([self._screen], [], [], max(deadline - time.monotonic(), 0))
            assert ready, (text, self._seen)
            read = os.read(self._screen, 65536)
            self._seen += read
            self.painted += read
        self._seen = self._seen[self._seen.index(text.encode()) + len(text) :]


@contextmanager
def in_terminal(*arguments: str) -> Iterator[Terminal]:
    """`tailrace` in a new terminal, killed at the end."""
    screen, tty = pty.openpty()
    termios.tcsetwinsize(tty, (24, 100))
    # A shell that opens it as the first of a session gets it as its controlling terminal.
    command = 'tty=$0; exec "$@" <"$tty" >"$tty" 2>&1'
    process = subprocess.Popen(
        ["sh", "-c", command, os.ttyname(tty), sys.executable, "-m", "tailrace", *arguments],
        start_new_session=True,
        env=os.environ | {"TERM": "xterm"},
    )
    try:
        yield Terminal(process, screen, tty)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
        os.close(tty)


LEAVES = "\x1b[?1049l"
"""Xterm's command to show again what was there before."""


def test_keys_in_a_terminal(bootstrap: str) -> None:
    """The screen follows keys; after q the terminal is as it was."""
    with in_terminal("top", "-b", bootstrap) as terminal:
        terminal.wait_for("orders")
        assert terminal.settings != terminal.settings_before
        terminal.press("2")
        terminal.wait_for("billing")
        # The Down key as a terminal sends it, which ncurses has put into its other mode.
        terminal.press("\x1bOB\r")
        terminal.wait_for("committed")
        terminal.wait_for("orders-1")
        terminal.press("q")
        terminal.wait_for(LEAVES)
        assert terminal.process.wait(60) == 0
        assert terminal.settings == terminal.settings_before


def test_a_signal_restores_the_terminal(bootstrap: str) -> None:
    """Ctrl-C ends it, as SIGTERM does, and the terminal is as it was."""
    with in_terminal("top", "-b", bootstrap, "--view", "brokers") as terminal:
        terminal.wait_for("leaders")
        terminal.press("\x03")
        terminal.wait_for(LEAVES)
        assert terminal.process.wait(60) == 128 + signal.SIGINT
        assert terminal.settings == terminal.settings_before


def test_a_broker_that_dies_is_on_the_screen() -> None:
    """The reason is there, no log line is written over it, and a restart brings new values."""
    with TestBroker() as broker, in_terminal("top", "-b", broker.bootstrap_servers) as terminal:
        terminal.wait_for("there are no topics")
        broker.kill()
        # By its logger the client warns of the same, a second later.
        terminal.wait_for("no connection")
        terminal.wait_for("s old")
        broker.restart()
        broker.create_topic("orders")
        terminal.wait_for("orders")
        assert b"cluster_unreachable" not in terminal.painted
        terminal.press("q")
        assert terminal.process.wait(60) == 0
