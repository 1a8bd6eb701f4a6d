"""Keeps machine code between processes, in a private folder for each state of its sources.

    <root>/<digest>/<kernel>.o     SHA-256 of what follows, then the object file of one kernel

The root is the first of these places that can be used:

    $NUMBA_CACHE_DIR/tailrace                    if the variable is set
    $XDG_CACHE_HOME/tailrace                     ~/.cache/tailrace if the variable is not set
    tailrace-<uid> in the temporary directory

The digest is taken over the sources, the versions of Python, Numba and llvmlite, and the processor
with its features. Code that was compiled from anything else has another digest and is never loaded.

Invariants:

* Machine code is only loaded from a folder that nobody but this user (and root) can write to. A
  place where that does not hold is passed over.
* A file is loaded only if its checksum holds: a lost machine may leave half of it.

Not here: how machine code is made (`compiling`) and called (`machine`).
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Final

UNUSED_S_MAX: Final = 30 * 24 * 3600
"""A digest's folder that no process has opened for so long is removed: another version may still
be installed beside this one, and would otherwise compile again after each use of the other."""

_DIGEST: Final = re.compile("[0-9a-f]{32}")
_UNFINISHED: Final = "unfinished-"
_CHECKSUM_SIZE: Final = 32
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def open_cache() -> Path | None:
    """The folder for machine code of these kernels, made if missing; None if no place can be used.

    When it is made, folders of other digests that were not opened for `UNUSED_S_MAX` are removed.

    Raises:
        ImportError: llvmlite, which comes with numba, is not installed.
    """
    name = _digest()
    for root in _roots():
        with contextlib.suppress(OSError):
            make_private(root)
            folder = root / name
            if not folder.exists():
                make_private(folder)
                _remove_unused(root)
            os.utime(folder)
            return folder
    return None


def read_code(folder: Path, name: str) -> bytes | None:
    """The machine code of a kernel; None if it is not there, or not whole."""
    try:
        data = _code_path(folder, name).read_bytes()
    except OSError:
        return None
    checksum, code = data[:_CHECKSUM_SIZE], data[_CHECKSUM_SIZE:]
    return code if hashlib.sha256(code).digest() == checksum else None


def write_code(folder: Path, name: str, code: bytes) -> None:
    """Keep the machine code of a kernel; nothing is kept if it cannot be written.

    Other processes may do the same at the same time: each writes a file of its own and renames it.
    """
    made = folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
    try:
        made.write_bytes(hashlib.sha256(code).digest() + code)
        made.rename(_code_path(folder, name))
    except OSError:
        with contextlib.suppress(OSError):
            made.unlink()


def has_code_of(names: Iterable[str]) -> bool:
    """Whether machine code of these kernels is in the cache, as far as names of files tell.

    Raises:
        ImportError: llvmlite, which comes with numba, is not installed.
    """
    folder = open_cache()
    return folder is not None and all(_code_path(folder, name).is_file() for name in names)


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it, that only this user and root can write to.

    Raises:
        OSError: it cannot be made; PermissionError: somebody else could put files into it, or
            another folder in its place.
    """
    for each in (*reversed(folder.parents), folder):
        with contextlib.suppress(FileExistsError):
            if not each.exists():
                each.mkdir(0o700)
        # The folder itself must not be a symbolic link; above it the link's target counts.
        status = each.lstat() if each == folder else each.stat()
        is_shared = bool(status.st_mode & _OTHERS_WRITE)
        if each != folder and status.st_mode & stat.S_ISVTX:
            is_shared = False  # Others can add files there, and cannot rename or remove ours.
        if not stat.S_ISDIR(status.st_mode) or is_shared:
            raise PermissionError(f"{each} is not a directory that only its owner can write to")
        if status.st_uid not in ({os.geteuid()} if each == folder else {0, os.geteuid()}):
            raise PermissionError(f"{each} belongs to user {status.st_uid}, not {os.geteuid()}")


def _roots() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given).absolute() / "tailrace"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):  # It is not if the user has no home directory: then "~" is left.
        yield Path(home) / "tailrace"
    with contextlib.suppress(FileNotFoundError):  # No temporary directory can be written.
        yield Path(tempfile.gettempdir()).absolute() / f"tailrace-{os.geteuid()}"


@cache
def _sources() -> dict[str, bytes]:
    """The modules of this room by name; they may stand in a zip file."""
    files = resources.files("tailrace.kernels").iterdir()
    return {each.name: each.read_bytes() for each in files if each.name.endswith(".py")}


@cache
def _digest() -> str:
    from llvmlite import binding  # type: ignore[import-untyped]

    parts = [sys.version, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()]
    parts += [metadata.version(package) for package in ("numba", "llvmlite")]
    digest = hashlib.sha256("\n".join(parts).encode())
    for name, source in sorted(_sources().items()):
        digest.update(f"\n{name} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:32]


def _code_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.o"


def _remove_unused(root: Path) -> None:
    limit_s = time.time() - UNUSED_S_MAX
    for each in root.iterdir():
        if _DIGEST.fullmatch(each.name) or each.name.startswith(_UNFINISHED):
            with contextlib.suppress(OSError):
                if each.lstat().st_mtime < limit_s:
                    _remove(each)


def _remove(folder: Path) -> None:
    """Removes a folder, after it was renamed so that no process finds half of it."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder.rename(f"{folder.parent}/{_UNFINISHED}{uuid.uuid4().hex}"))
