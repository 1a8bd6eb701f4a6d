"""The disk double is honest about what a crash keeps."""

import errno
import random

import pytest

from tailrace.testing import DiskFault, MemoryFiles, ProcessKilledError


def written(files: MemoryFiles, path: str, data: bytes) -> None:
    """A file with this content, not synced."""
    files.open(path, create=True).write(0, data)


def test_content_needs_sync_and_names_need_sync_of_their_directory() -> None:
    """Either alone is not enough after a power loss; a kill keeps everything."""
    files = MemoryFiles()
    files.make_directory("d")
    written(files, "d/content", b"abc")
    files.open("d/content").sync()
    assert not files.crash().exists("d/content")
    assert files.crash(keep_unsynced=True).content("d/content") == b"abc"
    files.sync_directory("d")
    assert files.crash().content("d/content") == b"abc"
    files.open("d/content").write(0, b"X")
    assert files.crash().content("d/content") == b"abc"
    written(files, "d/name", b"abc")
    files.sync_directory("d")
    assert files.crash().content("d/name") == b""


def test_disks_have_equal_states_if_a_process_sees_no_difference() -> None:
    """Names, contents, times and empty directories count; what is on the device does not."""
    files = MemoryFiles()
    files.make_directory("d")
    written(files, "d/a", b"abc")
    state = files.state()
    files.open("d/a").sync()
    assert files.state() == files.crash(keep_unsynced=True).state() == state
    assert files.crash().state() != state
    content, name, directory, time = [files.crash(keep_unsynced=True) for _ in range(4)]
    written(content, "d/a", b"abX")
    name.rename("d/a", "d/b")
    directory.make_directory("empty")
    time.set_modified_ms("d/a", 5)
    assert state not in [disk.state() for disk in (content, name, directory, time)]


def test_zeros_that_a_file_was_grown_by_are_like_zeros_that_were_written() -> None:
    """They are read, cut, written between and after, and lost with power, as all bytes are."""
    grown, written_out = MemoryFiles(), MemoryFiles()
    file, other = grown.open("a", create=True), written_out.open("a", create=True)
    file.write(0, b"abc")
    file.resize(20)
    other.write(0, b"abc" + bytes(17))
    assert grown.content("a") == written_out.content("a")
    assert grown.state() == written_out.state()
    assert [file.read(1, 4), file.read(18, 9), file.read(30, 9)] == [b"bc\0\0", bytes(2), b""]
    for each in file, other:
        each.sync()
        each.write(10, b"X")
        each.resize(15)
        each.resize(2)
        each.resize(8)
        each.write(9, b"Y")
        assert (each.size(), each.read(0, 99)) == (10, b"ab" + bytes(7) + b"Y")
    written_out.sync_directory(".")
    assert written_out.crash().content("a") == b"abc" + bytes(17)
    grown.sync_directory(".")
    assert grown.crash().content("a") == b"abc" + bytes(17)


def test_a_rename_is_old_or_new() -> None:
    """Until the directory is synced it is the old one."""
    files = MemoryFiles()
    for name, data in (("a", b"old"), ("b", b"new")):
        written(files, name, data)
        files.open(name).sync()
    files.sync_directory(".")
    files.rename("b", "a")
    assert files.crash().content("a") == b"old"
    assert files.crash().exists("b")
    files.sync_directory(".")
    assert files.crash().content("a") == b"new"
    assert not files.crash().exists("b")


def test_a_renamed_directory_takes_along_what_is_on_the_device() -> None:
    """After a rename, the new name has what was synced, and nothing else."""
    files = MemoryFiles()
    files.make_directory("d")
    written(files, "d/kept", b"1")
    files.open("d/kept").sync()
    files.sync_directory("d")
    written(files, "d/lost", b"2")
    files.rename("d", "e")
    assert files.crash().list("d") == ["kept"]
    files.sync_directory(".")
    assert files.crash().list("e") == ["kept"]
    assert not files.crash().exists("d")


def test_a_torn_crash_keeps_some_sectors() -> None:
    """Each is old or new, by seed; what was synced before is never worse than that."""
    files = MemoryFiles()
    written(files, "f", b"o" * 640)
    files.open("f").sync()
    files.sync_directory(".")
    files.open("f").write(0, b"n" * 1280)
    seen = set()
    for seed in range(60):
        content = files.crash(chance=random.Random(seed)).content("f")
        assert content == files.crash(chance=random.Random(seed)).content("f")
        assert 640 <= len(content) <= 1280
        sectors = {content[start : start + 64][:1] for start in range(0, 640, 64)}
        assert sectors <= {b"o", b"n"}
        seen.add(content)
    assert len(seen) > 10


def test_a_killed_process_does_nothing_more() -> None:
    """From the chosen call on, no call changes the disk; a write may get halfway."""
    files = MemoryFiles()
    written(files, "f", b"abc")
    files.stop_at, files.stop_partial_bytes = len(files.operations), 2
    with pytest.raises(ProcessKilledError):
        files.open("f").write(0, b"XYZ")
    for call in (lambda: files.open("g", create=True), lambda: files.remove("f")):
        with pytest.raises(ProcessKilledError):
            call()
    with pytest.raises(ProcessKilledError):
        files.open("f").write(0, b"123")
    after = files.crash(keep_unsynced=True)
    assert (after.content("f"), after.list(".")) == (b"XYc", ["f"])


def test_faults_come_where_they_are_asked_for() -> None:
    """A fault has an operation, path and count, and an error and the bytes that get through."""
    files = MemoryFiles()
    fault = DiskFault(
        operation="write", path_part="b", after=1, error=errno.ENOSPC, partial_bytes=1
    )
    files.faults.append(fault)
    written(files, "a", b"123")
    written(files, "b", b"123")
    with pytest.raises(OSError, match="space"):
        written(files, "b", b"XYZ")
    assert (files.content("a"), files.content("b")) == (b"123", b"X23")


def test_a_full_disk_takes_what_fits() -> None:
    """Then says ENOSPC; overwriting needs no room."""
    files = MemoryFiles(capacity_bytes=5)
    with pytest.raises(OSError, match="space"):
        written(files, "f", b"1234567")
    assert files.content("f") == b"12345"
    written(files, "f", b"abcde")
