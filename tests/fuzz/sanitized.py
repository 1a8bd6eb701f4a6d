"""`make fuzz SANITIZE=1`: runs pytest on compiled modules that AddressSanitizer and UBSan watch.

They are built in build/sanitized, in a copy of the package, and those in `src` stay as they are.
Python allocates each object by malloc, so that a read behind the end of bytes is seen. Memory that
nothing refers to at the end of the run is a leak. Needs GCC and Linux.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "sanitized"
SUPPRESSIONS = Path(__file__).parent / "leaks.txt"

# C++ libraries throw through the sanitizer only if it finds their runtime when it starts.
PRELOADED = ("libasan.so", "libstdc++.so")
ADDRESS_OPTIONS = {
    # After a report pytest shows where Python was.
    "abort_on_error": "1",
    "detect_leaks": "1",
    "detect_stack_use_after_return": "1",
    "strict_string_checks": "1",
    # Python looks for the end of the stack by itself.
    "use_sigaltstack": "0",
    # What is freed waits here; the targets bound the memory of the process.
    "quarantine_size_mb": "4",
}


def build(package: Path, built: Path) -> None:
    """Build the package of a folder with sanitizers, into another one.

    Raises:
        CalledProcessError: it could not be built.
    """
    # A module that is no longer in the package would stay.
    shutil.rmtree(built, ignore_errors=True)
    build = (sys.executable, "setup.py", "-q", "build", "--build-lib", built, "--build-temp", built)
    subprocess.run(build, cwd=package, env={**os.environ, "TAILRACE_SANITIZE": "1"}, check=True)


def environment(built: Path) -> dict[str, str]:
    """Variables of a Python whose extensions in `built` are watched."""
    find = [("gcc", f"-print-file-name={name}") for name in PRELOADED]
    found = [subprocess.check_output(command, text=True).strip() for command in find]
    return {
        **os.environ,
        "ASAN_OPTIONS": ":".join(f"{name}={value}" for name, value in ADDRESS_OPTIONS.items()),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "LD_PRELOAD": ":".join(found),
        "LSAN_OPTIONS": f"suppressions={SUPPRESSIONS}:print_suppressions=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(built),
        "UBSAN_OPTIONS": "abort_on_error=1:print_stacktrace=1",
    }


def main() -> None:
    """Build, and become pytest with this program's arguments."""
    build(ROOT, BUILT)
    # A report is written to the file of stderr itself, just before the process ends.
    options = ["--capture=sys", "-o", f"pythonpath={ROOT} {BUILT}", *sys.argv[1:]]
    os.execve(sys.executable, [sys.executable, "-m", "pytest", *options], environment(BUILT))


if __name__ == "__main__":
    main()
