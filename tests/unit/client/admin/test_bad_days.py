"""Every operation while brokers go and the controller moves, one request at a time."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tailrace.client.admin import Outcomes, UnknownOutcomeError
from tailrace.client.calls import Ask
from tailrace.client.errors import OperationTimeoutError, UnreachableBrokerError
from tailrace.client.routes import CONTROLLER, Routes, leader
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.unit.client.admin.answers import plausible
from tests.unit.client.admin.calls import ARGUMENTS, NODE, ROUTING, outcome_of

SENT_ONCE = frozenset({"create_topics", "delete_topics", "create_partitions", "delete_groups"})
"""Operations whose second request could fail because the first was carried out."""

GONE = UnreachableBrokerError(f"{NODE}: the connection broke", address="b:9092")

REQUESTS_MAX = 12
"""Requests of a call of which each is lost once."""


def told(ask: Ask, name: str, seed: int) -> Any:
    """The answer to a request, the same each time."""
    api = api_of(type(ask.body))
    chance = random.Random(f"{name} {api.key} {seed}")
    return ROUTING.get(api.key) or plausible(api.response, api.last_version, chance)


def is_changed(before: object, after: object) -> bool:
    """Whether a result is neither as before nor unknown."""
    if isinstance(before, Outcomes) and isinstance(after, Outcomes):
        assert set(before) == set(after)
        return any(is_changed(before[each], after[each]) for each in before)
    if isinstance(before, TailraceError) and isinstance(after, TailraceError):
        return False
    return not isinstance(after, UnknownOutcomeError) and repr(before) != repr(after)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_connection_that_breaks_changes_no_result(name: str) -> None:
    """Whichever answer is lost, a call ends as it would have, or says that it cannot know."""
    for seed in range(4):
        whole, _ = outcome_of(name, partial(told, name=name, seed=seed))
        for lost in range(REQUESTS_MAX):
            asked: list[Ask] = []

            def answer(
                ask: Ask, asked: list[Ask] = asked, lost: int = lost, seed: int = seed
            ) -> Any:
                asked.append(ask)
                return GONE if len(asked) == lost + 1 else told(ask, name, seed)

            found, seconds = outcome_of(name, answer)
            assert seconds < 15
            assert not is_changed(whole, found), (seed, lost)
            if len(asked) <= lost:
                break
            key = api_of(type(asked[lost].body)).key
            if name in SENT_ONCE and key not in ROUTING:
                assert isinstance(found, Outcomes)
                assert any(isinstance(each, UnknownOutcomeError) for each in found.values())


MOVED = MetadataResponse(
    brokers=tuple(
        MetadataResponseBroker(node_id=each, host=f"b{each}", port=9092) for each in (1, 2)
    )
)

OF_THE_CONTROLLER = {
    "create_topics",
    "delete_topics",
    "create_partitions",
    "elect_leaders",
    "alter_partition_reassignments",
    "list_partition_reassignments",
    "update_features",
}


@pytest.mark.parametrize("name", sorted(OF_THE_CONTROLLER))
def test_a_controller_that_has_moved_is_found_again(name: str) -> None:
    """The old one refuses with NOT_CONTROLLER, and the new one gets the same request."""
    asked: list[int] = []

    def answer(ask: Ask) -> Any:
        api = api_of(type(ask.body))
        if api.key is ApiKey.METADATA:
            return replace(MOVED, controller_id=2 if asked else 1)
        assert ask.node is not None
        asked.append(ask.node.id)
        if ask.node.id == 1:
            return refused(ask, api.key)
        return plausible(api.response, api.last_version, random.Random(1))

    outcome_of(name, answer)
    assert asked[:2] == [1, 2]


def refused(ask: Ask, key: ApiKey) -> Any:
    """NOT_CONTROLLER as each API tells it: of all, or of each item."""
    from tailrace.protocol.messages import create_partitions, create_topics, delete_topics

    code = ErrorCode.NOT_CONTROLLER
    body = ask.body
    response: Any = api_of(type(body)).response
    if key is ApiKey.CREATE_TOPICS:
        topics = create_topics.CreatableTopicResult(name="t", error_code=code)
        return create_topics.CreateTopicsResponse(topics=(topics,))
    if isinstance(body, delete_topics.DeleteTopicsRequest):
        return delete_topics.DeleteTopicsResponse(
            responses=tuple(
                delete_topics.DeletableTopicResult(
                    name=each.name, topic_id=each.topic_id, error_code=code
                )
                for each in body.topics
            )
        )
    if key is ApiKey.CREATE_PARTITIONS:
        result = create_partitions.CreatePartitionsTopicResult(name="t", error_code=code)
        return create_partitions.CreatePartitionsResponse(results=(result,))
    return response(error_code=code)


def test_a_controller_is_forgotten_alone() -> None:
    """The leaders that are known stay known."""
    routes = Routes([NODE])
    routes.learn(ROUTING[ApiKey.METADATA])  # type: ignore[arg-type]
    routes.forget([CONTROLLER])
    assert routes.known(CONTROLLER) is None
    assert routes.nodes


def test_a_broker_without_an_address_that_can_be_connected_to_is_none() -> None:
    """A listener of port 0, as a proxy may give it, is no leader, and is not tried."""
    routes = Routes([NODE])
    good: Any = ROUTING[ApiKey.METADATA]
    routes.learn(good)
    unusable = (
        MetadataResponseBroker(node_id=1, host="b", port=0),
        MetadataResponseBroker(node_id=2, host="", port=9092),
    )
    routes.learn(replace(good, brokers=unusable))
    assert routes.candidates == [NODE]
    assert routes.known(leader(TopicPartition("t", 0))) is None
    assert routes.known(CONTROLLER) is None


@pytest.mark.parametrize(("host", "port"), [("", 9092), ("b", 0), ("b", 1 << 16), ("", -1)])
def test_a_coordinator_without_an_address_is_asked_for_again(host: str, port: int) -> None:
    """The lookup is retried until the time limit of the call."""

    def answer(ask: Ask) -> Any:
        assert isinstance(ask.body, FindCoordinatorRequest)
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(key=each, node_id=3, host=host, port=port)
                for each in ask.body.coordinator_keys
            )
        )

    found, _ = outcome_of("list_group_offsets", answer)
    assert isinstance(found, OperationTimeoutError)
    assert "COORDINATOR_NOT_AVAILABLE" in str(found)
