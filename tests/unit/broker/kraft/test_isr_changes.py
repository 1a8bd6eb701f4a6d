"""AlterPartition requests of a leader, against a controller that a test scripts."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tailrace.broker.kraft.channel import ControllerChannel, Controllers
from tailrace.broker.kraft.isr_changes import IsrAnswer, IsrChanges
from tailrace.client.config import ClientConfig
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.replication.leadership import IsrChange
from tailrace.testing import Outside
from tailrace.values import replace
from tests.unit.broker.kraft.scripted import CLIENT, LOGIN, ScriptedController, refuse_logins

TOPIC, OTHER = UUID(int=7), UUID(int=8)
CHANGE = IsrChange(isr={1: 50, 2: -1}, leader_epoch=LeaderEpoch(4), partition_epoch=9, joining=None)


def made(request: AlterPartitionRequest) -> AlterPartitionResponse:
    """The answer of a controller that makes every change."""
    return AlterPartitionResponse(
        topics=tuple(
            AlterPartitionResponseTopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    AlterPartitionResponsePartitionData(
                        partition_index=each.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=each.leader_epoch,
                        isr=tuple(one.broker_id for one in each.new_isr_with_epochs)
                        or each.new_isr,
                        partition_epoch=each.partition_epoch + 1,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


class Scene:
    """A sender of changes, and the controller that answers it."""

    def __init__(self, outside: Outside, config: ClientConfig = CLIENT) -> None:
        self.outside = outside
        self.controller = ScriptedController(outside)
        self.controller.answers[AlterPartitionRequest] = made
        self.epoch = 50
        self.results: list[tuple[str, IsrAnswer]] = []
        self.channel = ControllerChannel(
            Controllers([self.controller.node]), config, outside.runtime
        )
        self.changes = IsrChanges(self.channel, broker_id=1, broker_epoch=lambda: self.epoch)

    def submit(self, partition: int, topic_id: UUID = TOPIC, change: IsrChange = CHANGE) -> None:
        """Submit a change of a partition."""
        name = TopicPartition("other" if topic_id == OTHER else "t", partition)
        self.changes.submit(
            name, topic_id, change, answered=lambda result: self.results.append((str(name), result))
        )

    def answer_first(self, *answers: Any) -> None:
        """Give these answers to the next requests; to all later ones the right one."""
        left = list(answers)

        def answer(request: AlterPartitionRequest) -> Any:
            given = left.pop(0) if left else made
            return given(request) if callable(given) else given

        self.controller.answers[AlterPartitionRequest] = answer

    @property
    def requests(self) -> list[Any]:
        return self.controller.requests


@pytest.fixture
def on(outside: Outside) -> Iterator[Scene]:
    """A sender that has nothing to send yet."""

    async def begin() -> Scene:
        return Scene(outside)

    found = outside.run(begin())
    yield found

    async def end() -> None:
        found.changes.close()
        found.channel.close()
        await outside.pass_time(0)

    outside.run(end())


async def test_changes_of_one_turn_are_one_request(outside: Outside, on: Scene) -> None:
    """With the broker epoch of the registration and that of each member (KIP-903)."""
    on.submit(0)
    on.submit(3)
    on.submit(1, OTHER)
    await outside.pass_time(0.1)
    (request,) = on.requests
    assert (request.broker_id, request.broker_epoch) == (1, 50)
    assert {
        (topic.topic_id, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    } == {(TOPIC, 0), (TOPIC, 3), (OTHER, 1)}
    first = request.topics[0].partitions[0]
    members = [(each.broker_id, each.broker_epoch) for each in first.new_isr_with_epochs]
    assert members == [(1, 50), (2, -1)]
    assert (first.leader_epoch, first.partition_epoch, first.leader_recovery_state) == (4, 9, 0)
    assert sorted(name for name, _ in on.results) == ["other-1", "t-0", "t-3"]
    assert all(getattr(each, "partition_epoch", None) == 10 for _, each in on.results)
    assert on.changes.pending_count == 0


async def test_a_controller_without_kip_903_gets_ids_alone(outside: Outside, on: Scene) -> None:
    """Version 2 has no epochs."""
    on.controller.versions[ApiKey.ALTER_PARTITION] = (2, 2)
    on.submit(0)
    await outside.pass_time(0.1)
    (part,) = on.requests[0].topics[0].partitions
    assert on.controller.asked_versions == [2]
    assert (part.new_isr, part.new_isr_with_epochs) == ((1, 2), ())
    assert len(on.results) == 1


async def test_one_request_is_in_flight(outside: Outside, on: Scene) -> None:
    """Changes that are submitted meanwhile go together, when the first has its answer."""
    outside.network.delay_s = 0.5
    on.submit(0)
    await outside.pass_time(3)
    first = len(on.results)
    on.submit(1)
    await outside.pass_time(0.2)
    on.submit(2)
    on.submit(3)
    await outside.pass_time(0.7)
    on.submit(4)
    await outside.pass_time(3)
    indices = [
        sorted(each.partition_index for each in request.topics[0].partitions)
        for request in on.requests
    ]
    assert (first, indices) == (1, [[0], [1], [2, 3, 4]])
    assert len(on.results) == 5


async def test_a_change_that_comes_as_the_last_one_is_answered_is_sent(
    outside: Outside, on: Scene
) -> None:
    """The sender has just found nothing left, and its end is not known yet."""
    loop = asyncio.get_running_loop()

    def answered(_: IsrAnswer) -> None:
        loop.call_soon(on.submit, 1)

    on.changes.submit(TopicPartition("t", 0), TOPIC, CHANGE, answered=answered)
    await outside.pass_time(1)
    assert [each for each, _ in on.results] == ["t-1"]


async def test_a_second_change_of_a_partition_is_not_attempted(outside: Outside, on: Scene) -> None:
    """The partition proposes it again when the first has its answer, which it may do at once."""
    on.submit(0)
    on.submit(0)
    assert on.results == [("t-0", ErrorCode.OPERATION_NOT_ATTEMPTED)]
    await outside.pass_time(0.1)
    assert len(on.results) == 2
    again: list[IsrAnswer] = []
    name = TopicPartition("t", 0)

    def answered(_: IsrAnswer) -> None:
        on.changes.submit(name, TOPIC, CHANGE, answered=again.append)

    on.changes.submit(name, TOPIC, CHANGE, answered=answered)
    await outside.pass_time(0.2)
    assert [isinstance(each, ErrorCode) for each in again] == [False]


@pytest.mark.parametrize(
    "code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, 999]
)
async def test_a_refused_request_is_sent_again(outside: Outside, on: Scene, code: int) -> None:
    """After 50 ms, with what is queued and the epoch of the registration then, without an end."""
    on.answer_first(*[AlterPartitionResponse(error_code=code)] * 20)
    on.submit(0)
    await outside.pass_time(0.22)
    assert (len(on.requests), on.results) == (5, [])
    on.epoch = 60
    on.submit(1)
    await outside.pass_time(2)
    assert len(on.results) == 2
    assert on.requests[-1].broker_epoch == 60
    assert len(on.requests) == 21


async def test_a_controller_without_the_request_is_asked_again(
    outside: Outside, on: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be updated; the log says it once."""
    on.controller.versions[ApiKey.ALTER_PARTITION] = (0, 1)
    on.submit(0)
    await outside.pass_time(10)
    assert (on.requests, on.results) == ([], [])
    assert caplog.text.count("isr_changes_failed") == 1
    on.controller.versions.clear()
    on.controller.kill()
    on.controller.revive()
    await outside.pass_time(10)
    assert len(on.results) == 1


async def test_a_refused_login_is_tried_again(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The user may be made meanwhile, and the change waits."""
    on = Scene(outside, LOGIN)
    refuse_logins(on.controller)
    on.submit(0)
    await outside.pass_time(10)
    assert on.changes.pending_count == 1
    assert caplog.text.count("isr_changes_failed") == 1
    on.controller.answers[SaslAuthenticateRequest] = lambda _: SaslAuthenticateResponse()
    await outside.pass_time(10)
    assert [name for name, _ in on.results] == ["t-0"]
    on.changes.close()
    on.channel.close()


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_UPDATE_VERSION),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INELIGIBLE_REPLICA),
        (ErrorCode.NEW_LEADER_ELECTED, ErrorCode.NEW_LEADER_ELECTED),
        (999, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_errors_of_partitions_are_the_partitions(
    outside: Outside, on: Scene, sent: int, expected: ErrorCode
) -> None:
    """Each decides whether its change counts, and whether to send it again."""
    on.answer_first(lambda request: spoiled(request, error_code=sent))
    on.submit(0)
    await outside.pass_time(1)
    assert on.results == [("t-0", expected)]
    assert len(on.requests) == 1


def spoiled(request: AlterPartitionRequest, **values: Any) -> AlterPartitionResponse:
    """The right answer with other values in each partition."""
    answer = made(request)
    return replace(
        answer,
        topics=tuple(
            replace(topic, partitions=tuple(replace(each, **values) for each in topic.partitions))
            for topic in answer.topics
        ),
    )


@pytest.mark.parametrize(
    "lie",
    [
        {"leader_epoch": -1},
        {"partition_epoch": -1},
        {"leader_recovery_state": 2},
        {"isr": ()},
        {"isr": (1, -2)},
        {"isr": (1, 1)},
    ],
)
async def test_an_impossible_state_is_no_answer(
    outside: Outside, on: Scene, lie: dict[str, Any]
) -> None:
    """A leader that took it would count on replicas that nobody has elected."""
    on.answer_first(lambda request: spoiled(request, **lie))
    on.submit(0)
    await outside.pass_time(1)
    assert on.results == [("t-0", ErrorCode.UNKNOWN_SERVER_ERROR)]


async def test_a_partition_without_an_answer_is_asked_for_again(
    outside: Outside, on: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """After a pause, since a wrong controller might never answer; strangers are passed over."""
    stranger = made(AlterPartitionRequest(topics=made_topics(UUID(int=99))))
    on.answer_first(stranger, stranger)
    on.submit(0)
    await outside.pass_time(1)
    assert [name for name, _ in on.results] == ["t-0"]
    assert len(on.requests) == 3
    assert "isr_answers_unasked" in caplog.text
    assert "isr_change_unanswered partition=t-0" in caplog.text


def made_topics(topic_id: UUID) -> Any:
    """The topics of a request for partition 0 of a topic."""
    from tailrace.protocol.messages.alter_partition import PartitionData, TopicData

    return (TopicData(topic_id=topic_id, partitions=(PartitionData(),)),)


async def test_changes_wait_for_a_controller(outside: Outside, on: Scene) -> None:
    """However long that takes."""
    on.controller.kill()
    on.submit(0)
    await outside.pass_time(120)
    assert (on.results, on.changes.pending_count) == ([], 1)
    on.controller.revive()
    await outside.pass_time(3)
    assert len(on.results) == 1


async def test_nothing_is_sent_after_the_end(outside: Outside, on: Scene) -> None:
    """Nor is anybody called."""
    on.answer_first(*[AlterPartitionResponse(error_code=-1)] * 20)
    on.submit(0)
    await outside.pass_time(0.1)
    on.changes.close()
    asked = len(on.requests)
    await outside.pass_time(5)
    assert (on.results, len(on.requests)) == ([], asked)
