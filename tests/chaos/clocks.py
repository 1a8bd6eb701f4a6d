"""`ShiftedClock`: sets the time of day of another process, by a small preloaded library.

Its source is `shifted_clock.c`; it needs a C compiler. What the process reads of its monotonic
clock stays as it is, as on a machine whose time of day is set.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

JUMP_SECONDS_MAX: Final = 50 * 60
"""Below the hour that a record may be ahead of the broker (`message.timestamp.after.max.ms`), and
far below the days after which Kafka forgets producers and the offsets of groups."""


class ShiftedClock:
    """The time of day of a process that is started with `command`."""

    def __init__(self, library: Path, shift_file: Path) -> None:
        self._library = library
        self._shift_file = shift_file
        self.set(0)

    @classmethod
    def compile(cls, folder: Path) -> Self | None:
        """Compile the library into a folder; None without a C compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            return None
        library = folder / "shifted_clock.so"
        source = Path(__file__).with_name("shifted_clock.c")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"],
            check=True,
        )
        return cls(library, folder / "shift")

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the environment with which a process reads this clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_FILE": str(self._shift_file)}

    def set(self, shift_s: float) -> None:
        """Have the process read a time of day that is this much later than the machine's."""
        # Written in place: the process has mapped the file.
        with self._shift_file.open("r+b" if self._shift_file.exists() else "xb") as file:
            file.write(int(shift_s * 1e9).to_bytes(8, sys.byteorder, signed=True))
