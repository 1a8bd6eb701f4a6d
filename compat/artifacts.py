"""Apache Kafka as a class path: pinned artifacts, fetched with Maven into a cache of our own.

Where they come from is the business of Maven and its settings (`~/.m2/settings.xml`); no address is
known here. Maven checks each download against the registry's SHA-1, and we check the files in the
cache against it before each run.

Invariant: a class path that is returned has every file, and each is what the registry has.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tailrace.errors import FatalError

KAFKA_VERSION = "4.3.1"
"""The newest 4.x whose artifacts are all there: of 4.4.0, `kafka-tools` and `kafka-tools-api` are
missing, and with them DumpLogSegments."""

ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    # Kafka speaks slf4j; its own choice behind it is no dependency of the artifact.
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)

FETCH_SECONDS_MAX = 900
"""The first fetch brings 130 MB."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tailrace</groupId><artifactId>compat</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:2.8:build-classpath"


def kafka_class_path(environment: Mapping[str, str]) -> str:
    """The class path of the pinned Kafka with its tools; fetched if it is not in the cache.

    Raises:
        FatalError: no Maven, or it cannot fetch; one line says what to do.
    """
    cache = cache_directory(environment)
    listed = cache / f"kafka-{KAFKA_VERSION}.classpath"
    if not listed.exists() or _faults(listed.read_text()):
        _fetch(cache, listed)
        faults = _faults(listed.read_text())
        if faults:
            raise FatalError(
                f"not what the registry has: {faults[0]}; remove {cache} and try again"
            )
    return listed.read_text().strip()


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where artifacts are kept between runs, outside of any tree."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "tailrace", "compat")


def _fetch(cache: Path, listed: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise FatalError("no Maven: install it (Debian: apt-get install maven) to fetch Kafka")
    cache.mkdir(parents=True, exist_ok=True)
    pom = cache / "pom.xml"
    pom.write_text(_POM.format("".join(_DEPENDENCY.format(*each) for each in ARTIFACTS)))
    unfinished = listed.with_suffix(".tmp")
    command = [
        maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(pom),
        f"-Dmaven.repo.local={cache / 'repository'}", f"-Dmdep.outputFile={unfinished}",
        "-Dmdep.includeScope=runtime", _GOAL,
    ]  # fmt: skip
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Maven, without a shell
            command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise FatalError(f"Maven has fetched for {FETCH_SECONDS_MAX} s; try again") from error
    if answer.returncode or not unfinished.exists():
        lines = [line for line in answer.stdout.splitlines() if "ERROR" in line]
        raise FatalError(f"Maven cannot fetch Kafka {KAFKA_VERSION}: {(lines or ['?'])[0]}")
    unfinished.replace(listed)


def _faults(class_path: str) -> list[str]:
    """Files that are missing, or do not have the sum beside them."""
    faults = []
    for name in class_path.strip().split(os.pathsep):
        jar = Path(name)
        sum_file = jar.with_name(jar.name + ".sha1")
        if not jar.exists() or not sum_file.exists():
            faults.append(f"{jar.name} or its SHA-1 is missing")
            continue
        # The registry's own sums; nothing here rests on SHA-1 being hard to forge.
        digest = hashlib.sha1(jar.read_bytes(), usedforsecurity=False).hexdigest()
        if digest != sum_file.read_text().split()[0].lower():
            faults.append(f"{jar.name} has SHA-1 {digest}")
    return faults
