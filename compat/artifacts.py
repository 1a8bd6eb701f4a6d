"""Apache Kafka as a class path: pinned artifacts, fetched with Maven into a cache of our own.

Where they come from is the business of Maven and its settings (`~/.m2/settings.xml`); no address is
known here. Maven checks each download against the registry's SHA-1, and we check the files in the
cache against it before each run.

Invariant: a class path that is returned has every file, and each is what the registry has.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compat.processes import bound_to_us, run
from tailrace.errors import FatalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Artifacts of one version of one thing, fetched together."""

    name: str
    version: str
    artifacts: tuple[tuple[str, str, str], ...]
    """Group, name and version of each; what they depend on comes along."""
    overrides: tuple[tuple[str, str, str], ...] = ()
    """Dependencies that are fetched in another version than the artifacts ask for."""


_SLF4J = ("org.slf4j", "slf4j-simple", "1.7.36")
"""Kafka speaks slf4j; its own choice behind it is no dependency of the artifact."""

KAFKA = Release(
    name="Apache Kafka",
    version="4.3.1",
    artifacts=(
        ("org.apache.kafka", "kafka_2.13", "4.3.1"),
        ("org.apache.kafka", "kafka-tools", "4.3.1"),
        _SLF4J,
    ),
)
"""The newest 4.x whose artifacts are all there: of 4.4.0, `kafka-tools` and `kafka-tools-api` are
missing, and with them DumpLogSegments."""

KAFKA_SHELL = Release(
    name="Kafka's metadata shell",
    version=KAFKA.version,
    artifacts=(("org.apache.kafka", "kafka-shell", KAFKA.version),),
)
"""Beside the class path of `KAFKA`."""

OLD_KAFKA = Release(
    name="Apache Kafka",
    version="3.9.2",
    artifacts=(
        # First: another that comes along would be taken instead, which has to be configured.
        _SLF4J,
        ("org.apache.kafka", "kafka_2.13", "3.9.2"),
        ("org.apache.kafka", "kafka-tools", "3.9.2"),
    ),
)
"""The last that runs on ZooKeeper, and with it the last that writes v0 and v1."""


def old_release(version: str) -> Release:
    """An earlier Kafka, without its tools: those of some releases cannot be had."""
    broker = ("org.apache.kafka", "kafka_2.13", version)
    return Release(name="Apache Kafka", version=version, artifacts=(_SLF4J, broker))


SPARK_CONNECTOR = Release(
    name="Spark's Kafka connector",
    version="4.2.0",
    artifacts=(("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),),
    overrides=(("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),),
)
"""The newest that can be had. Its helper for delegation tokens, which nothing here uses, is missing
in every version after 4.0.0."""

_LACKING = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""Jars of the connector that Spark has not got."""

FETCH_SECONDS_MAX = 900
"""The first fetch brings 130 MB."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tailrace</groupId><artifactId>compat</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencyManagement><dependencies>{}</dependencies></dependencyManagement>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:2.8:build-classpath"


def class_path(release: Release, environment: Mapping[str, str]) -> str:
    """The class path of a release with all that it depends on; fetched if it is not in the cache.

    Raises:
        FatalError: no Maven, or it cannot fetch; one line says what to do.
    """
    cache = cache_directory(environment)
    pom = _POM.format(*map(_dependencies, (release.overrides, release.artifacts)))
    # Named after all that was asked for, so that none is taken for another.
    digest = hashlib.sha256(pom.encode()).hexdigest()[:16]
    listed = cache / f"{release.version}-{digest}.classpath"
    if not listed.exists() or _faults(listed.read_text()):
        maven = shutil.which("mvn", path=environment.get("PATH", ""))
        if maven is None:
            raise FatalError(
                f"no Maven to fetch {release.name} {release.version}: install it "
                "(Debian: apt-get install maven)"
            )
        _fetch(f"{release.name} {release.version}", maven, pom, listed=listed)
        faults = _faults(listed.read_text())
        if faults:
            raise FatalError(
                f"not what the registry has: {faults[0]}; remove {cache} and try again"
            )
    return listed.read_text().strip()


def connector_jars(environment: Mapping[str, str]) -> list[str]:
    """The jars of Spark's connector that a session needs.

    Raises:
        FatalError: as `class_path`.
    """
    jars = class_path(SPARK_CONNECTOR, environment).split(os.pathsep)
    return [jar for jar in jars if Path(jar).name.startswith(_LACKING)]


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory that keeps artifacts between runs, outside of any tree."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "tailrace", "compat")


def _fetch(name: str, maven: str, pom: str, *, listed: Path) -> None:
    cache = listed.parent
    cache.mkdir(parents=True, exist_ok=True)
    pom_file, unfinished = listed.with_suffix(".xml"), listed.with_suffix(".tmp")
    pom_file.write_text(pom)
    command = [
        maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(pom_file),
        f"-Dmaven.repo.local={cache / 'repository'}", f"-Dmdep.outputFile={unfinished}",
        "-Dmdep.includeScope=runtime", _GOAL,
    ]  # fmt: skip
    run(bound_to_us(command), name=f"Maven, fetching {name},", seconds_max=FETCH_SECONDS_MAX)
    if not unfinished.exists():
        raise FatalError(f"Maven, fetching {name}, has not written {unfinished}")
    unfinished.replace(listed)


def _dependencies(artifacts: Iterable[tuple[str, str, str]]) -> str:
    return "".join(_DEPENDENCY.format(*each) for each in artifacts)


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
