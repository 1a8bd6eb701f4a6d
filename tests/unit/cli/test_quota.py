"""`tailrace quota` against a broker of ours."""

from collections.abc import Iterator

import pytest

from tailrace.testing import TestBroker
from tests.unit.cli.running import lines, objects, run, said


@pytest.fixture
def at() -> Iterator[tuple[str, str]]:
    """The flag for a broker without quotas."""
    with TestBroker() as broker:
        yield "--bootstrap", broker.bootstrap_servers


def test_quotas_are_set_listed_and_removed(at: tuple[str, str]) -> None:
    """For a user, a client id of any user, and all other addresses."""
    user = ("--user", "alice")
    both = ("--user-defaults", "--client", "app")
    rates = ("producer_byte_rate=1e6", "request_percentage=12.5")
    assert lines("quota", "set", *user, *rates, *at) == [
        "user alice has producer_byte_rate=1000000", "user alice has request_percentage=12.5",
    ]  # fmt: skip
    assert lines("quota", "set", *both, "consumer_byte_rate=2000", *at) == [
        "user <default>, client-id app has consumer_byte_rate=2000"
    ]
    lines("quota", "set", "--ip-defaults", "connection_creation_rate=7", *at)
    assert [each.split() for each in lines("quota", "list", *at)] == [
        ["user", "client", "id", "address", "quota", "value"],
        ["<default>", "app", "-", "consumer_byte_rate", "2000"],
        ["-", "-", "<default>", "connection_creation_rate", "7"],
        ["alice", "-", "-", "producer_byte_rate", "1000000"],
        ["alice", "-", "-", "request_percentage", "12.5"],
    ]
    assert len(lines("quota", "list", "--client", "app", *at)) == 2
    assert lines("quota", "remove", *user, "request_percentage", *at) == [
        "request_percentage removed from user alice"
    ]
    assert lines("quota", "remove", *user, *at) == ["producer_byte_rate removed from user alice"]
    assert lines("quota", "list", *user, *at) == ["user  client id  address  quota  value"]


def test_quotas_are_objects_in_json(at: tuple[str, str]) -> None:
    """The default of a kind is null; a dry run says that it was one, and changes nothing."""
    entity = ("--client-defaults", "--user", "alice")
    (tried,) = objects("quota", "set", *entity, "producer_byte_rate=5", "--dry-run", *at)
    assert (tried["dry_run"], tried["entity"]) == (True, {"client-id": None, "user": "alice"})
    assert objects("quota", "list", *at) == []
    (made,) = objects("quota", "set", *entity, "producer_byte_rate=5", *at)
    assert not made["dry_run"]
    (found,) = objects("quota", "list", *at)
    assert found["quotas"] == {"producer_byte_rate": 5}
    (gone,) = objects("quota", "remove", *entity, "producer_byte_rate", *at)
    assert gone["quotas"] == ["producer_byte_rate"]


def test_mistakes_are_explained(at: tuple[str, str]) -> None:
    """Before a broker is asked where it can be seen, and in its words where only it knows."""
    set_it = ("quota", "set", "--user", "alice")
    assert "give --user, --client or both" in said("quota", "set", "producer_byte_rate=1", *at)
    assert "give --user or --user-defaults" in said(*set_it, "--user-defaults", "x=1", *at)
    assert "is no quota; there are producer_byte_rate" in said(*set_it, "byte_rate=1", *at)
    assert "'much' is no number" in said(*set_it, "producer_byte_rate=much", *at)
    assert "greater than 0" in said(*set_it, "producer_byte_rate=0", *at)
    assert "use --user-defaults" in said("quota", "remove", "--user", "", *at)
    assert "user alice has no quota" in said("quota", "remove", "--user", "alice", *at)
    assert run(*set_it, "producer_byte_rate=5", *at).exit_code == 0
    assert "has no request_percentage" in said(
        "quota", "remove", "--user", "alice", "request_percentage", *at
    )
    assert "IP entity should not be combined" in said(
        "quota", "set", "--user", "a", "--ip", "::1", "connection_creation_rate=5", *at
    )
