"""`tailrace cluster add-controller` and `remove-controller`: waits, refusals, lost answers."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tailrace.client import controllers
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import add_raft_voter as adding
from tailrace.protocol.messages import describe_cluster as described
from tailrace.protocol.messages import describe_quorum as quorums
from tailrace.protocol.messages import remove_raft_voter as removing
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tests.unit.cli.running import lines, run, said

NOW_MS = 1_700_000_000_000
END = 500
DIRECTORIES = {each: UUID(int=each) for each in (101, 102, 103)}
OTHER_DIRECTORY = UUID(int=7)


class Quorum:
    """A quorum whose voters change as they are asked to; 101 leads, all others follow closely."""

    def __init__(self, cluster: ScriptedCluster, *, voters: set[int], observers: set[int]) -> None:
        self.voters, self.observers = voters, observers
        self.lag: dict[int, int] = {}
        """Records that a replica lacks; less with each look."""
        self.codes: list[ErrorCode] = []
        """Codes of the next answers to changes, which are not made then."""
        self.is_answer_lost = False
        """Whether the next change is made, and answered as if it had not been."""
        self.asked: list[Any] = []
        """The changes that were asked for."""
        self.at = ("--bootstrap", cluster.bootstrap)
        cluster.answers[ApiKey.DESCRIBE_CLUSTER] = self.describe_cluster
        cluster.answers[ApiKey.DESCRIBE_QUORUM] = self.describe_quorum
        cluster.answers[ApiKey.ADD_RAFT_VOTER] = self.add_raft_voter
        cluster.answers[ApiKey.REMOVE_RAFT_VOTER] = self.remove_raft_voter

    def describe_cluster(self, *_: object) -> Any:
        """One broker."""
        broker = described.DescribeClusterBroker(broker_id=1, host="b", port=9092)
        return described.DescribeClusterResponse(
            cluster_id="ID", controller_id=1, brokers=(broker,)
        )

    def describe_quorum(self, *_: object) -> Any:
        """The replicas; one of another directory is long gone."""
        observers = [self._replica(each) for each in sorted(self.observers)]
        if observers:
            first = observers[0].replica_id
            observers.append(
                quorums.ReplicaState(
                    replica_id=first, replica_directory_id=OTHER_DIRECTORY, log_end_offset=1,
                    last_fetch_timestamp=1, last_caught_up_timestamp=1,
                )
            )  # fmt: skip
        part = quorums.DescribeQuorumResponsePartitionData(
            leader_id=101, leader_epoch=3, high_watermark=END,
            current_voters=tuple(map(self._replica, sorted(self.voters))),
            observers=tuple(observers),
        )  # fmt: skip
        self.lag = {each: lag - 10 for each, lag in self.lag.items() if lag > 10}
        topic = quorums.DescribeQuorumResponseTopicData(
            topic_name="__cluster_metadata", partitions=(part,)
        )
        listener = quorums.Listener(name="CTRL", host="c", port=9093)
        nodes = (quorums.Node(node_id=101, listeners=(listener,)),)
        return quorums.DescribeQuorumResponse(topics=(topic,), nodes=nodes)

    def _replica(self, number: int) -> quorums.ReplicaState:
        lag = self.lag.get(number, 0)
        return quorums.ReplicaState(
            replica_id=number,
            replica_directory_id=DIRECTORIES[number],
            log_end_offset=END - lag,
            last_fetch_timestamp=NOW_MS,
            last_caught_up_timestamp=NOW_MS - (3_600_000 if lag else 300),
        )

    def add_raft_voter(self, _: object, __: object, body: Any) -> Any:
        """The new voter is one, unless an error is due."""
        return adding.AddRaftVoterResponse(**self._change(body, self.observers, self.voters))

    def remove_raft_voter(self, _: object, __: object, body: Any) -> Any:
        """The voter observes, unless an error is due."""
        return removing.RemoveRaftVoterResponse(**self._change(body, self.voters, self.observers))

    def _change(self, body: Any, source: set[int], target: set[int]) -> dict[str, Any]:
        self.asked.append(body)
        if self.codes:
            return {"error_code": self.codes.pop(0), "error_message": "not now"}
        assert body.voter_directory_id == DIRECTORIES[body.voter_id]
        source.discard(body.voter_id)
        target.add(body.voter_id)
        if self.is_answer_lost:
            self.codes = [ErrorCode.DUPLICATE_VOTER]
            return {"error_code": ErrorCode.REQUEST_TIMED_OUT, "error_message": None}
        return {"error_code": ErrorCode.NONE, "error_message": None}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedCluster]:
    """A cluster of one node, looked at in a hurry."""
    monkeypatch.setattr(controllers, "POLL_S", 0.01)
    with real_cluster() as cluster:
        yield cluster


def test_a_controller_is_added_once_it_has_the_log(cluster: ScriptedCluster) -> None:
    """The lag is said once; the request has its directory, and the name of the leader's listener.

    A directory that the controller had before is not taken, whatever the order of the observers.
    """
    found = Quorum(cluster, voters={101}, observers={102})
    found.lag = {102: 25}
    result = run("cluster", "add-controller", "102@h:9292", *found.at)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "controller 102 is a voter; all: 101, 102\n"
    assert result.stderr.splitlines()[0] == "tailrace: controller 102 lags by 25 records"
    [request] = found.asked
    assert request.voter_directory_id == DIRECTORIES[102]
    [listener] = request.listeners
    assert (listener.name, listener.host, listener.port) == ("CTRL", "h", 9292)


def test_a_change_that_was_made_already_is_no_error(cluster: ScriptedCluster) -> None:
    """The same command again sends no request, and says who votes."""
    found = Quorum(cluster, voters={101, 102}, observers={103})
    assert lines("cluster", "add-controller", "102@h:9292", *found.at) == [
        "controller 102 is a voter; all: 101, 102"
    ]
    assert lines("cluster", "remove-controller", "103", *found.at) == [
        "controller 103 is no voter; all: 101, 102"
    ]
    assert found.asked == []


def test_a_lost_answer_is_found_out(cluster: ScriptedCluster) -> None:
    """The repetition is refused as a duplicate, and the quorum shows why."""
    found = Quorum(cluster, voters={101}, observers={102})
    found.is_answer_lost = True
    assert lines("cluster", "add-controller", "102@h:9292", *found.at)[0].endswith("101, 102")
    assert len(found.asked) >= 1


def test_a_leader_that_is_busy_is_asked_again(cluster: ScriptedCluster) -> None:
    """Another change is under way: a refusal for now."""
    found = Quorum(cluster, voters={101}, observers={102})
    found.codes = [ErrorCode.REQUEST_TIMED_OUT] * 9
    assert lines("cluster", "add-controller", "102@h:9292", *found.at)[0].endswith("101, 102")


def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute is too long for a test."""
    monkeypatch.setattr(controllers, "WAIT_S", 0.05)


@pytest.mark.parametrize(
    ("argument", "lag", "reason"),
    [
        ("103@h:1", {}, "controller 103 does not follow the metadata log; start it"),
        ("102@h:1", {102: 9_000_000}, "controller 102 lags by"),
        # Three voters of which two are away cannot commit that there are three.
        ("102@h:1", {104: 9_000_000}, "would have no majority: controller 104 lags by"),
        ("1@b:9092", {}, "b:9092 is broker 1; give the address of a controller"),
    ],
)
def test_who_cannot_be_added(
    cluster: ScriptedCluster,
    monkeypatch: pytest.MonkeyPatch,
    argument: str,
    lag: dict[int, int],
    reason: str,
) -> None:
    """No request is sent, and the last line says why."""
    limited(monkeypatch)
    monkeypatch.setitem(DIRECTORIES, 104, UUID(int=104))
    monkeypatch.setitem(DIRECTORIES, 105, UUID(int=105))
    voters = {101, 104, 105} if 104 in lag else {101}
    found = Quorum(cluster, voters=voters, observers={102})
    found.lag = dict(lag)
    if 104 in lag:
        found.lag[105] = 9_000_000
    assert reason in said("cluster", "add-controller", argument, *found.at)
    assert found.asked == []


@pytest.mark.parametrize(
    ("voters", "lag", "reason"),
    [
        ({103}, {}, "controller 103 is the only voter"),
        ({101, 102}, {}, "controller 103 is none of the voters 101, 102"),
        # The two that remain have to agree, and one of them is away.
        ({101, 102, 103}, {102: 9_000_000}, "would have no majority: controller 102 lags by"),
    ],
)
def test_who_cannot_be_removed(
    cluster: ScriptedCluster,
    monkeypatch: pytest.MonkeyPatch,
    voters: set[int],
    lag: dict[int, int],
    reason: str,
) -> None:
    """No request is sent, and the last line says why."""
    limited(monkeypatch)
    found = Quorum(cluster, voters=voters, observers=set())
    found.lag = lag
    assert reason in said("cluster", "remove-controller", "103", *found.at)
    assert found.asked == []


def test_a_controller_that_is_away_is_removed(cluster: ScriptedCluster) -> None:
    """The others are a majority of themselves, so that nothing waits for it."""
    found = Quorum(cluster, voters={101, 102, 103}, observers=set())
    found.lag = {103: 9_000_000}
    assert lines("cluster", "remove-controller", "103", *found.at) == [
        "controller 103 is no voter; all: 101, 102"
    ]


def test_voters_of_the_settings_are_refused(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `kraft.version` 0 no voter has a directory id."""
    monkeypatch.setitem(DIRECTORIES, 102, UUID(int=0))
    found = Quorum(cluster, voters={101, 102}, observers=set())
    assert "kraft.version 0" in said("cluster", "remove-controller", "102", *found.at)


def test_an_address_without_an_id_is_a_mistake() -> None:
    """Both are needed, like in `controller.quorum.voters`."""
    assert "'h:9292' is not ID@HOST:PORT" in said("cluster", "add-controller", "h:9292")
