"""The index of access rules answers as a walk through all entries does, after any changes."""

import random

import pytest

from tailrace.protocol.metadata_records import AccessControlEntryRecord
from tailrace.security import authorizer
from tailrace.security.acls import AclFilter, AclOperation, AclResource, PatternType, Permission
from tailrace.security.rules import Rules
from tailrace.testing import Outside
from tests.unit.security.entries import Lists, entry, request_of

NAMES = ("*", "a", "ab", "abc", "abd", "b", "ba", "")
PRINCIPALS = ("User:a", "User:b", "User:*", "Group:a")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
OPERATIONS = tuple(each for each in AclOperation if each >= AclOperation.ALL)
IMPLIED = {
    AclOperation.DESCRIBE: {
        AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}  # fmt: skip
STEPS = 400
QUESTIONS = 20


def naive(
    entries: list[AccessControlEntryRecord],
    operation: AclOperation,
    name: str,
    *,
    principal: str,
    host: str,
    is_open: bool,
) -> bool:
    """The answer as the documents of Kafka's authorizer say it."""
    of_topic = [
        each
        for each in entries
        if each.resource_type == AclResource.TOPIC
        and (
            name.startswith(each.resource_name)
            if each.pattern_type == PatternType.PREFIXED
            else each.resource_name in (name, "*")
        )
    ]
    if not of_topic:
        return is_open
    mine = [
        each
        for each in of_topic
        if each.principal in (principal, "User:*") and each.host in (host, "*")
    ]

    def has(permission: Permission, operations: set[AclOperation]) -> bool:
        return any(
            each.permission_type == permission
            and (each.operation == AclOperation.ALL or each.operation in operations)
            for each in mine
        )

    if has(Permission.DENY, {operation}):
        return False
    return has(Permission.ALLOW, {operation} | IMPLIED.get(operation, set()))


def random_entry(chance: random.Random) -> AccessControlEntryRecord:
    """An entry of few names and principals, so that many of them meet."""
    return entry(
        chance.choice(OPERATIONS),
        chance.choice(NAMES[:-1]),
        principal=chance.choice(PRINCIPALS),
        resource=chance.choice((AclResource.TOPIC, AclResource.TOPIC, AclResource.GROUP)),
        pattern=chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        host=chance.choice(HOSTS),
        permission=chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_index_answers_as_a_walk_through_all_entries(seed: int) -> None:
    """After each change, for random clients, operations and names."""
    chance = random.Random(seed)
    is_open = chance.random() < 0.5
    lists = Lists(allows_without_entries=is_open)
    for _ in range(STEPS):
        there = list(lists.entries.values())
        if there and chance.random() < 0.4:
            lists.remove(*chance.sample(there, min(len(there), chance.randint(1, 3))))
        else:
            lists.add(*(random_entry(chance) for _ in range(chance.randint(1, 3))))
        there = list(lists.entries.values())
        for _ in range(QUESTIONS):
            operation = chance.choice(OPERATIONS[1:])
            name, host = chance.choice(NAMES[1:]), chance.choice(HOSTS[1:])
            principal = chance.choice(("User:a", "User:b", "User:c", "Group:a"))
            answer = lists.allows(operation, name, principal=principal, host=host)
            assert answer is naive(
                there, operation, name, principal=principal, host=host, is_open=is_open
            )


@pytest.mark.parametrize("seed", range(4))
async def test_the_answers_are_the_same_while_an_index_is_made(
    outside: Outside, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two entries in each turn of the loop, and with changes before all are indexed."""
    monkeypatch.setattr(authorizer, "INDEXED_INLINE_MAX", 2)
    chance = random.Random(seed)
    is_open = chance.random() < 0.5
    lists = Lists(allows_without_entries=is_open)
    for _ in range(STEPS // 4):
        there = list(lists.entries.values())
        if chance.random() < 0.4:
            lists.remove(*chance.sample(there, min(len(there), chance.randint(1, 8))))
        else:
            lists.add(*(random_entry(chance) for _ in range(chance.randint(1, 8))))
        there = list(lists.entries.values())
        for _ in range(chance.randint(1, 12)):
            operation, name = chance.choice(OPERATIONS[1:]), chance.choice(NAMES[1:])
            principal, host = chance.choice(PRINCIPALS[:2]), chance.choice(HOSTS[1:])
            answer = lists.allows(operation, name, principal=principal, host=host)
            assert answer is naive(
                there, operation, name, principal=principal, host=host, is_open=is_open
            )
            header = request_of(principal, host=host)
            some = lists.authorizer.allows_some(header, operation, AclResource.TOPIC)
            of_all = Rules(there).allows_some(
                principal, host, operation, resource=AclResource.TOPIC
            )
            # Kafka tries a name first, for which more is implied.
            of_a_name = naive(
                there, operation, "hardcode", principal=principal, host=host, is_open=is_open
            )
            assert some is (of_all or of_a_name)
            await outside.pass_time(0)


@pytest.mark.parametrize("seed", range(4))
def test_some_resource_is_allowed_where_a_name_can_be_found(seed: int) -> None:
    """The answer for any resource is yes exactly if one of many names is allowed.

    Kafka looks at patterns alone. So the names tried are those of the patterns, and each prefix
    with an end that no other pattern has.
    """
    chance = random.Random(seed)
    for _ in range(STEPS):
        lists = Lists(*(random_entry(chance) for _ in range(chance.randint(0, 6))))
        host, principal = chance.choice(HOSTS[1:]), chance.choice(("User:a", "User:b", "User:c"))
        # DESCRIBE is implied by others for a name, and not here.
        operation = AclOperation.WRITE
        header = request_of(principal, host=host)
        found = lists.authorizer.allows_some(header, operation, AclResource.TOPIC)
        tried = {f"{each.resource_name}~" for each in lists.entries.values()} | set(NAMES[1:])
        there = list(lists.entries.values())
        expected = any(
            naive(there, operation, name, principal=principal, host=host, is_open=False)
            for name in tried
            if name
        )
        # A prefix counts although its own name and all names tried are denied one by one.
        assert found or not expected


@pytest.mark.parametrize("seed", range(4))
def test_a_filter_finds_the_entries_that_match_in_each_part(seed: int) -> None:
    """MATCH finds what applies to a name, ANY what has exactly this name."""
    chance = random.Random(seed)
    for _ in range(STEPS):
        each = random_entry(chance)
        name = chance.choice((None, *NAMES[:-1]))
        pattern = chance.choice([kind for kind in PatternType if kind])
        matching = AclFilter(
            name=name,
            pattern=pattern,
            principal=chance.choice((None, *PRINCIPALS)),
            host=chance.choice((None, *HOSTS)),
            operation=chance.choice([kind for kind in AclOperation if kind]),
            permission=chance.choice([kind for kind in Permission if kind]),
        )
        is_literal = each.pattern_type == PatternType.LITERAL
        covers = name is None or (
            each.resource_name in (name, "*") if is_literal else name.startswith(each.resource_name)
        )
        named = {
            PatternType.ANY: name in (None, each.resource_name),
            PatternType.MATCH: covers,
            PatternType.LITERAL: is_literal and name in (None, each.resource_name),
            PatternType.PREFIXED: not is_literal and name in (None, each.resource_name),
        }
        expected = (
            named[pattern]
            and matching.principal in (None, each.principal)
            and matching.host in (None, each.host)
            and matching.operation in (AclOperation.ANY, each.operation)
            and matching.permission in (Permission.ANY, each.permission_type)
        )
        assert matching.matches(each) is expected
