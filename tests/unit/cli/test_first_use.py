"""First use is quick: a command compiles nothing before its first output, and little after it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model import TopicPartition
from tests.spark.directories import write_numbered

RUN = """
import sys
from tailrace import kernels
from tailrace.cli import commands
{before}
commands(["log", *sys.argv[1:]], standalone_mode=False)
from tailrace.kernels.kernel import registered
compiled = sorted(each.plain.__name__ for each in registered() if each.is_compiled)
print("llvmlite" in sys.modules, *compiled, file=sys.stderr)
"""

FIRST_PAGE = """
import sys
from tailrace.kernels import showing
from tailrace.kernels.showing import Form
from tailrace.offline.cat import Choice, choose_partitions, show_records
from tailrace.reading.directory import find_partitions
from tailrace.runtime.files import DiskFiles
files = DiskFiles()
partitions = choose_partitions(find_partitions(files, sys.argv[1]), "flights", None)
pages = show_records(files, partitions, Choice(), form=Form.TEXT)
print(next(page for page in pages if page).count(b"\\n"), showing.show_records.is_compiled)
next(page for page in pages if page)
print(showing.show_records.is_compiled)
"""


def run(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the code in a new process and return its output."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )


def imported_by(*arguments: object, before: str = "") -> str:
    """Whether a command in a new process has opened LLVM, and the kernels it has loaded."""
    return run(RUN.format(before=before), *arguments).stderr.strip()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 4000 records in two batches."""
    data = tmp_path_factory.mktemp("small")
    write_numbered(data, TopicPartition("flights", 0), limit=4000, per_batch=2000)
    return data


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 70 000 records, for which kernels are loaded even if they must be compiled."""
    data = tmp_path_factory.mktemp("large")
    write_numbered(data, TopicPartition("flights", 0), limit=70_000)
    return data


@pytest.mark.parametrize("limit", [(), ("--limit", 1)])
def test_a_small_log_is_shown_without_a_compiler(small: Path, limit: tuple[object, ...]) -> None:
    """The whole log, or its first record, is shown without the compiler."""
    assert imported_by("cat", "--data", small, "flights", *limit) == "False"


def test_the_first_record_of_a_large_log_needs_no_compiler(large: Path) -> None:
    """The size of the rest of the log makes no difference."""
    assert imported_by("cat", "--data", large, "flights", "--limit", 1) == "False"


def test_the_first_page_of_a_large_log_comes_before_the_compiler(large: Path) -> None:
    """Records that plain Python has shown are printed before the kernels are loaded."""
    count, was_loaded, is_loaded = run(FIRST_PAGE, large).stdout.split()
    assert 3_000 < int(count) <= 4_096
    assert (was_loaded, is_loaded) == ("False", "True")


def test_a_log_that_is_quicker_shown_than_compiled_for_is_not_compiled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a fresh machine 30,000 records are exported by plain Python: compiling takes longer."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    write_numbered(tmp_path / "log", TopicPartition("flights", 0), limit=30_000)
    to = tmp_path / "out.jsonl"
    _, *loaded = imported_by("export", "--data", tmp_path / "log", "flights", "--to", to).split()
    assert loaded == []
    assert to.read_bytes().count(b"\n") == 30_000


def test_showing_compiles_only_what_shows(large: Path) -> None:
    """The rest of a large log takes two kernels, and not all that there are."""
    assert imported_by("cat", "--data", large, "flights") == "True show_records walk_records"


def test_a_small_log_is_verified_without_a_compiler(small: Path) -> None:
    """Plain Python is done with it before LLVM would have been opened."""
    assert imported_by("verify", "--data", small) == "False"


def test_verifying_compiles_only_what_verifies(large: Path) -> None:
    """A log that is worth compiled kernels takes those that walk its records."""
    before = "from tailrace.offline import verify; verify.KERNELS_FROM_BYTES = 1"
    assert imported_by("verify", "--data", large, before=before) == (
        "True check_offset_entries check_time_entries walk_records walk_run"
    )


def test_a_tool_for_files_imports_no_network_and_no_repair() -> None:
    """Asyncio, SSL and what repairs logs would take half of the time in which a tool starts."""
    names = run("import sys, tailrace.cli.log; print(*sys.modules)").stdout.split()
    assert "tailrace.offline.verify" in names
    assert not {"asyncio", "ssl", "tailrace.offline.repair", "tailrace.offline.explain"} & set(
        names
    )
