"""SCRAM users of a new cluster, as Kafka's storage tool takes them (`--add-scram`, KIP-900).

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=bob,iterations=8192,salt="c2FsdA==",saltedpassword="..."]

The grammar is that of Kafka's ScramParser, where a value ends with the next comma.
"""

from binascii import a2b_base64
from collections.abc import Iterable
from typing import Final

from tailrace.cluster.control.credentials import (
    CREDENTIALS_MAX,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
)
from tailrace.cluster.metadata.image import ScramUser
from tailrace.protocol.metadata_records import UserScramCredentialRecord
from tailrace.security.scram import keys_of, new_salt, salted_password

_NUMBERS: Final = {label: number for number, label in MECHANISMS.items()}


def parse_scram_users(arguments: Iterable[str]) -> dict[ScramUser, UserScramCredentialRecord]:
    """The credentials of these arguments; of one user and mechanism the last counts, as in Kafka.

    Raises:
        ValueError: one has another form, or a value is out of range; without the password.
    """
    found: dict[ScramUser, UserScramCredentialRecord] = {}
    for each in arguments:
        record = _parsed(each.strip())
        found[ScramUser(record.mechanism, record.name)] = record
        if len(found) > CREDENTIALS_MAX:
            raise ValueError(f"a cluster has {CREDENTIALS_MAX} SCRAM credentials at most")
    return found


def _parsed(argument: str) -> UserScramCredentialRecord:
    mechanism, equals, config = argument.partition("=")
    if mechanism not in _NUMBERS or not equals:
        raise ValueError(f"it has to begin with {' or '.join(f'{each}=' for each in _NUMBERS)}")
    if not (config.startswith("[") and config.endswith("]")):
        raise ValueError(f"{mechanism}= is followed by [name=NAME,password=PASSWORD]")
    values = {}
    for part in config[1:-1].split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{mechanism}: each of its parts is NAME=VALUE, and a comma ends one")
        is_quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
        values[name] = value[1:-1] if is_quoted else value
    known = {"name", "password", "salt", "saltedpassword", "iterations"}
    if unknown := [each[:40] for each in values if each not in known]:
        raise ValueError(f"{mechanism}: {', '.join(unknown)} is none of {', '.join(sorted(known))}")
    user = values.get("name", "")
    if not user:
        raise ValueError(f"{mechanism}: the name of the user is missing")
    salt = _base64(values, "salt") or new_salt()
    try:
        iterations = int(values.get("iterations", ITERATIONS_MIN))
    except ValueError:
        iterations = 0
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"user {user!r}: iterations is {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if password := values.get("password"):
        salted = salted_password(mechanism, password.encode(), salt=salt, iterations=iterations)
    else:
        salted = _base64(values, "saltedpassword")
        # Without the salt no client could make the same of its password.
        if not salted or "salt" not in values:
            raise ValueError(f"user {user!r}: password is missing, or salt with saltedpassword")
    keys = keys_of(mechanism, salted, salt=salt, iterations=iterations)
    return UserScramCredentialRecord(
        name=user,
        mechanism=_NUMBERS[mechanism],
        salt=keys.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _base64(values: dict[str, str], name: str) -> bytes:
    try:
        return a2b_base64(values.get(name, ""), strict_mode=True)
    except ValueError:
        raise ValueError(f"user {values['name']!r}: {name} is not base64") from None
