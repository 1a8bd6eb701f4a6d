"""Quotas of clients: kept in the metadata log and shown, on a node that is its own controller."""

import pytest

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages import alter_client_quotas as altering
from tailrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tailrace.protocol.metadata_records import ClientQuotaRecord, EntityData
from tailrace.testing import DiskFault, Outside, Peer
from tests.unit.broker.brokers import connect, running

EXACT, DEFAULT, ANY = 0, 1, 2
Names = dict[str, str | None]
RATE = "producer_byte_rate"
ALICE: Names = {"user": "alice"}
ALICE_APP: Names = {"user": "alice", "client-id": "app"}
OTHERS: Names = {"user": None}


def quota(names: Names, value: float) -> RecordToWrite:
    """A quota as Kafka writes it."""
    entity = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in names.items())
    return RecordToWrite(ClientQuotaRecord(entity=entity, key=RATE, value=value), 0)


QUOTAS = [quota(ALICE, 10.0), quota(ALICE_APP, 20.0), quota(OTHERS, 30.0)]


async def described(
    peer: Peer, *parts: tuple[str, int, str | None], strict: bool = False
) -> list[float] | ErrorCode:
    """The rates that match, or the error."""
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in parts
        ),
        strict=strict,
    )
    key = ApiKey.DESCRIBE_CLIENT_QUOTAS
    answer = await peer.ask(key, request, DescribeClientQuotasResponse)
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return [value.value for each in answer.entries or () for value in each.values]


async def altered(
    peer: Peer, names: Names, *keys: str, remove: bool = True, count: int = 1, dry: bool = False
) -> ErrorCode:
    """The code of an entity whose quotas are removed or set."""
    entry = altering.EntryData(
        entity=tuple(
            altering.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
        ),
        ops=tuple(altering.OpData(key=key, value=1.0, remove=remove) for key in keys),
    )
    request = altering.AlterClientQuotasRequest(entries=(entry,) * count, validate_only=dry)
    answer = await peer.ask(ApiKey.ALTER_CLIENT_QUOTAS, request, altering.AlterClientQuotasResponse)
    (code,) = {each.error_code for each in answer.entries}
    return ErrorCode(code)


async def test_quotas_are_found_by_their_parts(outside: Outside) -> None:
    """A name, the default or any name; with strict no other parts, as in Kafka."""
    async with running(outside) as broker:
        broker.controller.write(lambda _: QUOTAS)
        peer = connect(outside, broker)
        assert await described(peer) == [10.0, 20.0, 30.0]
        assert await described(peer, ("user", EXACT, "alice")) == [10.0, 20.0]
        assert await described(peer, ("user", EXACT, "alice"), strict=True) == [10.0]
        assert await described(peer, ("user", DEFAULT, None)) == [30.0]
        assert await described(peer, ("client-id", ANY, None)) == [20.0]
        assert await described(peer, ("ip", ANY, None)) == []


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None)] * 2, ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(
    outside: Outside, parts: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    """The code is Kafka's."""
    async with running(outside) as broker:
        assert await described(connect(outside, broker), *parts) == code


async def test_quotas_are_set_and_removed(outside: Outside) -> None:
    """They are there after a restart, and a dry run changes none."""
    async with running(outside) as broker:
        broker.controller.write(lambda _: QUOTAS)
        peer = connect(outside, broker)
        assert await altered(peer, ALICE, RATE, remove=False) == ErrorCode.NONE
        assert await altered(peer, OTHERS, RATE, dry=True) == ErrorCode.NONE
        assert await described(peer) == [1.0, 20.0, 30.0]
        swapped: Names = dict(reversed(ALICE_APP.items()))
        nobody: Names = {"user": "nobody"}
        strange: list[Names] = [{}, {"user": "alice", "ip": "::1"}, {"group": "x"}]
        for names in (swapped, nobody):
            assert await altered(peer, names, RATE, "request_percentage") == ErrorCode.NONE
        for names in strange:
            assert await altered(peer, names, RATE) == ErrorCode.INVALID_REQUEST
        assert await altered(peer, ALICE, RATE, RATE) == ErrorCode.INVALID_REQUEST
        assert await altered(peer, ALICE, RATE, count=2) == ErrorCode.INVALID_REQUEST
        assert await altered(peer, ALICE, "no.key", remove=False) == ErrorCode.INVALID_REQUEST
    async with running(outside) as broker:
        assert await described(connect(outside, broker)) == [1.0, 30.0]


async def test_a_device_that_fails_changes_no_quota(outside: Outside) -> None:
    """Each entity has the error, and the state is as it was."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert await altered(peer, ALICE, RATE, remove=False) == ErrorCode.NONE
        outside.files.faults.append(DiskFault(operation="sync", path_part="__cluster_metadata-0"))
        code = await altered(peer, OTHERS, RATE, remove=False)
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        outside.files.faults.clear()
        assert await described(peer) == [1.0]
