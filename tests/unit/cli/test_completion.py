"""Completion in a shell, as `_TAILRACE_COMPLETE` has it: commands, topics and groups."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tailrace import Consumer
from tailrace.cli import commands
from tailrace.testing import TestBroker


@pytest.fixture
def at() -> Iterator[tuple[str, str]]:
    """The flag for a broker with topics and a group."""
    with TestBroker() as broker:
        for name in ("orders", "orders-late", "payments"):
            broker.create_topic(name)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="billing",
            auto_offset_reset="earliest",
        ) as consumer:  # fmt: skip
            consumer.subscribe("orders")
            broker.produce("orders", "one")
            while not consumer.poll(1):
                pass
        yield "--bootstrap", broker.bootstrap_servers


def completed(*typed: str) -> list[str]:
    """The words that fit the last one, which is incomplete."""
    shell = ShellComplete(commands, {}, "tailrace", "_TAILRACE_COMPLETE")
    return [each.value for each in shell.get_completions(list(typed[:-1]), typed[-1])]


def test_topics_and_groups_are_those_of_the_cluster(at: tuple[str, str]) -> None:
    """Also a second topic of a command that takes several; internal ones after an underscore."""
    assert completed("topic", "describe", *at, "or") == ["orders", "orders-late"]
    assert completed("topic", "delete", *at, "orders", "pay") == ["payments"]
    assert completed("consume", *at, "") == ["orders", "orders-late", "payments"]
    assert completed("topic", "describe", *at, "__") == ["__consumer_offsets"]
    assert completed("group", "describe", *at, "b") == ["billing"]


def test_without_a_broker_nothing_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """Not even an error: it would be taken for names."""
    assert completed("topic", "describe", "--bootstrap", "127.0.0.1:1", "or") == []
    assert completed("topic", "describe", "--bootstrap", "nowhere", "or") == []
    assert completed("group", "describe", "--option", "x", "or") == []
    assert capfd.readouterr() == ("", "")


def test_a_shell_gets_its_script_and_commands() -> None:
    """By the variables that the script sets."""
    command = [str(Path(sys.executable).with_name("tailrace"))]

    def printed(**variables: str) -> str:
        environment = {**os.environ, **variables}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    assert "compdef" in printed(_TAILRACE_COMPLETE="zsh_source")
    words = {"COMP_WORDS": "tailrace to", "COMP_CWORD": "1"}
    assert "topic" in printed(_TAILRACE_COMPLETE="bash_complete", **words)
