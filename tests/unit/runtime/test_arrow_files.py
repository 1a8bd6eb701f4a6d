"""Files of an object store and of PyArrow's other file systems, for reading."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from tailrace.runtime.arrow_files import BLOCK_BYTES, ArrowFiles, open_uri
from tailrace.runtime.files import DiskFiles, Files
from tests.unit.runtime.object_store import BUCKET, object_store

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A folder of the disk behind PyArrow."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_bytes(CONTENT)
    (tmp_path / "folder" / "a").write_bytes(b"")
    return ArrowFiles(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))


def test_names_and_kinds_are_told(files: Files) -> None:
    """Names and kinds of entries are those on the disk."""
    assert files.list("folder") == ["a", "b"]
    assert (files.is_directory("folder"), files.is_directory("folder/b")) == (True, False)
    assert (files.exists("folder/b"), files.exists("folder/c")) == (True, False)
    assert files.modified_ms("folder/b") > 1_500_000_000_000


def test_any_bytes_can_be_read(files: Files) -> None:
    """Small and large pieces, forwards and backwards, and fewer at the end of the file."""
    file = files.open("folder/b", read_only=True)
    end = len(CONTENT)
    assert file.size() == end
    for position in (0, 100, BLOCK_BYTES - 5, BLOCK_BYTES, 7, end - 3, end, 3 * BLOCK_BYTES):
        for size in (0, 1, 10, BLOCK_BYTES, 2 * BLOCK_BYTES):
            assert file.read(position, size) == CONTENT[position : position + size]
    buffer = bytearray(1000)
    assert file.read_into(end - 300, memoryview(buffer)) == 300
    assert buffer[:300] == CONTENT[-300:]
    file.close()
    assert files.open("folder/a", read_only=True).read(0, 10) == b""


def test_a_missing_file_raises_file_not_found(files: Files) -> None:
    """A missing file raises the same error as on a local disk."""
    for attempt in (
        lambda: files.open("folder/c", read_only=True),
        lambda: files.list("nowhere"),
        lambda: files.modified_ms("nowhere"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()


CHANGES: list[Callable[[Files], object]] = [
    lambda files: files.open("folder/new", create=True),
    lambda files: files.open("folder/b"),
    lambda files: files.rename("folder/a", "folder/c"),
    lambda files: files.remove("folder/a"),
    lambda files: files.remove_tree("folder"),
    lambda files: files.make_directory("other"),
    lambda files: files.set_modified_ms("folder/a", 0),
    lambda files: files.lock("folder/.lock"),
    lambda files: files.open("folder/a", read_only=True).write(0, b"x"),
    lambda files: files.open("folder/b", read_only=True).resize(0),
]


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_can_be_changed(files: Files, change: Callable[[Files], object]) -> None:
    """Every call that would change a file is refused and changes nothing."""
    with pytest.raises(OSError, match="Read-only"):
        change(files)
    assert files.list("folder") == ["a", "b"]
    assert files.open("folder/b", read_only=True).size() == len(CONTENT)


def test_a_file_uri_is_the_disk() -> None:
    """A file URI gives the disk's files, which can be mapped."""
    files, path = open_uri("file:///some/where")
    assert isinstance(files, DiskFiles)
    assert path == "/some/where"


def test_an_unknown_scheme_is_refused() -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match="floppy"):
        open_uri("floppy://a")


def test_an_object_store_is_read_like_a_disk() -> None:
    """Objects are read over HTTP with the requests of S3."""
    objects = {"data/t-0/log": CONTENT, "data/t-1/log": b"", "other": b"x"}
    with object_store(objects) as query:
        files, path = open_uri(f"s3://key:secret@{BUCKET}/data?{query}")
        assert path == f"{BUCKET}/data"
        assert files.list(path) == ["t-0", "t-1"]
        assert (files.is_directory(f"{path}/t-0"), files.exists(f"{path}/t-2")) == (True, False)
        file = files.open(f"{path}/t-0/log", read_only=True)
        assert file.size() == len(CONTENT)
        assert file.read(300_000, 1000) == CONTENT[300_000:301_000]
        with pytest.raises(FileNotFoundError):
            files.open(f"{path}/t-0/nothing", read_only=True)
