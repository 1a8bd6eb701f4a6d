"""The authorizer decides as Kafka's StandardAuthorizer does, and notices each change of entries."""

import logging

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.metadata_records import AccessControlEntryRecord
from tailrace.runtime.limited_lines import WINDOW_S
from tailrace.runtime.log_lines import TRACE
from tailrace.security.acls import AclOperation as Op
from tailrace.security.acls import AclResource, PatternType, Permission
from tailrace.security.audit import ACCESSES_MAX
from tailrace.security.authorizer import ANSWERS_KEPT_MAX, address_text
from tailrace.testing import Outside
from tests.unit.security.entries import Lists, entry, request_of

PREFIXED = PatternType.PREFIXED
DENY = Permission.DENY
EVERY = {each for each in Op if each > Op.ALL}


def test_an_entry_allows_its_operation_and_what_that_implies() -> None:
    """READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS."""
    implied = {
        Op.READ: {Op.DESCRIBE},
        Op.WRITE: {Op.DESCRIBE},
        Op.DELETE: {Op.DESCRIBE},
        Op.ALTER: {Op.DESCRIBE},
        Op.ALTER_CONFIGS: {Op.DESCRIBE_CONFIGS},
    }
    for operation in EVERY:
        lists = Lists(entry(operation))
        allowed = {each for each in EVERY if lists.allows(each)}
        assert allowed == {operation} | implied.get(operation, set())


def test_a_denial_implies_nothing() -> None:
    """A client that may not READ may still DESCRIBE, if somebody allows that."""
    for operation in EVERY:
        lists = Lists(entry(Op.ALL), entry(operation, permission=DENY))
        assert {each for each in EVERY if not lists.allows(each)} == {operation}


def test_a_denial_wins_over_what_is_allowed() -> None:
    """Whichever pattern has it, and whichever entry came first."""
    for denied in (
        entry(Op.READ, permission=DENY),
        entry(Op.ALL, permission=DENY),
        entry(Op.READ, "*", permission=DENY),
        entry(Op.READ, "fl", pattern=PREFIXED, permission=DENY),
        entry(Op.READ, principal="User:*", permission=DENY),
        entry(Op.READ, host="10.0.0.1", permission=DENY),
    ):
        for first, second in ((denied, entry(Op.ALL)), (entry(Op.ALL), denied)):
            assert not Lists(first, second).allows(Op.READ)


def test_an_entry_without_a_meaning_changes_nothing() -> None:
    """The log may have any number as the operation, and Kafka takes it as unknown."""
    for operation in (-128, -5, 0, 1, 127):
        for permission in Permission:
            odd = entry(operation, permission=permission)  # type: ignore[arg-type]
            lists = Lists(odd, entry(Op.READ))
            assert {each for each in EVERY if lists.allows(each)} == {Op.READ, Op.DESCRIBE}


def test_an_entry_for_all_operations_allows_each_one() -> None:
    """ALL is every operation with that resource, and with no other."""
    lists = Lists(entry(Op.ALL))
    assert {each for each in EVERY if lists.allows(each)} == EVERY
    assert not lists.allows(Op.READ, "other")
    assert not lists.allows(Op.READ, resource=AclResource.GROUP)


def test_prefixes_cover_the_names_that_begin_so() -> None:
    """Also the name itself, several prefixes at a time, and no name that only contains one."""
    lists = Lists(
        entry(Op.READ, "fl", pattern=PREFIXED),
        entry(Op.WRITE, "flight", pattern=PREFIXED),
        entry(Op.DELETE, "f"),
    )
    assert lists.allows(Op.READ, "fl")
    assert lists.allows(Op.READ, "flights")
    assert lists.allows(Op.WRITE, "flights")
    assert not lists.allows(Op.WRITE, "fly")
    assert not lists.allows(Op.READ, "f")
    assert not lists.allows(Op.READ, "old-flights")
    assert not lists.allows(Op.DELETE, "flights")


def test_names_of_one_letter_and_of_none() -> None:
    """An entry for `f` is not for `foo`; only `*` covers the empty name, which has no entry."""
    lists = Lists(entry(Op.READ, "f"), entry(Op.READ, "_", pattern=PREFIXED))
    names = ("f", "_", "_foo", "foo", "foo_", "")
    assert [each for each in names if lists.allows(Op.READ, each)] == ["f", "_", "_foo"]
    lists.add(entry(Op.READ, "*"))
    assert all(lists.allows(Op.READ, each) for each in names)


def test_the_literal_star_covers_every_name() -> None:
    """A prefix `*` is only the beginning of a name."""
    assert Lists(entry(Op.READ, "*")).allows(Op.READ, "flights")
    lists = Lists(entry(Op.READ, "*", pattern=PREFIXED))
    assert not lists.allows(Op.READ, "flights")
    assert lists.allows(Op.READ, "*a")


def test_principals_match_as_a_whole_or_all_of_them() -> None:
    """`User:*` is everybody, also those of another type."""
    lists = Lists(entry(Op.READ, principal="User:alice"))
    assert lists.allows(Op.READ, principal="User:alice")
    assert not lists.allows(Op.READ, principal="User:alic")
    assert not lists.allows(Op.READ, principal="Group:alice")
    everybody = Lists(entry(Op.READ, principal="User:*"))
    assert everybody.allows(Op.READ, principal="User:bob")
    assert everybody.allows(Op.READ, principal="Group:bob")


def test_hosts_are_addresses_in_the_form_of_java() -> None:
    """An IPv6 address has all of its groups, without leading zeros."""
    lists = Lists(entry(Op.READ, host="10.0.0.1"), entry(Op.WRITE, host="0:0:0:0:0:0:0:1"))
    assert lists.allows(Op.READ, host="10.0.0.1")
    assert not lists.allows(Op.READ, host="10.0.0.2")
    assert lists.allows(Op.READ, host="[::ffff:10.0.0.1]")
    assert lists.allows(Op.WRITE, host="[::1]")
    assert address_text("[fe80::1%eth0]") == "fe80:0:0:0:0:0:0:1"
    assert address_text("memory") == "memory"


def test_without_entries_everybody_or_nobody_is_allowed() -> None:
    """An entry of whichever principal closes the resource for the others."""
    for is_open in (False, True):
        lists = Lists(entry(Op.READ, "other"), allows_without_entries=is_open)
        assert lists.allows(Op.READ) is is_open
        some = lists.authorizer.allows_some(request_of("User:bob"), Op.READ, AclResource.TOPIC)
        assert some is is_open
        assert not lists.allows(Op.READ, "other", principal="User:bob")
        lists.add(entry(Op.READ, "fl", pattern=PREFIXED, principal="User:carol"))
        assert not lists.allows(Op.READ)
        lists.remove(*lists.entries.values())
        assert lists.allows(Op.READ) is is_open


def test_super_users_may_do_everything() -> None:
    """Whatever is denied; by type and name together."""
    lists = Lists(entry(Op.ALL, permission=DENY, principal="User:*"), super_users=("User:root",))
    assert lists.allows(Op.ALTER, principal="User:root")
    assert not lists.allows(Op.ALTER, principal="Group:root")
    assert not lists.allows(Op.ALTER, principal="User:alice")


def test_a_change_of_entries_counts_for_the_next_question() -> None:
    """Also where the answer is remembered, and where the same entry has two ids."""
    one, same = entry(Op.READ), entry(Op.READ)
    lists = Lists()
    assert not lists.allows(Op.READ)
    lists.add(one, same)
    assert lists.allows(Op.READ)
    lists.remove(one)
    assert lists.allows(Op.READ)
    lists.remove(same)
    assert not lists.allows(Op.READ)


def test_the_version_is_another_one_after_each_change_only() -> None:
    """It can be compared by all that rests on the entries."""
    lists = Lists(entry(Op.READ))
    before = lists.authorizer.version
    assert lists.authorizer.version is before
    lists.add(entry(Op.WRITE))
    assert lists.authorizer.version is not before


def test_remembered_answers_are_limited() -> None:
    """A client that asks for ever more names takes no more memory, and gets right answers."""
    lists = Lists(entry(Op.READ, "t1", pattern=PREFIXED))
    for number in range(ANSWERS_KEPT_MAX + 100):
        assert lists.allows(Op.READ, f"t{number}") is str(number).startswith("1")
    assert len(lists.authorizer._answers) <= ANSWERS_KEPT_MAX


def test_operations_are_bits_by_kafkas_numbers() -> None:
    """All of a super user are those that Kafka tells; DESCRIBE alone is one bit."""
    lists = Lists(entry(Op.DESCRIBE), super_users=("User:root",))
    root = request_of("User:root")
    kinds = {AclResource.CLUSTER: 8096, AclResource.TOPIC: 3576, AclResource.GROUP: 3400}
    for kind, bits in kinds.items():
        assert lists.authorizer.operations(root, kind, "flights") == bits
    alice = request_of()
    assert lists.authorizer.operations(alice, AclResource.TOPIC, "flights") == 1 << Op.DESCRIBE


@pytest.mark.parametrize(
    ("entries", "is_allowed"),
    [
        ([], False),
        ([entry(Op.WRITE)], True),
        ([entry(Op.ALL)], True),
        ([entry(Op.READ)], False),
        ([entry(Op.WRITE, host="10.9.9.9")], False),
        ([entry(Op.WRITE, principal="User:bob")], False),
        ([entry(Op.WRITE, "*")], True),
        ([entry(Op.WRITE, "*"), entry(Op.WRITE, "*", permission=DENY)], False),
        ([entry(Op.WRITE), entry(Op.WRITE, permission=DENY)], False),
        ([entry(Op.WRITE), entry(Op.WRITE, "fl", pattern=PREFIXED, permission=DENY)], False),
        ([entry(Op.WRITE), entry(Op.WRITE, "fx", pattern=PREFIXED, permission=DENY)], True),
        ([entry(Op.WRITE, "f", pattern=PREFIXED), entry(Op.WRITE, "f", permission=DENY)], True),
        (
            [
                entry(Op.WRITE, "fl", pattern=PREFIXED),
                entry(Op.WRITE, "f", pattern=PREFIXED, permission=DENY),
            ],
            False,
        ),
    ],
)  # fmt: skip
def test_some_resource_is_allowed_that_no_denial_covers(
    entries: list[AccessControlEntryRecord], *, is_allowed: bool
) -> None:
    """A denied name, prefix or `*` covers what is allowed (Kafka's authorizeByResourceType)."""
    lists = Lists(*entries)
    found = lists.authorizer.allows_some(request_of(), Op.WRITE, AclResource.TOPIC)
    assert found is is_allowed


async def test_a_denied_access_is_logged_with_all_that_led_to_it(
    outside: Outside,  # noqa: ARG001 - the loop of the test
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The line names client, request, operation, resource, and the entry that decided."""
    caplog.set_level(logging.INFO)
    lists = Lists(entry(Op.READ, "fl", pattern=PREFIXED, permission=DENY))
    lists.allows(Op.READ)
    lists.allows(Op.WRITE, "other")
    first, second = caplog.messages
    assert first == (
        "access_denied principal=User:alice host=10.0.0.1 client_id=c listener=L api=Fetch "
        "operation=READ resource_type=TOPIC resource=flights rule=Deny:Topic:PREFIXED:fl"
    )
    assert second.endswith("resource=other rule=DefaultDeny")


async def test_what_only_decides_about_an_answer_is_a_detail(
    outside: Outside,  # noqa: ARG001 - the loop of the test
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Filters of lists are no attempts: Kafka, too, logs them at TRACE."""
    caplog.set_level(logging.DEBUG)
    authorizer = Lists().authorizer
    header = request_of(api=ApiKey.METADATA)
    authorizer.allows(header, Op.READ, AclResource.TOPIC, name="flights", is_access=False)
    authorizer.operations(header, AclResource.TOPIC, "flights")
    authorizer.allows_some(header, Op.WRITE, AclResource.TOPIC)
    assert caplog.messages == []
    caplog.set_level(TRACE)
    authorizer.allows(header, Op.READ, AclResource.TOPIC, name="flights", is_access=False)
    assert [each.levelno for each in caplog.records] == [TRACE]


async def test_an_access_that_is_allowed_is_logged_for_debugging(
    outside: Outside,  # noqa: ARG001 - the loop of the test
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the entry that allows it, once in ten seconds."""
    caplog.set_level(logging.DEBUG)
    lists = Lists(entry(Op.READ))
    assert lists.allows(Op.READ)
    assert lists.allows(Op.READ)
    [line] = [each for each in caplog.messages if each.startswith("access_allowed")]
    assert line.endswith("rule=Allow:Topic:LITERAL:flights")


async def test_a_flood_of_denials_is_counted(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The same one has one line, those that differ at most `ACCESSES_MAX`, and each has a count."""
    caplog.set_level(logging.INFO)
    lists = Lists()
    for number in (*[0] * 5, *range(ACCESSES_MAX + 50)):
        lists.allows(Op.READ, f"t{number}")
    assert len(caplog.messages) == ACCESSES_MAX + 1
    caplog.clear()
    await outside.pass_time(WINDOW_S)
    same, others = caplog.messages
    assert same.startswith("repeated name=access_denied principal=User:alice ")
    assert same.endswith("resource=t0 rule=DefaultDeny count=6 seconds=10")
    assert others == "repeated name=access_denied address=others count=50 seconds=10"
