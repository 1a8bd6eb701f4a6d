"""Leaders and in-sync replicas, with the cases of Kafka's ReplicationControlManagerTest."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.control.leaders import PREFERRED, UNCLEAN, balance_leaders, elect_unclean
from tailrace.cluster.control.reassignments import plan_reassignment
from tailrace.cluster.metadata.snapshot import snapshot_records
from tailrace.cluster.partition_change import RECOVERING
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tailrace.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState
from tailrace.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tailrace.protocol.metadata_records import PartitionChangeRecord
from tests.unit.cluster.control.controlled import Controlled, directory

UNCLEAN_TOPIC = {"unclean_leader_election_enable": "true"}
TOPIC = 2


# -- brokers that come and go ---------------------------------------------------------------------


def test_a_fenced_broker_leads_nothing() -> None:
    """Others lead, in the order of the replicas."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3)
    cluster.topic([0, 1, 2], [1, 2, 3], [2, 3, 0], [0, 2, 1])
    cluster.fence(0)
    assert [cluster.partition(number=each).leader for each in range(4)] == [1, 1, 2, 2]
    assert not any(0 in cluster.partition(number=each).isr for each in range(4))
    assert [cluster.partition(number=each).leader_epoch for each in range(4)] == [1, 0, 0, 1]


def test_partitions_that_are_alike_follow_the_settings_of_their_topics() -> None:
    """Partitions with the same replicas change alike where their topics have the same settings."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    for name, least in (("a", "1"), ("b", "3"), ("c", "1"), ("d", "3")):
        cluster.topic([0, 1, 2], [0, 1, 2], [1, 0, 2], name=name, min_insync_replicas=least)
    cluster.fence(0)
    for name, eligible in (("a", ()), ("b", (0,)), ("c", ()), ("d", (0,))):
        found = [cluster.shown(name, number) for number in range(3)]
        assert found == [(1, (1, 2), eligible)] * 3
        epochs = [cluster.partition(name, number).leader_epoch for number in range(3)]
        assert epochs == [1, 1, 0]


def test_eligible_leaders_when_brokers_are_fenced() -> None:
    """They are the members that left a small ISR, and one that serves is elected without a loss."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3)
    cluster.topic([0, 1, 2, 3], min_insync_replicas="3")
    for each in (1, 2, 3):
        cluster.fence(each)
    assert cluster.shown() == (0, (0,), (2, 3))
    cluster.beat(2)
    cluster.fence(0)
    # Of the eligible ones, who serves.
    assert cluster.shown() == (2, (2,), (0, 3))
    cluster.fence(2)
    assert cluster.shown() == (-1, (), (0, 2, 3))
    assert cluster.partition().last_known_elr == (2,)
    cluster.beat(3)
    assert cluster.shown() == (3, (3,), (0, 2))
    assert cluster.partition().last_known_elr is None
    assert cluster.partition().leader_recovery_state == 0


def test_eligible_leaders_after_an_unclean_stop() -> None:
    """The last leader is known, and leads again."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3)
    cluster.topic([0, 1, 2, 3], min_insync_replicas="3")
    for each in (1, 2, 3):
        cluster.fence(each)
    cluster.now_ms += 9001
    cluster.register(3)
    assert cluster.shown() == (0, (0,), (2,))
    cluster.register(0)
    assert cluster.shown() == (-1, (), (2,))
    assert cluster.partition().last_known_elr == (0,)
    cluster.register(2)
    assert cluster.shown() == (-1, (), ())
    assert cluster.partition().last_known_elr == (0,)
    cluster.beat(2)
    assert cluster.shown() == (-1, (), ())
    cluster.beat(0)
    assert cluster.shown() == (0, (0,), ())
    assert cluster.partition().leader_recovery_state == RECOVERING


def test_eligible_leaders_when_the_isr_shrinks_and_grows() -> None:
    """They are kept while the ISR is too small, and no longer."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    cluster.topic([0, 1, 2], min_insync_replicas="2")
    cluster.alter(0)
    assert cluster.shown() == (0, (0,), (1, 2))
    cluster.alter(0, 1)
    assert cluster.shown() == (0, (0, 1), ())


def test_the_smallest_isr_is_at_most_the_replication_factor() -> None:
    """Three are enough if five are wanted."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    cluster.topic([0, 1, 2], min_insync_replicas="5")
    assert cluster.alter(0, 1).error_code == 0
    assert cluster.shown() == (0, (0, 1), (2,))
    cluster.alter(0, 1, 2)
    assert cluster.shown() == (0, (0, 1, 2), ())


def test_another_size_of_the_isr_clears_the_eligible_leaders() -> None:
    """A partition without eligible leaders keeps its epoch."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    cluster.topic([0, 1, 2], [2, 1, 0], min_insync_replicas="3")
    cluster.alter(0)
    before = cluster.partition(number=1).partition_epoch, cluster.partition().partition_epoch
    change = ("min.insync.replicas", 0, "2")
    assert cluster.configure(TOPIC, "t", change) == (ErrorCode.NONE, None)
    assert cluster.shown() == (0, (0,), ())
    assert cluster.partition(number=1).partition_epoch == before[0]
    assert cluster.partition().partition_epoch == before[1] + 1
    cluster.alter(0, 1)
    cluster.alter(0)
    assert cluster.shown() == (0, (0,), (1,))
    # Of all brokers: all topics.
    assert cluster.configure(4, "", ("min.insync.replicas", 0, "2"))[0] is ErrorCode.NONE
    assert cluster.shown() == (0, (0,), ())


def test_a_deleted_topic_has_no_leaders() -> None:
    """Nothing follows for its brokers."""
    cluster = Controlled()
    cluster.serve(0, 1)
    topic = cluster.topic([0, 1], min_insync_replicas="2")
    cluster.fence(1)
    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=None, topic_id=topic.topic_id),), timeout_ms=1
    )
    [result] = cluster.do(ApiKey.DELETE_TOPICS, request).responses
    assert (result.name, result.error_code) == ("t", ErrorCode.NONE)
    before = len(cluster.appended)
    cluster.beat(1)
    cluster.fence(0)
    changed = [type(each) for each in cluster.appended[before:]]
    assert PartitionChangeRecord not in changed


# -- AlterPartition -------------------------------------------------------------------------------


def test_an_isr_shrinks_and_grows() -> None:
    """The answer has the new state; nothing new is no error."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    cluster.topic([0, 1, 2])
    shrunk = cluster.alter(0)
    state = cluster.partition()
    assert (shrunk.isr, shrunk.leader_id) == ((0,), 0)
    assert (shrunk.partition_epoch, state.partition_epoch, state.leader_epoch) == (1, 1, 0)
    grown = cluster.alter(0, 1)
    assert (grown.isr, grown.partition_epoch) == ((0, 1), 2)
    before = len(cluster.appended)
    assert cluster.alter(0, 1).partition_epoch == 2
    assert len(cluster.appended) == before


@pytest.mark.parametrize(
    ("isr", "fields", "code"),
    [
        ((0, 1), {"number": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((0, 1), {"topic_id": UUID(int=5)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((0, 1), {"topic_id": UUID(int=0)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((0, 1), {"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ((0, 1), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((0, 1), {"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ((0, 1), {"leader_epoch": 0, "partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((0, 1), {"broker_id": 1}, ErrorCode.INVALID_REQUEST),
        ((0, 1), {"partition_epoch": 1}, ErrorCode.INVALID_UPDATE_VERSION),
        ((0, 0), {}, ErrorCode.INVALID_REQUEST),
        ((0, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {}, ErrorCode.INVALID_REQUEST),
        ((0,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((0, 1), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((0, 1), {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ((0, 1), {"version": 2}, ErrorCode.NONE),
        ((0, 1), {}, ErrorCode.NONE),
    ],
)
def test_the_checks_of_an_isr(
    isr: tuple[int, ...], fields: dict[str, Any], code: ErrorCode
) -> None:
    """The first check that fails is the answer, and nothing is written."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3)
    cluster.topic([1, 0, 2])
    # Leader epoch 1, partition epoch 2.
    cluster.fence(1)
    cluster.beat(1)
    cluster.alter(0, 1, 2)
    before = len(cluster.appended)
    assert cluster.alter(*isr, **fields).error_code == code
    assert (len(cluster.appended) > before) is (code is ErrorCode.NONE)


@pytest.mark.parametrize("version", [2, 3])
def test_who_may_not_be_in_sync(version: int) -> None:
    """A broker that is fenced, shuts down or is not registered."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    cluster.topic([0, 1, 2])
    cluster.alter(0)
    cluster.fence(1)
    assert cluster.alter(0, 1, version=version).error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.beat(1)
    assert cluster.alter(0, 1, version=version).error_code == ErrorCode.NONE
    cluster.topic([2], name="led")
    cluster.beat(2, want_shut_down=True)
    assert cluster.state.image.brokers[2].in_controlled_shutdown
    assert cluster.alter(0, 1, 2, version=version).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_follower_that_has_restarted_is_not_in_sync() -> None:
    """Its epoch must be that of its registration; -1 is not checked (KIP-903)."""
    cluster = Controlled()
    cluster.serve(0, 1)
    cluster.topic([0, 1])
    old = cluster.epoch(1)
    cluster.alter(0)
    cluster.now_ms += 9001
    cluster.serve(1)

    def alter(epoch: int) -> int:
        code = cluster.alter(0, BrokerState(broker_id=1, broker_epoch=epoch)).error_code
        assert isinstance(code, int)
        return code

    assert alter(old) == ErrorCode.INELIGIBLE_REPLICA
    assert alter(cluster.epoch(1) + 1) == ErrorCode.INELIGIBLE_REPLICA
    assert alter(cluster.epoch(1)) == ErrorCode.NONE
    cluster.alter(0)
    assert alter(-1) == ErrorCode.NONE


def test_a_leader_with_a_stale_epoch_is_refused_as_a_whole() -> None:
    """It has restarted, or was unregistered, and does not know it."""
    cluster = Controlled()
    cluster.serve(0)
    request = AlterPartitionRequest(broker_id=0, broker_epoch=cluster.epoch(0) + 1, topics=())
    assert cluster.refused(ApiKey.ALTER_PARTITION, request) is ErrorCode.STALE_BROKER_EPOCH
    ids = AllocateProducerIdsRequest(broker_id=0, broker_epoch=cluster.epoch(0) + 1)
    assert cluster.refused(ApiKey.ALLOCATE_PRODUCER_IDS, ids) is ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_has_recovered() -> None:
    """After an unclean election it is alone, until it says that it has recovered (KIP-704)."""
    cluster = Controlled(has_elr=False)
    cluster.serve(0, 1)
    cluster.topic([0, 1], **UNCLEAN_TOPIC)
    cluster.alter(0)
    cluster.fence(0)
    assert cluster.shown() == (1, (1,), ())
    assert cluster.partition().leader_recovery_state == RECOVERING
    cluster.beat(0)
    grown = cluster.alter(1, 0, leader_recovery_state=RECOVERING)
    assert grown.error_code == ErrorCode.INVALID_REQUEST
    assert cluster.alter(1, leader_recovery_state=0).leader_recovery_state == 0
    assert cluster.alter(1, 0).error_code == ErrorCode.NONE


# -- elections ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_of_all", [True, False])
def test_preferred_leaders(*, is_of_all: bool) -> None:
    """A leader in its place is named if the request names partitions."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3)
    cluster.topic([1, 2, 3], [2, 3, 1], [0, 1, 2])
    cluster.fence(1)
    cluster.fence(2)
    assert [cluster.partition(number=each).leader for each in range(3)] == [3, 3, 0]
    assert cluster.elect(PREFERRED, 0, 1, 2, 9) == [
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    cluster.beat(1)
    cluster.alter(3, 1, number=0)
    if is_of_all:
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
        [topic] = cluster.do(ApiKey.ELECT_LEADERS, request).replica_election_results
        found = {each.partition_id: each.error_code for each in topic.partition_result}
        assert found == {0: ErrorCode.NONE, 1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    else:
        assert cluster.elect(PREFERRED, 0) == [ErrorCode.NONE]
    assert cluster.shown(number=0) == (1, (3, 1), ())
    # 1, 2, 3, and 1 again.
    assert cluster.partition().leader_epoch == 3
    assert cluster.elect(PREFERRED, 0, name="t") == [ErrorCode.ELECTION_NOT_NEEDED]


def test_unclean_leaders_on_request() -> None:
    """An unclean leader is elected where there is none, if any replica serves."""
    cluster = Controlled(has_elr=False)
    cluster.serve(0, 1, 2, 3, 4)
    cluster.topic([0, 1, 2], [2, 3, 4], [0, 2, 1])
    cluster.alter(0, number=0)
    cluster.alter(2, number=1)
    cluster.fence(2)
    cluster.fence(0)
    assert cluster.shown(number=0) == (-1, (0,), ())
    assert cluster.elect(UNCLEAN, 0, 1, 2) == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED,
    ]  # fmt: skip
    assert cluster.shown(number=0) == (1, (1,), ())
    assert cluster.shown(number=1) == (3, (3,), ())
    assert cluster.partition(number=0).leader_recovery_state == RECOVERING
    for each in (1, 3, 4):
        cluster.fence(each)
    assert cluster.elect(UNCLEAN, 0) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]


def test_an_unknown_kind_of_election() -> None:
    """The request as a whole is refused."""
    request = ElectLeadersRequest(election_type=7, topic_partitions=())
    assert Controlled().refused(ApiKey.ELECT_LEADERS, request) is ErrorCode.INVALID_REQUEST


def test_a_preferred_election_is_never_unclean() -> None:
    """Not even where the topic allows unclean elections."""
    cluster = Controlled(has_elr=False)
    cluster.serve(1, 2)
    cluster.topic([1, 2])
    cluster.alter(1)
    cluster.fence(1)
    cluster.configure(TOPIC, "t", ("unclean.leader.election.enable", 0, "true"))
    assert cluster.shown() == (-1, (1,), ())
    assert cluster.elect(PREFERRED, 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert cluster.shown() == (-1, (1,), ())


def test_leaders_are_balanced() -> None:
    """Preferred ones that are in sync lead again."""
    cluster = Controlled()
    cluster.serve(1, 2, 3)
    cluster.topic([1, 2, 3], [2, 3, 1])
    cluster.fence(1)
    assert balance_leaders(cluster.state) == []
    cluster.beat(1)
    assert balance_leaders(cluster.state) == []
    cluster.alter(2, 3, 1)
    assert len(cluster.append(balance_leaders(cluster.state))) == 1
    assert cluster.partition().leader == 1
    assert balance_leaders(cluster.state) == []


@pytest.mark.parametrize("where", ["topic", "brokers", "controller", "nowhere"])
def test_unclean_elections_by_setting(where: str) -> None:
    """For the topic, for all brokers or for the controller: a replica out of sync leads."""
    cluster = Controlled(has_elr=False)
    cluster.serve(1, 2)
    cluster.topic([1, 2])
    cluster.alter(1)
    cluster.fence(1)
    assert elect_unclean(cluster.state) == []
    owners = {"topic": (TOPIC, "t"), "brokers": (4, ""), "controller": (4, "100")}
    if where in owners:
        cluster.configure(*owners[where], ("unclean.leader.election.enable", 0, "true"))
    cluster.append(elect_unclean(cluster.state))
    assert cluster.shown()[0] == (-1 if where == "nowhere" else 2)


# -- reassignments --------------------------------------------------------------------------------


def test_the_way_between_replicas() -> None:
    """PartitionReassignmentReplicasTest: {NoneAddedOrRemoved,Additions,Removals,Rearrangement}."""
    assert plan_reassignment([3, 2, 1], [3, 2, 1]) == ((3, 2, 1), (), ())
    assert plan_reassignment([3, 2, 1], [3, 6, 2, 1, 5]) == ((3, 6, 2, 1, 5), (5, 6), ())
    assert plan_reassignment([3, 2, 1, 0], [3, 1]) == ((3, 1, 0, 2), (), (0, 2))
    assert plan_reassignment([3, 2, 1, 0], [7, 3, 1, 9]) == ((7, 3, 1, 9, 0, 2), (7, 9), (0, 2))
    assert plan_reassignment([3, 2, 1, 0], [0, 1, 3, 2]) == ((0, 1, 3, 2), (), ())


def listed(cluster: Controlled, *numbers: int) -> dict[int, tuple[Any, ...]]:
    """The reassignments of a topic that are under way; without numbers of all topics."""
    names = (ListPartitionReassignmentsTopics(name="t", partition_indexes=numbers),)
    request = ListPartitionReassignmentsRequest(topics=names if numbers else None)
    answer = cluster.do(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
    return {
        each.partition_index: (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    }


def test_reassignment() -> None:
    """Begun, listed, complete; the leader that leaves learns it."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3)
    cluster.topic([1, 2, 3], [3, 2, 1])
    assert listed(cluster) == {}
    # Another order alone is done at once.
    assert cluster.reassign([3, 2, 1], number=0).error_code == ErrorCode.NONE
    assert cluster.partition(number=0).replicas == (3, 2, 1)
    assert cluster.partition(number=0).leader == 1
    assert cluster.reassign([0, 2, 1], number=1).error_code == ErrorCode.NONE
    missing = cluster.reassign([0, 2, 1], number=2)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.error_message == "Unable to find partition t:2."
    under_way = {1: ((0, 2, 1, 3), (0,), (3,))}
    assert listed(cluster) == under_way
    assert listed(cluster, 0, 1, 7) == under_way
    assert listed(cluster, 0) == {}
    state = cluster.partition(number=1)
    assert state.directories == tuple(map(directory, (0, 2, 1, 3)))
    found = cluster.alter(3, 0, 2, 1, number=1)
    assert found.error_code == ErrorCode.NEW_LEADER_ELECTED
    after = cluster.partition(number=1)
    assert (after.replicas, after.isr, after.leader) == ((0, 2, 1), (0, 2, 1), 0)
    assert (after.adding_replicas, after.removing_replicas) == ((), ())
    assert after.directories == tuple(map(directory, (0, 2, 1)))
    assert listed(cluster) == {}


def test_a_reassignment_is_cancelled() -> None:
    """Back to the replicas before; without one it is an error."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3, 4)
    cluster.topic([1, 2, 3, 4], [0, 1, 2, 3], [4, 3, 1, 0])
    cluster.topic([4, 3, 2], name="bar")
    cluster.fence(3)
    assert cluster.reassign(None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert cluster.reassign([1, 2, 4]).error_code == ErrorCode.NONE
    first = cluster.partition()
    assert (first.replicas, first.isr, first.leader_epoch) == ((1, 2, 4), (1, 2, 4), 1)
    assert cluster.reassign([1, 2, 3, 0], number=1).error_code == ErrorCode.NONE
    unknown = cluster.reassign([5, 6, 7], number=2)
    assert unknown.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.reassign([], number=2).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.reassign([1, 2, 3, 4, 0], name="bar").error_code == ErrorCode.NONE
    bar = cluster.partition("bar")
    assert (bar.replicas, bar.adding_replicas, bar.isr) == ((1, 2, 3, 4, 0), (0, 1), (4, 2))
    assert cluster.alter(4, 1, 2, name="bar").error_code == ErrorCode.NONE
    assert cluster.reassign(None, name="bar").error_code == ErrorCode.NONE
    bar = cluster.partition("bar")
    assert (bar.replicas, bar.isr, bar.leader) == ((2, 3, 4), (4, 2), 4)
    assert (bar.adding_replicas, bar.leader_epoch) == ((), 1)


def test_a_second_reassignment_removes_what_the_first_adds() -> None:
    """The leader that the first has brought leads until the second is complete."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3, 4, 5)
    cluster.topic([0, 1])
    cluster.reassign([2, 3])
    assert listed(cluster) == {0: ((2, 3, 0, 1), (2, 3), (0, 1))}
    assert cluster.alter(0, 1, 2).error_code == ErrorCode.NONE
    assert cluster.elect(PREFERRED, 0) == [ErrorCode.NONE]
    assert cluster.partition().leader == 2
    cluster.reassign([4, 5])
    assert listed(cluster) == {0: ((4, 5, 0, 1, 2, 3), (4, 5), (0, 1, 2, 3))}
    assert cluster.partition().leader == 2
    found = cluster.alter(0, 1, 2, 3, 4, 5)
    assert found.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert cluster.shown() == (4, (4, 5), ())
    assert listed(cluster) == {}


def test_a_cancellation_that_would_lose_records() -> None:
    """No replica would be in sync any more: only where the topic allows an unclean election."""
    cluster = Controlled(has_elr=False)
    cluster.serve(0, 1, 2, 3)
    cluster.topic([0, 1])
    cluster.reassign([2, 3])
    cluster.alter(0, 2)
    cluster.fence(0)
    assert cluster.shown() == (2, (2,), ())
    refused = cluster.reassign(None)
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.configure(TOPIC, "t", ("unclean.leader.election.enable", 0, "true"))
    assert cluster.reassign(None).error_code == ErrorCode.NONE
    assert cluster.partition().replicas == (0, 1)
    assert cluster.shown() == (1, (1,), ())
    assert cluster.partition().leader_recovery_state == RECOVERING


def test_another_replication_factor_is_refused_if_it_is_not_wanted() -> None:
    """The target of a reassignment under way counts; a cancellation is always allowed."""
    cluster = Controlled()
    cluster.serve(0, 1, 2, 3)
    cluster.topic([0, 1, 2])
    more = cluster.reassign([0, 1, 2, 3], allows_factor=False)
    assert more.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert more.error_message == "The replication factor is changed from 3 to 4"
    assert cluster.reassign([0, 1, 3], allows_factor=False).error_code == ErrorCode.NONE
    # Of the target of the reassignment that is under way.
    fewer = cluster.reassign([0, 1], allows_factor=False)
    assert fewer.error_message == "The replication factor is changed from 3 to 2"
    assert cluster.reassign([1, 2, 3], allows_factor=False).error_code == ErrorCode.NONE
    assert cluster.reassign(None, allows_factor=False).error_code == ErrorCode.NONE
    assert len(cluster.partition().replicas) == 3


# -- directories ----------------------------------------------------------------------------------


def assign(cluster: Controlled, broker_id: int, places: dict[tuple[UUID, UUID, int], int]) -> None:
    """Report where replicas are, and check the code of each."""
    assert cluster.report(broker_id, [*places]) == [*places.values()]


def test_replicas_are_assigned_to_directories() -> None:
    """One that is not online is as if it were offline."""
    cluster = Controlled()
    one, two, gone = directory(1), directory(1, 1), directory(1, 2)
    cluster.serve(1, log_dirs=(one, two))
    cluster.serve(2, 3)
    topic = cluster.topic([1, 2], [1, 2], [1, 2], [2, 3])
    assert cluster.partition().directories == (UUID(int=1), directory(2))
    places: dict[tuple[UUID, UUID, int], int] = {
        (one, topic.topic_id, 0): ErrorCode.NONE,
        (two, topic.topic_id, 1): ErrorCode.NONE,
        (gone, topic.topic_id, 2): ErrorCode.NONE,
        (one, topic.topic_id, 3): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (one, topic.topic_id, 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (one, UUID(int=12), 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assign(cluster, 1, places)
    found = [cluster.partition(number=each).directories[0] for each in range(3)]
    assert found == [one, two, gone]
    assert [cluster.partition(number=each).leader for each in range(3)] == [1, 1, 2]
    assert cluster.shown(number=2) == (2, (2,), ())
    before = len(cluster.appended)
    assign(cluster, 1, {(one, topic.topic_id, 0): ErrorCode.NONE})
    assert len(cluster.appended) == before


def test_a_replica_that_was_moved_between_directories_stays_eligible() -> None:
    """Its log is whole, other than where the directory before is gone."""
    cluster = Controlled()
    one, two = directory(2), directory(2, 1)
    cluster.serve(1)
    cluster.serve(2, log_dirs=(one, two))
    moved = cluster.topic([1, 2], min_insync_replicas="2")
    lost = cluster.topic([1, 2], name="lost", min_insync_replicas="2")
    assign(cluster, 2, {(one, moved.topic_id, 0): 0, (one, lost.topic_id, 0): 0})
    cluster.fence(2)
    cluster.beat(2)
    assert cluster.shown() == cluster.shown("lost") == (1, (1,), (2,))
    assign(cluster, 2, {(two, moved.topic_id, 0): 0})
    cluster.beat(2, offline_log_dirs=(one,))
    assign(cluster, 2, {(two, lost.topic_id, 0): 0})
    assert cluster.shown() == (1, (1,), (2,))
    assert cluster.shown("lost") == (1, (1,), ())
    cluster.fence(1)
    assert cluster.shown() == (2, (2,), (1,))
    assert cluster.shown("lost") == (-1, (), (1,))


def test_a_last_leader_that_was_moved_between_directories_is_elected() -> None:
    """Also where the directory before is gone: nobody else has more, and it may be whole."""
    for is_gone in (False, True):
        cluster = Controlled()
        one, two = directory(1), directory(1, 1)
        cluster.serve(1, log_dirs=(one, two))
        topic = cluster.topic([1])
        assign(cluster, 1, {(one, topic.topic_id, 0): 0})
        # Not a clean stop: who is eligible must have all records.
        cluster.pass_ms(60_000)
        cluster.register(1, log_dirs=(two,) if is_gone else (one, two))
        assert cluster.shown() == (-1, (), ())
        assert cluster.partition().last_known_elr == (1,)
        assign(cluster, 1, {(two, topic.topic_id, 0): 0})
        cluster.beat(1)
        assert cluster.partition().leader == 1


def test_a_leader_is_elected_as_soon_as_its_place_is_known() -> None:
    """Its broker serves already, and the other replica lacks what was acknowledged since."""
    cluster = Controlled()
    one, two = directory(1), directory(1, 1)
    cluster.serve(1, log_dirs=(one, two))
    cluster.serve(2)
    topic = cluster.topic([1, 2], unclean_leader_election_enable="true")
    assign(cluster, 1, {(one, topic.topic_id, 0): 0})
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.shown() == (-1, (), (1,))
    cluster.pass_ms(60_000)
    cluster.register(1, log_dirs=(two,), previous_broker_epoch=cluster.epoch(1))
    cluster.beat(1)
    assert cluster.shown() == (-1, (), (1,))
    assign(cluster, 1, {(two, topic.topic_id, 0): 0})
    assert cluster.shown() == (1, (1,), ())
    cluster.beat(2)
    cluster.elect_unclean()
    assert cluster.partition().leader == 1


def test_a_replica_that_is_lost_when_its_reassignment_is_complete() -> None:
    """The broker that the reassignment has removed is not elected in its place."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    topic = cluster.topic([0], unclean_leader_election_enable="true")
    assert not cluster.reassign([2]).error_code
    cluster.fence(0)
    cluster.elect_unclean()
    cluster.beat(0)
    # The next change of the partition ends the reassignment.
    assert cluster.partition().replicas == (2, 0)
    assert cluster.shown()[:2] == (2, (2,))
    assert cluster.report(2, [(directory(2, 7), topic.topic_id, 0)]) == [ErrorCode.NONE]
    after = cluster.partition()
    assert after.replicas == (2,)
    assert set(after.isr) <= {2}
    assert after.leader == -1


def test_directories_are_not_assigned_at_old_levels() -> None:
    """The request is refused as a whole, as it is for a stale epoch."""
    old = Controlled(level=16)
    old.serve(1)
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=old.epoch(1), directories=())
    assert old.refused(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request) is ErrorCode.UNSUPPORTED_VERSION
    new = Controlled()
    new.serve(1)
    request = AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=new.epoch(1) + 1, directories=()
    )
    assert new.refused(ApiKey.ASSIGN_REPLICAS_TO_DIRS, request) is ErrorCode.STALE_BROKER_EPOCH


def test_a_directory_fails() -> None:
    """The partitions in it get other leaders, once."""
    cluster = Controlled()
    one, two = directory(1), directory(1, 1)
    cluster.serve(1, log_dirs=(one, two))
    cluster.serve(2)
    topic = cluster.topic([1, 2], [1, 2], [2, 1])
    assign(
        cluster,
        1,
        {(one, topic.topic_id, 0): 0, (two, topic.topic_id, 1): 0, (one, topic.topic_id, 2): 0},
    )
    cluster.beat(1, offline_log_dirs=(one,))
    assert cluster.state.image.brokers[1].log_dirs == (two,)
    assert cluster.shown(number=0) == (2, (2,), ())
    assert cluster.shown(number=1) == (1, (1, 2), ())
    assert cluster.shown(number=2) == (2, (2,), ())
    before = len(cluster.appended)
    cluster.beat(1, offline_log_dirs=(one,))
    cluster.beat(1, offline_log_dirs=(directory(9),))
    assert len(cluster.appended) == before


# -- producer ids ---------------------------------------------------------------------------------


def test_producer_ids_never_repeat() -> None:
    """Blocks of 1000, one after the other; a snapshot continues where the log was."""
    cluster = Controlled()
    cluster.serve(0)
    request = AllocateProducerIdsRequest(broker_id=0, broker_epoch=cluster.epoch(0))

    def first() -> int:
        answer = cluster.do(ApiKey.ALLOCATE_PRODUCER_IDS, request)
        assert answer.producer_id_len == 1000
        assert isinstance(answer.producer_id_start, int)
        return answer.producer_id_start

    assert [first(), first(), first()] == [0, 1000, 2000]
    image = cluster.state.image
    assert image.next_producer_id == 3000
    other = Controlled()
    records = list(snapshot_records(image))
    other.append([each for each in records if "Feature" not in type(each.record).__name__])
    assert other.do(ApiKey.ALLOCATE_PRODUCER_IDS, request).producer_id_start == 3000
