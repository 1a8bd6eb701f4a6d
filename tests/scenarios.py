"""Tables of the tests that others have of the same thing, and of our tests that claim the same.

    tests/conformance/LogSegmentTest.tsv    Apache Kafka's own tests of log and producer
        testReadFromGap    tests/unit/storage/test_segment.py::test_read_from_a_gap …
        testX              never: why it has no counterpart here
        testY              not yet
    tests/parity/KafkaSinkSuite.tsv         those of Spark's Kafka connector, in words

A line for each upstream method or scenario, and behind a tab our tests. docs/conformance.md and
docs/spark-parity.md are made from these tables and from the docstrings of the tests they name.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFORMANCE = Path(__file__).parent / "conformance"
PARITY = Path(__file__).parent / "parity"

NEVER = "never: "
NOT_YET = "not yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One upstream test method."""

    upstream_class: str
    method: str
    verdict: str
    """Ids of our tests, or why there is none."""

    @property
    def tests(self) -> tuple[str, ...]:
        """Ids as pytest prints them, without parameters."""
        if self.verdict.startswith((NEVER, NOT_YET)):
            return ()
        return tuple(self.verdict.split())


def scenarios(tables: Path) -> list[Scenario]:
    """Every row of every table of a folder, in the tables' order."""
    found = []
    for table in sorted(tables.glob("*.tsv")):
        for line in table.read_text().splitlines():
            method, _, verdict = line.partition("\t")
            found.append(
                Scenario(upstream_class=table.stem, method=method, verdict=verdict.strip())
            )
    return found


@cache
def claims(path: Path) -> dict[str, str]:
    """The test functions of a file, each with the first line of its docstring."""
    tree = ast.parse(path.read_text())
    named = [("", node) for node in tree.body]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            named += [(f"{node.name}::", each) for each in node.body]
    return {
        prefix + node.name: (ast.get_docstring(node) or "").split("\n")[0]
        for prefix, node in named
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def claim(test_id: str) -> str | None:
    """Return a test's claim, or None if there is no such test."""
    name, _, function = test_id.partition("::")
    path = ROOT / name
    return claims(path).get(function) if path.is_file() else None


def document(tables: Path) -> Iterator[str]:
    """The lines of the page about a folder of tables behind its heading."""
    rows = scenarios(tables)
    classes = dict.fromkeys(row.upstream_class for row in rows)
    yield "| class of upstream tests | scenarios | tested here | never | not yet |"
    yield "|---|---:|---:|---:|---:|"
    for name in (*classes, "all"):
        of_class = [row for row in rows if name in (row.upstream_class, "all")]
        tested = sum(bool(row.tests) for row in of_class)
        never = sum(row.verdict.startswith(NEVER) for row in of_class)
        label = f"[{name}](#{name.lower()})" if name in classes else f"**{name}**"
        rest = len(of_class) - tested - never
        yield f"| {label} | {len(of_class)} | {tested} | {never} | {rest} |"
    for name in classes:
        yield ""
        yield f"## {name}"
        yield ""
        yield "| scenario | our test claims | test |"
        yield "|---|---|---|"
        for row in rows:
            if row.upstream_class == name:
                yield _line(row)


def _line(row: Scenario) -> str:
    if not row.tests:
        return f"| {row.method} | {row.verdict.replace('|', '/')} | |"
    said = "<br>".join((claim(each) or "?").replace("|", "/") for each in row.tests)
    named = "<br>".join(f"`{each}`" for each in row.tests)
    return f"| {row.method} | {said} | {named} |"
