"""The real file system and its double do the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.runtime.files import DiskFiles, Files
from tailrace.testing import MemoryFiles


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system and a directory in it."""
    if request.param == "disk":
        return DiskFiles(), str(tmp_path)
    files = MemoryFiles()
    files.make_directory("/room")
    return files, "/room"


def test_writes_are_seen_by_reads_and_by_maps(place: tuple[Files, str]) -> None:
    """At the start, in the middle, and behind the end; a map sees later writes."""
    files, root = place
    file = files.open(f"{root}/a", create=True)
    file.write(0, memoryview(b"abcdef"))
    view = file.view(6)
    file.write(2, b"XY")
    assert bytes(view) == b"abXYef"
    file.write(8, b"!")
    assert file.read(0, 100) == b"abXYef\0\0!"
    assert (file.size(), file.read(7, 1), file.read(50, 5)) == (9, b"\0", b"")
    assert view.readonly
    file.close()
    assert bytes(view) == b"abXYef"
    assert bytes(files.open(f"{root}/a", read_only=True).view(0)) == b""


def test_resizing_cuts_and_grows_with_zeros(place: tuple[Files, str]) -> None:
    """And what was cut does not come back."""
    files, root = place
    file = files.open(f"{root}/a", create=True)
    file.write(0, b"abcdef")
    file.resize(2)
    file.resize(4)
    assert file.read(0, 10) == b"ab\0\0"
    file.sync()


def test_a_closed_file_is_not_the_next_one_with_its_number(place: tuple[Files, str]) -> None:
    """Whatever is asked of it, also by a thread that has had it since before."""
    files, root = place
    closed = files.open(f"{root}/a", create=True)
    closed.write(0, b"old")
    closed.close()
    other = files.open(f"{root}/b", create=True)
    other.write(0, b"other")
    for call in (
        closed.sync,
        lambda: closed.write(0, b"x"),
        lambda: closed.read(0, 1),
        lambda: closed.resize(0),
    ):
        with pytest.raises(OSError, match="descriptor"):
            call()
    closed.close()
    assert other.read(0, 10) == b"other"


def test_a_closed_or_read_only_file_takes_no_writes(place: tuple[Files, str]) -> None:
    """Both are errors of the system."""
    files, root = place
    file = files.open(f"{root}/a", create=True)
    with pytest.raises(OSError, match="descriptor"):
        files.open(f"{root}/a", read_only=True).write(0, b"x")
    file.close()
    with pytest.raises(OSError, match="descriptor"):
        file.write(0, b"x")


def test_directories(place: tuple[Files, str]) -> None:
    """Make, list, rename a full one, remove it."""
    files, root = place
    files.make_directory(f"{root}/b/c")
    files.make_directory(f"{root}/b/c")
    files.open(f"{root}/b/c/file", create=True).write(0, b"x")
    files.open(f"{root}/a", create=True)
    assert files.list(root) == ["a", "b"]
    assert (files.is_directory(f"{root}/b"), files.is_directory(f"{root}/a")) == (True, False)
    files.rename(f"{root}/b", f"{root}/d")
    files.sync_directory(root)
    assert files.open(f"{root}/d/c/file").read(0, 5) == b"x"
    files.rename(f"{root}/d/c/file", f"{root}/a")
    assert files.open(f"{root}/a").read(0, 5) == b"x"
    files.remove_tree(f"{root}/d")
    files.remove(f"{root}/a")
    assert files.list(root) == []
    assert not files.exists(f"{root}/d")


def test_what_is_not_there_is_an_error(place: tuple[Files, str]) -> None:
    """Opening, listing, renaming and removing."""
    files, root = place
    for call in (files.open, files.list, files.remove, files.remove_tree, files.sync_directory):
        with pytest.raises(FileNotFoundError):
            call(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/none", f"{root}/x")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/none/file", create=True)
    files.open(f"{root}/file", create=True)
    with pytest.raises(FileExistsError):
        files.make_directory(f"{root}/file")


def test_a_lock_has_one_holder_in_this_process_too(place: tuple[Files, str]) -> None:
    """A second attempt neither gets the lock nor drops the first one's."""
    files, root = place
    lock = files.lock(f"{root}/.lock")
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            files.lock(f"{root}/.lock")
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_a_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    """Also after this process has tried to take it twice."""
    files = DiskFiles()
    path = str(tmp_path / ".lock")
    lock = files.lock(path)
    with pytest.raises(BlockingIOError):
        files.lock(path)
    script = (
        "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.lockf(d, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    command = [sys.executable, "-c", script, path]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    lock.release()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
