"""The pages docs/migrating: their examples in both columns, their tables against both clients."""

import ast
import asyncio
import builtins
import contextlib
import gc
import importlib
import inspect
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

import tailrace
from tailrace.client.admin.config import ADMIN_SETTINGS
from tailrace.client.consumer.config import CONSUMER_SETTINGS
from tailrace.client.producer.config import PRODUCER_SETTINGS
from tailrace.model import TopicPartition
from tailrace.testing.broker import TestBroker
from tests.references import DOCS
from tests.wire.clients import kafka  # imported without the warnings of kafka-python
from tests.wire.librdkafka import librdkafka_defaults

PAGES = sorted((DOCS / "migrating").glob("*.md"))
ADDRESS = "localhost:9092"
OURS = {"producer": PRODUCER_SETTINGS, "consumer": CONSUMER_SETTINGS, "admin": ADMIN_SETTINGS}
TIME_MS = 1_700_000_000_000


class Pair(NamedTuple):
    """Two examples that do the same, theirs and ours."""

    page: str
    title: str
    theirs: str
    ours: str


def pairs_of(path: Path) -> Iterator[Pair]:
    """The examples of a page; each follows a line `With CLIENT:`."""
    found = re.findall(
        r"([^\n]*)With ([\w-]+):\n\n```python\n(.*?)```", path.read_text(), re.DOTALL
    )
    assert len(found) % 2 == 0
    for (title, theirs, first), (_, ours, second) in zip(found[::2], found[1::2], strict=True):
        assert theirs == path.stem
        assert ours == "Tailrace"
        yield Pair(path.stem, title.strip(" .") or "first program", first, second)


def run(source: str, *, is_theirs: bool) -> tuple[object, ...]:
    """The output of an example, the records that it leaves, and the offsets of its group."""
    with TestBroker() as broker:
        broker.create_topic("flights", partitions=1)
        for number, value in enumerate((b"JFK", b"LGA", b"EWR")):
            broker.produce(
                "flights", value, key=b"%d" % number, timestamp_ms=TIME_MS + 1000 * number
            )
        with tailrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            # kafka-python does not wait until the coordinator of groups is ready.
            admin.alter_group_offsets("other", {TopicPartition("flights", 0): 0}).results()
        shown = io.StringIO()
        assert ADDRESS in source
        code = compile(
            source.replace(ADDRESS, broker.bootstrap_servers),
            "example",
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )
        names: dict[str, object] = {"__builtins__": builtins}
        with warnings.catch_warnings(), contextlib.redirect_stdout(shown):
            if is_theirs:
                warnings.simplefilter("ignore")
            begun = eval(code, names)
            if inspect.iscoroutine(begun):
                asyncio.run(begun)
            names.clear()
            gc.collect()  # their clients warn of sockets that they leave open
        records = [
            (each.key, each.value, list(each.headers)) for each in broker.log("flights").records()
        ]
        return shown.getvalue().splitlines(), records, broker.committed_offsets("billing")


@pytest.mark.parametrize(
    "pair",
    [each for path in PAGES for each in pairs_of(path)],
    ids=lambda pair: f"{pair.page}: {pair.title}",
)
def test_both_columns_do_the_same(pair: Pair) -> None:
    """They print the same, write the same records, and commit the same offsets."""
    ours = run(pair.ours, is_theirs=False)
    assert ours[1], "the records of the topic are still there"
    assert ours == run(pair.theirs, is_theirs=True)


class Row(NamedTuple):
    """A row of a table: its header, and its cells."""

    header: list[str]
    cells: list[str]


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of all tables of a page."""
    header: list[str] = []
    for line in path.read_text().splitlines():
        if not line.startswith("|"):
            header = []
        elif not header:
            header = [each.strip() for each in line.strip()[1:-1].split("|")]
        elif not line.startswith("|-"):
            cells = [each.strip() for each in line.strip()[1:-1].split("|")]
            yield Row(header, cells)


def owner_of(name: str, page: str) -> Any:
    """The class of a client with that name."""
    modules = {
        "Tailrace": ["tailrace", "tailrace.client.producer"],
        "confluent-kafka": ["confluent_kafka", "confluent_kafka.admin"],
        "kafka-python": ["kafka"],
        "aiokafka": ["aiokafka", "aiokafka.admin", "aiokafka.producer.message_accumulator"],
    }
    for module in map(importlib.import_module, modules[page]):
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(f"{page} has no {name}")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_call_of_the_tables_exists(path: Path) -> None:
    """`Class.method` in the left column is one of their client, in the second one of ours."""
    count = 0
    for row in rows_of(path):
        if row.header[:2] != [path.stem, "Tailrace"]:
            continue
        for client, cell in zip(row.header, row.cells[:2], strict=False):
            for owner, method in re.findall(r"`([A-Z]\w+)\.(\w+)", cell):
                assert hasattr(owner_of(owner, client), method), f"{client}: {owner}.{method}"
                count += 1
    assert count > 40


def defaults_of(page: str, kind: str) -> Mapping[str, object]:
    """The settings of the other client with their defaults, by their names."""
    if page == "confluent-kafka":
        return librdkafka_defaults()
    if page == "kafka-python":
        classes = {
            "producer": kafka.KafkaProducer,
            "consumer": kafka.KafkaConsumer,
            "admin": kafka.KafkaAdminClient,
        }
        found: Mapping[str, object] = classes[kind].DEFAULT_CONFIG
        return found
    names = {"producer": "AIOKafkaProducer", "consumer": "AIOKafkaConsumer"}
    signature = inspect.signature(owner_of(names.get(kind, "AIOKafkaAdminClient"), page))
    return {name: each.default for name, each in signature.parameters.items()}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_setting_of_the_tables_has_that_default(path: Path) -> None:
    """Names and defaults are those of both clients; a name without one of ours is none of ours."""
    count = 0
    for row in rows_of(path):
        kind, _, client = row.header[0].partition(": ")
        if kind not in OURS:
            continue
        assert client == path.stem
        theirs, default, ours, our_default = row.cells
        known = {each.name: each for each in OURS[kind]}
        there = defaults_of(path.stem, kind)
        for name in re.findall(r"`([\w.]+)`", theirs):
            if path.stem == "confluent-kafka" and name not in there:
                confluent_kafka.Producer({name: default})  # raises if it is no other name of one
            else:
                assert default == shown(there[name]), name
            if not ours:
                assert name.replace("_", ".") not in known, name
        for name in re.findall(r"`([\w.]+)`", ours):
            setting = known[name.replace("_", ".")]
            assert our_default == (setting.format(setting.default) or "none"), name
        count += 1
    assert count > 20


def shown(default: object) -> str:
    """A default as the tables have it."""
    if default is None or default == "":
        return "none"
    if isinstance(default, tuple):
        return ", ".join(getattr(each, "name", str(each)) for each in default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_the_program_of_the_guide_runs() -> None:
    """The first program of docs/clients.md creates a topic, sends a record and reads it."""
    source = re.findall(r"```python\n(.*?)```", (DOCS / "clients.md").read_text(), re.DOTALL)[0]
    shown = io.StringIO()
    with TestBroker() as broker, contextlib.redirect_stdout(shown):
        exec(source.replace(ADDRESS, broker.bootstrap_servers), {})
    assert shown.getvalue() == "b'JFK'\n"


def test_the_examples_of_ours_import_what_tailrace_offers() -> None:
    """The names that the right columns import from `tailrace` are public."""
    for path in PAGES:
        for pair in pairs_of(path):
            for names in re.findall(r"^from tailrace import (.*)$", pair.ours, re.MULTILINE):
                assert set(names.split(", ")) <= set(tailrace.__all__)
