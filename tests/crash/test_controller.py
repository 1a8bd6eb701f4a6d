"""A kill or a power loss at every file operation of a controller of our own.

The controller writes records for each registration, topic, user, quota and right. What it has
answered, and what a broker that follows its log has seen, is there in the next epoch of the next
start. In the middle of each start a broker knows a later epoch, above which the controller leads
from then.
"""

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.broker.config import broker_config
from tailrace.broker.controller.start import RunningController, start_controller
from tailrace.offline.metadata_state import END, metadata_state
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tailrace.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tailrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from tailrace.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.crash.workloads import crash_all_ways, crashes_of
from tests.steps import Steps
from tests.unit.broker.controller.own_clusters import follow

PORT = 19_093
LOG = "data/__cluster_metadata-0"
SETTINGS = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "data",
    # So that snapshots and retention are among what a crash may cut.
    "metadata.log.max.record.bytes.between.snapshots": "700",
    "metadata.max.retention.bytes": "1500",
    "metadata.log.segment.ms": "100",
    # So that entries of access control lists are made; nodes and clients connect in plain text.
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}
TOPICS = 8
STARTS = 2


@dataclass
class Told:
    """The answers so far."""

    epoch: int = 0
    """The epoch of the controller."""
    brokers: set[int] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    """Users with a credential and quotas."""
    allowed: set[str] = field(default_factory=set)
    """Principals with entries of access control lists."""
    watermark: int = 0
    """The offset up to which a broker may have followed."""


async def start_at(outside: Outside, port: int) -> RunningController:
    """Start the controller, whose log then names the port (KIP-853)."""
    settings = SETTINGS | {"listeners": f"CONTROLLER://memory:{port}"}
    return await start_controller(broker_config(settings), outside.runtime)


def named_port(files: MemoryFiles) -> int:
    """The port of the only voter in the log."""
    voters = metadata_state(files, LOG, END, on_skip=lambda _: None).voters
    assert voters is not None
    [[endpoint]] = [each.endpoints for each in voters.voters]
    return endpoint.port


async def work(outside: Outside, told: Told) -> None:
    """Starts at two ports: brokers register and serve; users, rights and topics are added."""
    for start in range(STARTS):
        controller = await start_at(outside, PORT + start)
        note(controller, told)
        peer = Peer(outside.network.open(PORT + start))
        for broker_id in (1, 2):
            await serve(peer, controller, broker_id)
            told.brokers.add(broker_id)
            note(controller, told)
        await add_user(peer, f"u{start}")
        told.users.add(f"u{start}")
        note(controller, told)
        await allow(peer, f"u{start}")
        told.allowed.add(f"User:u{start}")
        note(controller, told)
        for number in range(start * TOPICS, (start + 1) * TOPICS):
            await create(peer, f"t{number}")
            told.topics.add(f"t{number}")
            note(controller, told)
            if number % TOPICS == TOPICS // 2:
                await raise_epoch(peer, controller)
                note(controller, told)
            await outside.pass_time(1.1)
        await controller.stop()


def note(controller: RunningController, told: Told) -> None:
    told.epoch, told.watermark = controller.node.epoch, controller.node.watermark


async def raise_epoch(peer: Peer, controller: RunningController) -> None:
    """Ask for the end of the log as a broker that knows a later epoch."""
    node = controller.node
    known = node.epoch + 10
    found = await follow(peer, epoch=known, offset=node.watermark, last_epoch=node.epoch)
    assert found.current_leader.leader_epoch > known


async def serve(peer: Peer, controller: RunningController, broker_id: int) -> None:
    """Register a broker, and have it unfenced."""
    registration = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=controller.cluster_id,
        # The same in both starts: another one would have to wait for the end of its session.
        incarnation_id=UUID(int=1000 + broker_id),
        listeners=(Listener(name="PLAINTEXT", host="b", port=9092, security_protocol=0),),
        features=tuple(
            Feature(name=name, min_supported_version=0, max_supported_version=level)
            for name, level in {**controller.node.image.features, "kraft.version": 1}.items()
        ),
        rack=None,
        log_dirs=(UUID(int=2000 + broker_id),),
    )
    answer = await peer.ask(ApiKey.BROKER_REGISTRATION, registration, BrokerRegistrationResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    beat = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=answer.broker_epoch,
        current_metadata_offset=controller.node.watermark,
    )
    heard = await peer.ask(ApiKey.BROKER_HEARTBEAT, beat, BrokerHeartbeatResponse)
    assert heard.error_code == ErrorCode.NONE, heard


async def create(peer: Peer, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=2)
    answer = await peer.ask(
        ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse
    )
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


async def add_user(peer: Peer, name: str) -> None:
    """Give a user a credential, and then two quotas, which are one batch."""
    credential = ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
    )
    users = await peer.ask(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsRequest(upsertions=(credential,)),
        AlterUserScramCredentialsResponse,
    )
    assert [each.error_code for each in users.results] == [ErrorCode.NONE]
    rates = ("producer_byte_rate", "consumer_byte_rate")
    entry = EntryData(
        entity=(EntityData(entity_type="user", entity_name=name),),
        ops=tuple(OpData(key=key, value=1e6, remove=False) for key in rates),
    )
    quotas = await peer.ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        AlterClientQuotasRequest(entries=(entry,)),
        AlterClientQuotasResponse,
    )
    assert [each.error_code for each in quotas.entries] == [ErrorCode.NONE]


async def allow(peer: Peer, name: str) -> None:
    """Make two entries of access control lists for a user, which are one batch."""
    entries = tuple(
        AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{name}",
            host="*",
            operation=3,
            permission_type=3,
        )
        for pattern in (3, 4)
    )
    request = CreateAclsRequest(creations=entries)
    answer = await peer.ask(ApiKey.CREATE_ACLS, request, CreateAclsResponse)
    assert {each.error_code for each in answer.results} == {ErrorCode.NONE}


async def check(outside: Outside, told: Told) -> None:
    """Each answered change is there, at most one change more, and the controller works on."""
    controller = await start_at(outside, PORT)
    assert named_port(outside.files) == PORT
    node, image = controller.node, controller.node.image
    assert node.epoch > told.epoch
    assert node.watermark >= told.watermark
    assert image.brokers.keys() >= told.brokers
    assert image.topic_ids.keys() >= told.topics
    assert len(image.topic_ids) <= len(told.topics) + 1
    assert len(image.brokers) <= len(told.brokers) + 1
    users = {user.name for user in image.scram}
    limited = {dict(entity.parts)["user"] for entity in image.quotas}
    assert users >= limited >= told.users
    assert len(users) <= len(told.users) + 1
    assert all(len(quotas) == 2 for quotas in image.quotas.values())
    entries = Counter(each.principal for each in image.acls.values())
    assert entries.keys() >= told.allowed
    assert set(entries.values()) <= {2}
    for topic in image.topics.values():
        # A topic is one batch: with all of its partitions, or not there.
        assert topic.partitions.keys() == {0, 1}
    peer = Peer(outside.network.open(PORT))
    for broker_id in (1, 2):
        await serve(peer, controller, broker_id)
    await create(peer, "more")
    await add_user(peer, "more")
    await allow(peer, "more")
    await controller.stop()


def test_a_crash_at_any_operation_loses_no_decision(steps: Steps) -> None:
    """Registrations, topics, users, quotas and rights that were answered are there again."""
    operations, _ = crashes_of(work, Told(), ())
    assert len(operations) > 150
    _, found = crashes_of(work, Told(), {*steps(operations)})
    for disk, told in found:
        # Another seed: ids of topics must not come again.
        with virtual_runtime(files=disk, seed=1) as outside:
            outside.run(check(outside, told))


def test_a_crash_of_the_start_after_a_crash_ends_well(steps: Steps) -> None:
    """A start that repairs may die too, wherever it is."""
    _, found = crashes_of(work, Told(), {120})
    disk, told = found[0]
    with virtual_runtime(files=disk.crash(keep_unsynced=True), seed=1) as outside:
        outside.run(check(outside, told))
        operations = range(len(outside.files.operations))
    for stop_at in steps(operations[:60]):
        with virtual_runtime(files=disk.crash(keep_unsynced=True), seed=1) as outside:
            again: list[MemoryFiles] = []

            def look(_operation: str, _path: str, at: int = stop_at) -> None:
                # The loop variables are those of this turn: the work ends within it.
                if len(outside.files.operations) - 1 == at:
                    again.extend(each for _, each in crash_all_ways(outside.files, seed=at))  # noqa: B023

            outside.files.on_call = look
            outside.run(check(outside, told))
        for second in again:
            with virtual_runtime(files=second) as later:
                later.run(check_again(later, told))


async def check_again(outside: Outside, told: Told) -> None:
    """The same, where a part of that has happened already."""
    controller = await start_at(outside, PORT)
    assert named_port(outside.files) == PORT
    assert controller.node.image.topic_ids.keys() >= told.topics
    assert {user.name for user in controller.node.image.scram} >= told.users
    assert controller.node.epoch > told.epoch
    await controller.stop()
