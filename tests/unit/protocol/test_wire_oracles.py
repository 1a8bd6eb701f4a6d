"""Our bytes against two independent libraries, field by field and byte by byte.

kio aborts the process on a lying length and kafka-python reads an ApiVersions answer with an
error as v0, so both see only what our encoder wrote, and that one case is left out.
"""

import dataclasses
import datetime as dt
import importlib
import io
import re
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from tailrace.protocol import codec
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tests.unit.protocol.strategies import (
    WIRE_MESSAGES,
    fields_of,
    full_message,
    in_version,
    name_of,
    samples,
    versions_of,
)

with warnings.catch_warnings():
    # kafka-python loads its schemas through functions that Python 3.11 calls old.
    warnings.filterwarnings("ignore", message=".*_text is deprecated", category=DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl

NOT_IN_KAFKA_PYTHON = {
    "add_raft_voter", "consumer_group_describe", "consumer_group_heartbeat",
    "create_delegation_token", "describe_delegation_token", "expire_delegation_token",
    "get_telemetry_subscriptions", "push_telemetry", "remove_raft_voter",
    "renew_delegation_token", "unregister_broker",
    # Between nodes.
    "allocate_producer_ids", "alter_partition", "assign_replicas_to_dirs", "broker_heartbeat",
    "broker_registration", "envelope", "fetch_snapshot",
    # There, but with the version in front of it.
    "consumer_protocol_assignment", "consumer_protocol_subscription",
}  # fmt: skip
"""Modules whose messages kafka-python does not have."""

KAFKA_PYTHON_MESSAGES = tuple(
    message
    for message in WIRE_MESSAGES
    if message.__module__.rpartition(".")[2] not in NOT_IN_KAFKA_PYTHON
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def plain(value: Any) -> Any:
    """A value of an oracle in the types that we use."""
    match value:
        case dt.timedelta():
            return value // dt.timedelta(milliseconds=1)
        case dt.datetime():
            return (value - EPOCH) // dt.timedelta(milliseconds=1)
        case Enum():
            return int(value.value)
        case list() | tuple():
            return tuple(plain(item) for item in value)
        case set():
            return int.from_bytes(sum(1 << bit for bit in value).to_bytes(4), signed=True)
        case memoryview() | bytearray():
            return bytes(value)
    return value


def read_kio(entity: Any, name: str) -> Any:
    """A field of a kio entity, which leaves units out of its names, and calls an id `id_`."""
    names = (name, name.removesuffix("_ms"), f"{name}_")
    return getattr(entity, next(each for each in names if hasattr(entity, each)))


def read_kafka_python(entity: Any, name: str) -> Any:
    """A field of a kafka-python message, which holds operations as a set under its own name."""
    if name.endswith("authorized_operations") and not name.startswith("include"):
        found = getattr(entity, name, ...)
        operations = entity.authorized_operations if found is ... else found
        return {31} if operations is None else operations
    return getattr(entity, name)


def differences(
    ours: Any, read: Callable[[Any, str], Any], theirs: Any, *, version: int
) -> list[str]:
    """Names of the fields in which an oracle's message is not ours."""
    found = []
    kind: type = type(ours)
    for field in fields_of(kind, version):
        mine, other = getattr(ours, field.name), read(theirs, field.name)
        if isinstance(field.type, type) and mine is not None:
            pairs = [*zip(mine, other, strict=True)] if field.is_array else [(mine, other)]
            for one, another in pairs:
                found += differences(one, read, another, version=version)
        elif field.type == "uuid" and mine is not None:
            pairs = [*zip(mine, other, strict=True)] if field.is_array else [(mine, other)]
            # kio has None for a UUID of zeros.
            if any(one != (another or UUID(int=0)) for one, another in pairs):
                found.append(f"{field.name}: {mine!r} is read as {other!r}")
        elif field.name == "log_append_time_ms" and other is None:
            found += [field.name] if mine != -1 else []
        elif plain(mine) != plain(other):
            found.append(f"{field.name}: {mine!r} is read as {other!r}")
    return found


def kio_class(message: type[Message], version: int) -> Any:
    """The class of kio for one version of one of our messages."""
    folder = message.__module__.rpartition(".")[2]
    is_api = re.search("(Request|Response)$", message.__name__)
    file = is_api[0].lower() if is_api else "data"
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{file}")
    return getattr(module, message.__name__)


def kafka_python_class(message: type[Message]) -> Any:
    """The class of kafka-python for one of our messages."""
    for package in ("producer", "consumer", "metadata", "admin", "sasl"):
        module = getattr(kafka.protocol, package)
        if hasattr(module, message.__name__):
            return getattr(module, message.__name__)
    raise LookupError(message.__name__)


def check_with_kio(sent: Any, version: int) -> None:
    """Assert that kio reads what we wrote, and writes it again alike."""
    out = bytearray()
    codec.encode(sent, version, out)
    kind = kio_class(type(sent), version)
    theirs, size = entity_reader(kind)(bytes(out), 0)
    assert size == len(out)
    assert differences(sent, read_kio, theirs, version=version) == []
    again = io.BytesIO()
    entity_writer(kind)(again, theirs)
    assert again.getvalue() == out


def check_with_kafka_python(sent: Any, version: int) -> None:
    """Assert that kafka-python reads what we wrote, and writes it again alike."""
    out = bytearray()
    codec.encode(sent, version, out)
    theirs = kafka_python_class(type(sent)).decode(bytes(out), version=version)
    assert differences(sent, read_kafka_python, theirs, version=version) == []
    theirs._header = None  # The slot is not set by decode, and encode reads it.
    assert theirs.encode(version=version) == out


@pytest.mark.parametrize("message", WIRE_MESSAGES, ids=name_of)
def test_kio_agrees(message: type[Message]) -> None:
    """The reader of kio finds our values in our bytes of each version, and writes them alike."""
    for version in versions_of(message):
        with in_version(version):
            for sent in (full_message(message, version), *samples(message, version)):
                check_with_kio(sent, version)


@pytest.mark.parametrize("message", KAFKA_PYTHON_MESSAGES, ids=name_of)
def test_kafka_python_agrees(message: type[Message]) -> None:
    """The reader of kafka-python finds our values in our bytes, and writes them alike."""
    has_error_rule = message.__name__ == "ApiVersionsResponse"
    for version in versions_of(message):
        with in_version(version):
            sent: Any
            for sent in (full_message(message, version), *samples(message, version)):
                check_with_kafka_python(
                    dataclasses.replace(sent, error_code=0) if has_error_rule else sent, version
                )


def test_keys_are_the_ones_of_kafka() -> None:
    """Our keys have the numbers and names that kio generates from Kafka's own schema."""
    assert {int(key): key.name.lower() for key in ApiKey} == dict(api_key_map)


def test_error_codes_are_the_ones_of_kafka() -> None:
    """Our codes have the numbers, names and retriability that kio takes from Kafka."""
    ours = {(code.name.lower(), int(code), code.is_retriable) for code in ErrorCode}
    assert ours == {(code.name, int(code.value), code.retriable) for code in KioErrorCode}
