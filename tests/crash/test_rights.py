"""A kill or a power loss at every file operation while users, rights and quotas come and go.

On a node alone, on one that is controller and broker, and on a broker with a controller beside it,
whose files are lost in the same moment. After the start what was answered is obeyed by the listener
for logins, and what was not answered is whole or absent.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.security.acls import AclBinding, AclOperation, AclResource, PatternType
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.security.quotas import QuotaKind
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.crash.workloads import crashes_of
from tests.steps import Steps
from tests.unit.broker.brokers import create_topic
from tests.unit.broker.controller.own_clusters import PORT, OwnCluster
from tests.unit.broker.principals import User
from tests.unit.broker.test_sasl_listeners import log_in_scram
from tests.unit.broker.test_scram_users import alter, deletion, upsertion

CLIENTS: Final = "PLAINTEXT://memory:0,SASL_PLAINTEXT://memory:0"
SETTINGS: Final = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Who is at the listener without logins.
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "log.index.size.max.bytes": "1000",
    # So that snapshots and retention are among what a crash may cut.
    "metadata.log.max.record.bytes.between.snapshots": "700",
    "metadata.max.retention.bytes": "1500",
    "metadata.log.segment.ms": "100",
}
USERS: Final = ("anna", "bert", "cleo")
TOPICS: Final = ("t", "p-1")
"""One for an entry by its name, and one for an entry by its prefix."""
RATES: Final = (QuotaKind.PRODUCE, QuotaKind.FETCH)

Start = Callable[[Outside], AbstractAsyncContextManager[RunningBroker]]
"""Starts the nodes, and stops them in order at the end; gives the broker."""
Change = tuple[str, str]
"""A user, and of what is changed: `CHANGES` has the kinds."""


@dataclass
class Told:
    """The answers so far."""

    has: dict[Change, bool] = field(default_factory=dict)
    changing: Change | None = None
    """The change that was asked for and not answered yet."""


@asynccontextmanager
async def alone(outside: Outside) -> AsyncIterator[RunningBroker]:
    """A node that is not of a cluster."""
    settings = {**SETTINGS, "log.dirs": "data", "listeners": CLIENTS}
    broker = await start_broker(broker_config(settings), outside.runtime)
    yield broker
    await broker.stop()


@asynccontextmanager
async def both(outside: Outside) -> AsyncIterator[RunningBroker]:
    """A node that is the controller and a broker."""
    listeners = f"{CLIENTS},CONTROLLER://memory:{PORT}"
    cluster = OwnCluster(outside, {**SETTINGS, "listeners": listeners})
    cluster.disks[1] = outside.files
    yield await cluster.start_both()
    await cluster.stop(1)


@asynccontextmanager
async def apart(outside: Outside) -> AsyncIterator[RunningBroker]:
    """A broker, and a controller that ends with it; each has a folder of one disk."""
    cluster = OwnCluster(outside, {**SETTINGS, "log.dirs": "controller"})
    cluster.disks[1] = outside.files
    await cluster.start_controller()
    yield await cluster.start(1, {**SETTINGS, "listeners": CLIENTS})
    await cluster.stop(1)
    await cluster.controller.stop()


def connect(outside: Outside, broker: RunningBroker, listener: str = "PLAINTEXT") -> Peer:
    """A new connection to a listener."""
    return Peer(outside.network.open(broker.endpoints()[listener][1]))


async def change_credential(peer: Peer, user: str, *, is_added: bool) -> None:
    """Give a user a password, or take it."""
    change = upsertion(user) if is_added else deletion(user)
    assert await alter(peer, change) == {user: (ErrorCode.NONE, None)}


async def change_entries(peer: Peer, user: str, *, is_added: bool) -> None:
    """Make the two entries of a user, or remove them, in one request."""
    principal = f"User:{user}"
    if is_added:
        await User(peer).create_acls(
            AclBinding(AclResource.TOPIC, "t", principal, AclOperation.READ),
            AclBinding(
                AclResource.TOPIC, "p", principal, AclOperation.READ, pattern=PatternType.PREFIXED
            ),
        )
    else:
        assert await User(peer).delete_acls(principal) == 2


async def change_quotas(peer: Peer, user: str, *, is_added: bool) -> None:
    """Set both rates of a user, or remove them, in one request."""
    entry = EntryData(
        entity=(EntityData(entity_type="user", entity_name=user),),
        ops=tuple(OpData(key=each, value=1e6, remove=not is_added) for each in RATES),
    )
    answer = await peer.ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        AlterClientQuotasRequest(entries=(entry,)),
        AlterClientQuotasResponse,
    )
    assert [each.error_code for each in answer.entries] == [ErrorCode.NONE]


CHANGES: Final = {
    "credential": change_credential,
    "entries": change_entries,
    "quotas": change_quotas,
}


async def work(outside: Outside, told: Told, start: Start) -> None:
    """Two starts: all users get all, and one loses all again."""
    for is_first in (True, False):
        async with start(outside) as broker:
            peer = connect(outside, broker)
            if is_first:
                for each in TOPICS:
                    await create_topic(peer, each)
            changes = [(user, True) for user in (USERS[:2] if is_first else USERS[2:])]
            for user, is_added in [*changes, *([] if is_first else [(USERS[0], False)])]:
                for kind, change in CHANGES.items():
                    told.changing = user, kind
                    await change(peer, user, is_added=is_added)
                    told.has[user, kind], told.changing = is_added, None
                    await outside.pass_time(0.2)


async def logged_in(outside: Outside, broker: RunningBroker, user: str) -> Peer | None:
    """A connection of a user; None: the login is refused."""
    peer = connect(outside, broker, "SASL_PLAINTEXT")
    code = (await log_in_scram(peer, user, "secret")).error_code
    assert code in (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED)
    return peer if code == ErrorCode.NONE else None


async def has_entries(peer: Peer) -> bool:
    """Whether a user may describe both topics; both or none."""
    latest = (ListOffsetsPartition(partition_index=0, timestamp=-1),)
    request = ListOffsetsRequest(
        topics=tuple(ListOffsetsTopic(name=each, partitions=latest) for each in TOPICS)
    )
    answer = await peer.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)
    [code] = {each.partitions[0].error_code for each in answer.topics}
    assert code in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return code == ErrorCode.NONE


def has_quotas(broker: RunningBroker, user: str) -> bool:
    """Whether a user has both rates; both or none."""
    [has_one] = {broker.quotas.find(each, user, "client") is not None for each in RATES}
    return has_one


async def check(outside: Outside, told: Told, start: Start) -> None:
    """The listener obeys what was answered; what was under way is whole or absent."""
    async with start(outside) as broker:
        admin = connect(outside, broker)
        for each in TOPICS:
            await create_topic(admin, each)
        for user in USERS:
            peer = await logged_in(outside, broker, user)
            found = {"credential": peer is not None, "quotas": has_quotas(broker, user)}
            if peer is None:
                # So that the entries are tried; and the node works on.
                await change_credential(admin, user, is_added=True)
            while peer is None:
                await outside.pass_time(0.1)
                peer = await logged_in(outside, broker, user)
            found["entries"] = await has_entries(peer)
            due = {kind: told.has.get((user, kind), False) for kind in CHANGES}
            if told.changing is not None and told.changing[0] == user:
                due[told.changing[1]] = found[told.changing[1]]
            assert found == due, user


@pytest.mark.parametrize("start", [alone, both, apart])
def test_a_crash_at_any_operation_loses_no_user_right_or_quota(start: Start, steps: Steps) -> None:
    """Credentials, entries and quotas that were answered are obeyed, also those removed."""

    async def working(outside: Outside, told: Told) -> None:
        await work(outside, told, start)

    operations, _ = crashes_of(working, Told(), ())
    assert len(operations) > 100
    _, found = crashes_of(working, Told(), {*steps(operations)})
    for disk, told in found:
        # Another seed: ids must not come again.
        with virtual_runtime(files=disk, seed=1) as outside:
            outside.run(check(outside, told, start))
