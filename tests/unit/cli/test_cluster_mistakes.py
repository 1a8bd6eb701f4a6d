"""Mistakes in commands that ask a cluster: each is one sentence, in the words of the flags."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.running import run, said

COMMANDS: dict[str, list[str]] = {
    "topic create": ["t"],
    "topic list": [],
    "topic describe": ["t"],
    "topic alter": ["t", "--unset", "retention.ms"],
    "topic delete": ["t", "--yes"],
    "group list": [],
    "group describe": ["g"],
    "group reset": ["g", "--topic", "t", "--to", "earliest"],
    "group delete": ["g", "--yes"],
    "group delete-offsets": ["g", "--topic", "t", "--yes"],
    "produce": ["t"],
    "consume": ["t", "--exit"],
    "transaction list": [],
    "transaction describe": ["x"],
    "transaction find-hanging": [],
    "transaction abort": ["--topic", "t", "--partition", "0", "--start-offset", "1", "--yes"],
}


@pytest.fixture
def nobody() -> Iterator[str]:
    """HOST:PORT where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_broker_that_is_not_there_is_told_at_once(command: str, nobody: str) -> None:
    """The sentence has the address, what happened, and what to check."""
    told = said(*command.split(), *COMMANDS[command], "--bootstrap", nobody, given=b"")
    assert re.search(rf"{nobody}.*: no connection: .*; is a broker running there", told)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_client_setting_is_told_as_an_option(command: str) -> None:
    """The same flag gives the client's settings to every command."""
    told = said(*command.split(), *COMMANDS[command], "--option", "retires=1", given=b"")
    assert told.startswith("--option retires: ")


def test_a_bootstrap_that_is_no_address_is_told_with_its_flag() -> None:
    """The setting behind the flag is not named."""
    told = said("topic", "list", "--bootstrap", "nonsense")
    assert told == "--bootstrap: 'nonsense' is not HOST:PORT"


def test_settings_are_read_from_a_file_and_options_go_over_them(tmp_path: Path) -> None:
    """A login need not stand on the command line."""
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.username=u\nretires=1\n")
    told = said("topic", "list", "--command-config", path)
    assert told.startswith("--option retires: ")
    path.write_text(
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"retries=${{file:{tmp_path}/own:retries}}\n"
    )
    told = said("topic", "list", "--command-config", path)
    assert "retries: ${file:" in told
    assert "cannot be looked up" in told
    (tmp_path / "own").write_text("retries=x\n")
    told = said("topic", "list", "--command-config", path)
    assert told.startswith("--option retries: ")


def test_a_file_may_have_the_address(tmp_path: Path, nobody: str) -> None:
    """One file is enough, as for Kafka's tools, and the flag goes over it."""
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={nobody}\n")
    told = said("topic", "list", "--command-config", path)
    assert f"{nobody}" in told
    path.write_text("bootstrap.servers=nonsense\n")
    told = said("topic", "list", "--command-config", path)
    assert told == "--bootstrap: 'nonsense' is not HOST:PORT"
    told = said("topic", "list", "--command-config", path, "--bootstrap-server", nobody)
    assert f"{nobody}" in told
    told = said("topic", "list", "--option", "bootstrap.servers=a:1")
    assert told == "Error: bootstrap.servers is given by --bootstrap"


MISTAKES = {
    "topic create t --config retention.ms": "'retention.ms' is not NAME=VALUE",
    "broker alter 1 --config retention.ms": "'--config': 'retention.ms' is not NAME=VALUE",
    "quota set --user u producer_byte_rate": "'producer_byte_rate' is not NAME=VALUE",
    "log explain --data d --set retention.ms": "'--set': 'retention.ms' is not NAME=VALUE",
    "pipeline query q --archive a --data d --option x": "'--option': 'x' is not NAME=VALUE",
    "topic alter t": "nothing to change; give --config, --unset or --partitions",
    "topic alter t --config a=1 --unset a": "give either --config or --unset, not both",
    "group reset g --topic t": "give either --to or --shift-by",
    "group reset g --topic t --to 5 --shift-by 5": "give either --to or --shift-by",
    "group reset g --to 5": "give either --topic (repeatable) or --all-topics",
    "group reset g --topic t --all-topics --to 5": (
        "give either --topic (repeatable) or --all-topics"
    ),
    "group reset g --topic t --to yesterday": (
        "--to: 'yesterday' is not understood; give earliest, latest, an offset, a time such as "
        "2026-05-01T12:00, or a duration such as 90m"
    ),
    "group delete-offsets g": "--topic is required",
    "group delete-offsets g --topic t:7-4 --yes": "--topic: the range '7-4' ends before it begins",
    "group reset g --topic t:0-9999999 --to 5": "names 10000000 partitions, and at most 100000",
    "group delete-offsets g --topic t:0-9999999": "names 10000000 partitions, and at most 100000",
    "group reset g --topic t --to 9999999999999999999": "--to: '9999999999999999999' does not fit",
    "group reset g --topic t --to @9999999999999999999": "'@9999999999999999999' does not fit",
    "produce t --delimiter \\q": "'\\\\q' is not an escape; use",
    "produce t --delimiter=": "--delimiter must not be empty",
    "produce t --json -K :": "give --key-separator or --json, not both",
    "produce t --header x": "--header: 'x' is not NAME=VALUE",
    "consume t --json -f %s": "give --format or --json, not both",
    "consume t -f %x": "--format: %x is not a format token; use",
    "consume t -o soon": "--offset: 'soon' is not understood; give beginning, end, an offset",
    "consume t -o 5 -o end": "--offset: give at most one start",
    "consume t -o s@9999999999999999999": "'s@9999999999999999999' is not understood",
    "consume t --partitions 0-9999999": "names 10000000 partitions, and at most 100000",
    "consume t --partitions 0-60000,0-60000": "names 120002 partitions, and at most 100000",
    "topic create t --partitions 2147483648": "2147483648 is not in the range",
    "topic create t --replication-factor 32768": "32768 is not in the range",
    "topic alter t --partitions 2147483648": "2147483648 is not in the range",
    "consume t --partitions 7-4": "--partitions: the range '7-4' ends before it begins",
    "consume t --partitions 0,x": (
        "--partitions: 'x' is not a partition number; give numbers such as 0,1,4-7"
    ),
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_wrong_command_is_told_before_anything_is_asked(typed: str) -> None:
    """The exit code is 2, and no connection is made."""
    result = run(*typed.split(), given=b"")
    assert result.exit_code == 2, result.output
    assert MISTAKES[typed] in result.stderr
