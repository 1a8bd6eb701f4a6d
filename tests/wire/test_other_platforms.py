"""A broker and both clients where Python has only what macOS has: nothing that is Linux's alone."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wire

HIDE = """
import importlib

LINUX = {
    "select": ("epoll",),
    "os": (
        "eventfd", "eventfd_read", "eventfd_write", "fdatasync", "posix_fadvise",
        "posix_fallocate", "preadv", "pwritev", "sched_getaffinity", "sched_setaffinity", "splice",
        "copy_file_range", "memfd_create", "pidfd_open",
    ),
    "mmap": ("MADV_HUGEPAGE", "MADV_DONTFORK", "MAP_POPULATE"),
    "socket": ("SOCK_NONBLOCK", "SOCK_CLOEXEC", "AF_NETLINK", "TCP_QUICKACK", "TCP_USER_TIMEOUT"),
}
FAMILIES = ("RWF_", "EFD_", "EPOLL")
for module, names in LINUX.items():  # in this order: socket asks select what there is
    found = importlib.import_module(module)
    for name in dir(found):
        if name in names or name == "O_DIRECT" or name.startswith(FAMILIES):
            delattr(found, name)
"""
"""Deletes names that Python has on Linux and not on macOS."""

USE = """
import asyncio, sys
from contextlib import closing

from tailrace import AsyncProducer, Broker, Producer
from tailrace.client import ClusterReader, fetch_batches
from tailrace.model import TopicPartition
from tailrace.records.builder import records_of
from tailrace.runtime.threads import usable_core_count
from tailrace.storage.cleaner.key_map import SIZE_BYTES_MIN, KeyMap

async def produce(address):
    async with AsyncProducer(bootstrap_servers=address) as producer:
        await producer.send("flights", b"second")

with Broker(sys.argv[1], settings={"tailrace.durability": "sync"}) as broker:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("flights", b"first").result()
    asyncio.run(produce(broker.bootstrap_servers))
    with closing(ClusterReader(broker.bootstrap_servers)) as cluster:
        flights = TopicPartition("flights", 0)
        batches = fetch_batches(cluster, flights, start_offset=0, limit_offset=2)
        print([record.value.decode() for batch in batches for record in records_of(batch)])
KeyMap(SIZE_BYTES_MIN)
print(usable_core_count() > 0)
"""


def run(script: str, *arguments: str) -> str:
    """Return the output of a Python without these names."""
    done = subprocess.run(
        [sys.executable, "-c", HIDE + script, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_records_go_through_a_broker_without_the_calls_of_linux(tmp_path: Path) -> None:
    """Both producers, the broker, a reader and the cleaner need no epoll, eventfd or preadv."""
    assert run(USE, str(tmp_path / "data")) == "['first', 'second']\nTrue\n"


def test_a_log_is_read_without_the_calls_of_linux(tmp_path: Path) -> None:
    """The commands that look into a directory do not need them either."""
    run(USE, str(tmp_path / "data"))
    command = "import sys; from tailrace.cli import main; main()"
    assert "first" in run(command, "log", "cat", "--data", str(tmp_path / "data"), "flights")
    assert "clean" in run(command, "log", "verify", "--data", str(tmp_path / "data"))
