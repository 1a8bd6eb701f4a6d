"""A broker of ours asks the controllers of Kafka: registration, heartbeats, and all the rest.

Kafka runs as a controller alone, and no broker of Kafka's is there. Ours is the part of a broker
that talks to controllers (`broker/kraft`), without logs: whatever Kafka answers is right.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast
from uuid import UUID, uuid4

from compat.kafka import CLUSTER_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from tailrace.broker.kraft.channel import ControllerChannel, Controllers
from tailrace.broker.kraft.directory_reports import DirectoryReports
from tailrace.broker.kraft.forwarding import FORWARDED, Forwarding
from tailrace.broker.kraft.isr_changes import IsrAnswer, IsrChanges
from tailrace.broker.kraft.lifecycle import (
    Lifecycle,
    Registration,
    RegistrationError,
)
from tailrace.broker.kraft.producer_ids import ProducerIds
from tailrace.broker.kraft.settings import LifecycleConfig
from tailrace.client.config import ClientConfig
from tailrace.client.nodes import Node
from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message, Records
from tailrace.protocol.frames import (
    Caller,
    RequestHeader,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tailrace.protocol.messages.broker_registration import Listener
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.replication.leadership import IsrChange
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.system import Runtime, system_runtime
from tailrace.security.quotas import ClientQuotas, QuotaConfig

CONTROLLER_ID: Final = 3000
BROKER_ID: Final = 7
SESSION_MS: Final = 3000
BEAT_MS: Final = 300
TOPIC: Final = "made"
AHEAD: Final = 1_000_000
"""Records of the metadata log that this broker claims to have applied; it reads none of them."""
_CLIENT: Final = RequestHeader(ApiKey.METADATA, 12, 1, "compat")
WAIT_S: Final = 30.0
"""Longest wait for something that Kafka does soon."""

ALONE: Final = {
    "process.roles": "controller",
    "node.id": str(CONTROLLER_ID),
    "broker.session.timeout.ms": str(SESSION_MS),
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


def controller_alone(kafka: Kafka) -> Node:
    """Make `kafka`, which has not started yet, a controller alone; returns its address."""
    (port,) = free_ports(1)
    address = f"CONTROLLER://127.0.0.1:{port}"
    kafka.settings |= ALONE | {
        "listeners": address,
        "advertised.listeners": address,
        "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{port}",
    }
    return Node(CONTROLLER_ID, "127.0.0.1", port)


def check(report: Report, kafka: Kafka) -> None:
    """Every request of a broker, to a Kafka on a new directory."""
    node = controller_alone(kafka)
    with kafka:
        asyncio.run(_check_all(report, kafka, node))


async def _check_all(report: Report, kafka: Kafka, node: Node) -> None:
    runtime = system_runtime()
    async with _broker(runtime, node) as first:
        report.check("a controller registers our broker and unfences it", await _unfenced(first))
        report.check("a second broker with its id is refused", await _refused(runtime, node, first))
        report.check("producer ids come in blocks, each id once", await _producer_ids(first))
        report.check("a client's requests pass to the controller", await _forwarded(first))
        report.check("clients are offered the controller's versions", await _offered(first))
        report.check("changes of the ISR are made or refused", await _isr_changes(first))
        report.check("directories of replicas are accepted", await _directories(first))
        report.check("a broker that was unregistered registers again", await _unregistered(first))
        report.check("a broker waits for a controller that is killed", await _killed(first, kafka))
        report.check("a controlled shutdown is approved", await _shut_down(first))
    async with _broker(runtime, node, previous=first.lifecycle.broker_epoch) as second:
        faults = await _unfenced(second)
        if second.lifecycle.broker_epoch <= first.lifecycle.broker_epoch:
            faults.append("the epoch of the next start is not higher")
        report.check("the next start registers with the epoch of the stop", faults)
        second.lifecycle.failed_directory(second.directories[0])
        await _settled(lambda: not second.lifecycle.unreported_directories)
        report.check(
            "a failed directory is reported",
            [str(each) for each in second.lifecycle.unreported_directories],
        )
    runtime.threads.close()


@dataclass
class _Broker:
    """The parts of a broker that ask controllers."""

    node: Node
    directories: tuple[UUID, UUID]
    channels: list[ControllerChannel]
    controllers: Controllers
    lifecycle: Lifecycle
    forwarding: Forwarding
    producer_ids: ProducerIds
    isr_changes: IsrChanges
    reports: DirectoryReports
    events: list[str] = field(default_factory=list)
    topic_id: UUID = NO_UUID

    async def ask(self, request: Message, key: ApiKey) -> Any:  # noqa: ANN401 - that of the API
        """The answer to a client of this broker."""
        api = APIS[key]
        frame = encode_request(
            api, request, version=api.last_version, correlation_id=1, client_id="compat"
        )
        quotas = ClientQuotas(dict, SystemClock(), QuotaConfig())
        dispatch = self.forwarding.wrap(_own, quotas)
        found = dispatch(memoryview(frame)[4:], Caller("127.0.0.1:1"), None)
        buffers = found if isinstance(found, list) else await found
        data = b"".join(cast("list[bytes]", buffers))
        return decode_response(api, api.last_version, memoryview(data)[4:])


def _own(frame: memoryview, caller: Caller, _: object) -> list[Records]:
    """This broker's own answer to ApiVersions; nothing else comes here."""
    header, _position = read_request_header(frame, caller=caller)
    versions = tuple(
        ApiVersion(api_key=key, min_version=api.first_version, max_version=api.last_version)
        for key, api in APIS.items()
    )
    return [
        encode_response(
            APIS[header.api_key],
            ApiVersionsResponse(api_keys=versions),
            version=header.api_version,
            correlation_id=header.correlation_id,
        )
    ]


@asynccontextmanager
async def _broker(
    runtime: Runtime, node: Node, *, previous: int = -1, timeout_ms: int = 30_000
) -> AsyncIterator[_Broker]:
    controllers = Controllers([node])
    config = ClientConfig(client_id=str(BROKER_ID), request_timeout_ms=5000)
    channels = [ControllerChannel(controllers, config, runtime) for _ in range(4)]
    directories = (uuid4(), uuid4())
    lifecycle = Lifecycle(
        channels[0],
        Registration(
            broker_id=BROKER_ID,
            cluster_id=CLUSTER_ID,
            incarnation=uuid4(),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
            directories=directories,
            previous_epoch=previous,
        ),
        LifecycleConfig(heartbeat_interval_ms=BEAT_MS, registration_timeout_ms=timeout_ms),
        applied_offset=lambda: AHEAD,
    )

    def epoch() -> int:
        return lifecycle.broker_epoch

    made = _Broker(
        node=node,
        directories=directories,
        channels=channels,
        controllers=controllers,
        lifecycle=lifecycle,
        forwarding=Forwarding(controllers, channels[1], runtime.threads),
        producer_ids=ProducerIds(channels[1], broker_id=BROKER_ID, broker_epoch=epoch),
        isr_changes=IsrChanges(channels[2], broker_id=BROKER_ID, broker_epoch=epoch),
        reports=DirectoryReports(
            channels[3],
            broker_id=BROKER_ID,
            broker_epoch=epoch,
            is_replica=lambda _, __: True,
            chance=runtime.chance,
        ),
    )
    lifecycle.on_fenced = lambda: made.events.append("fenced")
    lifecycle.on_unfenced = lambda: made.events.append("unfenced")
    made.forwarding.start()
    try:
        yield made
    finally:
        for part in (made.forwarding, made.producer_ids, made.isr_changes, made.reports):
            part.close()
        await lifecycle.close()
        for channel in channels:
            channel.close()


async def _settled(is_done: Callable[[], bool]) -> bool:
    """Wait until something is so; False: it was not in time."""
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def _unfenced(broker: _Broker) -> list[str]:
    try:
        await broker.lifecycle.start()
    except RegistrationError as error:
        return [str(error)]
    broker.lifecycle.ready_to_unfence()
    if not await _settled(broker.lifecycle.unfenced.is_set):
        return [f"state {broker.lifecycle.state.name}, fenced {broker.lifecycle.is_fenced}"]
    return [] if broker.events == ["unfenced"] else broker.events


async def _refused(runtime: Runtime, node: Node, first: _Broker) -> list[str]:
    async with _broker(runtime, node, timeout_ms=1000) as second:
        try:
            await second.lifecycle.start()
        except RegistrationError as error:
            refused = "DUPLICATE_BROKER_REGISTRATION" in str(error)
            return [] if refused and not first.lifecycle.is_fenced else [str(error)]
    return ["a second broker was registered"]


async def _producer_ids(broker: _Broker) -> list[str]:
    found = [await broker.producer_ids.next() for _ in range(2500)]
    if len(set(found)) != len(found):
        return ["an id was given twice"]
    blocks = {each // 1000 for each in found}
    return [] if len(blocks) == 3 else [f"the ids are of the blocks {sorted(blocks)}"]


async def _forwarded(broker: _Broker) -> list[str]:
    faults = []
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=each, broker_ids=(BROKER_ID,))
            for each in range(2)
        ),
    )
    created = await broker.ask(CreateTopicsRequest(topics=(topic,)), ApiKey.CREATE_TOPICS)
    (result,) = created.topics
    if result.error_code != ErrorCode.NONE or result.num_partitions != 2:
        faults.append(f"CreateTopics: {result}")
    broker.topic_id = result.topic_id
    again = await broker.forwarding.ask(
        CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, client=_CLIENT
    )
    if again.topics[0].error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        faults.append(f"CreateTopics again: {again}")
    change = IncrementalAlterableConfig(name="retention.ms", value="5000")
    altered: IncrementalAlterConfigsResponse = await broker.ask(
        IncrementalAlterConfigsRequest(
            resources=(
                IncrementalAlterConfigsResource(
                    resource_type=2, resource_name=TOPIC, configs=(change,)
                ),
            )
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    )
    if [each.error_code for each in altered.responses] != [ErrorCode.NONE]:
        faults.append(f"IncrementalAlterConfigs: {altered}")
    quorum: DescribeQuorumResponse = await broker.ask(
        DescribeQuorumRequest(
            topics=(TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(),)),)
        ),
        ApiKey.DESCRIBE_QUORUM,
    )
    if quorum.error_code or quorum.topics[0].partitions[0].leader_id != CONTROLLER_ID:
        faults.append(f"DescribeQuorum: {quorum}")
    # In the places of errors: each is refused, and none of them as an envelope.
    for key in sorted(FORWARDED):
        if key is ApiKey.UNREGISTER_BROKER:
            continue
        request: Any = APIS[key].request
        answer = await broker.ask(request(), key)
        if getattr(answer, "error_code", 0) == ErrorCode.UNKNOWN_SERVER_ERROR:
            faults.append(f"{key.title}: {answer}")
    gone: DeleteTopicsResponse = await broker.ask(
        DeleteTopicsRequest(topics=(DeleteTopicState(name="none"),), timeout_ms=1000),
        ApiKey.DELETE_TOPICS,
    )
    if gone.responses[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        faults.append(f"DeleteTopics: {gone}")
    return faults


async def _offered(broker: _Broker) -> list[str]:
    request = ApiVersionsRequest(client_software_name="compat", client_software_version="1")
    answer: ApiVersionsResponse = await broker.ask(request, ApiKey.API_VERSIONS)
    found = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    # Kafka 4.3 has all that we have, so nothing is cut.
    return [
        f"{api.key.title}: {found.get(key)}"
        for key, api in APIS.items()
        if found.get(key) != (api.first_version, api.last_version)
    ]


async def _isr_changes(broker: _Broker) -> list[str]:
    results: list[IsrAnswer] = []

    async def change(partition: int, partition_epoch: int, topic_id: UUID) -> IsrAnswer:
        before = len(results)
        broker.isr_changes.submit(
            TopicPartition(TOPIC, partition),
            topic_id,
            IsrChange(
                isr={BROKER_ID: broker.lifecycle.broker_epoch},
                leader_epoch=LeaderEpoch(0),
                partition_epoch=partition_epoch,
                joining=None,
            ),
            answered=results.append,
        )
        await _settled(lambda: len(results) > before)
        return results[-1] if len(results) > before else ErrorCode.REQUEST_TIMED_OUT

    faults = []
    made = await change(0, 0, broker.topic_id)
    if isinstance(made, ErrorCode) or tuple(made.isr) != (BROKER_ID,):
        faults.append(f"a change that changes nothing: {made!r}")
    older = await change(1, -1, broker.topic_id)
    if older is not ErrorCode.INVALID_UPDATE_VERSION:
        faults.append(f"an older partition epoch: {older!r}")
    unknown = await change(0, 0, UUID(int=12345))
    if unknown is not ErrorCode.UNKNOWN_TOPIC_ID:
        faults.append(f"an unknown topic: {unknown!r}")
    return faults


async def _directories(broker: _Broker) -> list[str]:
    done: list[int] = []
    for each in range(2):
        broker.reports.assign(
            TopicPartition(TOPIC, each),
            broker.topic_id,
            broker.directories[each],
            done=partial(done.append, each),
        )
    await _settled(lambda: len(done) == 2)
    return [] if sorted(done) == [0, 1] else [f"accepted were {done}"]


async def _unregistered(broker: _Broker) -> list[str]:
    before, broker.events[:] = broker.lifecycle.broker_epoch, []
    answer: UnregisterBrokerResponse = await broker.ask(
        UnregisterBrokerRequest(broker_id=BROKER_ID), ApiKey.UNREGISTER_BROKER
    )
    if answer.error_code != ErrorCode.NONE:
        return [f"UnregisterBroker: {answer}"]
    await _settled(lambda: broker.events == ["fenced", "unfenced"])
    faults = [] if broker.events == ["fenced", "unfenced"] else [f"events {broker.events}"]
    if broker.lifecycle.broker_epoch <= before:
        faults.append(f"epoch {broker.lifecycle.broker_epoch} after {before}")
    return faults


async def _killed(broker: _Broker, kafka: Kafka) -> list[str]:
    broker.events.clear()
    with _log_lines() as lines:
        kafka.kill()
        await _settled(lambda: any("controllers_lost" in each for each in lines))
        # As long as a session, after which the next controller would have fenced a silent broker.
        await asyncio.sleep(SESSION_MS / 1000)
        await asyncio.to_thread(kafka.start)
        await _settled(lambda: any("controllers_back" in each for each in lines))
    first = await broker.forwarding.ask(
        AlterPartitionReassignmentsRequest(),
        APIS[ApiKey.ALTER_PARTITION_REASSIGNMENTS].response,
        client=_CLIENT,
    )
    faults = [str(first)] if getattr(first, "error_code", 0) else []
    counts = [
        sum(word in each for each in lines) for word in ("controllers_lost", "controllers_back")
    ]
    if counts != [1, 1]:
        faults.append(f"lines in the log: {counts}")
    return faults + broker.events


@contextmanager
def _log_lines() -> Iterator[Sequence[str]]:
    """The lines that our broker logs of its controllers."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, logger = Lines(), logging.getLogger("tailrace.broker.kraft")
    logger.addHandler(handler)
    before = logging.root.manager.disable
    logging.disable(logging.NOTSET)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logging.disable(before)


async def _shut_down(broker: _Broker) -> list[str]:
    began = time.monotonic()
    is_approved = await broker.lifecycle.controlled_shutdown(timeout_s=WAIT_S)
    if not is_approved:
        return [f"not approved in {time.monotonic() - began:.1f} s"]
    return [] if broker.lifecycle.is_fenced else ["the broker is not fenced"]
