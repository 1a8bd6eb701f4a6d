"""Look-ups of a group's coordinator: their pauses, and the answers of old brokers."""

import pytest

from tailrace.client.errors import RequestTimedOutError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tests.unit.client.consumer.member_stage import MemberStage


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("is_consumer_protocol", [False, True], ids=["classic", "consumer"])
def test_a_broker_that_refuses_a_member_is_not_asked_without_a_pause(
    code: ErrorCode, *, is_consumer_protocol: bool
) -> None:
    """A look-up may name the same broker for a while, although that says NOT_COORDINATOR.

    So it does while the replicas of the group's partition are too few, which may be for hours.
    """
    stage = MemberStage(
        is_consumer_protocol=is_consumer_protocol, retry_backoff_ms=100, retry_backoff_max_ms=1000
    )
    stage.subscribe()
    stage.find()
    asked = 0
    while stage.now < 10:
        request = stage.membership.next_request(stage.now)
        if request is None:
            stage.now = stage.membership.next_deadline(stage.now)
        elif isinstance(request.body, FindCoordinatorRequest):
            stage.answer(request, FindCoordinatorResponse(node_id=1, host="broker", port=9092))
        else:
            asked += 1
            assert asked < 200, f"200 requests in {stage.now} s"
            answer = (
                ConsumerGroupHeartbeatResponse(error_code=code)
                if isinstance(request.body, ConsumerGroupHeartbeatRequest)
                else JoinGroupResponse(error_code=code)
            )
            stage.answer(request, answer)
    assert asked > 5


def test_an_old_broker_answers_for_the_only_group() -> None:
    """Until version 3 the answer has one broker, and no name of a group."""
    stage = MemberStage()
    stage.subscribe()
    request, body = stage.expect(FindCoordinatorRequest)
    assert (body.key, body.coordinator_keys) == ("g", ("g",))
    stage.answer(request, FindCoordinatorResponse(node_id=3, host="old", port=9092))
    request, _ = stage.expect(JoinGroupRequest)
    assert request.node is not None
    assert (request.node.host, request.node.port) == ("old", 9092)


def test_a_look_up_without_an_answer_is_repeated_after_a_pause() -> None:
    """The pause is `retry.backoff.ms`, give or take a fifth."""
    stage = MemberStage(retry_backoff_ms=100)
    stage.subscribe()
    request, _ = stage.expect(FindCoordinatorRequest)
    stage.answer(request, RequestTimedOutError("no answer"))
    stage.passes(0.079)
    assert stage.next() is None
    stage.passes(0.042)
    assert isinstance(stage.next(), FindCoordinatorRequest)
