"""Jobs that are killed around the moment at which their topic is deleted and created again.

The seed decides when, and which of the two comes first. Afterwards nothing may have records of both
topics, and nothing may say of records that they are there and are not.
"""

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from tailrace import Admin, Broker, Producer
from tailrace.client.admin import create_topic
from tailrace.model import Offset
from tests.kills.changes import Changes
from tests.kills.drivers import ATTEMPTS_MAX, Drivers, Victim
from tests.kills.logs import PARTITIONS, RECORDS, record, source_of
from tests.spark.topics import records

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

COUNTS = {"old": 1000, "new": 1500}
"""Records in each of three partitions of a topic that is archived, and of the one after it."""

ARCHIVED_PARTITIONS = 3
FILE_BYTES = 15_000

ARCHIVE_CHANGES = 120
REPLAY_CHANGES = 70
"""Changes to the files of an archive, and to the offset map, while nobody disturbs the job."""

APART = 8
"""Changes between the two events, at most: a job without its topic ends soon."""


def make(bootstrap: str, topic: str, partition_count: int) -> None:
    """Create a topic, in place of what is there."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        if topic in {each.name for each in admin.list_topics()}:
            admin.delete_topics([topic]).results()
    settings = {"retention.ms": "-1"}
    create_topic(bootstrap, topic, partition_count=partition_count, settings=settings)


def fill(bootstrap: str, topic: str, name: str) -> None:
    """Send the records of the old or the new topic."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(COUNTS[name]):
            for partition in range(ARCHIVED_PARTITIONS):
                value = b"%s %d" % (name.encode(), number)
                producer.send(topic, value=value, partition=partition)


Call = dict[str, Any]
"""The arguments of a job of `runs`."""


class Disturbed:
    """Jobs that lose a process and their topic, until one has lost both before it was over."""

    def __init__(self, drivers: Drivers, victim: Victim, seed: int, *, moments: int) -> None:
        self._drivers = drivers
        self._victim = victim
        self._chance = Random(f"again {victim.value} {seed}")
        self._moments = moments

    def run(self, attempt: Callable[[int], tuple[Call, Path, Callable[[], None]]]) -> Call:
        """The call of a job that was killed, and has ended with its result or an error.

        An attempt is the call, the folder that it writes, and the way to make its topic again.
        """
        for number in range(ATTEMPTS_MAX):
            call, folder, make_again = attempt(number)
            if self._is_killed(call, folder, make_again):
                return call
        raise AssertionError(f"{ATTEMPTS_MAX} jobs were over before they could be killed")

    def _is_killed(self, call: Call, folder: Path, make_again: Callable[[], None]) -> bool:
        again_at = self._chance.randint(1, self._moments)
        kill_at = max(1, again_at + self._chance.randint(-APART, APART))
        driver = self._drivers.running(self._victim.master)
        is_struck = is_again = False
        with closing(Changes(folder)) as changes:
            driver.begin("ending", **call)
            while not driver.is_killed and driver.wait(changes):
                if not is_again and changes.count >= again_at:
                    is_again = True
                    make_again()
                if not is_struck and changes.count >= kill_at:
                    is_struck = driver.strike(self._victim, self._chance)
            count = changes.count
        outcome = "killed" if driver.is_killed else driver.result()
        # Pytest shows it when the test fails.
        print(f"{folder}: {kill_at=} {is_struck=} {again_at=} {is_again=} of {count}: {outcome}")
        if not is_again:
            make_again()
        return is_struck


def archived(lake: Path) -> list[tuple[int, int, str]]:
    """Partition, offset and value of each row of an archive that counts."""
    names: list[str] = []
    for path in sorted((lake / "_manifest").glob("*.json")):
        for entry in json.loads(path.read_bytes())["entries"]:
            names += [each["name"] for each in entry["files"]]
    return sorted(
        (row["partition"], row["offset"], row["value"].decode())
        for name in set(names)
        for row in pq.ParquetFile(lake / name).read().to_pylist()
    )


def expected(name: str) -> list[tuple[int, int, str]]:
    """The same of all of a topic."""
    return sorted(
        (partition, number, f"{name} {number}")
        for partition in range(ARCHIVED_PARTITIONS)
        for number in range(COUNTS[name])
    )


def test_an_archive_has_one_of_two_topics(
    drivers: Drivers, victim: Victim, seed: int, broker: Broker, tmp_path: Path
) -> None:
    """A part of the old one, and then a run refuses the new one; or else all of the new one."""
    bootstrap = broker.bootstrap_servers

    def attempt(number: int) -> tuple[Call, Path, Callable[[], None]]:
        topic, lake = f"{tmp_path.name}-{number}", tmp_path / str(number)

        def make_again(name: str = "new") -> None:
            make(bootstrap, topic, ARCHIVED_PARTITIONS)
            fill(bootstrap, topic, name)

        make_again("old")
        call = {"name": "archive topic", "bootstrap": bootstrap, "topic": topic, "lake": lake}
        return call | {"file_bytes": FILE_BYTES}, lake, make_again

    disturbed = Disturbed(drivers, victim, seed, moments=ARCHIVE_CHANGES)
    call = disturbed.run(attempt)
    told = drivers.run("ending", **call)
    found = archived(call["lake"])
    if told is None:
        assert found == expected("new")
    else:
        assert f"{call['topic']}: the archive has records of topic " in told
        assert found
        assert set(found) <= set(expected("old"))
    another = call | {"lake": tmp_path / "another"}
    assert drivers.run("ending", **another) is None
    assert archived(tmp_path / "another") == expected("new")


def mapped(offset_map: Path) -> dict[tuple[int, int], tuple[int, int]]:
    """The place of each source record in the target, by the files that are there."""
    found = {}
    for path in offset_map.glob("topic=*/*.parquet"):
        for row in pq.ParquetFile(path).read().to_pylist():
            for step in range(row["records"]):
                source = row["partition"], row["offset"] + step
                found[source] = row["target_partition"], row["target_offset"] + step
    return found


def test_a_replay_says_of_no_record_that_it_is_in_a_topic_that_is_gone(
    drivers: Drivers, victim: Victim, seed: int, *, data: Path, broker: Broker, tmp_path: Path
) -> None:
    """A run refuses the new topic, or else has sent all to it; with another map all comes once."""
    bootstrap = broker.bootstrap_servers

    def attempt(number: int) -> tuple[Call, Path, Callable[[], None]]:
        topic, moved = f"{tmp_path.name}-{number}", tmp_path / str(number)
        make(bootstrap, topic, 1)
        call = {"name": "replay", "data": data, "bootstrap": bootstrap, "topic": topic}
        return call | {"offset_map": moved}, moved, partial(make, bootstrap, topic, 1)

    disturbed = Disturbed(drivers, victim, seed, moments=REPLAY_CHANGES)
    call = disturbed.run(attempt)
    told = drivers.run("ending", **call)
    if told is None:
        check_whole(bootstrap, call)
    else:
        assert f"{call['topic']}: the replay has written to this name of topic " in told
    make(bootstrap, call["topic"], 1)
    another = call | {"offset_map": tmp_path / "another"}
    assert drivers.run("ending", **another) is None
    check_whole(bootstrap, another)


def check_whole(bootstrap: str, call: Call) -> None:
    """Find each record of the source once in the target, where the map says."""
    sent = records(bootstrap, call["topic"])
    assert len(sent) == PARTITIONS * RECORDS
    for each in sent:
        source = source_of(each)
        assert each._replace(offset=Offset(source[1])) == record(*source)
    assert mapped(call["offset_map"]) == {source_of(each): (0, each.offset) for each in sent}
