"""`tailrace user`, and users of `tailrace storage format`."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.cluster.bootstrap import first_image
from tailrace.cluster.metadata.image import ScramUser
from tailrace.cluster.scram_arguments import parse_scram_users
from tailrace.runtime.system import system_runtime
from tailrace.security.scram import keys_of, salted_password
from tailrace.testing import TestBroker
from tests.unit.cli.running import lines, objects, run, said


@pytest.fixture
def at() -> Iterator[tuple[str, str]]:
    """The option that leads to a broker."""
    with TestBroker() as broker:
        yield "--bootstrap", broker.bootstrap_servers


PASSWORD = ("--password-file", "-")


def test_users_are_created_listed_altered_and_removed(at: tuple[str, str]) -> None:
    """A user has the mechanisms that it was created with, until it is removed."""
    assert lines("user", "list", *at) == ["user  mechanism  iterations"]
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    assert lines("user", "create", "alice", *both, *PASSWORD, *at, given=b"secret\n") == [
        "created user alice with SCRAM-SHA-256 and SCRAM-SHA-512"
    ]
    assert lines("user", "create", "bob", *PASSWORD, *at, given=b"secret") == [
        "created user bob with SCRAM-SHA-512"
    ]
    altered = lines("user", "alter", "alice", "--iterations", "8192", *PASSWORD, *at, given=b"new")
    assert altered == ["altered user alice with SCRAM-SHA-256 and SCRAM-SHA-512"]
    alice, bob = objects("user", "list", *at)
    assert alice["credentials"] == [
        {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert (bob["user"], bob["credentials"][0]["iterations"]) == ("bob", 4096)
    removed = lines("user", "remove", "alice", "--mechanism", "SCRAM-SHA-256", "--yes", *at)
    assert removed == ["removed user alice with SCRAM-SHA-256"]
    assert objects("user", "remove", "alice", "--yes", *at)[0]["mechanisms"] == ["SCRAM-SHA-512"]
    assert [each["user"] for each in objects("user", "list", *at)] == ["bob"]


def test_mistakes_change_nothing(at: tuple[str, str], tmp_path: Path) -> None:
    """A user that is there, or is not, and a password that is none, are errors."""
    lines("user", "create", "alice", *PASSWORD, *at, given=b"secret")
    assert "has SCRAM-SHA-512 already" in said("user", "create", "alice", *PASSWORD, *at)
    assert "no user 'bob'" in said("user", "alter", "bob", *PASSWORD, *at, given=b"x")
    wrong = ("--mechanism", "SCRAM-SHA-256", "--yes")
    assert "has no SCRAM-SHA-256, but" in said("user", "remove", "alice", *wrong, *at)
    assert "stdin is not a terminal" in said("user", "create", "bob", *at)
    assert "has 0 bytes" in said("user", "create", "bob", *PASSWORD, *at, given=b"\nsecret")
    assert "add --yes" in said("user", "remove", "alice", *at)
    long = tmp_path / "long"
    long.write_bytes(b"x" * 5000)
    assert "1 to 4096" in said("user", "create", "bob", "--password-file", long, *at)
    assert "4096<=x<=16384" in run("user", "create", "bob", "--iterations", "1", *at).stderr


def test_a_directory_is_formatted_with_users(tmp_path: Path) -> None:
    """The first image of the cluster has the users, of arguments and of lines of a file."""
    directory, file = tmp_path / "data", tmp_path / "users"
    file.write_text("SCRAM-SHA-512=[name=bob,password=b]\n\n")
    alice = "SCRAM-SHA-256=[name=alice,password=alice-secret]"
    lines("storage", "format", "--data", directory, "--add-scram", alice, "--add-scram-file", file)
    image = first_image(system_runtime().files, str(directory), min_insync_replicas="1")
    assert list(image.scram) == [ScramUser(1, "alice"), ScramUser(2, "bob")]
    record = image.scram[ScramUser(1, "alice")]
    salted = salted_password("SCRAM-SHA-256", b"alice-secret", salt=record.salt, iterations=4096)
    keys = keys_of("SCRAM-SHA-256", salted, salt=record.salt, iterations=4096)
    assert (record.stored_key, record.server_key) == (keys.stored_key, keys.server_key)


def test_users_need_a_release_that_has_them(tmp_path: Path) -> None:
    """Before metadata.version 11 there are no records of users, and nothing is formatted."""
    directory = tmp_path / "data"
    user = ("--add-scram", "SCRAM-SHA-256=[name=a,password=b]")
    old = ("--feature", "metadata.version=10")
    assert "users need metadata.version 11" in said(
        "storage", "format", "--data", directory, *user, *old
    )
    assert not directory.exists()


SALT = base64.b64encode(b"salt").decode()
SALTED = base64.b64encode(b"salted").decode()


@pytest.mark.parametrize(
    "argument",
    [
        f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword={SALTED},iterations=8192]",
        f'SCRAM-SHA-256=[name="a",salt="{SALT}",saltedpassword="{SALTED}",iterations=8192]',
    ],
)
def test_a_salted_password_is_taken(argument: str) -> None:
    """A password that was salted elsewhere is taken with its salt and iterations."""
    (record,) = parse_scram_users([argument]).values()
    expected = keys_of("SCRAM-SHA-256", b"salted", salt=b"salt", iterations=8192)
    assert (record.name, record.salt, record.iterations) == ("a", b"salt", 8192)
    assert (record.stored_key, record.server_key) == (expected.stored_key, expected.server_key)


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        ("", "has to begin with"), ("SCRAM-SHA-1=[name=a,password=b]", "has to begin with"),
        ("SCRAM-SHA-256", "has to begin with"), ("SCRAM-SHA-256=name=a", "is followed by"),
        ("SCRAM-SHA-256=[name=a", "is followed by"), ("SCRAM-SHA-256=[]", "NAME=VALUE"),
        ("SCRAM-SHA-256=[name=a,password]", "NAME=VALUE"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,x=1]", "x is none of"),
        ("SCRAM-SHA-256=[password=SECRET]", "name of the user"),
        ("SCRAM-SHA-256=[name=a]", "password is missing"),
        ("SCRAM-SHA-256=[name=a,password=]", "password is missing"),
        (f"SCRAM-SHA-256=[name=a,saltedpassword={SALTED}]", "password is missing"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,iterations=4095]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,iterations=x]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=SECRET,salt=!]", "salt is not base64"),
    ],
)  # fmt: skip
def test_users_that_are_typed_wrongly(argument: str, fault: str) -> None:
    """An argument of another form is refused, without its password."""
    with pytest.raises(ValueError, match=fault) as refused:
        parse_scram_users([argument])
    assert "SECRET" not in str(refused.value)
