"""The list of the valid files of a directory: numbered JSON files, each written once.

    _manifest/00000000000000000000-00000000000000000015.json    {…, "ends": [0, 2, 3, …]}
    _manifest/00000000000000000016.json                         {"format": …, "entries": [{…}, {…}]}
    _staging/0f3c….parquet                 what a task has written, and nobody has counted

A round of a job has its tasks write under names of their own in `_staging`. The driver then gives
the files of the attempts that succeeded their final names, and makes them count by adding one
file to the manifest. Names with `_` in front are not seen by Spark, Hive and others.

Sixteen files become one, a fold, which says what they said; sixteen folds become a larger one, and
so on. First the fold is there, then the files in it are removed, so a crash leaves a file twice at
worst, and a reader takes the one that says more. A reader that has listed files which are gone
when it comes to them lists again. The newest file is in no fold: versions that know none find a
file with nothing before it, which they refuse.

Each file has the SHA-256 of the rest of it, so one that is damaged is never taken for good.

Invariant: what is not in the manifest does not count. A crash at any point leaves the manifest as
it was before the round or as it is after it; what else is left, `open_manifest` removes. Files
that count are never changed, and those of the manifest go only when a fold of them is there.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from tailrace.errors import (
    UNEXPECTED_JSON,
    CorruptionError,
    FatalError,
    StorageError,
    TailraceError,
)
from tailrace.spark.folder import Folder, open_folder
from tailrace.values import dataclass

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
LOCK: Final = f"{MANIFEST}/lock"

FOLDED: Final = "/folded"
"""Ends the format of a fold."""

# Listing and reading cost a request per file in an object store, and a job that follows its logs
# adds one every ten seconds.
FOLD_FILES: Final = 16
"""Files that become one."""

FOLD_ENTRIES_MAX: Final = 65_536
"""Entries of a fold: about 20 MB, which are written in less than a second."""

Entry: TypeAlias = Mapping[str, Any]
"""A job's note about a part of its work, as JSON."""

_NAME: Final = re.compile(rf"{MANIFEST}/(\d{{20}})(?:-(\d{{20}}))?\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file of the manifest, by its name."""

    first: int
    """Number of its first round."""
    limit: int
    """Number after its last round."""

    @property
    def name(self) -> str:
        last = f"-{self.limit - 1:020}" if self.is_fold else ""
        return f"{MANIFEST}/{self.first:020}{last}.json"

    @property
    def is_fold(self) -> bool:
        return self.limit - self.first > 1


class Manifest:
    """The entries so far, and the way to add to them; `open` reads them and changes nothing."""

    def __init__(self, folder: Folder, *, form: str) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {}
        """Settings of the whole directory; {} while nothing was ever added."""
        self.entries: list[Entry] = []
        """The entries in the order in which they were added."""
        self._form = form
        self._ends: list[int] = []
        """Number of entries up to and with each round."""
        self._files: list[_File] = []
        """The files that count, in the order of their rounds."""

    @classmethod
    def open(cls, folder: Folder, *, form: str) -> "Manifest":
        """The manifest of a folder, with no entries if there is none.

        Raises:
            FatalError: it has another format.
            CorruptionError: a file of it cannot be read, or is missing between two others.
        """
        manifest = cls(folder, form=form)
        listed = _listed(folder)
        while True:
            try:
                for file, content in manifest._read(listed):
                    manifest._take(file, content)
                return manifest
            except FileNotFoundError:
                again = _listed(folder)
                if again == listed:
                    raise
                listed = again  # A fold of what was listed first is there now.

    @property
    def rounds(self) -> int:
        """Number of rounds so far, which is that of the next one."""
        return len(self._ends)

    def entries_since(self, number: int) -> list[Entry]:
        """The entries of the round of this number and of those after it."""
        return self.entries[self._ends[number - 1] if number else 0 :]

    def add(self, entries: Sequence[Entry], *, settings: Mapping[str, Any] | None = None) -> None:
        """Make entries count, all or none; `settings` go over those that were there."""
        content: dict[str, Any] = {"format": self._form, "entries": list(entries)}
        if settings is not None:
            content = {"format": self._form, "settings": dict(settings), "entries": list(entries)}
        file = _File(first=self.rounds, limit=self.rounds + 1)
        content = json.loads(json.dumps(content))  # as it is read: keys are text, tuples are lists
        # The one step that makes entries count; `Folder.replace` has a file there whole or not at
        # all.
        self.folder.replace(file.name, sealed(content))
        self._take(file, content)
        # One round after each sixteenth, since the newest file stays by itself.
        if self.rounds % FOLD_FILES == 1:
            self.fold()

    def fold(self) -> None:
        """Write the folds that are due, and remove the files that are in them."""
        for first, limit in plan_folds(self._ends):
            fold = _File(first=first, limit=limit)
            if not fold.is_fold or fold in self._files:
                continue
            start = self._ends[first - 1] if first else 0
            content = {
                "format": self._form + FOLDED,
                "first": first,
                "settings": self.settings,
                "ends": [end - start for end in self._ends[first:limit]],
                "entries": self.entries[start : self._ends[limit - 1]],
            }
            # First the fold, then the removals: a crash leaves files twice, which a reader
            # understands.
            self.folder.replace(fold.name, sealed(content, indent=None))
            inside = [each for each in self._files if first <= each.first < limit]
            at = self._files.index(inside[0])
            self._files[at : at + len(inside)] = [fold]
            for each in inside:
                self.folder.remove(each.name)

    def superseded(self) -> list[str]:
        """Files of the manifest that a fold has, and that a crash has left."""
        counted = {each.name for each in self._files}
        return [each.name for each in _listed(self.folder) if each.name not in counted]

    def _read(self, listed: Sequence[_File]) -> list[tuple[_File, dict[str, Any]]]:
        """The files that count, with what they say."""
        found = []
        count = 0
        for file in listed:
            # A fold that came first in the list says the same.
            if file.limit <= count:
                continue
            path = f"{self.folder.path}/{file.name}"
            if file.first > count:
                raise CorruptionError(f"{count:020}.json, before it, is missing", path=path)
            if file.first < count:
                raise CorruptionError("another file has a part of its rounds too", path=path)
            found.append((file, self._content(file, path)))
            count = file.limit
        return found

    def _content(self, file: _File, path: str) -> dict[str, Any]:
        try:
            content = json.loads(self.folder.read(file.name))
            form, digest = content["format"], content.pop("digest", None)
        except UNEXPECTED_JSON as error:
            raise CorruptionError(f"not a file of a manifest: {error!r}", path=path) from error
        expected = self._form + FOLDED if file.is_fold else self._form
        if form != expected:
            raise FatalError(f"{path}: its format is {form}; this version reads {expected}")
        # A changed byte may well be valid JSON, with other offsets.
        if digest != _digest(content):
            raise CorruptionError(
                "the digest of its content does not match; put a copy of the file back", path=path
            )
        if file.is_fold and (content["first"], len(content["ends"])) != (
            file.first,
            file.limit - file.first,
        ):
            raise CorruptionError("it has other rounds than its name says", path=path)
        return dict(content)

    def _take(self, file: _File, content: Mapping[str, Any]) -> None:
        start = len(self.entries)
        self.settings |= content.get("settings", {})
        self.entries += content["entries"]
        self._ends += [start + end for end in content.get("ends", [len(content["entries"])])]
        self._files.append(file)


def plan_folds(
    ends: Sequence[int], *, entries_max: int = FOLD_ENTRIES_MAX
) -> list[tuple[int, int]]:
    """The rounds that are to be in one file each, as first numbers and limits; pure.

    `ends` says how many entries there are up to and with each round. A fold has 16, 256, 4096, …
    rounds, begins at a multiple of that, and has at most `entries_max` entries. The newest round
    stays by itself. For 4131 rounds:

        0                                                        4096      4112 4128  4130
        ├──────────────────────── 4096 ───────────────────────────┼── 16 ────┼─ 16 ─┤ … one each
    """
    plan = []
    # Without the newest round: an older version of this code finds a file with nothing before it,
    # and refuses it.
    first, count = 0, len(ends) - 1
    while first < count:
        limit, size = first + 1, FOLD_FILES
        while first % size == 0 and first + size <= count:
            # A fold is read as a whole into memory of the driver.
            if ends[first + size - 1] - (ends[first - 1] if first else 0) > entries_max:
                break
            limit, size = first + size, size * FOLD_FILES
        plan.append((first, limit))
        first = limit
    return plan


def _listed(folder: Folder) -> list[_File]:
    """The files of a manifest by their first rounds, and of these first those that say more."""
    found = []
    for match in filter(None, map(_NAME.fullmatch, folder.names(MANIFEST))):
        first = int(match[1])
        found.append(_File(first=first, limit=int(match[2] or first) + 1))
    # The longer file first, so that what it contains is passed over.
    return sorted(found, key=lambda each: (each.first, -each.limit))


def sealed(content: Mapping[str, Any], *, indent: int | None = 1) -> bytes:
    """The bytes of a manifest's file: its content with the digest of that."""
    return json.dumps({**content, "digest": _digest(content)}, indent=indent).encode()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def attempt_name(suffix: str) -> str:
    """A name in the staging directory that nobody else has, not even another attempt."""
    return f"{STAGING}/{uuid.uuid4().hex}{suffix}"


def open_manifest(
    folder: Folder,
    *,
    form: str,
    files_of: Callable[[Entry], Sequence[str]],
    owned: re.Pattern[str],
) -> Manifest:
    """The manifest, to add to: takes the folder's lock, and removes what does not count.

    `files_of` tells the files of an entry, and `owned` matches the names that the job gives. All
    other files stay, except for those in the staging directory.

    Raises:
        StorageError: another run has the lock.
        FatalError: as `Manifest`; or there are files with names of this job and no manifest.
        CorruptionError: as `Manifest`.
    """
    folder.lock(LOCK)
    try:
        manifest = Manifest.open(folder, form=form)
        leftovers = uncounted(manifest, files_of=files_of)
        ours = [name for name in leftovers if owned.fullmatch(name)]
        # The manifest was removed or the directory is another job's; nothing here may be deleted by
        # its name alone.
        if ours and not manifest.settings:
            raise FatalError(f"{folder.path} has files like {ours[0]}, but no manifest of them")
        staged = [name for name in leftovers if name.startswith((f"{STAGING}/", f"{MANIFEST}/"))]
        # Leftovers of a run that was killed. Other names are the user's, and stay.
        for name in (*staged, *ours, *manifest.superseded()):
            folder.remove(name)
        manifest.fold()
    except BaseException:
        folder.unlock()
        raise
    return manifest


@contextmanager
def held_manifest(
    path: str, *, form: str, files_of: Callable[[Entry], Sequence[str]], owned: re.Pattern[str]
) -> Iterator[Manifest]:
    """The manifest of the directory or URI `path` for the length of a job; as `open_manifest`.

    Raises:
        StorageError: another run has the lock; or the directory, or what the job does in the block,
            fails with an OSError.
    """
    folder = open_folder(path)
    try:
        yield open_manifest(folder, form=form, files_of=files_of, owned=owned)
    except TailraceError:
        raise
    except OSError as error:
        raise StorageError(f"{folder.path} cannot be used: {error}") from error
    finally:
        folder.unlock()


def uncounted(
    manifest: Manifest,
    *,
    files_of: Callable[[Entry], Sequence[str]],
    names: Sequence[str] | None = None,
) -> list[str]:
    """Names that do not count, of those that are given or of all below the folder."""
    names = manifest.folder.names() if names is None else names
    counted = {name for entry in manifest.entries for name in files_of(entry)} | {LOCK}
    return [name for name in names if name not in counted and not _NAME.fullmatch(name)]
