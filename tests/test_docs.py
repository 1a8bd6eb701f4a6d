"""The documentation says what the code does now."""

import inspect
import json
import re
import tomllib
from pathlib import Path

import pytest

import tailrace
from tailrace import AsyncConsumer, AsyncProducer
from tailrace.client.consumer.metrics import METRICS as CONSUMER_METRICS
from tailrace.client.producer.metrics import METRICS
from tailrace.spark.install import PYSPARK_NEWEST, PYSPARK_OLDEST, PYSPARK_RANGE
from tailrace.spark.options import names
from tailrace.spark.sink import options as sink
from tailrace.testing import virtual_runtime
from tests.public import PUBLIC, public_names
from tests.references import DOCS, REFERENCES, ROOT, figures_of_statistics
from tests.smoke import wheels

IMPORTED = re.compile(r"^ *(?:>>> )?from (tailrace[\w.]*) import (\([^)]*\)|[^\n]+)", re.MULTILINE)
MARKDOWN = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.name)
def test_generated_reference_is_current(path: Path) -> None:
    """A generated document is what `make docs` would write today."""
    assert path.read_text() == REFERENCES[path](), "run `make docs`"


def test_what_users_call_is_documented() -> None:
    """Each public name, and each public method and property of a class, has a docstring."""
    silent = []
    for module, owner, face in public_names():
        members = {name: getattr(face, name) for name in dir(face) if not name.startswith("_")}
        calls = {n: o for n, o in members.items() if callable(o) or isinstance(o, property)}
        # A base class may be another package's, such as an event loop.
        calls = {n: o for n, o in calls.items() if _is_ours(o)}
        for name, each in {"": face, **(calls if isinstance(face, type) else {})}.items():
            if not inspect.getdoc(each):
                silent.append(f"{module}.{owner}.{name}")
    assert silent == []


def _is_ours(member: object) -> bool:
    return str(getattr(member, "__module__", None) or "tailrace").startswith("tailrace")


def test_documents_import_public_names_alone() -> None:
    """README, the documents and the examples import nothing that may change without notice."""
    public = {(module, name) for module, name, _ in public_names()}
    found = set()
    for path in [*MARKDOWN, *(ROOT / "examples").iterdir()]:
        text = path.read_text()
        if path.suffix == ".ipynb":
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        for module, imported in re.findall(IMPORTED, text):
            for name in re.findall(r"\w+", imported):
                found.add((module, name))
                assert (module, name) in public, f"{path}: {module} has no public name {name}"
        for module in re.findall(r"^(?:>>> )?import (tailrace[\w.]*)", text, re.MULTILINE):
            assert module in PUBLIC, f"{path}: {module}"
    assert len(found) > 20


def test_every_metric_is_explained() -> None:
    """The metrics of producers and consumers are those that docs/metrics.md explains."""

    async def names() -> tuple[set[str], set[str]]:
        async with (
            AsyncProducer(bootstrap_servers="a:1", runtime=outside.runtime) as producer,
            AsyncConsumer(bootstrap_servers="a:1", runtime=outside.runtime) as consumer,
        ):
            return set(producer.metrics()), set(consumer.metrics())

    with virtual_runtime() as outside:
        assert outside.run(names()) == (set(METRICS), set(CONSUMER_METRICS))


def test_every_figure_of_statistics_is_explained() -> None:
    """Each has a sentence, from which docs/metrics.md is made, with its unit if it has one."""
    silent = [f"{value}.{figure}" for value, figure, _, said in figures_of_statistics() if not said]
    assert silent == []


def test_every_option_of_spark_is_explained() -> None:
    """The options and columns of source and sink are those that docs/spark.md explains."""
    text = (DOCS / "spark.md").read_text()
    of_source = (*names.KNOWN, *names.COLUMNS, *names.HEADERS, *names.METADATA)
    for name in (*of_source, *sink.OWN.values(), *sink.COLUMNS):
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    """A relative link, and a path of the tree in backticks, name something that is there."""
    text = path.read_text()
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (path.parent / target).exists(), target
    for named in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", text):
        assert (ROOT / named).exists(), named


def test_the_files_that_hold_bytes_of_a_log_are_told_from_each_other() -> None:
    """Docs say which of the files that fill a disk were kept by a start, and which by a repair."""
    section = (DOCS / "bad-day.md").read_text().partition("\n## What fills a disk\n")[2]
    words = " ".join(section.partition("\n## ")[0].split())
    assert "`set-aside` was kept by a start" in words
    assert "`quarantine` by a repair" in words


def test_the_range_of_pyspark_is_the_same_everywhere() -> None:
    """README, docs/spark.md and the extra of the package have the oldest and the newest version."""
    (oldest, newest), next_minor = (PYSPARK_OLDEST, PYSPARK_NEWEST), PYSPARK_NEWEST[1] + 1
    assert f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}" == PYSPARK_RANGE
    for path in (ROOT / "README.md", DOCS / "spark.md"):
        assert f"PySpark {PYSPARK_RANGE}" in " ".join(path.read_text().split()), path
    extra = f'"pyspark>={oldest[0]}.{oldest[1]},<{newest[0]}.{next_minor}"'
    assert extra in (ROOT / "pyproject.toml").read_text()


def test_versions_are_the_same_everywhere() -> None:
    """Changelog, docs/versions.md, the metadata and `make wheels` have the same versions."""
    assert PROJECT["version"] == tailrace.__version__
    assert f"## {tailrace.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    pythons = [f"3.{minor}" for minor in wheels.MINORS]
    classified = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if ":: 3." in each]
    assert classified == pythons
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    versions = (DOCS / "versions.md").read_text()
    assert f"| Python | {', '.join(pythons)} |" in versions
    assert f"| PySpark | {PYSPARK_RANGE} |" in versions


def test_commands_of_the_readme_are_targets() -> None:
    """Every `make` command that the README names is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named <= targets


def test_every_decision_is_numbered_and_has_its_parts() -> None:
    """Decision records are numbered without gaps and say context, decision and consequences."""
    records = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        for part in ("## Context", "## Decision", "## Consequences"):
            assert part in path.read_text(), f"{path.name} has no {part}"
