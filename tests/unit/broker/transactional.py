"""Transactions on a broker on doubles: the requests that producers and operators send."""

from dataclasses import dataclass

from tailrace.broker.broker import RunningBroker
from tailrace.model import IsolationLevel
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import received_records
from tailrace.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tailrace.records.batch import read_batches
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, create_topic, fetch, wait_for_coordinators

NOW = 1_700_000_000_000
GROUP = "g"


@dataclass
class Client:
    """A transactional producer, request by request; `knows_epochs` as of KIP-890."""

    peer: Peer
    transactional_id: str = "t"
    knows_epochs: bool = False
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def init(self, *, timeout_ms: int = 60_000, version: int = 5) -> ErrorCode:
        """Get a producer id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        answer = await self.peer.ask(
            ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, version=version
        )
        if answer.error_code == ErrorCode.NONE:
            self._become(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    async def add(self, *partitions: int, topic: str = "d", version: int = 3) -> list[ErrorCode]:
        """Add partitions to the transaction; a code for each."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=partitions),),
        )
        answer = await self.peer.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, request, AddPartitionsToTxnResponse, version=version
        )
        [found] = answer.results_by_topic_v3_and_below
        return [ErrorCode(each.partition_error_code) for each in found.results_by_partition]

    async def add_offsets(self, group: str = GROUP) -> ErrorCode:
        """Add a group to the transaction."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        answer = await self.peer.ask(
            ApiKey.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse, version=3
        )
        return ErrorCode(answer.error_code)

    async def send(
        self,
        *values: bytes,
        partition: int = 0,
        sequence: int | None = None,
        version: int | None = None,
    ) -> PartitionProduceResponse:
        """Produce one batch in the transaction to topic d."""
        data = PartitionProduceData(index=partition, records=self.batch(*values, sequence=sequence))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=(TopicProduceData(name="d", partition_data=(data,)),),
        )
        if version is None:
            version = 12 if self.knows_epochs else 11
        response = await self.peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=version)
        [answer] = response.responses[0].partition_responses
        if answer.error_code == ErrorCode.NONE and sequence is None:
            self.sequence += len(values)
        return answer

    async def send_to(self, *partitions: int) -> list[ErrorCode]:
        """Produce the first batch of each partition in one request; a code for each."""
        data = tuple(
            PartitionProduceData(index=each, records=self.batch(b"value", sequence=0))
            for each in partitions
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name="d", partition_data=data),),
        )
        answer = await self.peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=12)
        return [ErrorCode(each.error_code) for each in answer.responses[0].partition_responses]

    def batch(self, *values: bytes, sequence: int | None = None) -> bytes:
        """The next transactional batch."""
        builder = BatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence if sequence is None else sequence,
            is_transactional=True,
        )
        for value in values:
            builder.append(b"k", value, timestamp=NOW)
        return builder.build()

    async def commit_offset(
        self,
        offset: int,
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        topic: str = "d",
        version: int | None = None,
    ) -> ErrorCode:
        """Commit an offset of partition 0 for the group with the transaction."""
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
        )
        if version is None:
            version = 5 if self.knows_epochs else 4
        answer = await self.peer.ask(
            ApiKey.TXN_OFFSET_COMMIT, request, TxnOffsetCommitResponse, version=version
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def end(self, *, is_commit: bool = True, version: int | None = None) -> ErrorCode:
        """End the transaction."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        if version is None:
            version = 5 if self.knows_epochs else 4
        answer = await self.peer.ask(ApiKey.END_TXN, request, EndTxnResponse, version=version)
        if answer.error_code == ErrorCode.NONE and self.knows_epochs:
            self._become(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _become(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch, self.sequence = producer_id, epoch, 0


async def begin(
    outside: Outside, broker: RunningBroker, *, partitions: int = 1, knows_epochs: bool = False
) -> Client:
    """A client with a producer id, and topic d."""
    peer = connect(outside, broker)
    await create_topic(peer, "d", partitions=partitions)
    for kind in (0, 1):
        await find(peer, kind)
    client = Client(peer, knows_epochs=knows_epochs)
    assert await client.init() is ErrorCode.NONE
    return client


async def find(peer: Peer, kind: int) -> FindCoordinatorResponse:
    """The coordinator of a group (0) or a transactional id (1), which is loaded."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=("t",))
    found = await peer.ask(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse)
    await wait_for_coordinators(peer)
    return found


def committed_request(offset: int = 0, *, partition: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    """A Fetch request of a read_committed consumer for a partition of topic d."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=2**20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=IsolationLevel.READ_COMMITTED,
        topics=(FetchTopic(topic="d", partitions=(wanted,)),),
    )


async def committed_values(peer: Peer, *, partition: int = 0) -> list[bytes]:
    """The values that a read_committed consumer makes of one fetch of a partition of topic d."""
    return values_of(await fetch(peer, committed_request(partition=partition)))


def values_of(found: PartitionData) -> list[bytes]:
    """The values in a response, without those of aborted transactions."""
    values: list[bytes] = []
    aborted = sorted(
        (each.first_offset, each.producer_id) for each in found.aborted_transactions or ()
    )
    skipped: set[int] = set()
    for _, batch in read_batches(received_records(found.records)):
        while aborted and aborted[0][0] <= batch.last_offset:
            skipped.add(aborted.pop(0)[1])
        if batch.is_control:
            skipped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in skipped):
            values += [each.value or b"" for each in records_of(batch)]
    return values


async def group_offset(
    peer: Peer, *, group: str = GROUP, is_stable: bool = True
) -> int | ErrorCode:
    """The committed offset of a group for partition 0 of topic d, or the error; -1: none."""
    topics = (OffsetFetchRequestTopics(name="d", partition_indexes=(0,)),)
    asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
    request = OffsetFetchRequest(groups=(asked,), require_stable=is_stable)
    answer = await peer.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, version=9)
    [found] = answer.groups[0].topics[0].partitions
    return ErrorCode(found.error_code) or found.committed_offset
