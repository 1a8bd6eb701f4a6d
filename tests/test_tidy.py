"""The house rules that no linter has: budgets, words, and what a tree may not contain."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 800
CLASS_METHODS_MAX = 25
PARAMETERS_MAX = 8
POSITIONAL_MAX = 3

BANNED_NAMES = {"utils", "util", "common", "helpers", "core", "impl", "misc", "base"}
BANNED_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
ADDRESSES = re.compile(
    r"pypi\.org|files\.pythonhosted|repo1?\.maven|registry\.npmjs|deb\.debian|/root/|/work/|/tmp/w",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tree(path: Path) -> ast.Module:
    """The parsed module."""
    return ast.parse(path.read_text(), str(path))


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a module."""
    for node in ast.walk(tree(path)):
        if isinstance(node, Function):
            yield node


def body_lines(function: Function) -> int:
    """Lines of a function's body without its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    if has_docstring and len(function.body) == 1:
        return 0
    start = function.body[1].lineno if has_docstring else first.lineno
    assert function.end_lineno is not None
    return function.end_lineno - start + 1


@pytest.mark.parametrize(
    "path", SOURCES + TESTS + BENCHMARKS, ids=lambda p: str(p.relative_to(ROOT))
)
def test_module_and_functions_are_within_budget(path: Path) -> None:
    """Modules, functions and classes are small enough to be read whole."""
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX
    for function in functions(path):
        where = f"{path.name}:{function.lineno} {function.name}"
        assert body_lines(function) <= FUNCTION_LINES_MAX, where
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, Function)]
            assert len(methods) <= CLASS_METHODS_MAX, f"{path.name}:{node.lineno} {node.name}"


@pytest.mark.parametrize(
    "path",
    # A kernel takes its buffers one by one and by position: Numba's dispatch knows no keywords.
    [path for path in SOURCES if path.parent.name != "kernels"],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_parameters_are_few_and_named(path: Path) -> None:
    """A function has at most eight parameters, and from the fourth on they are keywords."""
    for function in functions(path):
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        if positional and positional[0].arg in {"self", "cls"}:
            positional = positional[1:]
        where = f"{path.name}:{function.lineno} {function.name}"
        assert len(positional) + len(arguments.kwonlyargs) <= PARAMETERS_MAX, where
        if not arguments.kwonlyargs and len(positional) <= POSITIONAL_MAX:
            continue
        assert len(positional) <= POSITIONAL_MAX, f"{where}: too many without a name"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_module_has_a_name_and_a_docstring(path: Path) -> None:
    """Every module says what it is, and is not called after nothing."""
    assert path.stem not in BANNED_NAMES
    assert ast.get_docstring(tree(path)), path


@pytest.mark.parametrize("path", TESTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_tests_state_a_claim_and_do_not_sleep_or_mock(path: Path) -> None:
    """Each test has a sentence that says what it claims; none sleeps or replaces our code."""
    for function in functions(path):
        if function.name.startswith("test_"):
            assert ast.get_docstring(function), f"{path.name}:{function.lineno} {function.name}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            assert node.attr != "sleep", f"{path.name}:{node.lineno} sleeps"
        if isinstance(node, ast.ImportFrom | ast.Import):
            imported = {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
            imported |= {alias.name for alias in node.names}
            assert not any("mock" in name for name in imported), f"{path.name}:{node.lineno} mocks"


def tracked_files() -> list[Path]:
    """Every text file that is, or is about to be, in the tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file() and path.suffix != ".png"]


def test_tree_has_no_leftovers_and_no_addresses() -> None:
    """No unfinished marks, no host of a registry, no path of anyone's machine."""
    for path in tracked_files():
        if path == Path(__file__):
            continue
        text = path.read_text(errors="replace")
        for pattern in (BANNED_WORDS, ADDRESSES):
            assert not pattern.findall(text), path.relative_to(ROOT)
