"""Fuzz what a broker makes of the answers of controllers and of other brokers.

Answers to its own requests, with any content: the part that has asked continues, ends or gets an
error, and its state is possible then. Other targets have the decoders (`protocol_targets`), answers
to followers (`append_targets`) and those with the metadata log (`observer_targets`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

from tailrace.broker.kraft.directory_reports import DirectoryReports
from tailrace.broker.kraft.isr_changes import IsrAnswer, IsrChanges
from tailrace.broker.kraft.lifecycle import Lifecycle, Registration, RegistrationError
from tailrace.broker.kraft.producer_ids import ProducerIds
from tailrace.broker.kraft.settings import LifecycleConfig
from tailrace.broker.kraft.topic_creation import TopicCreation
from tailrace.cluster.topic_rules import NewTopic
from tailrace.coordinator.errors import CoordinatorLoadInProgressError
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.between_brokers import (
    CoordinatorsElsewhere,
    MarkersElsewhere,
)
from tailrace.coordinator.transactions.markers import (
    Marker,
    MarkerFencedError,
    MarkerNotNeededError,
    MarkerRefusedError,
)
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import EPOCH_PER_TRANSACTION
from tailrace.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol import codec
from tailrace.protocol.errors import ErrorCode, MalformedMessageError, UnencodableMessageError
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import (
    add_partitions_to_txn,
    alter_partition,
    assign_replicas_to_dirs,
    create_topics,
    write_txn_markers,
)
from tailrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from tailrace.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from tailrace.protocol.messages.broker_registration import BrokerRegistrationResponse
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.leadership import Leadership
from tailrace.testing import Outside, virtual_runtime
from tests.fuzz.engine import FuzzTarget
from tests.unit.protocol.strategies import versions_of

ME, SECOND, THIRD = 1, 2, 3
TOPIC, DIRECTORY = UUID(int=7), UUID(int=400)
NAME = TopicPartition("t", 0)
EPOCH = 50
GOOD: dict[type[Message], Message] = {
    BrokerRegistrationResponse: BrokerRegistrationResponse(broker_epoch=EPOCH),
    BrokerHeartbeatResponse: BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False),
}


async def _nothing() -> None:
    """Take a turn of the loop."""


class Channel:
    """Gives one answer to each request of its kind, and good ones to others."""

    def __init__(self, answer: Message) -> None:
        self._answer = answer

    async def ask(self, _: Message, kind: type[Message], **_limits: object) -> Message:
        # In a later turn, as an answer from a socket.
        await asyncio.wait([asyncio.ensure_future(_nothing())])
        return self._answer if isinstance(self._answer, kind) else GOOD[kind]


class Brokers:
    """Three brokers, all of which are alive."""

    def alive_epoch(self, _: int) -> int:
        return EPOCH

    def is_shutting_down(self, _: int) -> bool:
        return False


async def change_isr(outside: Outside, channel: Any) -> None:
    """Propose a member of the ISR; it consists of replicas then, and of the leader."""
    leadership = Leadership(ME, Brokers(), lag_ms=30_000)
    state = PartitionRecord(
        topic_id=TOPIC,
        partition_id=0,
        replicas=(ME, SECOND, THIRD),
        isr=(ME, SECOND),
        leader=ME,
        leader_epoch=4,
        partition_epoch=9,
    )
    leadership.lead(state, log_end=Offset(0), now_ms=0)
    leadership.note_fetch(
        THIRD, broker_epoch=EPOCH, offset=Offset(0), log_start=Offset(0), log_end=Offset(0),
        now_ms=0,
    )  # fmt: skip
    change = leadership.expand(THIRD, high_watermark=Offset(0))
    assert change is not None
    results: list[IsrAnswer] = []
    changes = IsrChanges(channel, broker_id=ME, broker_epoch=lambda: EPOCH)
    changes.submit(NAME, TOPIC, change, answered=results.append)
    await outside.pass_time(0.2)
    assert changes.pending_count + len(results) == 1
    changes.close()
    for each in results:
        if isinstance(each, ErrorCode):
            leadership.reject(change, each)
        else:
            leadership.confirm(
                change,
                each.isr,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
            )
    assert ME in leadership.isr
    assert leadership.isr <= {ME, SECOND, THIRD}


async def live(outside: Outside, channel: Any) -> None:
    """Register and send heartbeats; the epoch never goes back, and nothing ends them."""
    registration = Registration(
        broker_id=ME,
        cluster_id="cluster",
        incarnation=UUID(int=9),
        listeners=[],
        directories=[DIRECTORY],
    )
    config = LifecycleConfig(registration_timeout_ms=5000)
    lifecycle = Lifecycle(channel, registration, config, applied_offset=lambda: 5)
    epochs: list[int] = []
    failures: list[str] = []
    lifecycle.on_registered, lifecycle.on_failed = epochs.append, failures.append
    await lifecycle.start()
    lifecycle.ready_to_unfence()
    await outside.pass_time(5)
    await lifecycle.close()
    assert not failures
    assert epochs == sorted(epochs)
    assert epochs[0] >= 0


async def get_ids(_: Outside, channel: Any) -> None:
    """Get producer ids; each is given once."""
    ids = ProducerIds(channel, broker_id=ME, broker_epoch=lambda: EPOCH)
    try:
        found = [await ids.next() for _ in range(3)]
    finally:
        ids.close()
    assert found == sorted(set(found))
    assert found[0] >= 0


async def report(outside: Outside, channel: Any) -> None:
    """Report a directory, once or until it is accepted."""
    done: list[bool] = []
    reports = DirectoryReports(
        channel,
        broker_id=ME,
        broker_epoch=lambda: EPOCH,
        is_replica=lambda *_: True,
        chance=Random(0),
    )
    reports.assign(NAME, TOPIC, DIRECTORY, done=lambda: done.append(True))
    await outside.pass_time(1)
    assert reports.pending_count + len(done) == 1
    reports.close()


async def create(outside: Outside, channel: Any) -> None:
    """Ask for a topic; it can be asked for again after any answer."""
    creation = TopicCreation(
        lambda request, _: channel.ask(request, create_topics.CreateTopicsResponse),
        timeout_ms=1000,
    )
    for _ in range(2):
        assert await creation.create([NewTopic("t")]) == {}
        await outside.pass_time(0.1)
    await creation.close()


async def write_marker(_: Outside, channel: Any) -> None:
    """Write a marker at another broker."""

    async def ask(_: int, request: Message) -> Any:
        return await channel.ask(request, write_txn_markers.WriteTxnMarkersResponse)

    markers = MarkersElsewhere(ask)
    marker = Marker(
        producer_id=ProducerId(5),
        producer_epoch=ProducerEpoch(0),
        is_commit=True,
        coordinator_epoch=LeaderEpoch(1),
        transaction_version=2,
    )
    await asyncio.wait_for(markers.write(SECOND, NAME, marker), 10)


async def verify(_: Outside, channel: Any) -> None:
    """Have another broker say of two partitions whether they are in a transaction."""

    async def ask(_: int, request: Message) -> Any:
        return await channel.ask(request, add_partitions_to_txn.AddPartitionsToTxnResponse)

    partitions = frozenset({NAME, TopicPartition("t", 1)})
    request = AddPartitions(
        transactional_id="x",
        producer=TransactionalProducer(ProducerId(5), ProducerEpoch(0)),
        partitions=partitions,
        client_version=EPOCH_PER_TRANSACTION,
    )
    asking = CoordinatorsElsewhere(ask).ask(SECOND, request, is_adding=True)
    found = await asyncio.wait_for(asking, 10)
    assert found.keys() == partitions


def _target(
    use: Callable[[Outside, Any], Coroutine[Any, Any, None]],
    *answers: Message,
    refusals: tuple[type[Exception], ...] = (),
) -> FuzzTarget:
    kind = type(answers[0])

    def run(data: bytes) -> None:
        version = data[0] if data and data[0] in versions_of(kind) else kind.last_version
        answer, _ = codec.decode(kind, version, memoryview(data)[1:])
        with virtual_runtime() as outside:
            outside.run(use(outside, Channel(answer)))

    seeds = []
    for answer in answers:
        for version in {*versions_of(kind)}:
            seed = bytearray([version])
            # An old version may not have what the answer says.
            with suppress(UnencodableMessageError):
                codec.encode(answer, version, seed)
                seeds.append(bytes(seed))
    return FuzzTarget(
        name=f"{kind.__name__} to who has asked",
        seeds=tuple(seeds),
        run=run,
        refusals=(MalformedMessageError, *refusals),
        share=0.2,
    )


_ALTERED = alter_partition.AlterPartitionResponse(
    topics=(
        alter_partition.AlterPartitionResponseTopicData(
            topic_id=TOPIC,
            partitions=(
                alter_partition.AlterPartitionResponsePartitionData(
                    partition_index=0,
                    leader_id=ME,
                    leader_epoch=4,
                    isr=(ME, SECOND, THIRD),
                    partition_epoch=10,
                ),
            ),
        ),
    )
)
_ASSIGNED = assign_replicas_to_dirs.AssignReplicasToDirsResponse(
    directories=(
        assign_replicas_to_dirs.AssignReplicasToDirsResponseDirectoryData(
            id=DIRECTORY,
            topics=(
                assign_replicas_to_dirs.AssignReplicasToDirsResponseTopicData(
                    topic_id=TOPIC,
                    partitions=(
                        assign_replicas_to_dirs.AssignReplicasToDirsResponsePartitionData(
                            partition_index=0
                        ),
                    ),
                ),
            ),
        ),
    )
)
_WRITTEN = write_txn_markers.WriteTxnMarkersResponse(
    markers=(
        write_txn_markers.WritableTxnMarkerResult(
            producer_id=5,
            topics=(
                write_txn_markers.WritableTxnMarkerTopicResult(
                    name="t",
                    partitions=(
                        write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=0),
                    ),
                ),
            ),
        ),
    )
)
_VERIFIED = add_partitions_to_txn.AddPartitionsToTxnResponse(
    results_by_transaction=(
        add_partitions_to_txn.AddPartitionsToTxnResult(
            transactional_id="x",
            topic_results=(
                add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                    name="t",
                    results_by_partition=tuple(
                        add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                            partition_index=each
                        )
                        for each in (0, 1)
                    ),
                ),
            ),
        ),
    )
)

TARGETS = (
    _target(change_isr, _ALTERED),
    _target(live, BrokerRegistrationResponse(broker_epoch=EPOCH), refusals=(RegistrationError,)),
    _target(live, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)),
    _target(
        get_ids,
        AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000),
        refusals=(CoordinatorLoadInProgressError,),
    ),
    _target(report, _ASSIGNED),
    _target(
        create,
        create_topics.CreateTopicsResponse(topics=(create_topics.CreatableTopicResult(name="t"),)),
    ),
    _target(
        write_marker,
        _WRITTEN,
        refusals=(MarkerRefusedError, MarkerFencedError, MarkerNotNeededError),
    ),
    _target(verify, _VERIFIED),
)
