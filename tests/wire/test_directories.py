"""`tailrace serve` over two real directories, one of which goes away."""

import time
from pathlib import Path

import pytest

from tests.wire.clients import CLIENTS, Sent
from tests.wire.test_serve import serving

pytestmark = pytest.mark.wire

RECORDS = [Sent(key=b"k", value=b"%d" % number, timestamp=1_600_000_000_000) for number in range(9)]
OFTEN = (
    "--override", "log.initial.task.delay.ms=0",
    "--override", "log.retention.ms=-1",
    "--override", "log.flush.offset.checkpoint.interval.ms=200",
)  # fmt: skip
WAIT_S = 60


def write(address: str, topic: str) -> None:
    """Send the records to partition 0 of a topic."""
    client = CLIENTS["confluent-kafka"]
    client.produce(address, topic, RECORDS, codec="none", is_idempotent=False)


def read(address: str, topic: str) -> list[Sent]:
    """All records of partition 0 of a topic."""
    return CLIENTS["confluent-kafka"].read(address, topic, 0, count=len(RECORDS))


def test_topics_are_spread_and_found_again(tmp_path: Path) -> None:
    """Each directory gets one of two topics; after a restart both are read."""
    first, second = tmp_path / "a", tmp_path / "b"
    both = Path(f"{first},{second}")
    with serving(both) as (process, address):
        for topic in ("one", "two"):
            write(address, topic)
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert (first / "one-0").is_dir()
    assert (second / "two-0").is_dir()
    with serving(both, "--override", "tailrace.durability=sync") as (_, address):
        for topic in ("one", "two"):
            assert read(address, topic) == RECORDS
            write(address, topic)


def test_a_directory_that_goes_away_takes_only_its_own_topics(tmp_path: Path) -> None:
    """The other topic is written and read, and the process goes on."""
    first, second = tmp_path / "a", tmp_path / "b"
    with serving(Path(f"{first},{second}"), *OFTEN) as (process, address):
        for topic in ("one", "two"):
            write(address, topic)
        second.rename(tmp_path / "away")
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            write(address, "one")
        assert read(address, "one") == RECORDS
        assert process.poll() is None


def test_a_broker_without_a_directory_ends_with_status_6(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The broker ends by itself, with one line that says which directory failed and why."""
    data = tmp_path / "data"
    with serving(data, *OFTEN) as (process, address):
        write(address, "one")
        data.rename(tmp_path / "away")
        assert process.wait(WAIT_S) == 6
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("tailrace: ")]
    assert len(lines) == 1
    assert str(data) in lines[0]
    assert "no such file or directory" in lines[0]
