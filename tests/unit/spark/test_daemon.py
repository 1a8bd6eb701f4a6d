"""The daemon for Spark's Python workers, run as Spark runs it: as a process, over its socket."""

import gc
import os
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest

from tailrace.spark.daemon import CALLS_MAX, Collector
from tests.kills.drivers import wait_for_end

SECRET = b"secret"

WORKER = """
import gc, os

def main(infile, outfile):
    command = infile.readline().strip()
    if command in (b"end", b""):
        raise SystemExit(3)
    if command == b"fail":
        raise ValueError("no space")
    if command == b"write":
        infile.read()  # Until the other side has closed.
        outfile.write(bytes(10_000_000))
    cycle = []
    cycle.append(cycle)
    outfile.write(b"%d %d\\n" % (os.getpid(), gc.get_stats()[2]["collections"]))
"""
"""Stands for `pyspark.worker`: it answers with its process, and the number of its full
collections."""


class Worker:
    """A worker process, as Spark has it: behind a socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.answers = self.socket.makefile("rb")
        self.number = read_int(self.answers)
        self.socket.sendall(struct.pack("!i", len(SECRET)) + SECRET)

    def authenticate(self) -> None:
        """Read the answer to the secret, which comes before the first task."""
        assert self.answers.read(read_int(self.answers)) == b"ok"

    def run(self, command: bytes = b"count") -> tuple[int, int]:
        """Run a task: returns its process, and how many full collections that has had."""
        self.socket.sendall(command + b"\n")
        process, collections = self.answers.readline().split()
        return int(process), int(collections)

    def close(self) -> None:
        """Close the connection, as Spark does with a worker that it needs no more."""
        self.answers.close()
        self.socket.close()


def read_int(stream: IO[bytes]) -> int:
    """An int32, as PySpark writes it."""
    number: int = struct.unpack("!i", stream.read(4))[0]
    return number


@contextmanager
def running(folder: Path, **variables: str) -> Iterator[tuple[Worker, list[str]]]:
    """A daemon and a worker of it; when the block has ended, what it has written as an error."""
    (folder / "pyspark_answering.py").write_text(WORKER)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        **variables,
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tailrace.spark.daemon", "pyspark_answering"],
        env=environment, stderr=subprocess.PIPE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    assert daemon.stderr is not None
    errors: list[str] = []
    try:
        worker = Worker(read_int(daemon.stdout))
        worker.authenticate()
        yield worker, errors
        worker.close()
        # By itself, and not by the signal of the daemon that ends.
        wait_for_end(worker.number, 30)
        # Workers have the same pipe, so it ends when all have ended.
        daemon.stdin.close()
        errors.append(daemon.stderr.read().decode())
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
        daemon.stderr.close()
        daemon.stdin.close()


def test_one_process_runs_all_tasks_and_seldom_looks_at_old_objects(tmp_path: Path) -> None:
    """Few of 40 tasks end with a full collection, each of which costs as much as a small task."""
    with running(tmp_path, SPARK_REUSE_WORKER="1") as (worker, errors):
        told = [worker.run() for _ in range(2 * CALLS_MAX)]
    assert {process for process, _ in told} == {worker.number}
    assert told[-1][1] - told[0][1] <= 10
    assert errors == [""]


def test_a_worker_that_is_not_reused_ends_after_a_task(tmp_path: Path) -> None:
    """With `spark.python.worker.reuse=false`, Spark reads the end of the stream then."""
    with running(tmp_path) as (worker, errors):
        assert worker.run()[0] == worker.number
        worker.socket.shutdown(socket.SHUT_WR)
        assert worker.answers.read() == b""
    assert errors == [""]


def test_a_worker_that_exits_runs_no_other_task(tmp_path: Path) -> None:
    """The exit code of a task ends its process, silently as in PySpark's daemon."""
    with running(tmp_path, SPARK_REUSE_WORKER="1") as (worker, errors):
        worker.socket.sendall(b"end\n")
        worker.socket.shutdown(socket.SHUT_WR)
        assert worker.answers.read() == b""
    assert errors == [""]


def test_a_socket_that_spark_has_closed_is_not_reported(tmp_path: Path) -> None:
    """Rows that nobody wants any more, as after `show(3)`, are no error."""
    with running(
        tmp_path, SPARK_REUSE_WORKER="1", PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE="1"
    ) as (worker, errors):
        worker.run()
        worker.socket.sendall(b"write\n")
    assert errors == [""]


def test_other_errors_of_a_worker_keep_their_traceback(tmp_path: Path) -> None:
    """The daemon prints them as PySpark's does."""
    with running(tmp_path, SPARK_REUSE_WORKER="1") as (worker, errors):
        worker.socket.sendall(b"fail\n")
        assert worker.answers.read() == b""
    [printed] = errors
    assert printed.startswith("Traceback")
    assert "ValueError: no space" in printed


class Model:
    """A value that a function keeps between two calls; only a collection can free it."""

    def __init__(self, size: int) -> None:
        self.weights = b"x" * size
        self.itself = self


@pytest.mark.parametrize(
    ("size", "kept_max"), [(20_000_000, 3), (100, CALLS_MAX + 1)], ids=["large", "small"]
)
def test_what_a_function_of_the_user_replaces_is_freed(
    size: int, kept_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large model after a few calls, a small one later, also where each call imports a module."""
    models: list[weakref.ref[Model]] = []
    collector = Collector()
    gc.collect()
    gc.freeze()  # What other tests keep would be searched 50 times.
    gc.disable()  # Only the calls of the daemon count.
    try:
        for call in range(50):
            model = Model(size)  # The name keeps one alive: the newest.
            models.append(weakref.ref(model))
            monkeypatch.setitem(sys.modules, f"added{call}", ModuleType("added"))
            collector.collect()
            assert sum(each() is not None for each in models) <= kept_max
    finally:
        gc.enable()


def test_a_call_collects_its_own_garbage() -> None:
    """Each collection finds a cycle that was made since the one before."""
    collector = Collector()
    for _ in range(2 * CALLS_MAX):
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert collector.collect() >= 1


def test_a_daemon_leaves_pysparks_own_as_it_is() -> None:
    """Importing this package, and the daemon too, changes no name of PySpark."""
    program = (
        "from pyspark import daemon; before = dict(vars(daemon)); "
        "import tailrace.spark, tailrace.spark.daemon; print(before == vars(daemon))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    assert answer.stdout.strip() == "True"
