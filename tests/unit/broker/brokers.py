"""A broker on doubles, and the few requests that most of its tests make."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tailrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder
from tailrace.server.dispatch import Dispatch
from tailrace.testing import Outside, Peer

BY_NAME_PRODUCE = 12
"""The last version of Produce that names topics."""
BY_NAME_FETCH = 12
"""The last version of Fetch that names topics."""
MANY_PARTITIONS = 20
_TURNS_MAX = 1000
"""A device may hang, so that nothing is ever loaded."""


@asynccontextmanager
async def running(
    outside: Outside,
    settings: dict[str, str] | None = None,
    *,
    wrap_dispatch: Callable[[Dispatch], Dispatch] | None = None,
) -> AsyncIterator[RunningBroker]:
    """A broker on the doubles, stopped in order at the end; see `start_broker`."""
    given = {"log.dirs": "data", "listeners": "memory:0", **(settings or {})}
    broker = await start_broker(broker_config(given), outside.runtime, wrap_dispatch=wrap_dispatch)
    try:
        yield broker
    except BaseException:
        if outside.files.hanging is not None:
            # The stop would wait, and nobody would see why the test has failed.
            outside.files.hanging.release()
        raise
    finally:
        await broker.stop()


def connect(outside: Outside, broker: RunningBroker) -> Peer:
    """A new connection to the broker."""
    return Peer(outside.network.open(broker.endpoint[1]))


async def wait_for_coordinators(peer: Peer) -> None:
    """Return when the broker has loaded the coordinators of the topics that there are."""
    for _ in range(_TURNS_MAX):
        groups = await peer.ask(ApiKey.LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
        transactions = await peer.ask(
            ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), ListTransactionsResponse
        )
        codes = {groups.error_code, transactions.error_code}
        if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in codes:
            return


async def send_all(outside: Outside, peer: Peer, data: bytes) -> None:
    """Send more than the window of a connection holds, until it is closed."""
    view = memoryview(data)
    while view:
        try:
            view = view[peer.socket.send([view]) or 0 :]
        except BrokenPipeError:
            return
        await outside.pass_time(0.001)


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int = 1_700_000_000_000) -> bytes:
    """One uncompressed batch with these values."""
    builder = BatchBuilder()
    for value in values:
        builder.append(key, value, timestamp=timestamp)
    return builder.build()


async def create_topic(
    peer: Peer, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None
) -> CreatableTopicResult:
    """The broker's answer to a CreateTopics request for one topic, whose logs are there then."""
    result = await request_topic(peer, name, partitions=partitions, configs=configs)
    if result.error_code == ErrorCode.NONE:
        latest = tuple(
            ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(partitions)
        )
        request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=name, partitions=latest),))
        await peer.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)
    return result


async def request_topic(
    peer: Peer, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None
) -> CreatableTopicResult:
    """The broker's answer to a CreateTopics request for one topic."""
    if configs is None and partitions > MANY_PARTITIONS:
        # Indexes of the default size take 20 MB a partition on a disk in memory.
        configs = {"segment.index.bytes": "1000"}
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ),
    )
    request = CreateTopicsRequest(topics=(topic,))
    response = await peer.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)
    return response.topics[0]


def produce_request(
    topic: str, records: bytes, *, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """A Produce request for one partition."""
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )


async def produce(
    peer: Peer, topic: str, records: bytes, *, partition: int = 0
) -> PartitionProduceResponse:
    """The broker's answer to a Produce request for one partition."""
    request = produce_request(topic, records, partition=partition)
    response = await peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topic: str, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1, bytes_max: int = 2**20
) -> FetchRequest:
    """A Fetch request for partition 0."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=(FetchTopic(topic=topic, partitions=(partition,)),),
    )


async def fetch(peer: Peer, request: FetchRequest) -> PartitionData:
    """The broker's answer to a Fetch request for one partition."""
    response = await peer.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)
    return response.responses[0].partitions[0]
