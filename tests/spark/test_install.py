"""`install` on clusters whose executors have everything but this package.

Each job runs in a process of its own, since a process has one kind of session.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from tailrace.model import TopicPartition
from tailrace.spark.java import find_java
from tests.spark.directories import write_numbered

# A cluster is up to seven JVMs; they take a quarter of a minute where they have the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BOUND = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
"""Has a process die with its parent, however that ends; where the machine can see to that."""

JOB = """
import json, os, sys
from pyspark.sql import SparkSession
from tailrace.spark import install

def home(batches):
    import pyarrow, tailrace
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"home": [tailrace.__file__]})

kind, address, data, output = sys.argv[1:]
builder = getattr(SparkSession.builder, kind)(address)
for pair in os.environ["SETTINGS"].split():
    builder = builder.config(*pair.split("="))
spark = builder.getOrCreate()
assert install(install(spark)) is spark
reader = spark.read.format("tailrace").schema("offset BIGINT, value BINARY")
frame = reader.option("subscribe", "t").option("minPartitions", "2").load(data)
frame.write.parquet(output)
homes = spark.range(0, 2, 1, 2).mapInArrow(home, "home STRING").collect()
print(json.dumps([frame.count(), [row.home for row in homes]]))
spark.stop()
"""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment of a driver that has this package; its workers have only the dependencies."""
    worker = tmp_path / "python"
    worker.write_text(
        "#!/bin/sh\n"
        f"export PYTHONPATH='{sysconfig.get_path('purelib')}'\n"
        f"exec '{sys.executable}' -S \"$@\"\n"
    )
    worker.chmod(0o755)
    # A cluster in one process writes its logs into Spark's own directory.
    home = tmp_path / "spark"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return {
        "HOME": str(tmp_path),
        "JAVA_HOME": str(find_java(os.environ).home),
        "PATH": os.environ["PATH"],
        "PYSPARK_PYTHON": str(worker),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "SETTINGS": " ".join(f"{name}={value}" for name, value in SETTINGS.items()),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run_job(tmp_path: Path, environment: dict[str, str], *session: str) -> None:
    """Run the job on a session; it reads, counts and writes all records with shipped code only."""
    data, output = tmp_path / "data", tmp_path / "output"
    for number in (0, 1):
        write_numbered(data, TopicPartition("t", number), limit=500)
    done = subprocess.run(
        [*BOUND, sys.executable, "-W", "ignore", "-c", JOB, *session, str(data), str(output)],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env=environment,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    count, homes = json.loads(done.stdout.splitlines()[-1])
    assert count == 1000
    assert len(homes) == 2
    for home in homes:
        assert re.search(r"/tailrace-[0-9a-f]{16}/packages/tailrace/__init__\.py$", home)
    rows = pq.read_table(output).to_pydict()
    assert sorted(rows["offset"]) == sorted(2 * list(range(500)))
    assert {b"value-%d" % offset for offset in range(500)} == set(rows["value"])


@contextmanager
def started(environment: dict[str, str], ready: str, *command: str) -> Iterator[re.Match[str]]:
    """A process of Spark that has printed a line like `ready`; it ends with the block."""
    program = [*BOUND, f"{environment['SPARK_HOME']}/bin/spark-class", *command]
    with subprocess.Popen(
        program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if found := re.search(ready, line):
                    yield found
                    break
            else:
                pytest.fail("".join(lines))
        finally:
            process.terminate()


def test_executors_of_a_local_cluster_get_the_package(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Two executors that are processes of their own read with the package."""
    run_job(tmp_path, environment, "master", "local-cluster[2,1,512]")


def test_executors_of_a_standalone_cluster_get_the_package(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """A master and two workers, as Spark's own scripts start them."""
    places = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        master = stack.enter_context(
            started(
                environment,
                r"Starting Spark master at (spark://\S+)",
                "org.apache.spark.deploy.master.Master",
                *places,
            )
        )
        for number in (0, 1):
            sizes = ["--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"w{number}")]
            stack.enter_context(
                started(
                    environment,
                    "Successfully registered with master",
                    "org.apache.spark.deploy.worker.Worker",
                    *places,
                    *sizes,
                    master[1],
                )
            )
        run_job(tmp_path, environment, "master", master[1])


def test_a_connect_server_gets_the_package(tmp_path: Path, environment: dict[str, str]) -> None:
    """A client without a JVM sends the package to the server as an artifact of the session."""
    # So the server chooses a free port.
    run_job(tmp_path, environment | {"SPARK_TESTING": "1"}, "remote", "local[2]")
