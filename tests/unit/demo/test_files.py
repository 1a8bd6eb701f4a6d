"""Tests of the demo's directory: whose it is, and what may be removed."""

import fcntl
import os
from pathlib import Path

import pytest

from tailrace.demo.files import MARKER, DemoFiles, prepare
from tailrace.errors import FatalError


def demo_directory(root: Path) -> DemoFiles:
    """A directory as a run of the demo leaves it."""
    files = DemoFiles(root=root)
    prepare(files, keep=False)
    for name in ("flights-0", "planes-0", "lake/month=1", "__consumer_offsets-49"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_bytes(b"x")
    (root / "meta.properties").write_bytes(b"version=1\n")
    return files


def test_a_new_directory_is_made(tmp_path: Path) -> None:
    """A missing directory is made with its parents, and there is nothing to continue."""
    files = DemoFiles(root=tmp_path / "a" / "b")
    assert prepare(files, keep=True) is False
    assert [path.name for path in files.root.iterdir()] == [MARKER]


def test_an_earlier_demo_is_removed(tmp_path: Path) -> None:
    """Without keep only the proof of ownership remains."""
    files = demo_directory(tmp_path)
    assert prepare(files, keep=False) is False
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def test_an_earlier_demo_is_kept(tmp_path: Path) -> None:
    """With keep every file stays, and the answer says that there is data."""
    files = demo_directory(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert prepare(files, keep=True) is True
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("keep", [True, False])
def test_a_foreign_directory_is_refused(tmp_path: Path, keep: bool) -> None:  # noqa: FBT001
    """A directory without the proof is not touched."""
    (tmp_path / "thesis.txt").write_bytes(b"x")
    with pytest.raises(FatalError, match="was not made by the demo"):
        prepare(DemoFiles(root=tmp_path), keep=keep)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["orders-0", "flights", "photos", "flights-0.x-delete"])
def test_a_topic_of_the_user_is_not_removed(tmp_path: Path, name: str) -> None:
    """The demo's directory with anything else in it is refused by name and not touched."""
    files = demo_directory(tmp_path)
    (tmp_path / name).mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FatalError, match=f"more than the demo's data: {name}"):
        prepare(files, keep=False)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    """A path that is a file ends in a sentence, not in a traceback."""
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FatalError, match="is not a directory"):
        prepare(DemoFiles(root=tmp_path / "file"), keep=False)


def test_the_directory_of_a_running_broker_is_refused(tmp_path: Path) -> None:
    """While another process holds the lock nothing is removed."""
    files = demo_directory(tmp_path)
    is_locked, say_locked = os.pipe()
    may_end, say_end = os.pipe()
    with (tmp_path / ".lock").open("wb") as file:
        broker = os.fork()
        if broker == 0:
            fcntl.lockf(file, fcntl.LOCK_EX)
            os.write(say_locked, b".")
            os.close(say_end)
            os.read(may_end, 1)
            os._exit(0)
        os.read(is_locked, 1)
        with pytest.raises(FatalError, match="a broker is running"):
            prepare(files, keep=False)
    os.close(say_end)
    os.waitpid(broker, 0)
    for descriptor in (is_locked, say_locked, may_end):
        os.close(descriptor)
    assert (tmp_path / "flights-0" / "file").exists()
    assert prepare(files, keep=True) is True
