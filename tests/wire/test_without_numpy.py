"""The required dependencies alone: the log, the broker and both clients."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wire

LIFE = """
import sys
for each in ("numpy", "pyarrow", "Cython", "cython"):
    sys.modules[each] = None  # an import of it fails as if it were not installed

from tailrace import Broker, Consumer, Producer, list_partitions, open_log
from tailrace.cli import main
from tailrace.errors import MissingExtraError


def told(call):
    try:
        call()
    except MissingExtraError as error:
        assert "pip install 'tailrace[arrow]'" in str(error), error
    else:
        raise AssertionError("it was done without numpy and pyarrow")

directory = sys.argv[1]
settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
with Broker(directory, settings=settings) as broker:
    address = broker.bootstrap_servers
    for codec in ("none", "zstd"):
        with Producer(bootstrap_servers=address, compression_type=codec) as producer:
            told(lambda: producer.send_many("t", [b"x"]))
            for number in range(100):
                producer.send("t", b"%d" % number, b"key", headers=[("h", b"x")])
    for protocol in ("classic", "consumer"):
        with Consumer(
            bootstrap_servers=address, group_id=protocol, group_protocol=protocol,
            auto_offset_reset="earliest", value_deserializer=int,
        ) as consumer:
            consumer.subscribe("t")
            found = []
            while len(found) < 200:
                found += consumer.poll(60)
            consumer.commit()
            told(consumer.poll_columns)
            told(consumer.to_arrow)
        assert sorted(each.value for each in found) == sorted([*range(100)] * 2), found
        assert {each.headers for each in found} == {(("h", b"x"),)}
assert len([*open_log(directory, "t", 0).records()]) == 200
told(lambda: open_log(f"file://{directory}", "t", 0))
told(lambda: list_partitions("s3://bucket/backup"))
sys.argv = ["tailrace", *sys.argv[2:], "--data", directory]
main()
"""


@pytest.mark.parametrize(
    ("command", "expected"), [(["log", "verify"], "clean"), (["log", "cat", "t-0"], "key")]
)
def test_a_process_without_numpy_serves_and_sends_and_reads(
    command: list[str], expected: str, tmp_path: Path
) -> None:
    """Records with headers, compressed or not, in groups of both protocols, and the files after.

    What needs columns says how to install them.
    """
    done = subprocess.run(
        [sys.executable, "-c", LIFE, str(tmp_path / "data"), *command],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout
