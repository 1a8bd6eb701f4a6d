"""Commands about topics, transactions and deliveries, in a cluster that answers as it is told."""

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tailrace.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
)
from tailrace.protocol.messages.describe_transactions import TransactionState as Described
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tailrace.protocol.messages.list_transactions import ListTransactionsResponse
from tailrace.protocol.messages.list_transactions import TransactionState as Listed
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.unit.cli.running import lines, objects, run, said


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """A cluster of one node with the topic `t` of one partition."""
    with real_cluster() as cluster:
        cluster.create_topic("t")
        yield cluster


def answer(cluster: ScriptedCluster, key: ApiKey, response: Message) -> list[Any]:
    """Have an API answered alike each time; returns the list that its requests are put in."""
    asked = []

    def answered(_cluster: object, _node: object, body: Any) -> Message:
        asked.append(body)
        return response

    cluster.answers[key] = answered
    return asked


def test_partitions_are_added_but_never_taken(cluster: ScriptedCluster) -> None:
    """The request has the number of all partitions; fewer are refused before anything is sent."""
    result = CreatePartitionsTopicResult(name="t")
    asked = answer(cluster, ApiKey.CREATE_PARTITIONS, CreatePartitionsResponse(results=(result,)))
    told = said("topic", "alter", "t", "--partitions", 1, "--bootstrap", cluster.bootstrap)
    assert "topic t has 1 partition, and the number can only grow; give at least 2" in told
    assert asked == []
    assert lines("topic", "alter", "t", "--partitions", 3, "--bootstrap", cluster.bootstrap) == [
        "altered topic t"
    ]
    assert (asked[0].topics[0].name, asked[0].topics[0].count) == ("t", 3)


def test_a_refusal_is_told_with_the_brokers_own_words(cluster: ScriptedCluster) -> None:
    """They say more than ours for the code, so that only its name follows them."""
    result = CreatePartitionsTopicResult(
        name="t", error_code=ErrorCode.POLICY_VIOLATION, error_message="three at most"
    )
    answer(cluster, ApiKey.CREATE_PARTITIONS, CreatePartitionsResponse(results=(result,)))
    told = said("topic", "alter", "t", "--partitions", 9, "--bootstrap", cluster.bootstrap)
    assert told == f"topic t at {cluster.bootstrap}: three at most (POLICY_VIOLATION)"


def test_transactions_are_listed_and_described(cluster: ScriptedCluster) -> None:
    """A table for people, and objects for programs."""
    one = Listed(transactional_id="x", producer_id=7, transaction_state="Ongoing")
    asked = answer(
        cluster, ApiKey.LIST_TRANSACTIONS, ListTransactionsResponse(transaction_states=(one,))
    )
    state = Described(
        transactional_id="x", transaction_state="Ongoing", producer_id=7, producer_epoch=2,
        transaction_timeout_ms=60_000, transaction_start_time_ms=1_700_000_000_000,
        topics=(TopicData(topic="t", partitions=(0,)),),
    )  # fmt: skip
    answer(
        cluster,
        ApiKey.DESCRIBE_TRANSACTIONS,
        DescribeTransactionsResponse(transaction_states=(state,)),
    )
    at = ("--bootstrap", cluster.bootstrap)
    assert objects("transaction", "list", *at)[0]["transactional_id"] == "x"
    table = lines("transaction", "list", "--state", "Ongoing", *at)
    assert table[1].split() == ["x", cluster.bootstrap, "7", "Ongoing"]
    assert asked[-1].state_filters == ("Ongoing",)
    assert objects("transaction", "describe", "x", *at) == [
        {
            "format": "tailrace.transaction/1", "type": "transaction", "transactional_id": "x",
            "coordinator": cluster.bootstrap, "producer_id": 7, "producer_epoch": 2,
            "state": "Ongoing", "timeout_ms": 60_000, "start_timestamp": 1_700_000_000_000,
            "partitions": [["t", 0]],
        }
    ]  # fmt: skip
    first, second = lines("transaction", "describe", "x", *at)
    assert first.startswith("x: Ongoing, since 2023-11-14T22:13:20.000Z, producer 7 epoch 2")
    assert second == "  t-0"


def hang(cluster: ScriptedCluster) -> list[Any]:
    """Have t-0 a transaction since offset 20 that no coordinator knows; returns the markers."""
    state = ProducerState(
        producer_id=7, producer_epoch=2, last_timestamp=1_700_000_000_000,
        current_txn_start_offset=20, coordinator_epoch=5,
    )  # fmt: skip
    part = PartitionResponse(partition_index=0, active_producers=(state,))
    topic = TopicResponse(name="t", partitions=(part,))
    answer(cluster, ApiKey.DESCRIBE_PRODUCERS, DescribeProducersResponse(topics=(topic,)))
    answer(cluster, ApiKey.LIST_TRANSACTIONS, ListTransactionsResponse())
    written = WritableTxnMarkerTopicResult(
        name="t", partitions=(WritableTxnMarkerPartitionResult(partition_index=0),)
    )
    result = WritableTxnMarkerResult(producer_id=7, topics=(written,))
    return answer(cluster, ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersResponse(markers=(result,)))


def test_a_hanging_transaction_is_found_and_aborted(cluster: ScriptedCluster) -> None:
    """Find-hanging exits with 1; what it shows is what abort takes."""
    markers = hang(cluster)
    at = ("--bootstrap", cluster.bootstrap)
    result = run("transaction", "find-hanging", *at)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split()[:4] == ["t-0", "20", "7", "2"]
    (found,) = objects("transaction", "find-hanging", "--topic", "t", *at)
    assert (found["type"], found["start_offset"]) == ("hanging", 20)
    place = ("--topic", "t", "--partition", 0, "--start-offset", 20)
    assert objects("transaction", "abort", *place, "--yes", *at)[0]["type"] == "aborted"
    (told,) = lines("transaction", "abort", *place, "--yes", *at)
    assert told == "aborted the transaction of producer 7 epoch 2 in t-0 from offset 20 on"
    assert markers[0].markers[0].coordinator_epoch == 5


def test_nothing_hangs_in_a_sound_cluster(cluster: ScriptedCluster) -> None:
    """The exit code is 0, and stderr names a partition without a leader."""
    hang(cluster)
    cluster.create_topic("t", partitions=2)
    for number in range(2):
        cluster.move(next(each for each in cluster.partitions if each.partition == number), -1)
    result = run("transaction", "find-hanging", "--bootstrap", cluster.bootstrap)
    assert (result.exit_code, result.stdout) == (0, "no hanging transaction\n")
    assert "t-0 was not checked: it has no leader" in result.stderr


def test_hanging_transactions_are_found_where_brokers_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stderr says what is missing; one that a silent broker may coordinate is not among them."""
    monkeypatch.setattr("tailrace.cli.on_cluster.ANSWER_LIMIT_MS", 300)
    with real_cluster(nodes=2) as cluster:
        cluster.create_topic("t", partitions=2)
        cluster.coordinator_id = 2
        states = tuple(
            ProducerState(
                producer_id=each, producer_epoch=2, last_timestamp=1_700_000_000_000,
                current_txn_start_offset=10 * each, coordinator_epoch=5,
            )
            for each in (7, 8)
        )  # fmt: skip
        for producers in (states, ()):
            part = PartitionResponse(partition_index=1, active_producers=producers)
            topic = TopicResponse(name="t", partitions=(part,))
            answer(cluster, ApiKey.DESCRIBE_PRODUCERS, DescribeProducersResponse(topics=(topic,)))
            one = Listed(transactional_id="x", producer_id=7, transaction_state="Ongoing")
            response = ListTransactionsResponse(transaction_states=(one,))
            answer(cluster, ApiKey.LIST_TRANSACTIONS, response)
            # It has begun another transaction since, which is not in t-1.
            state = Described(transactional_id="x", transaction_state="Ongoing", producer_id=7)
            described = DescribeTransactionsResponse(transaction_states=(state,))
            answer(cluster, ApiKey.DESCRIBE_TRANSACTIONS, described)
            cluster.nodes[1].is_paused = True
            result = run("transaction", "find-hanging", "--bootstrap", cluster.bootstrap)
            assert result.exit_code == 1
            shown = [each.split()[:3] for each in result.stdout.splitlines()[1:]]
            assert shown == ([["t-1", "70", "7"]] if producers else [])
            assert "no hanging" not in result.stdout
            assert "t-0 was not checked: broker 1 leads it" in result.stderr
            assert "broker 1 does not answer this machine: node 1 (127.0.0.1:" in result.stderr
            assert "hanging transactions of broker 1 are missing in this list" in result.stderr


def test_a_state_that_brokers_do_not_know_is_told(cluster: ScriptedCluster) -> None:
    """The sentence has the flag and the word."""
    answer(
        cluster, ApiKey.LIST_TRANSACTIONS, ListTransactionsResponse(unknown_state_filters=("Open",))
    )
    told = said("transaction", "list", "--state", "Open", "--bootstrap", cluster.bootstrap)
    assert told == "Error: --state: broker 1 knows no such state: Open"


def test_an_abort_asks_and_is_refused_where_nobody_answers(cluster: ScriptedCluster) -> None:
    """Without a terminal --yes is needed, and nothing is written."""
    markers = hang(cluster)
    place = ("--topic", "t", "--partition", 0, "--start-offset", 20)
    told = said("transaction", "abort", *place, "--bootstrap", cluster.bootstrap, given=b"y\n")
    assert (
        told == "Error: stdin is not a terminal, so you cannot be asked for confirmation; add --yes"
    )
    assert markers == []


def test_records_that_are_not_delivered_are_told_and_counted(cluster: ScriptedCluster) -> None:
    """The exit code is 1; the first ten are told by number, the others counted."""
    cluster.script.add(
        ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=999
    )
    result = run("produce", "t", "--bootstrap", cluster.bootstrap, given=b"x\n" * 12)
    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert len([each for each in told if "not delivered: record" in each]) == 10
    assert told[-2:] == [
        "tailrace: and 2 more records",
        "tailrace: 12 of 12 records were not delivered",
    ]


def test_settings_of_a_producer_are_options_of_produce(cluster: ScriptedCluster) -> None:
    """Also settings that other clients do not have; a wrong one is named as it is typed."""
    more = ("--option", "delivery.timeout.ms=31000", "--option", "linger.ms=1")
    run("produce", "t", *more, "--bootstrap", cluster.bootstrap, given=b"x\n")
    assert cluster.log().values() == [b"x"]
    wrong = ("--option", "delivery.timeout.ms=0")
    result = run("produce", "t", *wrong, "--bootstrap", cluster.bootstrap, given=b"x\n")
    assert "--option delivery.timeout.ms" in str(result.exception)


def test_a_line_that_is_no_record_ends_what_was_sent_before(cluster: ScriptedCluster) -> None:
    """Records before the line are delivered, and the error names the line."""
    given = b'{"value": "a"}\n{"value": 7}\n{"value": "b"}\n'
    result = run("produce", "t", "--json", "--bootstrap", cluster.bootstrap, given=given)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].startswith("tailrace: line 2: value is an int")
    assert cluster.log().values() == [b"a"]


def test_a_partition_that_is_not_there_is_told_before_anything_is_read(
    cluster: ScriptedCluster,
) -> None:
    """The sentence says how many there are."""
    told = said("produce", "t", "-p", 5, "--bootstrap", cluster.bootstrap, given=b"x\n")
    assert told == "topic 't' has no partition 5; it has 1, number 0"


def read_terminal(terminal: int, until: bytes = b"") -> bytes:
    """The output of a process on its terminal, up to some words or to its end."""
    seen = b""
    while not until or until not in seen:
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so when the last process has closed it.
            break
        if not chunk:
            break
        seen += chunk
    return seen


def test_a_terminal_is_shown_how_far_it_is(cluster: ScriptedCluster) -> None:
    """One line on stderr, written over while it runs, counts records sent and delivered."""
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "tailrace", "produce", "t", "--bootstrap", cluster.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=end) as process:
        os.close(end)
        process.communicate(b"a\nb\n", timeout=60)
        seen = read_terminal(terminal)
    os.close(terminal)
    last = seen.strip().rpartition(b"\r")[2]
    assert (process.returncode, last) == (0, b"2 records sent, 2 delivered")
    assert b"\n" not in seen.strip()


def test_an_answer_of_no_changes_nothing(cluster: ScriptedCluster) -> None:
    """On a terminal the question has what would be done; no ends the command with 1."""
    markers = hang(cluster)
    terminal, end = pty.openpty()
    place = ["--topic", "t", "--partition", "0", "--start-offset", "20"]
    command = [sys.executable, "-m", "tailrace", "transaction", "abort", *place]
    command += ["--bootstrap", cluster.bootstrap]
    with subprocess.Popen(command, stdin=end, stderr=end) as process:
        os.close(end)
        read_terminal(terminal, until=b"from offset 20 on? [y/N]: ")
        os.write(terminal, b"n\n")
        seen = read_terminal(terminal)
    os.close(terminal)
    assert process.returncode == 1
    assert b"nothing was changed" in seen
    assert markers == []


def unanswered(cluster: ScriptedCluster, key: ApiKey) -> threading.Event:
    """Have an API asked without an answer; the event is set when it is."""
    is_asked = threading.Event()
    cluster.answers[key] = lambda *_: is_asked.set()
    return is_asked


@pytest.mark.usefixtures("hears_hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_says_what_was_not_delivered(
    cluster: ScriptedCluster, number: signal.Signals
) -> None:
    """Records without an acknowledgement are counted; the exit code is 130 after Ctrl-C."""
    is_sent = unanswered(cluster, ApiKey.PRODUCE)
    command = [sys.executable, "-m", "tailrace", "produce", "t", "--bootstrap", cluster.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert is_sent.wait(60)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"1 of 1 records were not delivered" in told
    assert told.endswith(b"stopped\n")


@pytest.mark.parametrize(
    ("key", "command", "may_be_done"),
    [
        (ApiKey.CREATE_TOPICS, ["topic", "create", "new", "--partitions", "1"], True),
        (ApiKey.DELETE_TOPICS, ["topic", "delete", "t", "--yes"], True),
        (ApiKey.METADATA, ["topic", "list"], False),
    ],
)
def test_ctrl_c_says_whether_a_change_may_have_been_made(
    cluster: ScriptedCluster, key: ApiKey, command: list[str], *, may_be_done: bool
) -> None:
    """A change whose answer has not come is told as one; a question that is stopped is not."""
    is_asked = unanswered(cluster, key)
    caller = threading.get_ident()

    def press() -> None:
        assert is_asked.wait(60)
        signal.pthread_kill(caller, signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        pressed = pool.submit(press)
        result = run(*command, "--bootstrap", cluster.bootstrap)
        pressed.result(60)
    assert result.exit_code == 1
    assert ("may have been made; check before you repeat it" in result.stderr) == may_be_done


def election(*codes: ErrorCode) -> ElectLeadersResponse:
    """An answer to ElectLeaders with these codes for the partitions of `t`."""
    parts = tuple(
        PartitionResult(partition_id=number, error_code=code, error_message=None)
        for number, code in enumerate(codes)
    )
    result = ReplicaElectionResult(topic="t", partition_result=parts)
    return ElectLeadersResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, replica_election_results=(result,)
    )


def test_leaders_are_elected_of_partitions_that_need_it(cluster: ScriptedCluster) -> None:
    """One whose leader stays is no fault, and an unclean election is asked about."""
    at = ("--bootstrap", cluster.bootstrap)
    asked = answer(cluster, ApiKey.ELECT_LEADERS, election(ErrorCode.NONE))
    assert lines("topic", "elect-leaders", "t", *at) == ["elected a leader of t-0"]
    assert asked[-1].election_type == 0
    assert "add --yes" in said("topic", "elect-leaders", "t:0", "--unclean", *at)
    assert len(asked) == 1
    lines("topic", "elect-leaders", "t:0", "--unclean", "--yes", *at)
    assert asked[-1].election_type == 1
    answer(cluster, ApiKey.ELECT_LEADERS, election(ErrorCode.ELECTION_NOT_NEEDED))
    assert "no partition needs an election" in run("topic", "elect-leaders", "t", *at).stderr
    answer(cluster, ApiKey.ELECT_LEADERS, election(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE))
    told = said("topic", "elect-leaders", "t", "--unclean", "--yes", *at)
    assert "ELIGIBLE_LEADERS_NOT_AVAILABLE" in told
