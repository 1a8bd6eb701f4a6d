"""The rules for quotas of clients: ClientQuotaControlManagerTest, and where ours are stricter."""

from collections.abc import Sequence

import pytest

from tailrace.cluster.control.quotas import ENTITIES_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tailrace.protocol.metadata_records import ClientQuotaRecord
from tailrace.protocol.metadata_records import EntityData as RecordEntity
from tests.unit.cluster.control.controlled import Controlled

Names = dict[str, str | None]
Ops = Sequence[tuple[str, float | None]]
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
ALICE: Names = {"user": "alice"}
ADDRESS: Names = {"ip": "127.0.0.1"}


def entry(names: Names, ops: Ops) -> EntryData:
    """Quotas of an entity; without a value one is removed."""
    return EntryData(
        entity=tuple(
            EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
        ),
        ops=tuple(OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops),
    )


def alter(
    cluster: Controlled, *entries: tuple[Names, Ops], dry: bool = False
) -> list[tuple[ErrorCode, str | None]]:
    """Code and message of each entity."""
    request = AlterClientQuotasRequest(
        entries=tuple(entry(names, ops) for names, ops in entries), validate_only=dry
    )
    answer = cluster.do(ApiKey.ALTER_CLIENT_QUOTAS, request)
    return [(ErrorCode(each.error_code), each.error_message) for each in answer.entries]


def refused(names: Names, *ops: tuple[str, float | None]) -> str:
    """The message with which an entity is INVALID_REQUEST; nothing may be written for it."""
    cluster = Controlled()
    before = len(cluster.appended)
    [(code, message)] = alter(cluster, (names, ops))
    assert code is ErrorCode.INVALID_REQUEST
    assert len(cluster.appended) == before
    assert message
    return message


def accepts(names: Names, *ops: tuple[str, float | None]) -> bool:
    """Whether all of these quotas are kept as they are given."""
    cluster = Controlled()
    [(code, _)] = alter(cluster, (names, ops))
    [kept] = cluster.state.image.quotas.values()
    return code is ErrorCode.NONE and kept == dict(ops)


def test_quotas_are_set_replaced_and_removed() -> None:
    """A value that stays is not written again; an entity without quotas is forgotten."""
    cluster = Controlled()

    def kept(*ops: tuple[str, float | None]) -> tuple[dict[str, float], int]:
        before = len(cluster.appended)
        assert alter(cluster, (ALICE, ops)) == [(ErrorCode.NONE, None)]
        quotas = cluster.state.image.quotas
        [found] = quotas.values() if quotas else [{}]
        return dict(found), len(cluster.appended) - before

    assert kept((PRODUCE, 10_000.0)) == ({PRODUCE: 10_000.0}, 1)
    both = {PRODUCE: 10_001.0, CONSUME: 20_000.0}
    assert kept(*both.items()) == (both, 2)
    assert kept(*both.items()) == (both, 0)
    assert kept((PRODUCE, None)) == ({CONSUME: 20_000.0}, 1)
    assert kept((REQUESTS, None)) == ({CONSUME: 20_000.0}, 0)
    assert kept((CONSUME, None)) == ({}, 1)
    assert kept((CONSUME, None), ("not.a.quota.key", None)) == ({}, 0)
    mixed = {REQUESTS: 99.0, PRODUCE: 10_002.0, CONSUME: 20_001.0}
    assert kept(*mixed.items(), (MUTATIONS, None)) == (mixed, 3)


def test_the_record_of_each_kind_of_entity() -> None:
    """A user, a client id, both, and the defaults; the client id comes first, as in Kafka."""
    cluster = Controlled()
    entities: list[Names] = [
        {"client-id": "app", "user": "alice"}, {"user": "bob", "client-id": "app"},
        {"user": None, "client-id": "app"}, {"user": "alice", "client-id": None},
        {"user": "alice"}, {"user": None}, {"client-id": "app"}, {"client-id": None},
        {"ip": "10.0.0.1"}, {"ip": None},
    ]  # fmt: skip
    asked: list[tuple[Names, Ops]] = [
        (names, [(CONNECTIONS if "ip" in names else REQUESTS, number + 1.0)])
        for number, names in enumerate(entities)
    ]
    before = len(cluster.appended)
    assert alter(cluster, *asked) == [(ErrorCode.NONE, None)] * len(entities)
    written = cluster.appended[before:]
    for number, (names, record) in enumerate(zip(entities, written, strict=True)):
        assert isinstance(record, ClientQuotaRecord)
        parts = [(each.entity_type, each.entity_name) for each in record.entity]
        assert parts == sorted(names.items())
        assert (record.value, record.remove) == (number + 1.0, False)
    # Whatever the order in which the parts come: it is one entity.
    swapped: Names = {"client-id": "app", "user": "bob"}
    assert alter(cluster, (swapped, [(REQUESTS, None)])) == [(ErrorCode.NONE, None)]
    assert len(cluster.state.image.quotas) == len(entities) - 1


def test_an_entity_that_was_written_in_another_order() -> None:
    """A record that has the client id first names the same entity."""
    cluster = Controlled()
    parts = (
        RecordEntity(entity_type="client-id", entity_name="app"),
        RecordEntity(entity_type="user", entity_name="alice"),
    )
    cluster.state.replay([ClientQuotaRecord(entity=parts, key=REQUESTS, value=5.0)])
    both: Names = {"user": "alice", "client-id": "app"}
    before = len(cluster.appended)
    assert alter(cluster, (both, [(REQUESTS, 5.0)])) == [(ErrorCode.NONE, None)]
    assert len(cluster.appended) == before
    assert alter(cluster, (both, [(REQUESTS, None)])) == [(ErrorCode.NONE, None)]
    assert not cluster.state.image.quotas


@pytest.mark.parametrize(
    "names",
    [{"foo": "bar"}, {"": "null"}, {"foo": None}, {"user": "u", "foo": "bar"},
     {"foo": "bar", "ip": "1.2.3.4"}, {"user": ""}, {"client-id": ""}, {"ip": ""}],
)  # fmt: skip
def test_a_part_that_is_not_possible(names: Names) -> None:
    """An unknown type and an empty name refuse the entity, also beside parts that are possible."""
    assert refused(names, (PRODUCE, 10_000.0))


def test_an_entity_without_parts() -> None:
    """There is nobody whose quota it could be."""
    assert refused({}, (PRODUCE, 10_000.0)) == "Invalid empty client quota entity"


@pytest.mark.parametrize("other", ["user", "client-id"])
def test_an_address_has_no_other_parts(other: str) -> None:
    """Its connections are counted before anybody is known."""
    assert "should not be combined" in refused({"ip": "1.2.3.4", other: "foo"}, (CONNECTIONS, 1.0))


@pytest.mark.parametrize("name", ["example.invalid", "localhost", "300.1.1.1", "1.2.3.4:5", "a b"])
def test_an_address_that_is_none(name: str) -> None:
    """Host names are among them: brokers could resolve one to different addresses."""
    assert "is not a valid IP" in refused({"ip": name}, (CONNECTIONS, 1.0))


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", None])
def test_an_address_that_is_one(name: str | None) -> None:
    """An address of either version; none is the default of all addresses."""
    assert accepts({"ip": name}, (CONNECTIONS, 15.0))


@pytest.mark.parametrize(
    "names", [{"user": "u"}, {"client-id": "c"}, {"client-id": "c", "user": "u"}]
)
def test_the_quotas_of_users_and_clients(names: Names) -> None:
    """Two rates in bytes, a share of the threads and a rate of changes; not that of addresses."""
    assert accepts(names, (PRODUCE, 1.0), (CONSUME, 2.0), (REQUESTS, 3.5), (MUTATIONS, 4.5))
    assert refused(names, (CONNECTIONS, 1.0)) == f"Invalid configuration key {CONNECTIONS}"


def test_the_quota_of_addresses() -> None:
    """New connections in a second, and nothing that users have."""
    assert accepts(ADDRESS, (CONNECTIONS, 1.0))
    for key in (PRODUCE, CONSUME, REQUESTS, MUTATIONS):
        assert refused(ADDRESS, (key, 1.0)) == f"Invalid configuration key {key}"


def test_an_unknown_quota_refuses_its_entity() -> None:
    """Also after one that is known, and before it."""
    for ops in (
        [("no.key", 1.0), (REQUESTS, 99.9)],
        [(REQUESTS, 99.9), ("no.key", 1.0)],
        [("", 1.0)],
    ):
        assert "Invalid configuration key" in refused(ALICE, *ops)


@pytest.mark.parametrize("value", [0.0, -2.0, float("nan"), float("-inf")])
@pytest.mark.parametrize("key", [PRODUCE, REQUESTS])
def test_a_value_that_is_not_above_zero(key: str, value: float) -> None:
    """Zero would be a client that may never ask; what is no number is refused too."""
    request = AlterClientQuotasRequest(
        entries=(
            EntryData(
                entity=(EntityData(entity_type="user", entity_name="u"),),
                ops=(OpData(key=key, value=value, remove=False),),
            ),
        )
    )
    cluster = Controlled()
    [result] = cluster.do(ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == f"Quota {key} must be greater than 0"
    assert not cluster.state.image.quotas


def test_a_value_that_is_too_large() -> None:
    """A rate in bytes has 63 bits, one of connections 31, and a share any value."""
    assert "is larger than" in refused(ALICE, (CONSUME, 36_893_488_147_419_103_232.4))
    assert "is larger than" in refused(ALICE, (PRODUCE, float("inf")))
    assert "is larger than" in refused(ADDRESS, (CONNECTIONS, 2.0**31))
    assert accepts(ALICE, (CONSUME, 2.0**63))
    assert accepts(ADDRESS, (CONNECTIONS, 2.0**31 - 1))
    assert accepts(ALICE, (REQUESTS, 1e30))


def test_a_value_that_has_to_be_whole() -> None:
    """A millionth or less of a fraction is taken, since values come as floats."""
    assert refused(ALICE, (CONSUME, 2.245)) == f"{CONSUME} cannot be a fractional value."
    assert refused(ADDRESS, (CONNECTIONS, 1.5)) == f"{CONNECTIONS} cannot be a fractional value."
    assert accepts(ALICE, (CONSUME, 1234.0))
    assert accepts(ALICE, (CONSUME, 1235.0000001))
    assert accepts(ALICE, (REQUESTS, 56.62367))


def test_each_entity_is_refused_by_itself() -> None:
    """The others are changed; and one of two values for a quota does not count."""
    cluster = Controlled()
    good: tuple[Names, Ops] = (ALICE, [(PRODUCE, 1.0)])
    bad: tuple[Names, Ops] = ({"user": "bob"}, [(PRODUCE, 1.0), (PRODUCE, 2.0)])
    assert [code for code, _ in alter(cluster, good, bad)] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert list(cluster.state.image.quotas.values()) == [{PRODUCE: 1.0}]


def test_an_entity_that_is_named_twice_is_not_changed() -> None:
    """It has one answer, an error, and nothing is written that the error denies."""
    cluster = Controlled()
    both: Names = {"user": "u", "client-id": "c"}
    first: tuple[Names, Ops] = (both, [(PRODUCE, 1.0)])
    second: tuple[Names, Ops] = (dict(reversed(both.items())), [(CONSUME, 1.0)])
    [(code, message)] = alter(cluster, first, second)
    assert code is ErrorCode.INVALID_REQUEST
    assert "names the entity twice" in (message or "")
    assert not cluster.state.image.quotas


def test_a_dry_run_changes_nothing() -> None:
    """The answers are those of the request itself."""
    cluster = Controlled()
    before = len(cluster.appended)
    asked: list[tuple[Names, Ops]] = [(ALICE, [(PRODUCE, 1.0)]), ({"user": "b"}, [(PRODUCE, 0.0)])]
    dry = alter(cluster, *asked, dry=True)
    assert len(cluster.appended) == before
    assert alter(cluster, *asked) == dry


def test_entities_have_a_limit() -> None:
    """One too many is refused; what there is may be changed and removed."""
    cluster = Controlled()
    users: list[tuple[Names, Ops]] = [
        ({"user": f"u{number}"}, [(PRODUCE, 1.0)]) for number in range(ENTITIES_MAX + 1)
    ]
    codes = [code for code, _ in alter(cluster, *users)]
    assert codes == [ErrorCode.NONE] * ENTITIES_MAX + [ErrorCode.POLICY_VIOLATION]
    assert len(cluster.state.image.quotas) == ENTITIES_MAX
    assert alter(cluster, ({"user": "u0"}, [(PRODUCE, 2.0)]))[0][0] is ErrorCode.NONE
    assert alter(cluster, ({"user": "u1"}, [(PRODUCE, None)]))[0][0] is ErrorCode.NONE
    assert alter(cluster, users[-1])[0][0] is ErrorCode.NONE


def test_a_request_of_too_many_records_is_refused_as_a_whole() -> None:
    """It would not fit one batch, and half of it may not be there after a crash."""
    cluster = Controlled()
    four: Ops = [(PRODUCE, 1.0), (CONSUME, 1.0), (REQUESTS, 1.0), (MUTATIONS, 1.0)]
    request = AlterClientQuotasRequest(
        entries=tuple(entry({"user": f"u{number}"}, four) for number in range(2501))
    )
    assert cluster.refused(ApiKey.ALTER_CLIENT_QUOTAS, request) is ErrorCode.POLICY_VIOLATION
    assert not cluster.state.image.quotas
