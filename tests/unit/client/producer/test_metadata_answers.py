"""Tests of a producer's metadata: the answers that it keeps, and the errors in them."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.cluster_metadata import Leader
from tailrace.client.nodes import Node
from tailrace.client.producer.errors import AuthorizationError, InvalidTopicError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.unit.client.producer.metadata_life import (
    AGE_S,
    BOOTSTRAP,
    FIRST_ID,
    NO_ID,
    PAUSE_S,
    SECOND_ID,
    T0,
    T1,
    Life,
    answer,
    part,
    settled,
    topic,
)

# -- what is kept -------------------------------------------------------------------------------


def test_leaders_and_partitions_are_looked_up() -> None:
    """Known are the brokers, the number of all partitions, and those that have a leader."""
    life = settled(part(2, 2, epoch=7), part(0, 1), part(1, -1))
    assert life.metadata.nodes == (Node(1, "host-1", 9092), Node(2, "host-2", 9092))
    assert life.metadata.node(2) == Node(2, "host-2", 9092)
    assert life.metadata.node(-1) is None
    assert life.metadata.partition_count("t") == 3
    assert life.metadata.available_partitions("t") == (0, 2)
    assert life.leader(TopicPartition("t", 2)) == Leader(2, 7)
    for number in (1, 3, -1):
        assert life.leader(TopicPartition("t", number)) is None
    assert life.metadata.partition_count("other") is None
    assert life.metadata.available_partitions("other") == ()


def test_a_leader_that_is_not_among_the_brokers_is_none() -> None:
    """A partition has no leader while that broker is not listed, and has it again afterwards."""
    life = settled(part(0, 2), part(1, 7))
    assert life.metadata.available_partitions("t") == (0,)
    life.metadata.add_topic("u", life.now)
    life.round(answer(topic("u", part(0)), brokers=(1, 7)))
    assert life.leader(T0) is None
    assert life.leader(T1) == Leader(7, 0)
    assert life.metadata.available_partitions("t") == (1,)


def test_a_brokers_address_follows_the_last_answer() -> None:
    """A broker that moved is looked for where it is now."""
    life = settled(part(0))
    moved = MetadataResponseBroker(node_id=1, host="moved", port=1)
    life.metadata.request_update()
    life.round(
        MetadataResponse(throttle_time_ms=0, brokers=(moved,), topics=(topic("t", part(0)),))
    )
    assert life.metadata.nodes == (Node(1, "moved", 1),)


def test_an_older_epoch_changes_nothing() -> None:
    """A broker that lags behind does not bring back a leader that was deposed."""
    life = settled(part(0, 1, epoch=10))
    life.renew(answer(topic("t", part(0, 2, epoch=9))))
    assert life.leader(T0) == Leader(1, 10)
    life.renew(answer(topic("t", part(0, 2, epoch=10))))
    assert life.leader(T0) == Leader(2, 10)
    life.renew(answer(topic("t", part(0, 1, epoch=12))))
    assert life.leader(T0) == Leader(1, 12)


def test_an_epoch_outlives_an_answer_without_the_topic() -> None:
    """A topic that is missing for a moment does not come back with an older leader."""
    life = settled(part(0, 1, epoch=100), topic_id=FIRST_ID)
    life.renew(answer())
    assert life.leader(T0) is None
    assert life.metadata.partition_count("t") is None
    life.renew(answer(topic("t", part(0, 2, epoch=99), topic_id=FIRST_ID)))
    assert life.leader(T0) == Leader(1, 100)


def test_an_older_answer_about_a_broker_that_is_gone_leaves_no_leader() -> None:
    """The newer leader is kept; while its broker is not listed, the partition has none."""
    life = settled(part(0, 2, epoch=10))
    life.renew(answer(topic("t", part(0, 1, epoch=8)), brokers=(1,)))
    assert life.leader(T0) is None
    life.renew(answer(topic("t", part(0, 1, epoch=8)), brokers=(1, 2)))
    assert life.leader(T0) == Leader(2, 10)


@pytest.mark.parametrize(("topic_id", "epoch"), [(SECOND_ID, 3), (SECOND_ID, 20)])
def test_a_topic_that_was_made_anew_has_its_own_epochs(topic_id: UUID, epoch: int) -> None:
    """With another topic id any epoch is believed, lower or higher, also after a deletion."""
    life = settled(part(0, 1, epoch=10), topic_id=FIRST_ID)
    life.renew(answer(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert life.leader(T0) is None
    life.renew(answer(topic("t", part(0, 2, epoch=epoch), topic_id=topic_id)))
    assert life.leader(T0) == Leader(2, epoch)


def test_the_first_id_of_a_topic_resets_its_epochs() -> None:
    """When a cluster begins to send topic ids, known epochs are dropped."""
    life = settled(part(0, 1, epoch=100))
    life.renew(answer(topic("t", part(0, 2, epoch=10), topic_id=FIRST_ID)))
    assert life.leader(T0) == Leader(2, 10)
    life.renew(answer(topic("t", part(0, 1, epoch=9))))
    assert life.leader(T0) == Leader(2, 10)
    life.renew(answer(topic("t", part(0, 1, epoch=11))))
    assert life.leader(T0) == Leader(1, 11)


@pytest.mark.parametrize("version", range(9))
def test_epochs_of_old_brokers_are_not_believed(version: int) -> None:
    """Before version 9 an answer may have a wrong epoch, so leaders come without one."""
    life = settled(part(0, 1, epoch=10))
    life.renew(answer(topic("t", part(0, 2, epoch=4))), version=version)
    assert life.leader(T0) == Leader(2, -1)
    life.renew(answer(topic("t", part(0, 1, epoch=2))), version=9)
    assert life.leader(T0) == Leader(1, 2)


def test_partitions_are_added_and_lost_with_the_answers() -> None:
    """A topic has as many partitions as in the last answer, more or fewer than before."""
    life = settled(part(0))
    life.renew(answer(topic("t", part(0), part(1))))
    assert life.metadata.partition_count("t") == 2
    life.renew(answer(topic("t", part(0))))
    assert life.metadata.partition_count("t") == 1
    assert life.leader(T1) is None


def test_the_version_tells_of_news() -> None:
    """Each answer and each leader that is learnt otherwise changes it; a failure does not."""
    life = settled(part(0), part(1))
    before = life.metadata.version
    life.metadata.request_update()
    _, token = life.ask()
    life.metadata.failed(token, ConnectionError("gone"), life.now)
    assert life.metadata.version == before
    life.round(answer(topic("t", part(0))))
    assert life.metadata.version > before
    before = life.metadata.version
    assert life.metadata.update_leader(T0, Leader(2, 5), None)
    assert life.metadata.version > before


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopicError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_an_error_that_waiting_does_not_help_holds_until_the_topic_is_wanted_again(
    code: ErrorCode, kind: type[Exception]
) -> None:
    """All waiting callers get the topic's error; it is requested again only for a new call."""
    life = Life()
    for name in ("bad", "good"):
        life.metadata.add_topic(name, life.now)
    answers = answer(topic("bad", error=code), topic("good", part(0)))
    life.round(answers)
    assert life.metadata.errors.get("good") is None
    error = life.metadata.errors.get("bad")
    assert type(error) is kind
    assert "'bad'" in str(error)
    assert code.name in str(error)
    assert life.metadata.errors.get("bad") is error
    life.metadata.add_topic("good", life.now)
    assert life.due_in == AGE_S
    life.metadata.add_topic("bad", life.now)
    assert life.metadata.errors.get("bad") is None
    assert life.due_in == PAUSE_S
    life.round(answers)
    assert type(life.metadata.errors.get("bad")) is kind


def test_an_error_ends_with_a_good_answer() -> None:
    """Once a topic can be used, its earlier error is gone."""
    life = Life()
    life.metadata.add_topic("t", life.now)
    life.round(answer(topic("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    life.metadata.request_update()
    life.round(answer(topic("t", part(0))))
    assert life.metadata.errors.get("t") is None
    assert life.metadata.partition_count("t") == 1


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        999,
    ],
)
def test_a_topic_that_is_being_made_is_asked_about_until_it_is_there(error: int) -> None:
    """Any other error of a topic is followed by another request, at the backoff's pace."""
    life = Life()
    life.metadata.add_topic("t", life.now)
    life.round(answer(topic("t", error=error)))
    assert life.metadata.errors.get("t") is None
    assert life.metadata.partition_count("t") is None
    assert life.metadata.available_partitions("t") == ()
    assert life.due_in == PAUSE_S
    assert life.round(answer(topic("t", part(0)))) == ["t"]
    assert life.metadata.partition_count("t") == 1
    assert life.due_in == AGE_S


def test_a_partition_without_a_leader_is_asked_about_again() -> None:
    """An election that is not over when asked is followed up."""
    life = settled(part(0), part(1, -1, error=ErrorCode.LEADER_NOT_AVAILABLE))
    assert life.metadata.available_partitions("t") == (0,)
    assert life.due_in == 0
    life.round(answer(topic("t", part(0), part(1, 2, epoch=1))))
    assert life.leader(T1) == Leader(2, 1)
    assert life.due_in > 200


@pytest.mark.parametrize(
    "response",
    [answer(brokers=()), answer(brokers=(-1, -5)), answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_an_answer_that_says_nothing_is_a_failure(response: MetadataResponse) -> None:
    """An answer without brokers, or with a top-level error, changes no known metadata."""
    life = settled(part(0))
    life.renew(response)
    assert life.leader(T0) == Leader(1, 0)
    assert life.due_in == PAUSE_S
    assert "an answer to Metadata" in life.metadata.describe_wait("t", 1)


@pytest.mark.parametrize(
    "numbers", [(), (1,), (-1, 0), (0, 2), (0, 2**31 - 1), (-(2**31),), (0, 1, 1, 3)]
)
def test_partitions_that_are_not_numbered_from_zero_are_not_used(numbers: tuple[int, ...]) -> None:
    """Keys would go to wrong partitions, so such an answer counts as an error of the topic."""
    life = Life()
    life.metadata.add_topic("t", life.now)
    life.round(answer(topic("t", *(part(each) for each in numbers))))
    assert life.metadata.partition_count("t") is None
    assert "numbers its partitions" in life.metadata.describe_wait("t", 1)
    assert life.due_in == PAUSE_S


def test_what_is_named_twice_counts_once() -> None:
    """If a partition is listed twice the newer epoch counts; for a broker, the last entry."""
    life = settled(part(0, 1, epoch=5), part(0, 2, epoch=4))
    assert life.leader(T0) == Leader(1, 5)
    assert life.metadata.partition_count("t") == 1
    life.renew(answer(topic("t"), topic(None), topic("t", part(0, 2, epoch=6)), brokers=(1, 2, 2)))
    assert life.leader(T0) == Leader(2, 6)
    assert len(life.metadata.nodes) == 2


def test_topics_that_were_not_requested_are_not_kept() -> None:
    """An answer cannot fill the memory with topics that were not requested."""
    life = settled(part(0))
    life.renew(answer(topic("t", part(0)), topic("other", part(0))))
    assert life.metadata.partition_count("other") is None


PARTITIONS = st.builds(
    part,
    st.integers(-2, 4) | st.integers(-(2**31), 2**31 - 1),
    st.integers(-3, 4),
    epoch=st.integers(-(2**31), 2**31 - 1),
    error=st.sampled_from([0, 5, 9, 999, -1]),
)
TOPICS = st.builds(
    lambda name, parts, topic_id, error: topic(name, *parts, topic_id=topic_id, error=error),
    st.sampled_from(["t", "u", "", None]),
    st.lists(PARTITIONS, max_size=5) | st.just([part(0), part(1)]),
    st.sampled_from([NO_ID, FIRST_ID, SECOND_ID]),
    st.sampled_from([0, 0, 0, 3, 17, 29, 999]),
)
ANSWERS = st.builds(
    lambda topics, brokers, error: answer(*topics, brokers=brokers, error=error),
    st.lists(TOPICS, max_size=4),
    st.lists(st.integers(-2, 4), max_size=4),
    st.sampled_from([0, 0, 0, 129, 3]),
)


@given(st.lists(st.tuples(ANSWERS, st.integers(0, 13)), max_size=12))
def test_no_sequence_of_answers_breaks_what_is_promised(
    answers: list[tuple[MetadataResponse, int]],
) -> None:
    """Whatever brokers say, leaders are known brokers, and the next request comes."""
    life = Life()
    for name in ("t", "u"):
        life.metadata.add_topic(name, life.now)
    for response, version in answers:
        life.metadata.add_topic("t", life.now)
        life.metadata.request_update()
        assert life.due_in <= 1
        life.round(response, version=version)
        assert life.metadata.nodes
        for name in ("t", "u"):
            count = life.metadata.partition_count(name)
            available = life.metadata.available_partitions(name)
            assert count is None or 0 < count <= 5
            for number in available:
                leader = life.leader(TopicPartition(name, number))
                assert leader is not None
                assert leader.node_id >= 0
                assert life.metadata.node(leader.node_id) in life.metadata.nodes
            assert all(0 <= number < (count or 0) for number in available)


# -- leaders from the answers to Produce, and the way back to the bootstrap list ----------------


def test_a_newer_leader_from_a_produce_answer_is_taken() -> None:
    """The leader and its address are known at once, and other partitions are as they were."""
    life = settled(part(0, 1, epoch=1), part(1, 1, epoch=1))
    assert life.metadata.update_leader(T0, Leader(3, 2), Node(3, "host-3", 9092))
    assert life.leader(T0) == Leader(3, 2)
    assert life.leader(T1) == Leader(1, 1)
    assert life.metadata.node(3) == Node(3, "host-3", 9092)
    assert life.metadata.node(1) == Node(1, "host-1", 9092)
    assert life.metadata.available_partitions("t") == (0, 1)
    life.renew(answer(topic("t", part(0, 1, epoch=1), part(1, 1, epoch=1)), brokers=(1, 3)))
    assert life.leader(T0) == Leader(3, 2)


@pytest.mark.parametrize(
    ("partition", "leader", "endpoint"),
    [
        (T0, Leader(2, 1), Node(2, "host-2", 9092)),
        (T0, Leader(2, 0), Node(2, "host-2", 9092)),
        (T0, Leader(2, -1), Node(2, "host-2", 9092)),
        (T0, Leader(3, 5), None),
        (T0, Leader(3, 5), Node(4, "host-4", 9092)),
        (T0, Leader(3, 5), Node(3, "", 9092)),
        (T0, Leader(3, 5), Node(3, "host-3", 0)),
        (T1, Leader(2, 5), Node(2, "host-2", 9092)),
        (TopicPartition("t", -1), Leader(2, 5), Node(2, "host-2", 9092)),
        (TopicPartition("other", 0), Leader(2, 5), Node(2, "host-2", 9092)),
    ],
)
def test_any_other_leader_from_a_produce_answer_is_not(
    partition: TopicPartition, leader: Leader, endpoint: Node | None
) -> None:
    """A leader that is not newer, or has no address or known partition is ignored."""
    life = settled(part(0, 1, epoch=1))
    nodes = life.metadata.nodes
    assert not life.metadata.update_leader(partition, leader, endpoint)
    assert life.leader(T0) == Leader(1, 1)
    assert life.leader(partition) in {None, Leader(1, 1)}
    assert life.metadata.nodes == nodes


def test_without_any_usable_broker_the_bootstrap_list_is_asked_again() -> None:
    """Leaders are unknown then; the pause after the answer holds."""
    life = settled(part(0, 1, epoch=9), part(1, 1, epoch=9), topic_id=FIRST_ID)
    life.renew(answer(error=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert life.due_in == PAUSE_S
    life.metadata.no_node(life.now)
    assert life.metadata.nodes == BOOTSTRAP
    assert life.leader(T0) is None
    assert life.metadata.available_partitions("t") == ()
    assert life.metadata.partition_count("t") == 2
    assert life.due_in == PAUSE_S
    life.now += PAUSE_S
    assert life.round(answer(topic("t", part(0, 2, epoch=9), topic_id=FIRST_ID))) == ["t"]
    assert life.leader(T0) == Leader(2, 9)
    assert life.metadata.partition_count("t") == 1


def rebootstrapped(topic_id: UUID) -> Life:
    """With a partition whose leader had epoch 9, after all brokers were lost."""
    life = settled(part(0, 1, epoch=9), topic_id=topic_id)
    life.metadata.request_update()
    life.metadata.no_node(life.now)
    assert life.metadata.nodes == BOOTSTRAP
    assert life.leader(T0) is None
    life.now += PAUSE_S
    return life


def test_a_broker_of_the_bootstrap_list_that_is_cut_off_leads_to_no_old_leader() -> None:
    """It names one of an earlier epoch; the partition has none until the next one is named."""
    life = rebootstrapped(FIRST_ID)
    life.round(answer(topic("t", part(0, 1, epoch=8), topic_id=FIRST_ID)))
    assert life.leader(T0) is None
    life.renew(answer(topic("t", part(0, 2, epoch=10), topic_id=FIRST_ID)))
    assert life.leader(T0) == Leader(2, 10)


@pytest.mark.parametrize(("before", "now"), [(FIRST_ID, SECOND_ID), (NO_ID, NO_ID)])
def test_the_bootstrap_list_may_lead_to_another_cluster(before: UUID, now: UUID) -> None:
    """Leaders of a topic with another id, or of one that never had an id, have epochs of theirs."""
    life = rebootstrapped(before)
    life.round(answer(topic("t", part(0, 2, epoch=1), topic_id=now)))
    assert life.leader(T0) == Leader(2, 1)


def test_a_bootstrap_list_without_a_usable_broker_is_asked_at_the_backoffs_pace() -> None:
    """While no broker answers, the pauses grow and the list is unchanged."""
    life = Life()
    pauses = []
    for _ in range(5):
        life.metadata.no_node(life.now)
        pauses.append(life.due_in)
        life.now += life.due_in
    assert pauses == [0.125, 0.25, 0.5, 1.0, 1.0]
    assert life.metadata.nodes == BOOTSTRAP


def test_without_rebootstrap_the_known_brokers_stay() -> None:
    """With metadata.recovery.strategy=none they are tried until one answers."""
    life = Life(may_rebootstrap=False)
    life.settle(answer(topic("t", part(0))))
    life.metadata.request_update()
    life.metadata.no_node(life.now)
    assert life.metadata.node(1) is not None
    assert life.due_in == PAUSE_S
    life.round(answer(error=ErrorCode.REBOOTSTRAP_REQUIRED))
    assert life.metadata.node(1) is not None


def test_a_broker_that_sends_its_clients_away_is_obeyed() -> None:
    """REBOOTSTRAP_REQUIRED leads back to the bootstrap list, at the backoff's pace (KIP-1102)."""
    life = settled(part(0))
    life.renew(answer(error=ErrorCode.REBOOTSTRAP_REQUIRED))
    assert life.metadata.nodes == BOOTSTRAP
    assert life.due_in == PAUSE_S
    assert life.round(answer(topic("t", part(0)))) == ["t"]
