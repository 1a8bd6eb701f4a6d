"""The process dies, or the machine loses power, at each operation on a manifest that is folded.

Both kinds of folders: the disk, and a store that has no operation over several files.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import CorruptionError
from tailrace.spark.folder import UNFINISHED, DiskFolder, Folder
from tailrace.spark.jobs.manifest import Entry, Manifest, open_manifest, sealed
from tailrace.testing import MemoryFiles, ProcessKilledError
from tailrace.testing.interleaving import ChangingFiles, RecordingFiles
from tests.crash.workloads import crash_all_ways
from tests.steps import Steps

FORM = "test/1"


class Store:
    """An object store: a file is put or moved whole, and a move is a copy and then a removal."""

    path = "store://lake"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.operations = 0
        self.stop_at: int | None = None

    def names(self, below: str = "") -> list[str]:
        """All names that begin so."""
        return sorted(name for name in self.objects if name.startswith(below))

    def read(self, name: str) -> bytes:
        """A whole object."""
        if name not in self.objects:
            raise FileNotFoundError(name)
        return self.objects[name]

    def replace(self, name: str, data: bytes) -> None:
        """Put another object and move it over this one."""
        self._put(name + UNFINISHED, data)
        self._put(name, data)
        self.remove(name + UNFINISHED)

    def remove(self, name: str) -> None:
        """Delete an object."""
        self._count()
        del self.objects[name]

    def lock(self, name: str) -> None:
        """Do nothing: there is no lock."""

    def unlock(self) -> None:
        """Do nothing: there is no lock."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a manifest has no use for {name}")

    def _put(self, name: str, data: bytes) -> None:
        self._count()
        self.objects[name] = data

    def _count(self) -> None:
        if self.operations == self.stop_at:
            raise ProcessKilledError
        self.operations += 1


def opened(folder: Any) -> Manifest:
    """The manifest, to add to."""
    return open_manifest(folder, form=FORM, files_of=lambda _: (), owned=re.compile("never"))


def entries_of(limit: int) -> list[Entry]:
    """The entries of so many rounds; each third has none, and every second of the others two."""
    return [entry for number in range(limit) for entry in round_of(number)]


def round_of(number: int) -> list[Entry]:
    """The entries of one round."""
    return [{"round": number, "part": part} for part in range((0, 1, 2)[number % 3])]


def add_rounds(manifest: Manifest, limit: int) -> None:
    """Rounds up to this number, from where the manifest is; the first has settings too."""
    for number in range(manifest.rounds, limit):
        manifest.add(round_of(number), settings={"by": "date"} if number == 0 else None)


def write_unfolded(folder: Folder, limit: int) -> None:
    """A manifest of so many rounds, as versions wrote it that knew no folds."""
    for number in range(limit):
        settings = {} if number else {"settings": {"by": "date"}}
        content = {"format": FORM, **settings, "entries": round_of(number)}
        folder.replace(f"_manifest/{number:020}.json", sealed(content))


def check(folder: Any, rounds: range) -> int:
    """A crash left one of these numbers of rounds, for a reader, for the next run and after it."""
    read = Manifest.open(folder, form=FORM)
    assert read.rounds in rounds
    assert read.entries == entries_of(read.rounds)
    assert read.settings == {"by": "date"}
    manifest = opened(folder)
    assert manifest.entries == read.entries
    assert not manifest.superseded()
    assert not [name for name in folder.names("_manifest") if name.endswith(UNFINISHED)]
    add_rounds(manifest, rounds.stop + 20)
    folder.unlock()
    again = Manifest.open(folder, form=FORM)
    assert again.entries == entries_of(rounds.stop + 20)
    for number in range(again.rounds + 1):
        assert again.entries_since(number) == [
            each for each in again.entries if each["round"] >= number
        ]
    return read.rounds


def add_a_round(folder: Any, before: int) -> None:
    """One more round, with which a fold is due."""
    manifest = opened(folder)
    add_rounds(manifest, before + 1)
    folder.unlock()


def open_and_close(folder: Any, _before: int) -> None:
    """A run that adds nothing."""
    opened(folder)
    folder.unlock()


CASES: dict[str, tuple[Callable[[Folder, int], None], int, Callable[[Folder, int], None]]] = {
    "the first fold": (lambda folder, limit: add_rounds(opened(folder), limit), 16, add_a_round),
    "folds of folds": (lambda folder, limit: add_rounds(opened(folder), limit), 256, add_a_round),
    "a manifest without folds": (write_unfolded, 300, open_and_close),
}
"""A manifest of so many rounds, and the act during which the crash comes."""


@pytest.mark.parametrize("case", CASES)
def test_a_crash_on_a_disk_leaves_the_rounds_before_or_after(case: str, steps: Steps) -> None:
    """Whichever operation is the last one, and whatever of it is on the device."""
    prepare, before, act = CASES[case]
    base = MemoryFiles()
    folder = DiskFolder("/lake", base)
    prepare(folder, before)
    folder.unlock()
    base = base.crash(keep_unsynced=True)
    whole = base.crash(keep_unsynced=True)
    act(DiskFolder("/lake", whole), before)
    operations = len(whole.operations)
    assert operations > 20
    outcomes = set()
    for operation in steps(range(operations)):
        files = base.crash(keep_unsynced=True)
        files.stop_at = operation
        with pytest.raises(ProcessKilledError):
            act(DiskFolder("/lake", files), before)
        for _, disk in crash_all_ways(files, operation):
            outcomes.add(check(DiskFolder("/lake", disk), range(before, before + 2)))
    assert before + 1 in outcomes or act is open_and_close


@pytest.mark.parametrize("case", CASES)
def test_a_crash_on_a_store_leaves_the_rounds_before_or_after(case: str, steps: Steps) -> None:
    """Although it moves a file by a copy and a removal, and keeps no order between files."""
    prepare, before, act = CASES[case]
    base: Any = Store()
    prepare(base, before)
    objects = dict(base.objects)
    base.operations = 0
    act(base, before)
    for operation in steps(range(base.operations)):
        store: Any = Store()
        store.objects = dict(objects)
        store.stop_at = operation
        with pytest.raises(ProcessKilledError):
            act(store, before)
        store.stop_at = None
        check(store, range(before, before + 2))


def test_a_reader_that_meets_a_fold_has_the_rounds_before_or_after() -> None:
    """Files that it has listed may be gone when it comes to them."""
    files = RecordingFiles()
    folder = DiskFolder("/lake", files)
    manifest = opened(folder)
    add_rounds(manifest, 256)
    files.states.clear()
    add_rounds(manifest, 257)
    files.states.append(files.copy())
    counter = ChangingFiles(files.states, at=1 << 30, to=0)
    Manifest.open(DiskFolder("/lake", counter), form=FORM)
    for call in range(counter.calls):
        for is_stepwise, to in ((False, len(files.states) - 1), (True, 0), (True, 8)):
            disk = ChangingFiles(files.states, at=call, to=to, is_stepwise=is_stepwise)
            found = Manifest.open(DiskFolder("/lake", disk), form=FORM)
            assert found.rounds in {256, 257}
            assert found.entries == entries_of(found.rounds)


def test_a_fold_that_is_damaged_is_told(steps: Steps) -> None:
    """Whichever byte has changed, and although the files in it are there too."""
    store: Any = Store()
    write_unfolded(store, 17)
    unfolded = dict(store.objects)
    opened(store)
    [fold] = [name for name in store.objects if "-" in name]
    whole = store.objects[fold]
    for left in ({}, unfolded):
        store.objects = {**store.objects, **left}
        for at in steps(range(len(whole))):
            store.objects[fold] = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
            with pytest.raises(Exception, match=r"0{20}-0{18}15\.json") as caught:
                Manifest.open(store, form=FORM)
            assert type(caught.value).__module__ == "tailrace.errors"
    store.objects = {**unfolded, "_manifest/00000000000000000001-00000000000000000016.json": whole}
    del store.objects["_manifest/00000000000000000001.json"]
    with pytest.raises(CorruptionError, match="other rounds than its name says"):
        Manifest.open(store, form=FORM)


def test_a_fold_that_is_missing_is_told() -> None:
    """The files behind it do not stand for the whole."""
    store: Any = Store()
    add_rounds(opened(store), 20)
    del store.objects["_manifest/00000000000000000000-00000000000000000015.json"]
    with pytest.raises(CorruptionError, match=r"0{20}\.json, before it, is missing"):
        opened(store)
