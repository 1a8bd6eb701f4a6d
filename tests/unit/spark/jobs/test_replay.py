"""Arguments of a replay, tables that are merged, and runs of the offset map."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ConfigError
from tailrace.spark.jobs.replay import ReplaySettings, check_arguments, check_replay
from tailrace.spark.jobs.replay_ends import merged
from tailrace.spark.jobs.replay_plan import Moved, runs_of
from tailrace.spark.jobs.replay_send import ReplayTask
from tailrace.testing.broker import TestBroker

TARGET: dict[str, object] = {"bootstrap.servers": "localhost:9092"}


def faults(
    source: dict[str, str],
    target: dict[str, object],
    offset_map: str,
    settings: ReplaySettings | None = None,
) -> str:
    """Return the faults of arguments."""
    with pytest.raises(ConfigError) as caught:
        check_arguments(
            source, target, offset_map=offset_map, settings=settings or ReplaySettings()
        )
    return "\n".join(caught.value.faults)


def checked(source: dict[str, str], settings: ReplaySettings) -> ReplayTask:
    """Check the arguments, and return the task that all work items get."""
    return check_arguments(source, TARGET, offset_map="map", settings=settings)


def test_all_faults_are_told_at_once() -> None:
    """One error tells the faults of the source, of the target and of the offset map."""
    told = faults(
        {"archive": "lake", "path": "data", "subscripe": "t"},
        {"bootstrap.servers": "nowhere", "acks": "1", "batch.size": "many"},
        "nowhere://x",
    )
    for fault in (
        "archive, path: give exactly one",
        "did you mean subscribe?",
        "give exactly one, which topics to read",
        "acks: a replay has no use for it",
        "batch.size",
        "nowhere://x: PyArrow cannot use it",
    ):
        assert fault in told


def test_a_topic_is_not_replayed_into_itself() -> None:
    """Under another name it may be."""
    source = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a,b"}
    told = faults(source, TARGET, "map", ReplaySettings(topics={"a": "copy"}))
    assert told == "topics: b would be replayed into itself; name another target"
    settings = ReplaySettings(topics={"a": "x", "b": "x"})
    assert checked(source, settings).target.bootstrap == "localhost:9092"


@pytest.mark.parametrize(
    "source", [{"assign": '{"t": [0]}'}, {"subscribePattern": "t"}, {"subscribe": "t"}]
)
def test_a_topic_that_a_broker_tells_is_not_replayed_into_itself(
    source: dict[str, str], tmp_path: Path
) -> None:
    """However it is selected, and by whatever address of the cluster."""
    with TestBroker() as broker:
        for topic in ("t", "copy"):
            broker.produce(topic, "v")
        port = broker.bootstrap_servers.rpartition(":")[2]
        target = {"bootstrap.servers": broker.bootstrap_servers}
        source = source | {"kafka.bootstrap.servers": f"localhost:{port}"}

        def check(settings: ReplaySettings) -> None:
            folder = str(tmp_path / "map")
            check_replay(
                check_arguments(source, target, offset_map=folder, settings=settings), settings
            )

        with pytest.raises(ConfigError, match="topics: t would be replayed into itself"):
            check(ReplaySettings())
        check(ReplaySettings(topics={"t": "copy"}))


def test_aborted_records_are_left_out_unless_asked_for() -> None:
    """The source's own default is the other way."""
    source = {"path": "data", "subscribe": "a"}
    chosen = checked(source, ReplaySettings())
    assert chosen.source.options.isolation.name == "READ_COMMITTED"
    source["kafka.isolation.level"] = "read_uncommitted"
    chosen = checked(source, ReplaySettings())
    assert chosen.source.options.isolation.name == "READ_UNCOMMITTED"


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5))
def test_files_are_merged_by_their_offsets(owners: list[int], size: int) -> None:
    """However the records of a range are spread over files and row groups."""
    files = [
        [offset for offset, each in enumerate(owners) if each == number] for number in range(4)
    ]
    tables = [
        iter(
            [
                pa.table({"offset": pa.array(offsets[start : start + size], pa.int64())})
                for start in range(0, len(offsets), size)
            ]
        )
        for offsets in files
    ]
    found = [offset for each in merged(tables) for offset in each.column("offset").to_pylist()]
    assert found == [*range(len(owners))]


def test_runs_are_exact() -> None:
    """A gap on either side ends a run, and what is no more in the target is in none."""
    moved = Moved(0, np.array([1, 2, 3, 5, 6, 7]), np.array([-1, 10, 11, 12, 20, 21]))
    assert [each.tolist() for each in runs_of(moved)] == [[2, 5, 6], [10, 12, 20], [2, 1, 2]]
    nothing = Moved(0, np.array([4]), np.array([-1]))
    assert [each.tolist() for each in runs_of(nothing)] == [[], [], []]
