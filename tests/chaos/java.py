"""The members of groups that use Kafka's own client: `Member.java`, compiled once for a run."""

import os
from collections.abc import Mapping
from pathlib import Path

from compat.artifacts import KAFKA, class_path
from compat.kafka import java_command
from compat.processes import START_SECONDS_MAX, run
from tailrace.errors import FatalError
from tailrace.spark.java import find_java

_SOURCE = Path(__file__).with_name("Member.java")
_JVM = (
    "-Xmx64m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)


def compile_member(folder: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The command that begins each life, to which the plan is added; its classes are in the folder.

    Raises:
        FatalError: no Java, no compiler or no Maven; one line says what to install.
    """
    java, jars = find_java(environment).home / "bin" / "java", class_path(KAFKA, environment)
    classes = folder / "classes"
    compiler = [str(java), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    try:
        run(
            [*compiler, "-d", str(classes), "-cp", jars, str(_SOURCE)],
            name=f"compiling {_SOURCE.name}",
            seconds_max=START_SECONDS_MAX,
        )
    except FatalError as error:
        raise FatalError(
            f"{error}; it needs a JDK of Java 17 or later, not only a runtime (Debian: apt-get "
            "install openjdk-17-jdk-headless)"
        ) from error
    return java_command(java, f"{jars}{os.pathsep}{classes}", ["Member"], jvm=_JVM)
