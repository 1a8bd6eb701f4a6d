"""Sessions of users who run `/path/venv/bin/python program.py` and activate no environment.

The `python3` on PATH is another Python then, one that has neither this package nor PyArrow. Each
program runs in a process of its own, since the workers' Python is chosen when Spark starts.
"""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tailrace.model import TopicPartition
from tailrace.spark.java import find_java
from tests.spark.directories import write_numbered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PLAIN = """
import sys
from pyspark.sql import SparkSession
from tailrace.spark import install
spark = install(SparkSession.builder.master("local[1]").getOrCreate())
"""

OURS = """
import sys
from pyspark.sql import SparkSession
from tailrace.spark import session
if "beside" in sys.argv:
    SparkSession.builder.master("local[1]").getOrCreate()
spark = session(master="local[1]")
"""

COUNT = """
print(spark.read.format("tailrace").option("subscribe", "t").load(sys.argv[1]).count())
"""


def other_python(folder: Path) -> Path:
    """A `python3` that has what Spark gives to it and nothing else: it has no site-packages."""
    other = folder / "programs" / "python3"
    other.parent.mkdir(exist_ok=True)
    other.write_text(f"#!/bin/sh\nunset PYTHONPATH\nexec '{sys.executable}' -S \"$@\"\n")
    other.chmod(0o755)
    return other


def run(program: str, data: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a program where `python3` is another Python."""
    programs = other_python(data.parent).parent
    environment = {
        "HOME": str(data.parent),
        "JAVA_HOME": str(find_java(os.environ).home),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program + COUNT, str(data), *arguments],
        capture_output=True,
        check=False,
        cwd=data.parent,
        env=environment,
        text=True,
        timeout=280,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with seven records."""
    write_numbered(tmp_path / "data", TopicPartition("t", 0), limit=7)
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("program", "arguments"), [(PLAIN, ()), (OURS, ()), (OURS, ("beside",))], ids=str
)
def test_a_topic_is_read_though_python3_is_another(
    data: Path, program: str, arguments: tuple[str, ...]
) -> None:
    """The topic is read by `install`, by `session`, and by `session` beside the user's own."""
    code, output, errors = run(program, data, *arguments)
    assert (code, output) == (0, "7\n"), errors


def test_a_python_that_cannot_work_is_named_in_one_sentence(data: Path) -> None:
    """The user chose it, so it is kept; the message says which one to set."""
    chosen = str(data.parent / "programs" / "python3")
    code, _, errors = run(PLAIN, data, PYSPARK_PYTHON=chosen)
    assert code == 1
    # Not as the last line: the JVM, which ends after the program, may write one more.
    assert (
        f"tailrace.errors.FatalError: Spark starts its Python workers with {chosen}, which cannot "
        f"import tailrace; set PYSPARK_PYTHON={sys.executable} before the session starts"
    ) in errors.splitlines()


PYSPARK = """
import os
def imported(_):
    import pyspark
    return pyspark.__file__
print(spark.sparkContext._jvm.System.getenv("SPARK_HOME"), os.environ.get("SPARK_HOME"))
print(spark.sparkContext.parallelize([0], 1).map(imported).first())
"""


def test_workers_of_a_session_import_the_installed_pyspark(data: Path) -> None:
    """Each process would compile the one in the zip file that a home of Spark's own has.

    Other programs that this process starts may have another Spark, and get no SPARK_HOME.
    """
    code, output, errors = run(OURS + PYSPARK, data)
    assert code == 0, errors
    home, inherited, imported, _ = output.split()
    assert Path(home).is_relative_to(data.parent / ".cache" / "tailrace")
    assert inherited == "None"
    assert imported == pyspark.__file__


def test_a_home_of_the_users_is_used(data: Path) -> None:
    """`SPARK_HOME` says which, and nothing is written."""
    own = str(Path(pyspark.__file__).parent)
    code, output, errors = run(OURS + PYSPARK, data, SPARK_HOME=own)
    assert code == 0, errors
    assert output.split()[0] == own
    assert not (data.parent / ".cache").exists()


@pytest.mark.slow
def test_a_session_starts_from_the_archive_of_classes(data: Path) -> None:
    """`prepare` writes it, and the JVM of the next session has its file mapped."""
    code, output, errors = run(PREPARE, data)
    assert code == 0, errors
    assert "is not checked" not in errors, "no warning is about the jobs that `prepare` has made up"
    archive = output.strip()
    assert Path(archive).is_relative_to(data.parent / ".cache" / "tailrace")
    code, output, errors = run(OURS + MAPPED, data)
    assert code == 0, errors
    assert output.split()[0] == archive


PREPARE = """
import sys
from tailrace.spark.prepare import prepare
print(prepare())
sys.exit()
"""

MAPPED = """
pid = spark.sparkContext._gateway.proc.pid
print(next(line.split()[-1] for line in open(f"/proc/{pid}/maps") if line.endswith(".jsa\\n")
    and "tailrace" in line))
"""
