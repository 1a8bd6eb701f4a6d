"""Sessions of brokers: BrokerHeartbeatManagerTest and BrokerHeartbeatTrackerTest."""

import pytest

from tailrace.cluster.control.heartbeats import BrokerEpoch, Heartbeats
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.unit.cluster.control.controlled import Controlled, wanted

TIMEOUT_MS = 10
BROKERS = {BrokerEpoch(0, 100), BrokerEpoch(1, 100), BrokerEpoch(2, 200)}


def heartbeats(*, at_ms: int = 0) -> Heartbeats:
    """Three brokers that were heard of at one time."""
    found = Heartbeats(TIMEOUT_MS)
    for each in BROKERS:
        found.note(*each, now_ms=at_ms)
    return found


def test_nobody_is_silent_where_nobody_was_heard_of() -> None:
    """There is no session that could end."""
    assert Heartbeats(TIMEOUT_MS).take_expired(now_ms=1000) is None


def test_a_heartbeat_begins_a_session() -> None:
    """The session is of one registration, and not of another broker or epoch."""
    found = heartbeats()
    for each in BROKERS:
        assert found.has_session(*each, now_ms=TIMEOUT_MS)
    assert found.take_expired(now_ms=TIMEOUT_MS) is None
    assert not found.has_session(3, 300, now_ms=0)
    assert not found.has_session(2, 100, now_ms=0)
    assert not found.has_session(0, 200, now_ms=0)


def test_sessions_that_have_ended_are_taken_one_by_one() -> None:
    """Each once."""
    found = heartbeats()
    taken = set()
    while (each := found.take_expired(now_ms=TIMEOUT_MS + 1)) is not None:
        assert each not in taken
        taken.add(each)
    assert taken == BROKERS
    assert not any(found.has_session(*each, now_ms=0) for each in BROKERS)


@pytest.mark.parametrize(
    ("now_ms", "has_session"), [(456, True), (466, True), (467, False), (0, True)]
)
def test_when_a_session_ends(now_ms: int, *, has_session: bool) -> None:
    """After the timeout, and not before; a clock that goes back ends none."""
    assert heartbeats(at_ms=456).has_session(1, 100, now_ms=now_ms) is has_session


def test_a_broker_that_is_not_registered_has_no_heartbeat() -> None:
    """The code says that it has to register, and nothing is written."""
    cluster = Controlled()
    cluster.serve(1, 3)
    before = len(cluster.appended)
    for broker_id in (2, 4):
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=7, current_metadata_offset=0
        )
        assert cluster.refused(ApiKey.BROKER_HEARTBEAT, request) is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.pass_ms(20_000) == [1, 3]
    assert len(cluster.appended) == before + 2


def test_who_shuts_down_gets_no_new_replicas() -> None:
    """A fenced broker does, where too few serve."""
    cluster = Controlled()
    cluster.serve(1, 2)
    cluster.register(4)
    cluster.topic([2, 1], name="led")
    assert not cluster.beat(2, want_shut_down=True).should_shut_down
    [result] = cluster.create(wanted("t", 6, 2))
    assert result.error_code == ErrorCode.NONE
    for number in range(6):
        state = cluster.partition(number=number)
        assert set(state.replicas) == {1, 4}
        assert state.leader == 1
    [result] = cluster.create(wanted("u", 1, 3))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
