"""`tailrace cluster describe` and the flags of `topic describe`, with several brokers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from tailrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tailrace.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsResponse,
    TransactionState,
)
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerResponse
from tailrace.testing import TestBroker
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.unit.cli.running import lines, objects, run, said

TIME_MS, TIME = 1_700_000_000_000, "2023-11-14T22:13:20.000Z"


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """A cluster of one node with the topic `t` of six partitions."""
    with real_cluster() as cluster:
        cluster.create_topic("t", partitions=6)
        yield cluster


def answer(cluster: ScriptedCluster, key: ApiKey, response: Message) -> None:
    """Have an API answered alike each time."""

    def answered(_cluster: object, _node: object, _body: Any) -> Message:
        return response

    cluster.answers[key] = answered


def quorum(*observers: ReplicaState) -> DescribeQuorumResponse:
    """Two voters, of which 3000 leads, and observers."""
    part = DescribeQuorumResponsePartitionData(
        partition_index=0,
        leader_id=3000,
        leader_epoch=7,
        high_watermark=90,
        current_voters=(replica(3000, 100), replica(3001, 98)),
        observers=observers,
    )
    return DescribeQuorumResponse(
        topics=(
            DescribeQuorumResponseTopicData(topic_name="__cluster_metadata", partitions=(part,)),
        ),
        nodes=(Node(node_id=3000, listeners=(Listener(name="CONTROLLER", host="c", port=9093),)),),
    )


def replica(replica_id: int, end: int, *, caught_up: int = TIME_MS) -> ReplicaState:
    """A replica of the metadata log."""
    return ReplicaState(
        replica_id=replica_id,
        log_end_offset=end,
        last_fetch_timestamp=caught_up,
        last_caught_up_timestamp=caught_up,
    )


def test_brokers_and_quorum_are_described(cluster: ScriptedCluster) -> None:
    """The active controller is that of the quorum, and a replica lacks what its leader has more."""
    port = cluster.nodes[1].port
    brokers = (
        DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=port, rack="r"),
        DescribeClusterBroker(broker_id=2, host="127.0.0.2", port=port, is_fenced=True),
    )
    answer(
        cluster,
        ApiKey.DESCRIBE_CLUSTER,
        DescribeClusterResponse(cluster_id="ID", controller_id=1, brokers=brokers),
    )
    answer(
        cluster,
        ApiKey.DESCRIBE_QUORUM,
        quorum(replica(1, 95), replica(2, -1, caught_up=-1)),
    )
    at = ("--bootstrap", cluster.bootstrap)
    shown = [line.split() for line in lines("cluster", "describe", *at)]
    assert shown == [
        ["cluster", "ID:", "controller", "3000", "in", "epoch", "7,", "high", "watermark", "90"],
        ["brokers"],
        ["id", "state", "answers", "rack", "address"],
        ["1", "active", "yes", "r", f"127.0.0.1:{port}"],
        ["2", "fenced", "no", "-", f"127.0.0.2:{port}"],
        ["metadata", "quorum"],
        ["id", "role", "log", "end", "lag", "caught", "up", "controller", "listener"],
        ["3000", "leader", "100", "0", TIME, "CONTROLLER://c:9093"],
        ["3001", "voter", "98", "2", TIME, "-"],
        ["1", "observer", "95", "5", TIME, "-"],
        ["2", "observer", "-", "-", "-", "-"],
    ]
    found = objects("cluster", "describe", *at)
    assert [each["type"] for each in found] == ["cluster"] + ["broker"] * 2 + ["quorum"] * 4
    assert (found[0]["controller"], found[2]["state"]) == (3000, "fenced")
    assert [(each["lag"], each["log_end"]) for each in found[3:]] == [
        (0, 100),
        (2, 98),
        (5, 95),
        (None, None),
    ]


def test_a_broker_that_answers_nobody_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first of the list, and active: the others tell of it, and the reason is said."""
    monkeypatch.setattr("tailrace.cli.on_cluster.ANSWER_LIMIT_MS", 300)
    with real_cluster(nodes=2) as cluster:
        brokers = tuple(
            DescribeClusterBroker(broker_id=each.id, host="127.0.0.1", port=each.port)
            for each in cluster.nodes.values()
        )
        answer(cluster, ApiKey.DESCRIBE_CLUSTER, DescribeClusterResponse(brokers=brokers))
        answer(cluster, ApiKey.DESCRIBE_QUORUM, quorum())
        cluster.nodes[1].is_paused = True
        result = run("cluster", "describe", "--bootstrap", cluster.bootstrap)
        assert result.exit_code == 0
        shown = [line.split()[:3] for line in result.stdout.splitlines()]
        assert shown[3:5] == [["1", "active", "no"], ["2", "active", "yes"]]
        assert "broker 1 does not answer this machine: node 1 (127.0.0.1:" in result.stderr
        assert "broker 2" not in result.stderr
        at = ("--bootstrap", cluster.bootstrap)
        found = [each for each in objects("cluster", "describe", *at) if each["type"] == "broker"]
    assert [each["answers"] for each in found] == [False, True]
    assert "silent for" in found[0]["silence"]
    assert found[1]["silence"] is None


def test_lists_name_the_broker_that_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups and transactional ids of the others are listed at once, and the exit code is 1."""
    monkeypatch.setattr("tailrace.cli.on_cluster.ANSWER_LIMIT_MS", 300)
    with real_cluster(nodes=2) as cluster:
        group = ListedGroup(group_id="billing", protocol_type="consumer")
        answer(cluster, ApiKey.LIST_GROUPS, ListGroupsResponse(groups=(group,)))
        state = TransactionState(transactional_id="sink", producer_id=7, transaction_state="Empty")
        answer(
            cluster, ApiKey.LIST_TRANSACTIONS, ListTransactionsResponse(transaction_states=(state,))
        )
        at = ("--bootstrap", cluster.bootstrap)
        assert lines("group", "list", *at)[1].split()[0] == "billing"
        cluster.nodes[1].is_paused = True
        for command, named, missing in (
            ("group", "billing", "groups"),
            ("transaction", "sink", "transactional ids"),
        ):
            result = run(command, "list", *at)
            assert result.exit_code == 1
            assert result.stdout.splitlines()[1].split()[0] == named
            assert "broker 1 does not answer this machine: node 1 (127.0.0.1:" in result.stderr
            assert f"{missing} of broker 1 are missing in this list" in result.stderr


def test_without_controllers_the_brokers_are_described(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 1, and the last line says which part of the output is missing."""
    monkeypatch.setattr("tailrace.cli.on_cluster.QUORUM_LIMIT_MS", 200)
    broker = DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=cluster.nodes[1].port)
    answer(
        cluster,
        ApiKey.DESCRIBE_CLUSTER,
        DescribeClusterResponse(cluster_id="ID", controller_id=1, brokers=(broker,)),
    )
    answer(
        cluster,
        ApiKey.DESCRIBE_QUORUM,
        DescribeQuorumResponse(error_code=ErrorCode.REQUEST_TIMED_OUT),
    )
    at = ("--bootstrap", cluster.bootstrap)
    result = run("cluster", "describe", *at)
    assert result.exit_code == 1
    shown = result.stdout.splitlines()
    assert "no controller is active" in shown[0]
    assert shown[1] == "brokers"
    assert not any("quorum" in each for each in shown)
    assert "no controller answers" in result.stderr
    assert [each["type"] for each in objects("cluster", "describe", *at)][:2] == [
        "cluster",
        "broker",
    ]


@pytest.mark.parametrize("is_silent", [True, False])
@pytest.mark.parametrize(
    "command",
    [
        ("create", "new"),
        ("alter", "t", "--partitions", "9"),
        ("delete", "t", "--yes"),
    ],
)
def test_nothing_is_changed_without_controllers(
    cluster: ScriptedCluster,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    *,
    is_silent: bool,
) -> None:
    """The line names the broker that was asked, what it said, and what to do next."""
    monkeypatch.setattr("tailrace.cli.on_cluster.QUORUM_LIMIT_MS", 200)
    if is_silent:
        cluster.script.add(ApiKey.DESCRIBE_QUORUM, FaultKind.LOSE, times=100)
    else:
        refused = DescribeQuorumResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
        answer(cluster, ApiKey.DESCRIBE_QUORUM, refused)
    result = run("topic", *command, "--bootstrap", cluster.bootstrap)
    assert (result.exit_code, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    assert "nothing was changed" in line
    assert "bring a majority of the controllers back" in line
    assert cluster.bootstrap in line
    changing = (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS)
    assert not any(map(cluster.count, changing))


def test_a_change_needs_no_right_to_describe_the_quorum(cluster: ScriptedCluster) -> None:
    """Only silence of the controllers ends a command before its change is sent."""
    created = CreatableTopicResult(name="new")
    answer(cluster, ApiKey.CREATE_TOPICS, CreateTopicsResponse(topics=(created,)))
    for code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
        answer(cluster, ApiKey.DESCRIBE_QUORUM, DescribeQuorumResponse(error_code=code))
        found = lines("topic", "create", "new", "--bootstrap", cluster.bootstrap)
        assert found == ["created topic new"]


@pytest.fixture
def retired(cluster: ScriptedCluster) -> ScriptedCluster:
    """A cluster of which broker 2 is fenced, and forgets each broker that it is asked to."""
    brokers = (
        DescribeClusterBroker(broker_id=1, host="a", port=9092),
        DescribeClusterBroker(broker_id=2, host="b", port=9092, is_fenced=True),
    )
    described = DescribeClusterResponse(cluster_id="ID", controller_id=1, brokers=brokers)
    answer(cluster, ApiKey.DESCRIBE_CLUSTER, described)
    answer(cluster, ApiKey.DESCRIBE_QUORUM, quorum())
    answer(cluster, ApiKey.UNREGISTER_BROKER, UnregisterBrokerResponse())
    return cluster


def test_a_fenced_broker_is_unregistered(retired: ScriptedCluster) -> None:
    """Without a question, since it has no replicas."""
    at = ("--bootstrap", retired.bootstrap)
    assert lines("cluster", "unregister", 2, *at) == ["broker 2 is no longer registered"]
    assert [each["broker"] for each in objects("cluster", "unregister", 2, *at)] == [2]


def test_a_broker_in_service_is_not_unregistered(retired: ScriptedCluster) -> None:
    """Kafka would do it, and the broker register again; the sentence says what to do."""
    sentence = said("cluster", "unregister", 1, "--bootstrap", retired.bootstrap)
    assert "broker 1 is in service at a:9092, and would register again; stop it" in sentence
    assert retired.count(ApiKey.UNREGISTER_BROKER) == 0


def test_a_broker_that_is_not_registered_is_refused_in_the_words_of_kafka(
    retired: ScriptedCluster,
) -> None:
    """The controller has them."""
    refused = UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message="Broker ID 9 is not currently registered",
    )
    answer(retired, ApiKey.UNREGISTER_BROKER, refused)
    sentence = said("cluster", "unregister", 9, "--bootstrap", retired.bootstrap)
    assert "Broker ID 9 is not currently registered (BROKER_ID_NOT_REGISTERED)" in sentence


def test_a_broker_with_replicas_is_unregistered_only_if_that_is_confirmed() -> None:
    """Its partitions keep it in their lists of replicas."""
    with real_cluster(nodes=2) as cluster:
        cluster.create_topic("t", partitions=6)
        brokers = (DescribeClusterBroker(broker_id=2, host="b", port=9092, is_fenced=True),)
        answer(cluster, ApiKey.DESCRIBE_CLUSTER, DescribeClusterResponse(brokers=brokers))
        answer(cluster, ApiKey.DESCRIBE_QUORUM, quorum())
        answer(cluster, ApiKey.UNREGISTER_BROKER, UnregisterBrokerResponse())
        at = ("--bootstrap", cluster.bootstrap)
        assert "add --yes" in said("cluster", "unregister", 2, *at)
        assert cluster.count(ApiKey.UNREGISTER_BROKER) == 0
        assert lines("cluster", "unregister", 2, "--yes", *at)
        assert cluster.count(ApiKey.UNREGISTER_BROKER) == 1


def test_flags_of_files_need_files() -> None:
    """A cluster that runs has no earlier state to show."""
    for flag in (("--at", "5"), ("--topic", "t")):
        assert "--at and --topic are about the files of --data" in said(
            "cluster", "describe", *flag
        )


def partition(number: int, leader: int, isr: tuple[int, ...], **fields: Any) -> Any:
    """A partition of three replicas."""
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=number,
        leader_id=leader,
        leader_epoch=1,
        replica_nodes=(1, 2, 3),
        isr_nodes=isr,
        **fields,
    )


@pytest.fixture
def replicated(cluster: ScriptedCluster) -> ScriptedCluster:
    """The topic with three replicas, of which two have to be in sync."""
    parts = (
        partition(0, 1, (1, 2, 3)),
        partition(1, 1, (1, 2)),
        partition(2, 1, (1,)),
        partition(3, -1, (), eligible_leader_replicas=(2,)),
        # A reassignment adds replica 3, which is not in sync yet.
        partition(4, 1, (1, 2)),
        partition(5, 1, (1, 2, 3)),
    )
    topic = DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE, name="t", partitions=parts
    )
    del cluster.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
    answer(
        cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsResponse(topics=(topic,)),
    )
    entry = DescribeConfigsResourceResult(
        name="min.insync.replicas", value="2", config_source=1, documentation=None
    )
    result = DescribeConfigsResult(resource_type=2, resource_name="t", configs=(entry,))
    answer(cluster, ApiKey.DESCRIBE_CONFIGS, DescribeConfigsResponse(results=(result,)))
    moving = OngoingPartitionReassignment(
        partition_index=4, replicas=(1, 2, 3), adding_replicas=(3,)
    )
    answer(
        cluster,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsResponse(
            topics=(OngoingTopicReassignment(name="t", partitions=(moving,)),)
        ),
    )
    cluster.answers[ApiKey.LIST_OFFSETS] = empty_logs
    cluster.partitions[TopicPartition("t", 3)].leader = -1
    return cluster


def empty_logs(_cluster: object, _node: object, body: Any) -> ListOffsetsResponse:
    """Logs that begin and end at offset 0."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.NONE,
                        offset=0,
                        leader_epoch=1,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


@pytest.mark.parametrize(
    ("flag", "numbers"),
    [
        ("--under-replicated-partitions", [1, 2, 3]),
        ("--unavailable-partitions", [3]),
        ("--under-min-isr-partitions", [2, 3]),
        ("--at-min-isr-partitions", [1, 4]),
    ],
)
def test_partitions_are_chosen_as_by_kafka_topics(
    replicated: ScriptedCluster, flag: str, numbers: list[int]
) -> None:
    """All topics are looked at if none is named."""
    found = objects("topic", "describe", flag, "--bootstrap", replicated.bootstrap)
    assert [each["partition"] for each in found if each["type"] == "partition"] == numbers


def test_eligible_leaders_have_a_column_where_there_are_some(replicated: ScriptedCluster) -> None:
    """Most topics have none, since their replicas are in sync."""
    at = ("--bootstrap", replicated.bootstrap)
    shown = [line.split() for line in lines("topic", "describe", "--unavailable-partitions", *at)]
    assert shown[-2:] == [
        ["partition", "leader", "replicas", "isr", "eligible", "earliest", "latest"],
        ["3", "-", "1,2,3", "-", "2", "-", "-"],
    ]
    shown = [line.split() for line in lines("topic", "describe", "--at-min-isr-partitions", *at)]
    assert "eligible" not in shown[-3]


def test_a_leader_that_does_not_answer_hides_no_partition(replicated: ScriptedCluster) -> None:
    """A killed broker leads until its session is over; replicas and ISR are known all the same."""

    def unavailable(cluster: object, node: object, body: Any) -> ListOffsetsResponse:
        answered = empty_logs(cluster, node, body)
        code = ErrorCode.OFFSET_NOT_AVAILABLE
        return ListOffsetsResponse(
            topics=tuple(
                replace(
                    topic,
                    partitions=tuple(
                        replace(each, error_code=code if each.partition_index == 1 else 0)
                        for each in topic.partitions
                    ),
                )
                for topic in answered.topics
            )
        )

    replicated.answers[ApiKey.LIST_OFFSETS] = unavailable
    pauses = ("retry.backoff.ms=1", "retry.backoff.max.ms=1")
    options = [word for each in pauses for word in ("--option", each)]
    at = ("--bootstrap", replicated.bootstrap, *options)
    shown = objects("topic", "describe", *at)
    found = {each["partition"]: each for each in shown if each["type"] == "partition"}
    assert (found[1]["isr"], found[1]["latest"], found[0]["latest"]) == ([1, 2], None, 0)


def test_a_leader_that_does_not_answer_hides_no_commit() -> None:
    """The lag is not known, and the reason is said."""
    pauses = ("--option", "retry.backoff.ms=1", "--option", "retry.backoff.max.ms=1")
    with TestBroker() as broker:
        broker.create_topic("t")
        at = ("--bootstrap", broker.bootstrap_servers, *pauses)
        lines("group", "reset", "g", "--topic", "t", "--to", "earliest", "--execute", *at)
        broker.fail("ListOffsets", error="OFFSET_NOT_AVAILABLE")
        result = run("group", "describe", "g", *at)
        found = [each for each in objects("group", "describe", "g", *at) if "lag" in each]
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].split()[:4] == ["t-0", "0", "-", "-"]
    assert "offsets that show as - are unknown: " in result.stderr
    assert [(each["committed_offset"], each["lag"]) for each in found] == [(0, None)]


def test_two_choices_are_a_mistake() -> None:
    """One would hide partitions of the other."""
    told = said("topic", "describe", "--unavailable-partitions", "--at-min-isr-partitions")
    assert "--unavailable-partitions and --at-min-isr-partitions choose different" in told
