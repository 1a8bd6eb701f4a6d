"""The directories that jobs write: on a disk, and by PyArrow's file systems."""

from pathlib import Path

import pytest

from tailrace.spark.folder import ArrowFolder, DiskFolder, Folder, open_folder


@pytest.fixture(params=["disk", "uri"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A folder of either kind that is not there yet."""
    path = tmp_path / "lake"
    return ArrowFolder(path.as_uri()) if request.param == "uri" else DiskFolder(str(path))


def test_a_file_counts_when_it_has_its_name(folder: Folder) -> None:
    """Written, sealed and published over what was there; then read, measured and removed."""
    assert folder.names() == []
    for content in (b"old", b"newer"):
        with folder.sink("staging/a") as sink:
            sink.write(content)
        folder.seal("staging/a")
        folder.publish({"staging/a": "final/a"})
    folder.replace("final/b", b"whole")
    assert folder.names() == ["final/a", "final/b"]
    assert (folder.size("final/a"), folder.read("final/b")) == (5, b"whole")
    with folder.source("final/a") as source:
        assert source.read() == b"newer"
    folder.remove("final/a")
    assert folder.names("final") == ["final/b"]
    with pytest.raises(FileNotFoundError):
        folder.size("final/a")


def test_a_uri_of_this_machine_is_a_path(tmp_path: Path) -> None:
    """With its escapes, and with or without a slash at its end."""
    path = tmp_path / "a lake"
    for uri in (path.as_uri(), f"{path.as_uri()}/", f"file:{tmp_path}/a%20lake"):
        assert open_folder(uri).path == str(path)
