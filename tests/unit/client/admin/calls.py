"""A call of every operation, its items, and its result under scripted answers, in virtual time."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from tailrace.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    ConfigResource,
    FeatureUpdate,
    NewTopic,
    OffsetAt,
    Place,
    QuotaEntity,
    Replica,
    ScramMechanism,
    ScramUpsertion,
)
from tailrace.client.admin.operations import BaseAdmin
from tailrace.client.calls import Ask, Call, Reply
from tailrace.client.drive.operation import Operation
from tailrace.client.drive.steps import Steps, Until
from tailrace.client.nodes import Backoff, Node
from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.client.routes import Routes
from tailrace.errors import TailraceError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tailrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

T0 = TopicPartition("t", 0)
TOPIC = ConfigResource(2, "t")

ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "create_topics": (([NewTopic("t", 1)],), {}),
    "delete_topics": ((["t", UUID(int=7)],), {}),
    "list_topics": ((), {}),
    "describe_topics": ((["t", UUID(int=7)],), {"include_authorized_operations": True}),
    "create_partitions": (({"t": 3},), {}),
    "delete_records": (({T0: 1},), {}),
    "describe_configs": (([TOPIC, ConfigResource(4, "1")],), {"include_synonyms": True}),
    "incremental_alter_configs": (({TOPIC: {"retention.ms": 1, "cleanup.policy": None}},), {}),
    "list_config_resources": ((), {}),
    "list_offsets": (({T0: SpecialTimestamp.LATEST},), {}),
    "log_ranges": (([T0],), {}),
    "find_offsets": (([T0],), {"at": OffsetAt(Place.TIME, 5)}),
    "list_groups": ((), {}),
    "describe_groups": ((["g"],), {}),
    "delete_groups": ((["g"],), {}),
    "remove_members_from_group": (("g", ["m"]), {}),
    "list_group_offsets": (("g",), {}),
    "alter_group_offsets": (("g", {T0: 3}), {}),
    "delete_group_offsets": (("g", [T0]), {}),
    "reset_group_offsets": (("g", [T0]), {"to": OffsetAt(Place.EARLIEST)}),
    "list_transactions": ((), {}),
    "describe_transactions": ((["x"],), {}),
    "describe_producers": (([T0],), {}),
    "find_hanging_transactions": (([T0],), {"now_ms": 1 << 40}),
    "abort_transaction": ((T0, 5), {}),
    "fence_producers": ((["x"],), {}),
    "end_transactions": (([PreparedTransaction("x", 7, 1)],), {"commit": True}),
    "force_terminate_transaction": (("x",), {}),
    "describe_user_scram_credentials": ((["u"],), {}),
    "alter_user_scram_credentials": (
        ([ScramUpsertion("u", ScramMechanism.SHA_256, "p", 1, b"s")],),
        {},
    ),
    "create_acls": (
        ([AclBinding(AclResource.TOPIC, "t", "User:u", AclOperation.READ)],),
        {},
    ),
    "describe_acls": ((), {}),
    "delete_acls": (([AclFilter(name="t")],), {}),
    "describe_client_quotas": (({"user": None},), {}),
    "alter_client_quotas": (({QuotaEntity.of(user="u"): {"producer_byte_rate": 1.0}},), {}),
    "describe_log_dirs": ((), {}),
    "describe_replica_log_dirs": (([Replica("t", 0, 1)],), {}),
    "alter_replica_log_dirs": (({Replica("t", 0, 1): "/d"},), {}),
    "elect_leaders": (([T0],), {}),
    "alter_partition_reassignments": (({T0: [1]},), {}),
    "list_partition_reassignments": ((), {}),
    "describe_cluster": ((), {}),
    "describe_features": ((), {}),
    "update_features": (({"f": FeatureUpdate(1)},), {}),
    "describe_metadata_quorum": ((), {}),
    "add_raft_voter": ((102, UUID(int=1)), {"endpoints": [("C", "h", 9093)]}),
    "remove_raft_voter": ((102, UUID(int=1)), {}),
    "unregister_broker": ((3,), {}),
}

NODE = Node(1, "b", 9092)

ROUTING = {
    ApiKey.METADATA: MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="b", port=9092),),
        controller_id=1,
        topics=(
            MetadataResponseTopic(
                name="t",
                partitions=(MetadataResponsePartition(partition_index=0, leader_id=1),),
            ),
        ),
    ),
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse(
        coordinators=tuple(
            Coordinator(key=key, node_id=1, host="b", port=9092) for key in ("g", "x")
        )
    ),
}


def items_of(name: str) -> set[object] | None:
    """The items of the call; None if it names none."""
    arguments, _ = ARGUMENTS[name]
    for given in arguments:
        if isinstance(given, list | dict):
            return {_item(each) for each in given}
    return None


def _item(given: object) -> object:
    if isinstance(given, NewTopic):
        return given.name
    return given.user if isinstance(given, ScramUpsertion) else given


def operations() -> Iterator[str]:
    """The names of all operations."""
    return (name for name, each in vars(BaseAdmin).items() if isinstance(each, Operation))


class _StepsOnly(Call):
    """A call that is the client of its operations too, and gives their steps."""

    def _call(self) -> Call:
        return self

    def _run(self, steps: Steps[object]) -> Steps[object]:
        return steps


def outcome_of(
    name: str, answer: Callable[[Ask], Any], *, seconds: float = 0.1
) -> tuple[object, float]:
    """The result or error of an operation whose requests get these answers, and its time.

    Each answer takes `seconds`; the call may last ten.
    """
    now = [0.0]

    def send(asks: Sequence[Ask]) -> Steps[tuple[Reply, ...]]:
        now[0] += seconds
        yield from ()
        return tuple(Reply(NODE, answer(each), is_sent=True) for each in asks)

    call = _StepsOnly(
        routes=Routes([NODE]),
        send=send,
        clock=lambda: now[0],
        deadline=10.0,
        limit_ms=10_000,
        retries=1 << 31,
        pauses=Backoff(100, 1000, random.Random(7)),
    )
    arguments, options = ARGUMENTS[name]
    operation: Callable[..., Steps[object]] = getattr(BaseAdmin, name)
    steps = operation(call, *arguments, **options)
    try:
        while True:
            # All that an operation yields by itself are pauses.
            pause = steps.send(None)
            assert isinstance(pause, Until)
            now[0] = pause.deadline
    except StopIteration as end:
        return end.value, now[0]
    except TailraceError as error:
        return error, now[0]
