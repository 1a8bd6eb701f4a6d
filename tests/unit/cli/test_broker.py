"""`tailrace broker` against a broker of ours, and against a cluster with one that is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import Broker
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tailrace.testing import TestBroker
from tailrace.testing.real_cluster import real_cluster
from tests.unit.cli.running import lines, objects, run, said


@pytest.fixture
def at() -> Iterator[tuple[str, str]]:
    """The flag for a broker whose settings nobody has changed."""
    with TestBroker() as broker:
        yield "--bootstrap", broker.bootstrap_servers


def test_settings_are_shown_changed_and_removed(at: tuple[str, str]) -> None:
    """The value of one broker counts before that of all."""
    (heading, level) = lines("broker", "describe", *at)
    assert heading.split() == ["broker", "setting", "value", "from"]
    # The level of a new cluster's features sets it.
    assert level.split() == ["1", "min.insync.replicas", "1", "all", "brokers"]
    change = ("--config", "log.cleaner.threads=2")
    assert lines("broker", "alter", 1, *change, *at) == ["altered: broker 1"]
    both = ("--config", "log.cleaner.threads=3", "--config", "num.replica.fetchers=2")
    assert lines("broker", "alter", "--defaults", *both, *at) == ["altered: all brokers"]
    rows = [line.split() for line in lines("broker", "describe", 1, *at)]
    assert ["1", "log.cleaner.threads", "2", "broker"] in rows
    assert ["1", "num.replica.fetchers", "2", "all", "brokers"] in rows
    rows = [line.split() for line in lines("broker", "describe", "--defaults", *at)]
    assert ["all", "log.cleaner.threads", "3", "all", "brokers"] in rows
    lines("broker", "alter", 1, "--unset", "log.cleaner.threads", *at)
    rows = [line.split() for line in lines("broker", "describe", *at)]
    assert ["1", "log.cleaner.threads", "3", "all", "brokers"] in rows


def test_every_setting_says_where_its_value_is_from(at: tuple[str, str]) -> None:
    """With --all also those that need a restart, and those that are the default."""
    found = {each["name"]: each for each in objects("broker", "describe", "--all", *at)}
    assert found["node.id"]["read_only"]
    assert found["log.retention.hours"]["source"] == "default"
    assert found["offsets.topic.num.partitions"]["source"] == "its start"
    assert not found["log.cleaner.threads"]["read_only"]


def test_a_change_can_be_tried(at: tuple[str, str]) -> None:
    """A dry run changes nothing; a value that is refused is an error in the broker's words."""
    tried = objects("broker", "alter", 1, "--config", "log.cleaner.threads=2", "--dry-run", *at)
    assert (tried[0]["set"], tried[0]["dry_run"]) == ({"log.cleaner.threads": "2"}, True)
    assert {each["name"] for each in objects("broker", "describe", *at)} == {"min.insync.replicas"}
    assert "log.cleaner.threads" in said(
        "broker", "alter", 1, "--config", "log.cleaner.threads=many", *at
    )
    assert "node.id" in said("broker", "alter", 1, "--config", "node.id=2", *at)


def test_mistakes_are_explained_before_a_broker_is_asked() -> None:
    """Each names what to give instead."""
    alter = ("broker", "alter", "1")
    assert "give --config or --unset" in said(*alter)
    assert "give an ID, or --defaults" in said("broker", "alter", "--config", "a=1")
    assert "give an ID, or --defaults" in said(*alter, "--defaults", "--config", "a=1")
    assert "not both" in said(*alter, "--config", "a=1", "--unset", "a")
    assert "is not a broker id" in said("broker", "describe", "one")
    assert "not both" in said("broker", "describe", "1", "--defaults")


def test_logs_are_found_and_moved(tmp_path: Path) -> None:
    """The directories with their sizes, logs of a topic, the largest one, and one that moved."""
    one, two = (tmp_path / name for name in "ab")
    with Broker(f"{one},{two}", settings={"num.partitions": 2}) as broker:
        at = ("--bootstrap", broker.bootstrap_servers)
        lines("topic", "create", "t", "--config", "flush.messages=1", *at)
        lines("produce", "t", "--partition", 0, *at, given=b"a" * 1000 + b"\n")
        # A broker makes the logs of a new topic after the answer, one after the other.
        found = objects("broker", "log-dirs", *at)
        while sum(each["logs"] for each in found) < 2:
            found = objects("broker", "log-dirs", *at)
        assert {each["directory"] for each in found} == {str(one), str(two)}
        assert sum(each["logs"] for each in found) == 2
        assert sum(each["bytes"] for each in found) > 1000
        assert all(each["usable_bytes"] <= each["total_bytes"] for each in found)
        (log,) = objects("broker", "log-dirs", 1, "--topic", "t:0", *at)
        assert (log["broker"], log["partition"], log["future"]) == (1, 0, False)
        (first,) = objects("broker", "log-dirs", "--largest", 1, *at)
        assert first == log
        other = {str(one), str(two)} - {log["directory"]}
        assert lines("broker", "move-logs", 1, "t:0", "--to", *other, *at) == [
            f"t-0 goes to {next(iter(other))}"
        ]
        while True:
            logs = objects("broker", "log-dirs", "--topic", "t:0", *at)
            if [each["directory"] for each in logs] == [*other]:
                break
        assert "LOG_DIR_NOT_FOUND" in said("broker", "move-logs", 1, "t", "--to", "/none", *at)


def test_a_broker_that_answers_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are shown at once, and the exit code is 1."""
    monkeypatch.setattr("tailrace.cli.on_cluster.ANSWER_LIMIT_MS", 300)
    with real_cluster(nodes=2) as cluster:
        brokers = tuple(
            DescribeClusterBroker(broker_id=each.id, host="127.0.0.1", port=each.port)
            for each in cluster.nodes.values()
        )
        described = DescribeClusterResponse(brokers=brokers)
        cluster.answers[ApiKey.DESCRIBE_CLUSTER] = lambda *_: described
        directories = DescribeLogDirsResponse(results=(DescribeLogDirsResult(log_dir="/data"),))
        cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda *_: directories
        cluster.nodes[1].is_paused = True
        result = run("broker", "log-dirs", "--bootstrap", cluster.bootstrap)
    assert result.exit_code == 1
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [["2", "/data"]]
    assert "log directories of broker 1 are missing in this list" in result.stderr
