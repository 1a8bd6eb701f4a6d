"""The `tailrace` command as a whole, and the package's names."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import tailrace
from tailrace.cli import SUBCOMMANDS, commands, main
from tailrace.runtime import memory
from tests.unit.cli.running import closed_run

LOADED = "import sys{0}; print(sorted(name for name in sys.modules if name.startswith('tailrace')))"


def loaded(code: str) -> str:
    """The modules of Tailrace that a program of its own has imported in the end."""
    run = subprocess.run(
        [sys.executable, "-c", LOADED.format(code)], check=True, capture_output=True, text=True
    )
    return run.stdout


def test_help_names_every_command() -> None:
    """Each command is listed with what it does."""
    shown = CliRunner().invoke(commands, ["--help"]).output
    for name, purpose in SUBCOMMANDS.items():
        assert f"{name} " in shown
        assert purpose in shown


def test_every_listed_command_is_there() -> None:
    """Every command in the help can be called by its name."""
    context = click.Context(commands)
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_help_imports_no_command() -> None:
    """The list of commands does not wait for what they need."""
    code = ", tailrace.cli; tailrace.cli.commands(['--help'], standalone_mode=False)"
    assert loaded(code).endswith(
        "['tailrace', 'tailrace.cli', 'tailrace.errors', 'tailrace.values']\n"
    )


def test_the_package_shows_its_public_names() -> None:
    """Completion in a shell offers what the package has, imported or not."""
    assert dir(tailrace) == sorted(tailrace.__all__)


def test_the_package_imports_nothing_before_it_is_used() -> None:
    """`import tailrace` costs nothing worth mentioning."""
    assert loaded("; import tailrace; dir(tailrace)") == "['tailrace']\n"


def test_every_public_name_is_there() -> None:
    """Each name of the package leads to something, from whichever room."""
    assert all(getattr(tailrace, name).__name__ == name for name in tailrace.__all__)


@pytest.fixture
def lent_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The handlers of signals, and whose the process is, are the same after a test of `main`."""
    monkeypatch.setattr(memory, "_process", memory._Process())
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("lent_process")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("cluster", "start", "--data", "/dev/null/x"), 1, "/dev/null/x: not a directory"),
        (("cluster", "demo", "--picture", "/dev/null/x/y.html"), 2, "no directory /dev/null/x"),
        (("log", "verify", "--data", "/dev/null"), 2, "cannot read /dev/null: not a directory"),
        (("log", "cat", "--data", "/nowhere", "t"), 1, "cannot read /nowhere: no such file"),
        (("topic", "list", "--bootstrap", "127.0.0.1:1"), 1, "Connection refused; is a broker"),
        (("topic", "list", "--bootstrap", "here"), 1, "--bootstrap: 'here' is not HOST:PORT"),
        (("topic", "lsit"), 2, "No such command 'lsit'"),
    ],
)
def test_an_expected_failure_is_a_sentence(
    arguments: tuple[str, ...],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says what happened and where, and never has a traceback."""
    monkeypatch.setattr(sys, "argv", ["tailrace", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert (ended.value.code, words in said) == (code, True), said
    assert "Traceback" not in said
    # A wrong usage has the usage before its sentence.
    assert len(said.splitlines()) == (1 if code == 1 or "verify" in arguments else 4)


@pytest.mark.parametrize("is_buffered", [True, False])
def test_an_output_that_has_no_room_is_a_sentence(*, is_buffered: bool) -> None:
    """A file of records on a full device is not whole, and no traceback says so."""
    options = [] if is_buffered else ["-u"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, *options, "-m", "tailrace", "--help"],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert "tailrace: no space left on device: the output is not whole" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", [(), ("--json",), ("--group", "g")])
def test_records_that_have_no_place_are_not_read(options: tuple[str, ...]) -> None:
    """Stdout is closed: one sentence, before a broker is asked."""
    done = closed_run(">&-", "consume", "t", "--bootstrap", "127.0.0.1:1", *options)
    assert (done.returncode, done.stderr) == (
        1,
        "tailrace: stdout is closed, so no record can be printed; send them to /dev/null\n",
    )


def test_a_port_that_says_nothing_is_one_sentence() -> None:
    """The client's warning has the same reason, and is not printed before it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        limit = "socket.connection.setup.timeout.ms=2100"
        words = ["topic", "list", "--bootstrap", place, "--option", limit]
        done = subprocess.run(
            [sys.executable, "-m", "tailrace", *words], check=False, capture_output=True, text=True
        )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"tailrace: bootstrap server ({place}): no connection within")
