"""FindCoordinator of a broker of a cluster: leaders of the partitions of internal topics."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.cluster.topic_rules import NewTopic
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.shards import partition_of
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.errors import TailraceError
from tailrace.handlers.find_coordinator import handle_find_coordinator
from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.security.audit import Audit
from tailrace.storage.config import log_config
from tailrace.testing import Outside
from tests.unit.cluster.followed import A, B, Followed, broker, topic

HEADER = RequestHeader(
    api_key=ApiKey.FIND_COORDINATOR, api_version=6, correlation_id=1, client_id="client"
)
GROUP, TRANSACTION, SHARE = 0, 1, 2
COUNT = 4


class Answering:
    """The handler of one broker whose images a test publishes."""

    def __init__(self, outside: Outside, *records: Message) -> None:
        self.followed = Followed()
        self.asked_for: list[NewTopic] = []
        self.services = cast(
            "Any",
            SimpleNamespace(
                audit=Audit(),
                node_id=1,
                listener="PLAINTEXT",
                cluster=self.followed.cluster,
                controller=None,
                create_topics=self._create,
                threads=outside.threads,
                group_settings=GroupSettings(),
                transaction_settings=TransactionSettings(),
                groups=SimpleNamespace(number_of=lambda key: partition_of(key, COUNT)),
                transactions=SimpleNamespace(number_of=lambda key: partition_of(key, COUNT)),
                replicas=SimpleNamespace(new_logs=SimpleNamespace(wait_for_each=_no_wait)),
            ),
        )
        self.followed.publish(broker(1), broker(2), *records)

    async def _create(
        self, missing: Sequence[NewTopic], client: RequestHeader | None
    ) -> Mapping[str, TailraceError]:
        assert client is None
        self.asked_for += missing
        return {}

    async def find(self, *keys: str, kind: int = GROUP, version: int = 6) -> Any:
        request = FindCoordinatorRequest(
            key=keys[0], key_type=kind, coordinator_keys=keys if version > 3 else ()
        )
        header = HEADER._replace(api_version=version)
        found: FindCoordinatorResponse = await handle_find_coordinator(
            self.services, header, request
        )
        return found.coordinators if version > 3 else found


async def _no_wait(_topic: str, _numbers: Sequence[int]) -> None:
    pass


@pytest.mark.parametrize(
    ("kind", "name"), [(GROUP, OFFSETS_TOPIC), (TRANSACTION, TRANSACTIONS_TOPIC)]
)
async def test_each_key_has_the_leader_of_its_partition(
    outside: Outside, kind: int, name: str
) -> None:
    """By the hash of the key, on whichever broker that is."""
    answering = Answering(outside, *topic(name, A, COUNT))
    keys = [f"key-{number}" for number in range(8)]
    found = await answering.find(*keys, kind=kind)
    leaders = [1 + partition_of(key, COUNT) % 2 for key in keys]
    assert [(each.key, each.node_id, each.host, each.error_code) for each in found] == [
        (key, leader, f"p{leader}", ErrorCode.NONE)
        for key, leader in zip(keys, leaders, strict=True)
    ]
    assert set(leaders) == {1, 2}


@pytest.mark.parametrize("version", range(4))
async def test_older_clients_ask_for_one_key(outside: Outside, version: int) -> None:
    """The answer has the coordinator in its own fields."""
    answering = Answering(outside, *topic(OFFSETS_TOPIC, A, COUNT))
    found = await answering.find("g", version=version)
    leader = 1 + partition_of("g", COUNT) % 2
    assert (found.error_code, found.node_id, found.host) == (0, leader, f"p{leader}")


async def test_a_partition_without_a_leader_has_no_coordinator(outside: Outside) -> None:
    """Nor one whose leader is fenced, though another partition has one."""
    answering = Answering(outside, broker(2, fenced=True), *topic(OFFSETS_TOPIC, A, COUNT))
    keys = {partition_of(key, COUNT): key for key in map(str, range(50))}
    of_first, of_second = await answering.find(keys[0], keys[1])
    assert (of_first.error_code, of_first.node_id) == (ErrorCode.NONE, 1)
    assert (of_second.error_code, of_second.node_id, of_second.host, of_second.port) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        -1,
        "",
        -1,
    )
    assert of_second.error_message


async def test_the_topic_of_groups_is_asked_of_the_controller(outside: Outside) -> None:
    """With the settings of this broker; the client asks again until it is there."""
    answering = Answering(outside)
    [found] = await answering.find("g")
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    [asked] = answering.asked_for
    assert (asked.name, asked.partition_count, asked.replication_factor) == (OFFSETS_TOPIC, 50, 3)
    assert asked.configs["cleanup.policy"] == "compact"
    answering.followed.publish(*topic(OFFSETS_TOPIC, B, COUNT))
    [found] = await answering.find("g")
    assert found.error_code == ErrorCode.NONE
    assert len(answering.asked_for) == 1


async def test_the_topic_of_transactions_wants_two_replicas_in_sync(outside: Outside) -> None:
    """A decision that one replica alone had would be lost with it; as in Kafka."""
    answering = Answering(outside)
    [found] = await answering.find("x", kind=TRANSACTION)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    [asked] = answering.asked_for
    assert (asked.replication_factor, asked.configs["min.insync.replicas"]) == (3, "2")
    assert asked.configs["unclean.leader.election.enable"] == "false"
    log_config(dict(asked.configs))  # Does not raise: the topic has each of these settings.


async def test_other_kinds_of_keys_have_no_coordinator(outside: Outside) -> None:
    """Share groups are not served, and unknown kinds are an error of the client."""
    answering = Answering(outside)
    for kind in (SHARE, 9, -1):
        [found] = await answering.find("g", kind=kind)
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert answering.asked_for == []
