"""The files of the demo, and when they may be removed.

    DIR/
      made-by-tailrace-demo.txt   proof that the directory is the demo's own
      meta.properties, flights-0/ … the broker's files
      lake/month=1/…parquet       the joined flights
      delays.png                  the picture

Invariant: nothing is removed unless the proof is there, no directory is present that the demo
does not make, and no broker holds the lock. The proof goes last, so a removal that was cut
short is finished by the next run.
"""

import fcntl
import re
import shutil
from contextlib import suppress
from pathlib import Path

from tailrace.errors import FatalError
from tailrace.storage.names import LOCK
from tailrace.values import dataclass

MARKER = "made-by-tailrace-demo.txt"

MARKER_TEXT = (
    "`tailrace demo` made this directory and removes it with all it holds when it runs again,\n"
    "unless it is given --keep.\n"
)

OWN_DIRECTORY = re.compile(r"lake|(flights|weather|planes|__[a-z_]+)-\d+(\.[0-9a-f]+-delete)?")
"""The lake, partitions of the demo's and of internal topics, and those being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoFiles:
    """The demo's directory, and the paths in it."""

    root: Path
    """The broker's data directory too."""

    @property
    def lake(self) -> Path:
        """Joined flights as Parquet, a directory per month."""
        return self.root / "lake"

    @property
    def picture(self) -> Path:
        """The heat map."""
        return self.root / "delays.png"

    @property
    def marker(self) -> Path:
        """The file that says whose directory this is."""
        return self.root / MARKER


def prepare(files: DemoFiles, *, keep: bool) -> bool:
    """The directory made ready; True if it holds the data of an earlier demo.

    Without `keep` what an earlier demo left is removed first.

    Raises:
        FatalError: the directory is in the way: not the demo's own, or in use by a broker.
    """
    root = files.root
    if root.exists() and not root.is_dir():
        raise FatalError(f"{root} is not a directory; give the demo another one with --data")
    is_used = root.is_dir() and any(root.iterdir())
    if is_used:
        _refuse_foreign(files)
        _refuse_locked(files.root)
        if not keep:
            _remove(files)
    root.mkdir(parents=True, exist_ok=True)
    files.marker.write_text(MARKER_TEXT, encoding="utf-8")
    return is_used and keep


def _refuse_foreign(files: DemoFiles) -> None:
    """Raises FatalError if the directory has anything that a demo would not have made."""
    advice = "Nothing was changed. Give the demo another directory with --data"
    if not files.marker.is_file():
        raise FatalError(f"{files.root} was not made by the demo: it has no {MARKER}. {advice}")
    foreign = sorted(
        entry.name
        for entry in files.root.iterdir()
        if entry.is_dir() and not OWN_DIRECTORY.fullmatch(entry.name)
    )
    if foreign:
        raise FatalError(
            f"{files.root} has more than the demo's data: {', '.join(foreign[:5])}. {advice}"
        )


def _refuse_locked(root: Path) -> None:
    """Raises FatalError if a broker runs on the directory."""
    with suppress(FileNotFoundError), (root / LOCK).open("r+b") as file:
        try:
            # The lock of a broker, ours or Kafka's; it ends with its process, so none is left by a
            # kill.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FatalError(
                f"a broker is running on {root}. Stop it, or give the demo another directory "
                "with --data"
            ) from error


def _remove(files: DemoFiles) -> None:
    """Empty the directory, the proof of ownership last."""
    for entry in files.root.iterdir():
        if entry == files.marker:
            continue
        # Of a link only the link goes, and not what it leads to.
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    # Without it no later run could finish a removal that was cut short.
    files.marker.unlink()
