"""The house rules that no linter has: words, names, and what a tree may not contain."""

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
COMPAT = sorted((ROOT / "compat").rglob("*.py"))

# Alarms to look, not walls to build around: a piece that shares all of its caller's state is part
# of its caller. Classes and parameters have no limit, since limits on them cut objects in half.
FUNCTION_LINES_MAX = 120
MODULE_LINES_MAX = 1_000
POSITIONAL_MAX = 3

RIDDLES = re.compile(
    r'"""(?:All that|As|Here|How|Of|That|Those|What|Where|Who|Whose) |\bwhoever\b', re.IGNORECASE
)
HOUSE_WORDS = re.compile(
    r"\b(?:behind|told|anew|stands?(?! for|-)|stirs?|stirred|goes on|so many|if it is one)\b",
    re.IGNORECASE,
)
"""Words of a dialect; and "behind", which means lag in Kafka: say "after" or "lags"."""
ROOMS_READ = (
    "broker",
    "cli/",
    "client",
    "cluster",
    "config",
    "coordinator",
    "demo",
    "handlers/",
    "kernels",
    "offline",
    "protocol/",
    "reading",
    "records/",
    "replication",
    "runtime",
    "schemas/",
    "server",
    "spark",
    "storage",
    "testing",
    "values.py",
)  # fmt: skip
"""Rooms and modules that have been read for `HOUSE_WORDS`; each that is opened joins them."""
BANNED_NAMES = {"utils", "util", "common", "helpers", "core", "impl", "misc", "base"}
BANNED_WORDS = re.compile("|".join(rf"\b{left}{right}\b" for left, right in (
    ("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("HA", "CK"),
)))  # fmt: skip
HOSTS = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:org|com|net|dev)\b")
"""Names on the internet; of registries and mirrors, for one, the tree knows nothing."""
HOSTS_ALLOWED = re.compile(r"(?:^|\.)(?:apache|example)\.(?:org|com)$")
GO_MODULES = re.compile(r"\b(?:github|golang)\.(?:com|org)(?=/)")
"""The beginning of a module's name in Go, which is how Go itself names it."""
STARTS = {
    "create_task", "ensure_future", "run_coroutine_threadsafe", "call_soon", "call_later",
    "call_at", "add_reader", "add_writer", "watch_reads", "watch_writes", "start", "submit",
    "Popen", "open", "pipe", "socket", "create_server", "create_connection", "listen", "connect",
    "load", "sink", "read_checkpoint", "read_offset_checkpoint", "list_segments", "names",
}  # fmt: skip
"""Names of functions and methods that begin work, open something or read files."""
STARTING = {"Producer", "AsyncProducer", "Consumer", "AsyncConsumer"}
"""Kafka's KafkaProducer begins with its constructor too, and so do the other clients in Python:
code that moves here calls no `start`."""
PLACES = {str(ROOT), str(Path.home())}
"""Paths of this checkout and of the user's home, on any machine on which the tests run."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


KINDS = ast.Module | ast.ClassDef | Function | ast.Attribute | ast.Import | ast.ImportFrom


@pytest.fixture(scope="module", autouse=True)
def parsed() -> Iterator[None]:
    """Search for no garbage among a million parts of modules, which are forgotten at the end."""
    gc.disable()
    yield
    nodes.cache_clear()
    gc.enable()


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """The parts of a module that the rules look at, the module itself first."""
    parsed = ast.parse(path.read_text(), str(path))
    return tuple(node for node in ast.walk(parsed) if isinstance(node, KINDS))


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a module."""
    return (node for node in nodes(path) if isinstance(node, Function))


def at(path: Path, node: Function | ast.ClassDef) -> str:
    """Return the place in the code, for a message."""
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def body_lines(function: Function) -> int:
    """Lines of a function's body without its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    if has_docstring and len(function.body) == 1:
        return 0
    start = function.body[1].lineno if has_docstring else first.lineno
    assert function.end_lineno is not None
    return function.end_lineno - start + 1


def methods_in(node: ast.ClassDef) -> Iterator[Function]:
    """The methods and properties in the body of a class."""
    return (each for each in node.body if isinstance(each, Function))


def test_modules_and_functions_can_be_read_whole() -> None:
    """No module and no function is so long that nobody reads it from its beginning to its end."""
    too_large = []
    for path in SOURCES + TESTS + BENCHMARKS:
        if len(path.read_text().splitlines()) > MODULE_LINES_MAX:
            too_large.append(str(path.relative_to(ROOT)))
        too_large += [
            at(path, each) for each in functions(path) if body_lines(each) > FUNCTION_LINES_MAX
        ]
    assert too_large == []


def starts_in(function: Function, methods: dict[str, Function]) -> Iterator[str]:
    """What a function starts or opens, also by methods of its own class, without inner functions.

    Methods that were looked at are removed from `methods`.
    """
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, Function | ast.Lambda):
            continue
        left += ast.iter_child_nodes(node)
        match node:
            case ast.Call(func=ast.Attribute(ast.Name("self"), name)) if name in methods:
                yield from starts_in(methods.pop(name), methods)
            case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if name in STARTS:
                yield name
            case _:
                pass


def test_constructors_start_and_open_nothing() -> None:
    """To make an object begins no work; a method `start`, an `open` or a `with` block does."""
    starting = []
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and node.name not in STARTING:
                methods = {each.name: each for each in methods_in(node)}
                for name in ("__init__", "__post_init__"):
                    if name in methods:
                        constructor = methods.pop(name)
                        starting += [
                            f"{at(path, node)} {each}" for each in starts_in(constructor, methods)
                        ]
    assert starting == []


def test_parameters_are_named() -> None:
    """From the fourth on, parameters are keywords."""
    too_many = []
    for path in SOURCES:
        if path.parent.name == "kernels" or path.with_suffix(".pxd").exists():
            continue  # Functions in C take arguments by position.
        for function in functions(path):
            arguments = function.args
            positional = [*arguments.posonlyargs, *arguments.args]
            if positional and positional[0].arg in {"self", "cls"}:
                positional = positional[1:]
            if len(positional) > POSITIONAL_MAX:
                too_many.append(at(path, function))
    assert too_many == []


def test_modules_have_a_name_and_a_docstring() -> None:
    """Every module says what it is, and is not called after nothing."""
    nameless = []
    for path in SOURCES:
        module = nodes(path)[0]
        assert isinstance(module, ast.Module)
        if path.stem in BANNED_NAMES or not ast.get_docstring(module):
            nameless.append(str(path.relative_to(ROOT)))
    assert nameless == []


def test_tests_state_a_claim() -> None:
    """Each test has a sentence that says what it claims."""
    silent = [
        at(path, function)
        for path in TESTS
        for function in functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


def test_docstrings_and_comments_can_be_read_once() -> None:
    """No docstring begins with a word such as "What", which leaves the verb to the reader."""
    riddles = []
    for path in [*SOURCES, *TESTS, *BENCHMARKS, *COMPAT]:
        text = path.read_text()
        riddles += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
            for found in RIDDLES.finditer(text)
            if path != Path(__file__)
        ]
    assert riddles == []


def test_rooms_use_the_words_of_the_field() -> None:
    """No room that has been read says `HOUSE_WORDS`, in code, docstrings or comments."""
    found = []
    for path in SOURCES:
        name = str(path.relative_to(ROOT / "src")).removeprefix("tailrace/")
        if name.startswith(ROOMS_READ):
            lines = enumerate(path.read_text().splitlines(), 1)
            found += [
                f"{name}:{number}: {line}" for number, line in lines if HOUSE_WORDS.search(line)
            ]
    assert found == []


def test_tests_do_not_sleep_or_mock() -> None:
    """No test waits for a time to pass, replaces our code, or has others search all imports."""
    faults = []
    for path in TESTS:
        name = path.relative_to(ROOT)
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr == "sleep":
                faults.append(f"{name}:{node.lineno} sleeps")
            elif isinstance(node, ast.Attribute) and node.attr == "unfreeze":
                faults.append(f"{name}:{node.lineno} makes later searches for garbage slow")
            elif isinstance(node, ast.ImportFrom | ast.Import):
                imported = {alias.name for alias in node.names}
                if isinstance(node, ast.ImportFrom):
                    imported.add(node.module or "")
                if any("mock" in each for each in imported):
                    faults.append(f"{name}:{node.lineno} mocks")
    assert faults == []


def tracked_files() -> list[Path]:
    """Every text file that git tracks: what a user keeps in a checkout is no fault of the tree."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file() and path.suffix != ".png"]


def test_the_tree_has_no_leftovers_and_no_addresses() -> None:
    """No unfinished marks, no host but Apache's, no path of the machine that it lies on."""
    found = []
    for path in tracked_files():
        text = path.read_text(errors="replace")
        if path.suffix in {".go", ".mod"}:
            text = GO_MODULES.sub("", text)
        hosts = [each for each in HOSTS.findall(text) if not HOSTS_ALLOWED.search(each)]
        places = [place for place in PLACES if f"{place}/" in text]
        found += [
            f"{path.relative_to(ROOT)}: {each}"
            for each in (*BANNED_WORDS.findall(text), *hosts, *places)
        ]
    assert found == []
