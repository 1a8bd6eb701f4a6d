"""Every operation of `Admin` and `AsyncAdmin`, against our broker and Apache Kafka: the same types.

The operations are called in one order on both. Compared is the shape of each result: the items, the
classes and fields, the types of values, and of errors their class and code. This Kafka has an
authorizer, and ours has none and refuses access control lists.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as LibraryTopic

from compat.administering import SETTINGS
from compat.clients import WAIT_SECONDS
from compat.kafka import NODE_ID, Kafka
from compat.report import Report
from tailrace.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    Admin,
    AsyncAdmin,
    ConfigResource,
    FeatureUpdate,
    NewTopic,
    OffsetAt,
    Outcomes,
    Place,
    QuotaEntity,
    Replica,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    UpgradeType,
)
from tailrace.client.admin.operations import BaseAdmin
from tailrace.client.drive.operation import Operation
from tailrace.client.errors import (
    RemoteFatalError,
    RemoteRetriableError,
)
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.errors import TailraceError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.config_resources import ResourceType
from tailrace.testing.broker import TestBroker

Run = Callable[["Step"], Any]

_TOPIC = "both"
_P0, _GONE = TopicPartition(_TOPIC, 0), TopicPartition("gone", 0)
_CONFIG = ConfigResource(ResourceType.TOPIC, _TOPIC)
_ALICE = QuotaEntity.of(user="alice")
_BINDING = AclBinding(AclResource.TOPIC, _TOPIC, "User:alice", AclOperation.READ)
_FILTER = AclFilter(principal="User:alice")
_SAFE = UpgradeType.SAFE_DOWNGRADE
_REPLICA = Replica(_TOPIC, 0, NODE_ID)


class Step(NamedTuple):
    """A call of an operation."""

    method: str
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = {}


STEPS = (
    Step("create_topics", ([NewTopic(_TOPIC, 2), NewTopic("b/d", 1)],), {"validate_only": True}),
    Step("list_topics", (), {"include_internal": False}),
    Step("create_topics", ([NewTopic(_TOPIC, 2), NewTopic("b/d", 1)],)),
    Step("create_topics", ([NewTopic(_TOPIC, 2)],)),
    Step("list_topics", (), {"include_internal": False}),
    Step("describe_topics", ([_TOPIC, "gone"],), {"include_authorized_operations": True}),
    Step("create_partitions", ({_TOPIC: 4, "gone": 2},), {"validate_only": True}),
    Step("create_partitions", ({_TOPIC: 3},)),
    Step("create_partitions", ({_TOPIC: 1},)),
    Step("describe_configs", ([_CONFIG],), {"names": ["retention.ms"], "include_synonyms": True}),
    Step("incremental_alter_configs", ({_CONFIG: {"retention.ms": "x"}},), {"validate_only": True}),
    Step("incremental_alter_configs", ({_CONFIG: {"retention.ms": 60_000}},)),
    Step("list_config_resources", ([int(ResourceType.TOPIC)],)),
    Step("list_offsets", ({_P0: SpecialTimestamp.LATEST, _GONE: SpecialTimestamp.EARLIEST},)),
    Step("list_offsets", ({_P0: SpecialTimestamp.MAX_TIMESTAMP},)),
    Step("log_ranges", ([_P0],)),
    Step("find_offsets", ([_P0],), {"at": OffsetAt(Place.TIME, 5)}),
    Step("delete_records", ({_P0: -1},)),
    Step("delete_records", ({_P0: 100},)),
    Step("alter_group_offsets", ("g", {_P0: 0})),
    Step("list_group_offsets", ("g",)),
    Step("list_group_offsets", ("g", [_P0, _GONE])),
    Step("list_groups"),
    Step("describe_groups", (["g", "gone"],)),
    Step(
        "reset_group_offsets", ("g", [_P0]), {"to": OffsetAt(Place.LATEST), "validate_only": True}
    ),
    Step("reset_group_offsets", ("g", [_P0]), {"to": OffsetAt(Place.EARLIEST)}),
    Step("remove_members_from_group", ("g", ["m"])),
    Step("delete_group_offsets", ("g", [_P0])),
    Step("delete_group_offsets", ("gone", [_P0])),
    Step("delete_groups", (["g", "gone"],)),
    Step("fence_producers", (["x"],)),
    Step("list_transactions"),
    Step("list_transactions", (), {"states": ["Nonsense"]}),
    Step("describe_transactions", (["x", "gone"],)),
    Step("describe_producers", ([_P0],)),
    Step("find_hanging_transactions", ([_P0],), {"now_ms": 1 << 40}),
    Step("abort_transaction", (_P0, 5)),
    *(
        Step(
            "end_transactions",
            (
                [
                    PreparedTransaction("x", 1 << 40, 0, level),
                    PreparedTransaction("gone", 1, 0, level),
                ],
            ),
            {"commit": is_commit},
        )
        for level in (0, 2)
        for is_commit in (False, True)
    ),
    Step("force_terminate_transaction", ("x",)),
    Step(
        "alter_user_scram_credentials",
        ([ScramUpsertion("alice", ScramMechanism.SHA_256, "secret")],),
    ),
    Step("describe_user_scram_credentials", (["alice", "gone"],)),
    Step("alter_user_scram_credentials", ([ScramDeletion("alice", ScramMechanism.SHA_256)],)),
    Step("create_acls", ([_BINDING],)),
    Step("describe_acls", (_FILTER,)),
    Step("delete_acls", ([_FILTER],)),
    Step("alter_client_quotas", ({_ALICE: {"producer_byte_rate": 1e6}},), {"validate_only": True}),
    Step("alter_client_quotas", ({_ALICE: {"producer_byte_rate": 1e6}},)),
    Step("describe_client_quotas", ({"user": "alice"},)),
    Step("alter_client_quotas", ({_ALICE: {"producer_byte_rate": None}},)),
    Step("describe_log_dirs"),
    Step("describe_replica_log_dirs", ([_REPLICA],)),
    Step("alter_replica_log_dirs", ({_REPLICA: "/nowhere"},)),
    Step("elect_leaders", ([_P0],)),
    Step("alter_partition_reassignments", ({_P0: None},)),
    Step("list_partition_reassignments"),
    Step("describe_cluster", (), {"include_authorized_operations": True}),
    Step("describe_features"),
    *(
        Step("update_features", (changes,), {"validate_only": True})
        for changes in (
            {"nonsense": FeatureUpdate(1)},
            {"metadata.version": FeatureUpdate(30)},
            {"metadata.version": FeatureUpdate(1000)},
            {"metadata.version": FeatureUpdate(29)},
            {"metadata.version": FeatureUpdate(29, _SAFE)},
            {"metadata.version": FeatureUpdate(29, UpgradeType.UNSAFE_DOWNGRADE)},
            {"metadata.version": FeatureUpdate(0, _SAFE)},
            {"transaction.version": FeatureUpdate(1)},
            {"transaction.version": FeatureUpdate(2, _SAFE)},
            {"transaction.version": FeatureUpdate(3, _SAFE)},
            {"group.version": FeatureUpdate(0, _SAFE), "nonsense": FeatureUpdate(0, _SAFE)},
            {"eligible.leader.replicas.version": FeatureUpdate(0, _SAFE)},
        )
    ),
    Step("update_features", ({"group.version": FeatureUpdate(0, _SAFE)},)),
    Step("update_features", ({"group.version": FeatureUpdate(1)},)),
    Step("describe_metadata_quorum"),
    Step("add_raft_voter", (99, UUID(int=1)), {"endpoints": [("CONTROLLER", "localhost", 1)]}),
    Step("remove_raft_voter", (99, UUID(int=1))),
    Step("unregister_broker", (99,)),
    Step("delete_topics", ([_TOPIC, "gone"],)),
)
"""The calls, in order; a later one sees what earlier ones have done."""


def check(report: Report, kafka: Kafka) -> None:
    """Call everything on both brokers by both clients; Kafka's directory is new."""
    missing = {
        name for name, each in vars(BaseAdmin).items() if isinstance(each, Operation)
    }.difference(step.method for step in STEPS)
    report.check("every operation is called", sorted(missing))
    kafka.settings |= SETTINGS
    with kafka, TestBroker() as ours:
        words = {each.bootstrap_servers: _words(each.bootstrap_servers) for each in (kafka, ours)}
        report.check(
            "refusals that programs read are Kafka's, word for word",
            [f"{theirs}: {mine}" for theirs, mine in zip(*words.values(), strict=True)
             if theirs != mine],
        )  # fmt: skip
        for name, runner in (("Admin", _blocking), ("AsyncAdmin", _awaited)):
            with runner(ours.bootstrap_servers) as run:
                expected = [_shape(run(step)) for step in STEPS]
            with runner(kafka.bootstrap_servers) as run:
                differences = [*_differences(run, expected)]
            report.check(
                f"{name}: {len(STEPS)} calls have results of one shape on both",
                differences,
                explained="but for access control: only Kafka has an authorizer",
            )


def _words(servers: str) -> list[str]:
    """The messages of a topic that exists, one whose name collides, and too few partitions."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.create_topics([LibraryTopic("words.x", 2, 1)]).values():
        future.result()
    refused = [
        admin.create_topics([LibraryTopic("words.x", 2, 1)]),
        admin.create_topics([LibraryTopic("words_x", 2, 1)]),
        admin.create_partitions([NewPartitions("words.x", 2)]),
        admin.create_partitions([NewPartitions("words.x", 1)]),
    ]
    told = [future.exception() for futures in refused for future in futures.values()]
    return [each.args[0].str() if isinstance(each, KafkaException) else "none" for each in told]


def _differences(run: Run, expected: Sequence[object]) -> Iterator[str]:
    for step, shape in zip(STEPS, expected, strict=True):
        until = time.monotonic() + WAIT_SECONDS / 4
        found = _shape(run(step))
        if step.method.endswith("_acls"):
            continue
        # Kafka's broker hears of a change later than its controller.
        is_question = step.method.startswith(("list", "describe", "find", "log"))
        while found != shape and is_question and time.monotonic() < until:
            time.sleep(0.2)
            found = _shape(run(step))
        if found != shape:
            yield f"{step.method}{step.arguments}: Kafka {found}, ours {shape}"


class _blocking:  # noqa: N801 - a context manager
    def __init__(self, servers: str) -> None:
        self._admin = Admin(bootstrap_servers=servers)

    def __enter__(self) -> Run:
        def run(step: Step) -> object:
            try:
                return getattr(self._admin, step.method)(*step.arguments, **step.options)
            except TailraceError as error:
                return error

        return run

    def __exit__(self, *_: object) -> None:
        self._admin.close()


class _awaited:  # noqa: N801 - a context manager
    def __init__(self, servers: str) -> None:
        self._runner = asyncio.Runner()
        self._admin = AsyncAdmin(bootstrap_servers=servers)

    def __enter__(self) -> Run:
        async def call(step: Step) -> object:
            try:
                found: object = await getattr(self._admin, step.method)(
                    *step.arguments, **step.options
                )
            except TailraceError as error:
                return error
            return found

        return lambda step: self._runner.run(call(step))

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._admin.close())
        self._runner.close()


def _shape(value: object) -> object:
    """Items, classes, fields and types; of errors the class and the code."""
    if isinstance(value, RemoteFatalError | RemoteRetriableError):
        return f"{type(value).__name__} {value.code}"
    if isinstance(value, TailraceError):
        return type(value).__name__
    if isinstance(value, Outcomes):
        return {str(item): _shape(value[item]) for item in value}
    if is_dataclass(value):
        return {type(value).__name__: dict(_fields(value))}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {
            type(value).__name__: {name: _shape(each) for name, each in value._asdict().items()}
        }
    if isinstance(value, Mapping):
        return sorted({repr(_shape(each)) for each in value.values()})
    if isinstance(value, list | tuple | set | frozenset):
        return sorted({repr(_shape(each)) for each in value})
    if isinstance(value, Enum):
        return type(value).__name__
    return (
        "value" if isinstance(value, int | float | str) or value is None else type(value).__name__
    )


def _fields(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401 - any dataclass
    for each in fields(value):
        yield each.name, _shape(getattr(value, each.name))
