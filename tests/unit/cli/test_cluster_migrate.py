"""`tailrace cluster migrate` in words: plan, progress, waits, Ctrl-C, and JSON."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.client.migration import moving
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages import (
    alter_partition_reassignments as altered,
)
from tailrace.protocol.messages import (
    describe_cluster as described,
)
from tailrace.protocol.messages import (
    describe_configs as configs,
)
from tailrace.protocol.messages import (
    describe_log_dirs as log_dirs,
)
from tailrace.protocol.messages import (
    describe_quorum as quorums,
)
from tailrace.protocol.messages import (
    describe_topic_partitions as topics,
)
from tailrace.protocol.messages import (
    elect_leaders as elections,
)
from tailrace.protocol.messages import (
    incremental_alter_configs as changes,
)
from tailrace.protocol.messages import (
    list_partition_reassignments as listed,
)
from tailrace.protocol.messages import (
    unregister_broker as unregistered,
)
from tailrace.testing.cluster import ScriptedCluster, ScriptedNode
from tailrace.testing.real_cluster import real_cluster
from tests.unit.cli.running import lines, objects, run, said

SIZE = 3_000_000


class Moving:
    """The answers of a cluster in which partitions move from broker 1 to broker 2.

    A partition moves in as many polls as `polls`, of which each finds more of it there.
    """

    def __init__(self, cluster: ScriptedCluster, *, partitions: int = 3) -> None:
        self.cluster = cluster
        self.replicas = dict.fromkeys(range(partitions), 1)
        self.moving: dict[int, int] = {}
        """Partitions that move, with the polls that are left."""
        self.polls = 2
        self.registered = {1: False, 2: False}
        """The brokers, and whether they are fenced."""
        self.room = 10 * SIZE
        self.disks = 1
        """Log directories of each broker, all with the same room."""
        self.settings: list[tuple[str, str]] = []
        """Settings that were changed."""
        self.on_poll: Callable[[], None] = lambda: None
        self.at = ("--from", "1", "--to", "2", "--bootstrap", cluster.bootstrap)
        del cluster.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
        cluster.create_topic("t", partitions=partitions)
        for key in (
            ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ELECT_LEADERS, ApiKey.UNREGISTER_BROKER,
        ):  # fmt: skip
            cluster.answers[key] = getattr(self, key.name.lower())

    def describe_cluster(self, *_: object) -> Any:
        """The brokers that are registered."""
        brokers = tuple(
            described.DescribeClusterBroker(broker_id=each, host="h", port=9092, is_fenced=fenced)
            for each, fenced in self.registered.items()
        )
        return described.DescribeClusterResponse(cluster_id="ID", controller_id=1, brokers=brokers)

    def describe_topic_partitions(self, *_: object) -> Any:
        """One topic, whose partitions have one replica."""
        parts = tuple(
            topics.DescribeTopicPartitionsResponsePartition(
                partition_index=number, leader_id=each, leader_epoch=1,
                replica_nodes=(2, 1) if number in self.moving else (each,), isr_nodes=(each,),
            )
            for number, each in self.replicas.items()
        )  # fmt: skip
        topic = topics.DescribeTopicPartitionsResponseTopic(name="t", partitions=parts)
        return topics.DescribeTopicPartitionsResponse(topics=(topic,))

    def describe_log_dirs(self, _: object, node: ScriptedNode, __: object) -> Any:
        """Sizes on a broker, also of copies under way."""
        parts = tuple(
            log_dirs.DescribeLogDirsPartition(partition_index=number, partition_size=size)
            for number, each in self.replicas.items()
            if (size := SIZE if each == node.id else self._copied(number) if node.id == 2 else 0)
        )
        topic = log_dirs.DescribeLogDirsTopic(name="t", partitions=parts)
        result = log_dirs.DescribeLogDirsResult(
            log_dir="/d", topics=(topic,), total_bytes=10**9, usable_bytes=self.room
        )
        others = (
            log_dirs.DescribeLogDirsResult(
                log_dir=f"/d{number}", topics=(), total_bytes=10**9, usable_bytes=self.room
            )
            for number in range(1, self.disks)
        )
        return log_dirs.DescribeLogDirsResponse(results=(result, *others))

    def _copied(self, number: int) -> int:
        left = self.moving.get(number)
        return 0 if left is None else SIZE - SIZE * left // (self.polls + 1)

    def list_partition_reassignments(self, *_: object) -> Any:
        """Partitions that move; a poll brings its end nearer."""
        self.on_poll()
        for number in list(self.moving):
            self.moving[number] -= 1
            if self.moving[number] < 0:
                del self.moving[number]
                self.replicas[number] = 2
        parts = tuple(
            listed.OngoingPartitionReassignment(
                partition_index=each, replicas=(2, 1), adding_replicas=(2,), removing_replicas=(1,)
            )
            for each in self.moving
        )
        topic = listed.OngoingTopicReassignment(name="t", partitions=parts)
        return listed.ListPartitionReassignmentsResponse(topics=(topic,) if parts else ())

    def alter_partition_reassignments(self, _: object, __: object, body: Any) -> Any:
        """Moves begin, or are put back."""
        results = []
        for topic in body.topics:
            for each in topic.partitions:
                if each.replicas is None:
                    self.moving.pop(each.partition_index, None)
                else:
                    self.moving[each.partition_index] = self.polls
                results.append(
                    altered.ReassignablePartitionResponse(partition_index=each.partition_index)
                )
        topic = altered.ReassignableTopicResponse(name="t", partitions=tuple(results))
        return altered.AlterPartitionReassignmentsResponse(responses=(topic,))

    def describe_quorum(self, *_: object) -> Any:
        """A controller that is no broker."""
        part = quorums.DescribeQuorumResponsePartitionData(
            partition_index=0, leader_id=100, leader_epoch=1, high_watermark=1,
            current_voters=(quorums.ReplicaState(replica_id=100, log_end_offset=1),),
        )  # fmt: skip
        topic = quorums.DescribeQuorumResponseTopicData(
            topic_name="__cluster_metadata", partitions=(part,)
        )
        return quorums.DescribeQuorumResponse(topics=(topic,))

    def describe_configs(self, _: object, __: object, body: Any) -> Any:
        """Nothing has settings of its own."""
        results = tuple(
            configs.DescribeConfigsResult(
                resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in body.resources
        )
        return configs.DescribeConfigsResponse(results=results)

    def incremental_alter_configs(self, _: object, __: object, body: Any) -> Any:
        """Settings are noted."""
        self.settings += [
            (each.name, each.value) for resource in body.resources for each in resource.configs
        ]
        responses = tuple(
            changes.IncrementalAlterConfigsResourceResponse(
                resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in body.resources
        )
        return changes.IncrementalAlterConfigsResponse(responses=responses)

    def elect_leaders(self, *_: object) -> Any:
        """Nothing is to be elected."""
        return elections.ElectLeadersResponse()

    def unregister_broker(self, _: object, __: object, body: Any) -> Any:
        """A broker is forgotten."""
        del self.registered[body.broker_id]
        return unregistered.UnregisterBrokerResponse()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moving]:
    """A cluster whose polls do not last."""
    monkeypatch.setattr(moving, "POLL_S", 0.001)
    with real_cluster(nodes=2) as cluster:
        yield Moving(cluster)


def test_a_dry_run_shows_the_plan(at: Moving) -> None:
    """By topic and by broker, without a change."""
    shown = [line.split() for line in lines("cluster", "migrate", *at.at, "--dry-run")]
    assert shown == [
        [
            "3",
            "partitions,",
            "9.0",
            "MB",
            "to",
            "copy,",
            "from",
            "broker",
            "1",
            "to",
            "broker",
            "2",
        ],
        ["topic", "partitions", "replicas", "to", "copy"],
        ["t", "3", "3", "9.0", "MB"],
        ["to", "rack", "replicas", "leaders", "to", "copy", "room"],
        ["2", "-", "3", "3", "9.0", "MB", "30.0", "MB"],
    ]
    found = objects("cluster", "migrate", *at.at, "--dry-run")
    assert [each["type"] for each in found] == ["plan", "move", "move", "move"]
    assert (found[0]["bytes"], found[1]["replicas"], found[1]["target"]) == (3 * SIZE, [1], [2])
    assert at.replicas == dict.fromkeys(range(3), 1)


def test_a_move_is_told_from_its_begin_to_its_end(at: Moving) -> None:
    """Results are lines of stdout; the old broker is unregistered when it has stopped."""

    def stop() -> None:
        at.registered[1] = all(each == 2 for each in at.replicas.values())

    at.on_poll = stop
    shown = lines("cluster", "migrate", *at.at, "--at-once", "2", "--throttle", "5 MB", "--yes")
    assert [each.split(" in ")[0] for each in shown[5:]] == [
        "moving 2 partitions, 6.0 MB to copy: t-0, t-1",
        "moved 2 partitions",
        "moving 1 partition, 3.0 MB to copy: t-2",
        "moved 1 partition",
        "unregistered broker 1",
        "done: broker 1 has no partitions",
    ]
    assert ("follower.replication.throttled.rate", "5000000") in at.settings
    assert ("leader.replication.throttled.replicas", "0:1,1:1") in at.settings
    assert ("follower.replication.throttled.replicas", "0:2,1:2") in at.settings


def test_brokers_are_named_that_can_be_stopped(at: Moving) -> None:
    """The command waits for them, or ends before that."""
    found = objects("cluster", "migrate", *at.at, "--yes", "--no-retire")
    kinds = [each["type"] for each in found if each["type"] != "progress"]
    assert kinds == ["plan", "move", "move", "move", "batch", "moved", "done"]
    progress = [each for each in found if each["type"] == "progress"]
    assert [each["bytes"] for each in progress] == sorted(each["bytes"] for each in progress)
    assert (progress[-1]["partitions"], progress[-1]["left_s"]) == (3, 0)
    done = objects("cluster", "migrate", *at.at, "--yes", "--no-retire")
    assert [each["type"] for each in done] == ["plan", "done"]

    def stop() -> None:
        at.registered[1] = True

    # Nothing is asked about moves while the command waits for the broker.
    at.cluster.answers[ApiKey.DESCRIBE_CLUSTER] = _after(10, at.describe_cluster, stop)
    shown = lines("cluster", "migrate", *at.at)
    assert shown[0] == "nothing to move: broker 1 has no partitions"
    assert shown[1].startswith("broker 1 has no partitions any more: name others in bootstrap")
    assert shown[2] == "unregistered broker 1"


def _after(count: int, answer: Any, act: Any) -> Any:
    """An answer before which something happens, from one of its calls on."""
    calls = 0

    def answered(*arguments: object) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            act()
        return answer(*arguments)

    return answered


def test_faults_end_the_command_before_anything_moves(at: Moving) -> None:
    """Each is a line of stderr after the plan, and the exit code is 1."""
    at.room = SIZE
    result = run("cluster", "migrate", *at.at, "--yes")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "tailrace: broker 2 has room for 3.0 MB and would get 9.0 MB: give it larger or more disks"
    ]
    assert set(at.replicas.values()) == {1}
    (plan, *_) = objects("cluster", "migrate", *at.at, "--yes")
    assert len(plan["faults"]) == 1


def test_new_disks_that_are_alike_are_no_fault(at: Moving) -> None:
    """They have one size and as much left as each other; that they may be one is a note."""
    at.room, at.disks = 2 * SIZE, 2
    (plan, *_) = objects("cluster", "migrate", *at.at, "--dry-run")
    assert plan["faults"] == []
    (note,) = plan["notes"]
    assert note.startswith("broker 2 would get 9.0 MB and has room for 12.0 MB if each of its log")
    assert note.endswith("else for 6.0 MB: they have the same sizes")


def test_nothing_moves_without_a_confirmation(at: Moving) -> None:
    """A script has to say that it agrees."""
    assert "add --yes" in said("cluster", "migrate", *at.at)
    assert set(at.replicas.values()) == {1}


def test_ctrl_c_finishes_what_moves(at: Moving) -> None:
    """The same command continues then; a second Ctrl-C would not wait."""

    def press() -> None:
        if len(at.moving) == 2:
            at.on_poll = lambda: None
            os.kill(os.getpid(), signal.SIGINT)

    at.on_poll = press
    at.polls = 20
    result = run("cluster", "migrate", *at.at, "--at-once", "2", "--yes")
    assert result.exit_code != 0
    assert sorted(at.replicas.values()) == [1, 2, 2]
    assert "stopping when 2 partitions have moved; Ctrl-C again" in result.stderr
    assert "no partition is on its way, and there is no throttle" in result.stderr


def test_what_moves_is_put_back(at: Moving) -> None:
    """Nothing that has moved goes back."""
    at.replicas[0] = 2
    at.polls = 1000
    at.moving[1] = 1000
    shown = lines("cluster", "migrate", *at.at, "--cancel")
    assert shown == ["put back 1 partition, 3.0 MB to copy and removed the throttle: t-1"]
    assert (at.moving, at.replicas) == ({}, {0: 2, 1: 1, 2: 1})
    at.moving[1] = 1000
    (found,) = objects("cluster", "migrate", *at.at, "--cancel")
    assert found["partitions"] == [["t", 1]]
    assert "nothing is being moved" in lines("cluster", "migrate", *at.at, "--cancel")[0]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--from", "1,2", "--to", "2,3"), "broker 2 is in --from and in --to"),
        (("--from", "1", "--to", "x"), "--to: 'x' is not a broker id"),
        (("--from", "1", "--to", "2", "--throttle", "fast"), "'fast' is no rate; give bytes a"),
        (("--from", "1", "--to", "2", "--throttle", "0.5"), "'0.5' is no rate"),
        (("--from", "1", "--to", "2", "--cancel", "--dry-run"), "exclude each other"),
        (("--from", "1"), "Missing option '--to'"),
    ],
)
def test_wrong_usage_is_named(arguments: tuple[str, ...], fault: str) -> None:
    """No request is sent."""
    assert fault in said("cluster", "migrate", *arguments)
