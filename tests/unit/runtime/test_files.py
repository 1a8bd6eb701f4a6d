"""The real file system and its double do the same."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.runtime.files import DiskFiles, Files, without_waiting
from tailrace.testing import MemoryFiles


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system and a directory in it."""
    if request.param == "disk":
        return DiskFiles(), str(tmp_path)
    files = MemoryFiles()
    files.make_directory("/room")
    return files, "/room"


def test_a_file_system_tells_its_size(place: tuple[Files, str]) -> None:
    """The size is the system's, and no more bytes are usable than there are."""
    files, root = place
    found = files.space(root)
    assert 0 <= found.usable <= found.total
    if isinstance(files, DiskFiles):
        assert found.total == shutil.disk_usage(root).total


def test_writes_are_seen_by_reads(place: tuple[Files, str]) -> None:
    """Writes at the start, inside and beyond the end are read back, also by a shared file."""
    files, root = place
    file = files.open(f"{root}/a", create=True)
    file.write(0, memoryview(b"abcdef"))
    shared = file.share()
    file.write(2, b"XY")
    buffer = bytearray(8)
    assert file.read_into(1, memoryview(buffer)) == 5
    assert buffer == b"bXYef\0\0\0"
    file.write(8, b"!")
    assert file.read(0, 100) == b"abXYef\0\0!"
    assert (file.size(), file.read(7, 1), file.read(50, 5)) == (9, b"\0", b"")
    file.close()
    assert shared.read(2, 2) == b"XY"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(2, 2)


def test_a_read_that_may_not_wait_is_as_any_other_when_nothing_has_to_be_waited_for(
    place: tuple[Files, str],
) -> None:
    """Bytes just written are in the page cache, so whole, partial and empty reads succeed."""
    files, root = place
    file = files.open(f"{root}/a", create=True)
    file.write(0, b"abcdef")
    with without_waiting:
        assert (file.read(2, 3), file.read(4, 10), file.read(6, 1)) == (b"cde", b"ef", b"")
        buffer = bytearray(4)
        assert file.read_into(3, memoryview(buffer)) == 3
    assert buffer == b"def\0"


def test_a_read_that_may_not_wait_says_so_when_the_page_cache_has_nothing(tmp_path: Path) -> None:
    """A file that was dropped from it; one read that waits brings it back.

    It is large, because the kernel begins to read what is missing, and a fast device may have the
    first pieces there before the read looks again.
    """
    path, size = tmp_path / "a", 32 << 20
    path.write_bytes(bytes(size))
    with path.open("rb") as dropped:
        os.fsync(dropped.fileno())
        os.posix_fadvise(dropped.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    file = DiskFiles().open(str(path), read_only=True)
    with without_waiting:
        if _is_in_memory(tmp_path):
            assert file.read(0, size) == bytes(size)
        else:
            with pytest.raises(BlockingIOError):
                file.read(0, size)
    assert file.read(0, 10) == bytes(10)
    with without_waiting:
        assert file.read(0, 10) == bytes(10)


def _is_in_memory(path: Path) -> bool:
    """Whether the file system has no device behind it (tmpfs)."""
    mounts = (line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines())
    holding = [(at, kind) for at, kind in mounts if path.is_relative_to(at)]
    return max(holding, key=lambda each: len(each[0]))[1] == "tmpfs"


def test_resizing_cuts_and_grows_with_zeros(place: tuple[Files, str]) -> None:
    """A file that was cut and grown again has zeros, not its old bytes."""
    files, root = place
    file = files.open(f"{root}/a", create=True)
    file.write(0, b"abcdef")
    file.resize(2)
    file.resize(4)
    assert file.read(0, 10) == b"ab\0\0"
    file.sync()


def test_a_closed_file_is_not_the_next_one_with_its_number(place: tuple[Files, str]) -> None:
    """Any call on it fails, also by a thread that has had it since before."""
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
    """Directories can be made, listed, renamed when full, and removed."""
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
    """Opening, listing, renaming and removing a missing file raise an error."""
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
    """Another process cannot take the lock, also after this one has tried to take it twice."""
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


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("fstat", lambda files, path: files.open(path).size()),
        ("pwrite", lambda files, path: files.open(path).write(0, b"x")),
        ("pread", lambda files, path: files.open(path).read(0, 1)),
        ("preadv", lambda files, path: files.open(path).read_into(0, memoryview(bytearray(1)))),
        ("ftruncate", lambda files, path: files.open(path).resize(1)),
        ("fdatasync", lambda files, path: files.open(path).sync()),
        ("fsync", lambda files, path: files.sync_directory(path)),
    ],
)
def test_an_error_of_a_descriptor_says_which_file_it_is_about(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    call: str,
    use: Callable[[DiskFiles, str], object],
) -> None:
    """An OSError of a call on a descriptor has the path, so that the failed device is known."""
    path = str(tmp_path)
    if call != "fsync":
        path += "/a"
        DiskFiles().open(path, create=True)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def use_refused() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            use(DiskFiles(), path)

    with pytest.raises(OSError, match="Input/output error") as raised:
        use_refused()
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, path)
