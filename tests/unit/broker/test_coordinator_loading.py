"""Requests to the coordinators of a broker that has just started and still loads them."""

import pytest

from tailrace.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.test_groups import NAMED, commit, find, join
from tests.unit.broker.transactional import Client

SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


async def codes(peer: Peer) -> dict[str, ErrorCode]:
    """The error codes of requests to both coordinators, by API."""
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
    fetched = await peer.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version=NAMED)
    groups = await peer.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
    transactions = await peer.ask(
        ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), ListTransactionsResponse
    )
    return {
        "OffsetFetch": ErrorCode(fetched.groups[0].error_code),
        "OffsetCommit": await commit(peer, 7),
        "JoinGroup": ErrorCode((await join(peer)).error_code),
        "ListGroups": ErrorCode(groups.error_code),
        "InitProducerId": await Client(peer).init(),
        "ListTransactions": ErrorCode(transactions.error_code),
    }


def disk_with_coordinators() -> MemoryFiles:
    """The disk of a broker that has coordinated a group and a transactional id."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, SETTINGS) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            for kind in (0, 1):
                await find(peer, kind)
            assert set((await codes(peer)).values()) == {ErrorCode.NONE}
            assert {OFFSETS_TOPIC, TRANSACTIONS_TOPIC} < set(broker.controller.image.topics)

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        return outside.files.crash(keep_unsynced=True)


@pytest.mark.parametrize("version", range(1, 8))
def test_each_partition_has_the_error_of_a_group_that_is_loaded(version: int) -> None:
    """A client that looks at partitions alone does not take the group for one without offsets."""

    async def scenario(outside: Outside) -> None:
        outside.threads.seconds_per_run = 1
        async with running(outside, SETTINGS) as broker:
            peer = connect(outside, broker)
            topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1))
            request = OffsetFetchRequest(group_id="g", topics=(topic,))
            fetched = await peer.ask(
                ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version=version
            )
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert fetched.error_code == (loading if version >= 2 else ErrorCode.NONE)
            (found,) = fetched.topics
            assert [
                (each.partition_index, each.committed_offset, each.error_code)
                for each in found.partitions
            ] == [(0, -1, loading), (1, -1, loading)]

    with virtual_runtime(files=disk_with_coordinators()) as outside:
        outside.run(scenario(outside))


def test_clients_of_a_broker_that_has_just_started_are_told_to_wait() -> None:
    """Never that another broker is the coordinator, from the first request on.

    librdkafka 2.16 reads nothing more after an OffsetFetch that is answered with NOT_COORDINATOR.
    """

    async def scenario(outside: Outside) -> None:
        outside.threads.seconds_per_run = 1
        async with running(outside, SETTINGS) as broker:
            peer = connect(outside, broker)
            first = await codes(peer)
            await outside.pass_time(10)
            assert set(first.values()) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, first
            assert set((await codes(peer)).values()) == {ErrorCode.NONE}

    with virtual_runtime(files=disk_with_coordinators()) as outside:
        outside.run(scenario(outside))
