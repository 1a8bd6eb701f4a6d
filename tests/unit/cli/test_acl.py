"""`tailrace acl` against a broker of ours with an authorizer."""

from collections.abc import Iterator

import pytest

from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.testing import TestBroker
from tests.unit.cli.running import lines, objects, run, said

SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
ALICE = ("--allow-principal", "User:alice")
HEAD = ["resource", "name", "pattern", "principal", "host", "operation", "permission"]


@pytest.fixture
def at() -> Iterator[tuple[str, str]]:
    """The flag for a broker without entries."""
    with TestBroker(settings=SECURED) as broker:
        yield "--bootstrap", broker.bootstrap_servers


def listed(*arguments: str) -> list[list[str]]:
    """The words of each line of a list, without its head."""
    head, *rows = [each.split() for each in lines("acl", "list", *arguments)]
    assert head == HEAD
    return rows


def test_entries_are_added_listed_and_removed(at: tuple[str, str]) -> None:
    """An entry for each principal, host, operation and resource of the command."""
    made = lines(
        "acl", "add", *ALICE, "--deny-principal", "User:bob", "--deny-host", "10.0.0.1",
        "--operation", "Read", "--operation", "describe_configs", "--topic", "flights", *at,
    )  # fmt: skip
    rows = [
        ["topic", "flights", "literal", "User:alice", "*", "Read", "allow"],
        ["topic", "flights", "literal", "User:alice", "*", "DescribeConfigs", "allow"],
        ["topic", "flights", "literal", "User:bob", "10.0.0.1", "Read", "deny"],
        ["topic", "flights", "literal", "User:bob", "10.0.0.1", "DescribeConfigs", "deny"],
    ]
    assert [each.split() for each in made] == [HEAD, *rows]
    assert listed(*at) == rows
    assert listed("--principal", "User:bob", *at) == rows[2:]
    assert listed("--topic", "other", *at) == []
    lines("acl", "remove", *ALICE, "--operation", "Read", "--topic", "flights", "--yes", *at)
    assert listed(*at) == rows[1:]
    lines("acl", "remove", "--topic", "flights", "--yes", *at)
    assert listed(*at) == []


def test_prefixes_and_what_applies_to_a_name(at: tuple[str, str]) -> None:
    """A list for a name has the entries with exactly it, and with `match` all that apply."""
    add = ("acl", "add", *ALICE, "--operation", "Write")
    lines(*add, "--topic", "fl", "--resource-pattern-type", "prefixed", *at)
    lines(*add, "--topic", "*", *at)
    lines(*add, "--topic", "flights", *at)
    assert [row[1:3] for row in listed("--topic", "flights", *at)] == [["flights", "literal"]]
    found = listed("--topic", "flights", "--resource-pattern-type", "match", *at)
    assert [row[1:3] for row in found] == [
        ["*", "literal"], ["fl", "prefixed"], ["flights", "literal"],
    ]  # fmt: skip


def test_rights_of_producers_and_consumers(at: tuple[str, str]) -> None:
    """The same entries as those of kafka-acls."""
    lines(
        "acl", "add", *ALICE, "--producer", "--topic", "t", "--transactional-id", "x",
        "--idempotent", *at,
    )  # fmt: skip
    lines("acl", "add", "--allow-principal", "User:bob", "--consumer", "--topic", "t", "--group",
          "g", *at)  # fmt: skip
    found = {
        (each["principal"], each["resource"], each["name"], each["operation"])
        for each in objects("acl", "list", *at)
    }
    assert found == {
        ("User:alice", "topic", "t", "Write"),
        ("User:alice", "topic", "t", "Create"),
        ("User:alice", "topic", "t", "Describe"),
        ("User:alice", "transactional id", "x", "Write"),
        ("User:alice", "transactional id", "x", "Describe"),
        ("User:alice", "cluster", "kafka-cluster", "IdempotentWrite"),
        ("User:bob", "topic", "t", "Read"),
        ("User:bob", "topic", "t", "Describe"),
        ("User:bob", "group", "g", "Read"),
    }


def test_entries_are_objects_in_json(at: tuple[str, str]) -> None:
    """Each object says what was done, and has the words of the list."""
    [made] = objects("acl", "add", *ALICE, "--cluster", "--operation", "Alter", *at)
    assert (made["type"], made["resource"], made["name"]) == ("added", "cluster", "kafka-cluster")
    [found] = objects("acl", "list", *at)
    assert (found["type"], found["operation"], found["permission"]) == ("acl", "Alter", "allow")
    [gone] = objects("acl", "remove", "--cluster", "--yes", *at)
    assert gone["type"] == "removed"


def test_mistakes_are_explained(at: tuple[str, str]) -> None:
    """Before a broker is asked where it can be seen."""
    add = ("acl", "add", *ALICE)
    assert "give at least one of --allow-principal" in said("acl", "add", "--topic", "t", *at)
    assert "and a resource" in said(*add, *at)
    assert "'alice' has no type; write User:alice" in said(
        "acl", "add", "--allow-principal", "alice", "--topic", "t", *at
    )
    assert "is no operation; there are All, Read" in said(
        *add, "--topic", "t", "--operation", "fly", *at
    )
    assert "Create is none of a group" in said(*add, "--group", "g", "--operation", "Create", *at)
    assert "--consumer: give --topic and --group" in said(*add, "--consumer", "--topic", "t", *at)
    assert "give --deny-principal too" in said(*add, "--deny-host", "h", "--topic", "t", *at)
    assert "give a resource, a principal, or both" in said("acl", "remove", "--yes", *at)
    assert "no entry matches" in said("acl", "remove", "--topic", "t", "--yes", *at)
    assert "add --yes" in _asked(at)


def _asked(at: tuple[str, str]) -> str:
    lines("acl", "add", *ALICE, "--topic", "t", *at)
    return said("acl", "remove", "--topic", "t", *at)


def test_a_broker_without_an_authorizer_refuses() -> None:
    """An entry would protect nothing, so it says that there is none."""
    with TestBroker() as broker:
        outcome = run("acl", "list", "--bootstrap", broker.bootstrap_servers)
    assert outcome.exit_code == 1
