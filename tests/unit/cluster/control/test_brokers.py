"""Registrations, heartbeats and fencing, with the cases of Kafka's ClusterControlManagerTest."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.control.brokers import BrokerState, next_state, register_broker
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.unit.cluster.control.controlled import Controlled, directory, features, wanted


def names(cluster: Controlled, since: int) -> list[str]:
    """The kinds of the records since some point."""
    return [type(each).__name__ for each in cluster.appended[since:]]


# -- registration ---------------------------------------------------------------------------------


def test_a_broker_is_registered_fenced() -> None:
    """Its announcement is kept whole, and its epoch is the offset of the record."""
    cluster = Controlled()
    offset = cluster.state.next_offset
    assert cluster.register(1, rack="a") == offset
    broker = cluster.state.image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.rack) == (True, False, "a")
    assert broker.log_dirs == (directory(1),)
    assert broker.end_points[0].host == "host"
    assert cluster.state.heartbeats.registered_at(1) == offset


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (UUID(int=99),)}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory(1), directory(1))}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (directory(2),)}, ErrorCode.INVALID_REGISTRATION),
        ({"features": features(metadata_version=(7, 29))}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": features(metadata_version=None)}, ErrorCode.INVALID_REGISTRATION),
        ({"features": features(group_version=None)}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": features(group_version=(2, 3))}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": features(kraft_version=(1, 1))}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": features(another=(0, 5))}, ErrorCode.NONE),
        ({"features": features(another=(1, 5))}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_registration_that_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    """The first check that fails is the answer; a feature that is not used has level 0."""
    cluster = Controlled()
    cluster.register(2)
    before = len(cluster.appended)
    request = cluster.registration(1, **fields)
    assert cluster.refused(ApiKey.BROKER_REGISTRATION, request) is code
    assert (len(cluster.appended) == before) is bool(code)


def test_the_session_of_the_last_incarnation_keeps_the_next_out() -> None:
    """Another incarnation registers only when that session has ended."""
    cluster = Controlled()
    cluster.serve(1)
    again = cluster.registration(1)
    refused = cluster.refused(ApiKey.BROKER_REGISTRATION, again)
    assert refused is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 9001
    assert cluster.refused(ApiKey.BROKER_REGISTRATION, again) is ErrorCode.NONE


def test_a_registration_alone_is_no_session() -> None:
    """A broker that crashed before its first heartbeat registers again at once."""
    cluster = Controlled()
    cluster.register(1)
    assert cluster.refused(ApiKey.BROKER_REGISTRATION, cluster.registration(1)) is ErrorCode.NONE


def test_the_same_incarnation_amends_its_registration() -> None:
    """It keeps its epoch, and continues to serve."""
    cluster = Controlled()
    cluster.serve(1)
    broker = cluster.state.image.brokers[1]
    epoch = cluster.register(1, incarnation_id=broker.incarnation_id, rack="moved")
    after = cluster.state.image.brokers[1]
    assert (epoch, after.fenced, after.rack) == (broker.broker_epoch, False, "moved")
    cluster.now_ms += 9001
    assert cluster.register(1) > epoch
    assert cluster.state.image.brokers[1].fenced


@pytest.mark.parametrize(("level", "version"), [(7, 1), (8, 2), (16, 2), (17, 3), (29, 3), (30, 4)])
def test_the_version_of_the_record_follows_the_level(level: int, version: int) -> None:
    """No directories are named before there are any."""
    cluster = Controlled(level=level)
    request = cluster.registration(1)
    decision = register_broker(cluster.state, request, version=4, now_ms=0)
    [record] = decision.records
    assert record.version == version
    assert bool(record.record.log_dirs) is (level >= 17)  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_elr", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_new_incarnation_leaves_what_it_had(*, has_elr: bool, is_clean: bool) -> None:
    """It leaves each ISR, and after a crash also the eligible leaders."""
    cluster = Controlled(has_elr=has_elr)
    cluster.serve(1, 2)
    cluster.topic([1, 2], min_insync_replicas="2")
    cluster.topic([1], name="alone")
    cluster.now_ms += 9001
    epoch = cluster.epoch(1)
    before = len(cluster.appended)
    cluster.register(1, previous_broker_epoch=epoch if is_clean else -1)
    assert names(cluster, before) == ["PartitionChangeRecord"] * 2 + ["RegisterBrokerRecord"]
    # Its epoch is the offset of the first of these records, and it knows of itself with the last.
    registered_at = cluster.state.heartbeats.registered_at(1)
    assert registered_at == cluster.epoch(1) + 2
    if has_elr:
        assert cluster.shown() == (2, (2,), (1,) if is_clean else ())
        assert cluster.shown("alone") == (-1, (), (1,) if is_clean else ())
        assert cluster.partition("alone").last_known_elr == (1,)
    else:
        assert cluster.shown() == (2, (2,), ())
        assert cluster.shown("alone") == (-1, (1,), ())


def test_a_registration_of_an_old_version_counts_as_unclean() -> None:
    """Before version 3 a broker cannot say with which epoch it has stopped."""
    cluster = Controlled()
    cluster.serve(1, 2)
    cluster.topic([1, 2], min_insync_replicas="2")
    cluster.now_ms += 9001
    cluster.register(1, previous_broker_epoch=cluster.epoch(1), version=2)
    assert cluster.shown() == (2, (2,), ())


def test_unregistering() -> None:
    """It leaves its ISRs; an unknown broker is refused."""
    cluster = Controlled()
    cluster.serve(1, 2)
    cluster.topic([1, 2])
    before = len(cluster.appended)
    cluster.do(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=1))
    assert names(cluster, before) == ["PartitionChangeRecord", "UnregisterBrokerRecord"]
    assert cluster.shown() == (2, (2,), ())
    assert 1 not in cluster.state.image.brokers
    again = cluster.refused(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=1))
    assert again is ErrorCode.BROKER_ID_NOT_REGISTERED
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=1, current_metadata_offset=0, want_fence=False,
        want_shut_down=False,
    )  # fmt: skip
    assert cluster.refused(ApiKey.BROKER_HEARTBEAT, request) is ErrorCode.STALE_BROKER_EPOCH


# -- directories ----------------------------------------------------------------------------------


def test_a_directory_is_online_if_its_broker_has_it() -> None:
    """Reserved ids are online where they mean that nothing is known."""
    cluster = Controlled()
    cluster.register(1, log_dirs=(directory(1), directory(1, 1)))
    online = cluster.state.is_online
    assert online(1, directory(1))
    assert online(1, directory(1, 1))
    assert online(1, UUID(int=0))
    assert online(1, UUID(int=1))
    assert not online(1, UUID(int=2))
    assert not online(1, directory(2))
    assert not online(2, directory(1))
    assert not online(2, UUID(int=1))


def test_the_directory_of_a_new_replica() -> None:
    """A broker's only directory; of several it chooses itself, and old levels name none."""
    cluster = Controlled()
    cluster.register(1)
    cluster.register(2, log_dirs=(directory(2), directory(2, 1)))
    default = cluster.state.default_directory
    assert default(1) == directory(1)
    assert default(2) == UUID(int=1)
    assert default(3) == UUID(int=1)
    old = Controlled(level=16)
    old.register(1)
    assert old.state.default_directory(1) == UUID(int=0)


# -- heartbeats -----------------------------------------------------------------------------------


def test_the_next_state_of_each_state() -> None:
    """By its wishes, its offset and its partitions (testCalculateNextBrokerState)."""
    cluster = Controlled()
    cluster.serve(1, 2, 3, 5)
    cluster.register(0)
    cluster.topic([1, 2], [5, 1])
    offset = cluster.state.heartbeats.registered_at(0)
    assert offset is not None

    def after(broker_id: int, **fields: Any) -> tuple[BrokerState, BrokerState]:
        wanted = {"current_metadata_offset": offset, "want_fence": False,
                  "want_shut_down": False, **fields}  # fmt: skip
        return next_state(
            cluster.state,
            BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=cluster.epoch(broker_id), **wanted
            ),
        )

    fenced, serving = BrokerState.FENCED, BrokerState.UNFENCED
    stopping, stop = BrokerState.CONTROLLED_SHUTDOWN, BrokerState.SHUTDOWN_NOW
    assert after(0, want_shut_down=True) == (fenced, stop)
    assert after(0) == (fenced, serving)
    assert after(0, current_metadata_offset=offset - 1) == (fenced, fenced)
    assert after(0, want_fence=True) == (fenced, fenced)
    assert after(1) == (serving, serving)
    assert after(1, want_shut_down=True) == (serving, stopping)
    assert after(3, want_shut_down=True) == (serving, stop)
    assert after(3, want_fence=True) == (serving, fenced)
    assert after(3, want_fence=True, want_shut_down=True) == (serving, stop)
    assert not cluster.beat(5, want_shut_down=True).should_shut_down
    assert after(5, want_shut_down=True) == (stopping, stopping)
    # Once all that serve have applied the records that moved what it led.
    for each in (1, 2, 3):
        cluster.beat(each)
    assert after(5, want_shut_down=True) == (stopping, stop)
    assert after(5) == (stopping, stop)


def test_a_controlled_shutdown_waits_for_the_slowest_broker() -> None:
    """It stops once all others have applied what moved its partitions, and not what came later."""
    cluster = Controlled()
    cluster.serve(1, 2, 3)
    cluster.topic([1, 2, 3])
    before = len(cluster.appended)
    answer = cluster.beat(1, want_shut_down=True)
    assert names(cluster, before) == ["BrokerRegistrationChangeRecord", "PartitionChangeRecord"]
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert cluster.state.image.brokers[1].in_controlled_shutdown
    assert cluster.shown() == (2, (2, 3), ())
    at = cluster.state.next_offset - 1
    # Other records come meanwhile, for which it does not wait.
    cluster.topic([2], name="other")
    cluster.beat(2, current_metadata_offset=at)
    cluster.beat(3, current_metadata_offset=at - 1)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(3, current_metadata_offset=at)
    before = len(cluster.appended)
    answer = cluster.beat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert names(cluster, before) == ["BrokerRegistrationChangeRecord"]
    assert cluster.state.image.brokers[1].fenced


def test_a_controlled_shutdown_outlasts_an_amended_registration() -> None:
    """The broker still waits for the others; a new incarnation does not shut down."""
    cluster = Controlled()
    cluster.serve(1, 2)
    cluster.topic([1, 2])
    incarnation = cluster.state.image.brokers[1].incarnation_id
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.register(1, incarnation_id=incarnation, rack="moved")
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(2)
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.now_ms += 9001
    cluster.register(1)
    assert not cluster.state.heartbeats.is_shutting_down(1)


def test_a_stale_epoch_is_refused() -> None:
    """The session of another incarnation does not go on by it."""
    cluster = Controlled()
    cluster.serve(1)
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=cluster.epoch(1) - 1, current_metadata_offset=0,
        want_fence=False, want_shut_down=False,
    )  # fmt: skip
    assert cluster.refused(ApiKey.BROKER_HEARTBEAT, request) is ErrorCode.STALE_BROKER_EPOCH
    cluster.now_ms += 9001
    assert cluster.refused(ApiKey.BROKER_HEARTBEAT, request) is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.pass_ms(0) == [1]


def test_who_is_silent_is_fenced_one_after_the_other() -> None:
    """Each session by itself, so that what follows for one is seen for the next.

    Upstream: testHasValidSession, testFindOneStaleBroker.
    """
    cluster = Controlled(session_timeout_ms=10)
    cluster.serve(1, 2, 3)
    cluster.topic([1, 2, 3], [2, 1, 3])
    epochs = {each: cluster.epoch(each) for each in (1, 2, 3)}
    assert cluster.pass_ms(5) == []
    cluster.beat(2)
    cluster.pass_ms(1)
    cluster.beat(3)
    assert cluster.pass_ms(4) == []
    assert cluster.pass_ms(1) == [1]
    sessions = [
        cluster.state.heartbeats.has_session(each, epoch, now_ms=cluster.now_ms)
        for each, epoch in epochs.items()
    ]
    assert sessions == [False, True, True]
    assert cluster.shown() == (2, (2, 3), ())
    assert cluster.pass_ms(20) == [2, 3]
    # The last of an ISR is kept as the one that has all.
    assert cluster.shown() == (-1, (), (3,))
    assert cluster.shown(number=1) == (-1, (), (3,))
    assert cluster.pass_ms(1000) == []


def test_a_controller_that_takes_over_gives_sessions() -> None:
    """Each broker that serves has a new session, and the others have none."""
    cluster = Controlled()
    cluster.serve(1, 2)
    cluster.register(3)
    cluster.now_ms = 50_000
    state = cluster.state
    state.begin(state.image, next_offset=state.next_offset + 1, now_ms=cluster.now_ms)
    found = [
        state.heartbeats.has_session(each, cluster.epoch(each), now_ms=cluster.now_ms)
        for each in (1, 2, 3)
    ]
    assert found == [True, True, False]
    assert cluster.pass_ms(9000) == []
    assert cluster.pass_ms(1) == [1, 2]


def test_unfencing_elects_for_partitions_without_a_leader() -> None:
    """The last of the ISR leads again; a broker that is not in it does not."""
    cluster = Controlled(has_elr=False)
    cluster.serve(1, 2)
    cluster.topic([1, 2])
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.shown() == (-1, (1,), ())
    cluster.beat(2)
    assert cluster.shown() == (-1, (1,), ())
    cluster.beat(1)
    assert cluster.shown() == (1, (1,), ())


def cordoned(cluster: Controlled) -> tuple[UUID, ...] | None:
    """The directories of broker 1 that get no new replicas."""
    return cluster.state.image.brokers[1].cordoned_log_dirs


def test_cordoned_directories_get_no_new_replicas() -> None:
    """Levels before 30 do not know them, null says nothing, () that there are none."""
    cluster = Controlled()
    cluster.serve(1, 2)
    cluster.beat(1, cordoned_log_dirs=None)
    assert cordoned(cluster) is None
    cluster.beat(1, cordoned_log_dirs=())
    assert cordoned(cluster) == ()
    before = len(cluster.appended)
    cluster.beat(1, cordoned_log_dirs=())
    assert cluster.appended[before:] == []
    cluster.beat(1, cordoned_log_dirs=(directory(1),))
    assert cordoned(cluster) == (directory(1),)
    [result] = cluster.create(wanted("t", 1, 2))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    [result] = cluster.create(wanted("t", 2, 1))
    assert cluster.partition(number=0).replicas == (2,)
    assert cluster.partition(number=1).replicas == (2,)
    cluster.beat(1, cordoned_log_dirs=())
    assert cordoned(cluster) == ()
    old = Controlled(level=29)
    old.serve(1)
    old.beat(1, cordoned_log_dirs=(directory(1),))
    assert cordoned(old) is None
