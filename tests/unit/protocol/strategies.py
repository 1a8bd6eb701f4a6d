"""Messages made from the tables: random ones by Hypothesis, and one with every field set.

A test of all messages has one item for each class and goes through the versions itself, because
an item of pytest costs more than most of these checks.
"""

import functools
import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tailrace.protocol import messages as message_package
from tailrace.protocol import records
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, WireField, wire_fields


def _declared_in(module: ModuleType) -> Iterator[type[Message]]:
    """Every message that a module declares, but no struct inside of one."""
    return (each for each in vars(module).values() if hasattr(each, "flexible_since"))


WIRE_MESSAGES = tuple(
    message
    for each in pkgutil.iter_modules(message_package.__path__, f"{message_package.__name__}.")
    for message in _declared_in(importlib.import_module(each.name))
)
"""Every request and response, and what consumers embed in them."""

RECORDS = tuple(_declared_in(records))
"""Every key and value of a coordinator's record."""

EVERY_MESSAGE = (*WIRE_MESSAGES, *RECORDS)
"""Every message that is generated."""


def versions_of(message: type[Message]) -> range:
    """All versions of a message that Kafka has."""
    return range(message.first_version, message.last_version + 1)


def name_of(message: type[Message]) -> str:
    """The name of a message in the ids of tests."""
    return message.__name__


SAMPLES = 6
"""Random messages of each class and version."""

_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
"""Bits of the signed numbers, without the sign."""


@contextmanager
def in_version(version: int) -> Iterator[None]:
    """Name the version in whatever is raised inside."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in version {version}")
        raise


@functools.cache
def fields_of(message: type, version: int) -> tuple[WireField, ...]:
    """The fields that this version of a message has."""
    return tuple(field for field in wire_fields(message) if field.is_in(version))


@functools.cache
def samples(message: type, version: int) -> tuple[object, ...]:
    """Random messages of this class and version; the same ones in every run."""
    found = []

    @settings(
        max_examples=SAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(messages(message, version))
    def note(sample: object) -> None:
        found.append(sample)

    note()
    return tuple(found)


@functools.cache
def messages(message: type, version: int) -> st.SearchStrategy[object]:
    """Messages of this class with the fields of this version, the others at their defaults."""
    fields = fields_of(message, version)
    return st.builds(message, **{field.name: _values(field, version) for field in fields})


def _values(field: WireField, version: int) -> st.SearchStrategy[object]:
    one = _one(field, version)
    values = st.lists(one, max_size=2).map(tuple) if field.is_array else one
    return st.none() | values if field.is_nullable(version) else values


def _one(field: WireField, version: int) -> st.SearchStrategy[object]:
    kind = field.type
    if isinstance(kind, type):
        return messages(kind, version)
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in ErrorCode])
    if field.name.endswith("_ms"):
        # The oracles hold durations as timedelta, which has no place for all of int64.
        return st.integers(0, 2**31 - 1)
    match kind:
        case "bool":
            return st.booleans()
        case "string":
            return st.text(max_size=8) | st.just("x" * 200)
        case "uuid":
            return st.uuids() | st.just(UUID(int=0))
        case "bytes" | "records":
            return st.binary(max_size=8) | st.just(b"r" * 300)
        case "uint16":
            return st.integers(0, 2**16 - 1)
        case "float64":
            return st.floats(allow_nan=False)
        case _:
            bits = _BITS[kind]
            return st.integers(-(2**bits), 2**bits - 1)


def full_message(message: type, version: int) -> object:
    """A message with every field of this version set, no two numbers of it alike."""
    return _full(message, version, itertools.count(1))


def _full(message: type, version: int, numbers: "itertools.count[int]") -> object:
    values: dict[str, object] = {}
    for field in fields_of(message, version):
        items = tuple(_full_one(field, version, numbers) for _ in range(2))
        values[field.name] = items if field.is_array else items[0]
    return message(**values)


def _full_one(field: WireField, version: int, numbers: "itertools.count[int]") -> object:
    number = next(numbers)
    match field.type:
        case "bool":
            return True
        case "string":
            return f"name-{number}"
        case "uuid":
            return UUID(int=number)
        case "bytes" | "records":
            return b"records" * number
        case "float64":
            return number / 4
        case "int8" | "int16":
            return number % 120
        case str():
            return number
        case nested:
            return _full(nested, version, numbers)
