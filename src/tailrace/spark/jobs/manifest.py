"""The list of the valid files of a directory: numbered JSON files, each written once.

    archive/_manifest/00000000000000000000.json    {"format": …, "settings": {…}, "entries": []}
    archive/_manifest/00000000000000000001.json    {"format": …, "entries": [{…}, {…}]}
    archive/_staging/0f3c….parquet                 what a task has written, and nobody has counted

A round of a job has its tasks write under names of their own in `_staging`. The driver then gives
the files of the attempts that succeeded their final names, and makes them count by adding one
file to the manifest. Names with `_` in front are not seen by Spark, Hive and others.

Each file has the SHA-256 of the rest of it, so one that is damaged is never taken for good.

Invariant: what is not in the manifest does not count. A crash at any point leaves the manifest as
it was before the round or as it is after it; what else is left, `open_manifest` removes. Files
that count are never changed.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tailrace.errors import UNEXPECTED_JSON, CorruptionError, FatalError
from tailrace.spark.jobs.folder import Folder

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
LOCK: Final = f"{MANIFEST}/lock"

Entry: TypeAlias = Mapping[str, Any]
"""A job's note about a part of its work, as JSON."""

_NAME: Final = re.compile(rf"{MANIFEST}/(\d{{20}})\.json")


class Manifest:
    """The entries so far, and the way to add to them; `open` reads them and changes nothing."""

    def __init__(self, folder: Folder, *, form: str) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {}
        """Settings of the whole directory; {} while nothing was ever added."""
        self.entries: list[Entry] = []
        """The entries in the order in which they were added."""
        self._form = form
        self._count = 0

    @classmethod
    def open(cls, folder: Folder, *, form: str) -> "Manifest":
        """The manifest of a folder, with no entries if there is none.

        Raises:
            FatalError: it has another format.
            CorruptionError: a file of it cannot be read, or is missing between two others.
        """
        manifest = cls(folder, form=form)
        manifest._read()
        return manifest

    def add(self, entries: Sequence[Entry], *, settings: Mapping[str, Any] | None = None) -> None:
        """Make entries count, all or none; `settings` go over those that were there."""
        content: dict[str, Any] = {"format": self._form, "entries": list(entries)}
        if settings is not None:
            content = {"format": self._form, "settings": dict(settings), "entries": list(entries)}
        name = f"{MANIFEST}/{self._count:020}.json"
        content = json.loads(json.dumps(content))  # as it is read: keys are text, tuples are lists
        self.folder.replace(name, sealed(content))
        self._take(content)

    def _read(self) -> None:
        numbers = [int(found[1]) for found in map(_NAME.fullmatch, self.folder.names()) if found]
        for number in sorted(numbers):
            path = f"{self.folder.path}/{MANIFEST}/{number:020}.json"
            if number != self._count:
                raise CorruptionError(f"{self._count:020}.json, before it, is missing", path=path)
            try:
                content = json.loads(self.folder.read(f"{MANIFEST}/{number:020}.json"))
                form, digest = content["format"], content.pop("digest", None)
            except UNEXPECTED_JSON as error:
                raise CorruptionError(f"not a file of a manifest: {error!r}", path=path) from error
            if form != self._form:
                raise FatalError(f"{path}: its format is {form}; this version reads {self._form}")
            if digest != _digest(content):
                raise CorruptionError(
                    "the digest of its content does not match; put a copy of the file back",
                    path=path,
                )
            self._take(content)

    def _take(self, content: Mapping[str, Any]) -> None:
        self.settings |= content.get("settings", {})
        self.entries += content["entries"]
        self._count += 1


def sealed(content: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest's file: its content with the digest of that."""
    return json.dumps({**content, "digest": _digest(content)}, indent=1).encode()


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
        if ours and not manifest.settings:
            raise FatalError(f"{folder.path} has files like {ours[0]}, but no manifest of them")
        staged = [name for name in leftovers if name.startswith((f"{STAGING}/", f"{MANIFEST}/"))]
        for name in (*staged, *ours):
            folder.remove(name)
    except BaseException:
        folder.unlock()
        raise
    return manifest


def uncounted(manifest: Manifest, *, files_of: Callable[[Entry], Sequence[str]]) -> list[str]:
    """Files below the folder that neither are of the manifest nor in it."""
    counted = {name for entry in manifest.entries for name in files_of(entry)} | {LOCK}
    return [
        name
        for name in manifest.folder.names()
        if name not in counted and not _NAME.fullmatch(name)
    ]
