"""The manifest: old or new after a crash at any call, and nothing left that does not count."""

import re
from pathlib import Path

import pytest

from tailrace.errors import CorruptionError, FatalError, StorageError
from tailrace.spark.folder import DiskFolder, open_folder
from tailrace.spark.jobs.manifest import (
    STAGING,
    Entry,
    Manifest,
    held_manifest,
    open_manifest,
)
from tailrace.testing.files import MemoryFiles, ProcessKilledError

FORM = "test/1"
OWNED = re.compile(r"part/\w+\.data")


def files_of(entry: Entry) -> list[str]:
    """The files of an entry."""
    return [entry["name"]]


def opened(files: MemoryFiles) -> Manifest:
    """The manifest, for a run."""
    folder = DiskFolder("/lake", files)
    return open_manifest(folder, form=FORM, files_of=files_of, owned=OWNED)


def write(files: MemoryFiles, name: str) -> None:
    """A file as a task leaves it: sealed."""
    files.make_directory("/lake/" + name.rpartition("/")[0])
    file = files.open(f"/lake/{name}", create=True)
    file.write(0, b"rows")
    file.sync()


def round_of(files: MemoryFiles, number: int) -> None:
    """One round of a job: a task's file, its name, the manifest."""
    manifest = opened(files)
    if not manifest.settings:
        manifest.add([], settings={"by": "date"})
    staged = f"{STAGING}/{number}.data"
    write(files, staged)
    final = f"part/f{number}.data"
    manifest.folder.publish({staged: final})
    manifest.add([{"name": final}])
    manifest.folder.unlock()


def prepared() -> MemoryFiles:
    """A disk with one round on the device."""
    files = MemoryFiles()
    round_of(files, 0)
    return files


def test_what_was_added_is_read_again() -> None:
    """Entries in their order, and the settings of the first run."""
    files = prepared()
    round_of(files, 1)
    found = Manifest.open(DiskFolder("/lake", files), form=FORM)
    assert [entry["name"] for entry in found.entries] == ["part/f0.data", "part/f1.data"]
    assert found.settings == {"by": "date"}


@pytest.mark.parametrize("keeps_unsynced", [True, False], ids=["killed", "power"])
def test_a_crash_at_any_call_leaves_the_old_or_the_new(*, keeps_unsynced: bool) -> None:
    """The next run has one of the two, all files that count, and no others; then it works."""
    files = prepared()
    begun = len(files.operations)
    round_of(files, 1)
    calls = len(files.operations) - begun
    assert calls > 10
    outcomes = set()
    for call in range(calls):
        files = prepared()
        files.stop_at = len(files.operations) + call
        with pytest.raises(ProcessKilledError):
            round_of(files, 1)
        files = files.crash(keep_unsynced=keeps_unsynced)
        manifest = opened(files)
        names = [entry["name"] for entry in manifest.entries]
        outcomes.add(len(names))
        assert names in (["part/f0.data"], ["part/f0.data", "part/f1.data"])
        there = [name for name in manifest.folder.names() if not name.startswith("_manifest/")]
        assert there == names
        assert all(files.content(f"/lake/{name}") == b"rows" for name in names)
        manifest.folder.unlock()
        round_of(files, 2)
        assert len(Manifest.open(DiskFolder("/lake", files), form=FORM).entries) == len(names) + 1
    assert outcomes == {1, 2}


def test_files_of_others_stay() -> None:
    """Only names of the job's own pattern, and what is staged, are leftovers."""
    files = prepared()
    for name in ("part/f9.data", "part/notes.txt", "README", f"{STAGING}/any"):
        write(files, name)
    left = opened(files).folder.names()
    assert {"part/notes.txt", "README", "part/f0.data"} < set(left)
    assert "part/f9.data" not in left
    assert f"{STAGING}/any" not in left


def test_damage_is_told_with_its_file() -> None:
    """A file that is missing, torn, or of another format."""
    files = prepared()
    path = "/lake/_manifest/00000000000000000001.json"
    content = files.content(path)
    files.overwrite(path, content[:20])
    with pytest.raises(CorruptionError, match=r"0001\.json: not a file of a manifest"):
        opened(files)
    files.overwrite(path, content.replace(b"test/1", b"test/2"))
    with pytest.raises(FatalError, match="its format is test/2; this version reads test/1"):
        opened(files)
    files.remove("/lake/_manifest/00000000000000000000.json")
    with pytest.raises(CorruptionError, match=r"0{20}\.json, before it, is missing"):
        opened(files)


def test_files_without_a_manifest_are_not_taken_for_leftovers() -> None:
    """A directory whose manifest is gone is not emptied."""
    files = MemoryFiles()
    write(files, "part/f0.data")
    with pytest.raises(FatalError, match=r"files like part/f0\.data, but no manifest"):
        opened(files)
    assert files.exists("/lake/part/f0.data")


def test_a_manifest_that_was_damaged_is_never_read() -> None:
    """Whichever byte of it has changed, and whatever else stands there."""
    files = MemoryFiles()
    folder = DiskFolder("/lake", files)
    name = f"_manifest/{0:020}.json"
    manifest = Manifest.open(folder, form=FORM)
    manifest.add([{"name": "part/f0.data", "since": {10: 1, 2: 3}}])
    written = folder.read(name)
    assert Manifest.open(folder, form=FORM).entries == manifest.entries
    changed = [
        written[:at] + bytes([byte ^ 1]) + written[at + 1 :] for at, byte in enumerate(written)
    ]
    for content in [*changed, b"", b"[]", b"7", b"{}", b"[" * 100_000, b"\xff", written[:-5]]:
        folder.replace(name, content)
        try:
            assert Manifest.open(folder, form=FORM).entries == manifest.entries
        except (CorruptionError, FatalError):
            continue


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_a_directory_of_this_machine_has_one_run_however_it_is_named(
    form: str, tmp_path: Path
) -> None:
    """A path and both forms of its URI are one directory, with one lock."""
    named, plain = form.format(tmp_path / "lake"), str(tmp_path / "lake")
    with held_manifest(named, form=FORM, files_of=files_of, owned=OWNED) as manifest:
        for other in (named, plain):
            with (
                pytest.raises(StorageError, match="another run is writing to it"),
                held_manifest(other, form=FORM, files_of=files_of, owned=OWNED),
            ):
                raise AssertionError("two runs have the directory")
        manifest.add([{"name": "a"}], settings={"by": "date"})
    assert Manifest.open(open_folder(plain), form=FORM).entries == [{"name": "a"}]
