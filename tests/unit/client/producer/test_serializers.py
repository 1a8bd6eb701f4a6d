"""Which keys and values can be sent, as which bytes, and what is said of the others."""

import json
import math
import struct
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest

from tailrace.client.producer.errors import SerializationError
from tailrace.client.producer.plugins import (
    Serialized,
    serialize,
    serialize_double,
    serialize_json,
    serialize_long,
    serialize_uuid,
)

Function = Callable[[Any], Serialized]
"""A serializer that needs no topic."""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"bytes", b"bytes"),
        (b"", b""),
        (bytearray(b"buffer"), b"buffer"),
        (memoryview(b"a view")[::2], b"ave"),
        ("Zürich", "Zürich".encode()),
        (None, None),
    ],
)
def test_bytes_and_text_are_sent_as_they_are(data: object, expected: bytes | None) -> None:
    """Buffers and str need no serializer, and None stays None."""
    assert serialize(data, None, setting="value_serializer") == expected


def test_a_buffer_that_changes_later_was_copied() -> None:
    """Changing a bytearray after the call does not change the record."""
    buffer = bytearray(b"before")
    sent = serialize(memoryview(buffer), None, setting="value_serializer")
    buffer[:] = b"behind"
    assert sent == b"before"


@pytest.mark.parametrize("data", [{"a": 1}, 5, 1.5, [b"x"], object()])
def test_any_other_type_is_refused_with_what_to_do(data: object) -> None:
    """The error names the type and the setting that would help."""
    kind = type(data).__name__
    with pytest.raises(SerializationError, match=f"a {kind} cannot be sent .* key_serializer"):
        serialize(data, None, setting="key_serializer")


def test_text_that_utf8_cannot_encode_is_refused() -> None:
    """Half of a surrogate pair is not sent as something else."""
    with pytest.raises(SerializationError, match="UTF-8"):
        serialize("\ud800", None, setting="value_serializer")


def test_any_callable_that_gives_bytes_or_text_will_do() -> None:
    """A function of one argument is a serializer, also one that returns a str."""
    assert serialize([1], json.dumps, setting="value_serializer") == b"[1]"
    assert serialize([1], bytearray, setting="value_serializer") == b"\x01"


def test_none_is_a_deletion_whatever_the_serializer() -> None:
    """A serializer is not called for None, so None does not become JSON's null."""
    assert serialize(None, json.dumps, setting="value_serializer") is None


def test_what_a_serializer_raises_is_the_cause() -> None:
    """The error says which setting failed on which type, and carries the original."""
    with pytest.raises(SerializationError, match="value_serializer failed on a object") as caught:
        serialize(object(), json.dumps, setting="value_serializer")
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_serializer_must_give_something_that_can_be_sent() -> None:
    """The error names the type that the serializer returned, not its argument's."""
    with pytest.raises(SerializationError, match="value_serializer returned a dict"):
        serialize("{}", cast("Function", json.loads), setting="value_serializer")


@pytest.mark.parametrize(
    ("serializer", "value", "expected"),
    [
        (serialize_json, {"ä": [1, None]}, '{"ä":[1,null]}'.encode()),
        (serialize_long, -2, b"\xff" * 7 + b"\xfe"),
        (serialize_double, 1.0, b"\x3f\xf0" + bytes(6)),
        (
            serialize_uuid,
            UUID("F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"),
            b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ),
    ],
)
def test_ready_serializers_write_kafkas_bytes(
    serializer: Function, value: object, expected: bytes
) -> None:
    """The bytes are those that Kafka's serializer of the type writes; JSON has no spaces."""
    assert serialize(value, serializer, setting="value_serializer") == expected


@pytest.mark.parametrize(
    ("serializer", "value", "cause"),
    [(serialize_json, math.nan, ValueError), (serialize_long, 2**63, struct.error)],
)
def test_values_without_a_form_are_refused(
    serializer: Function, value: object, cause: type[Exception]
) -> None:
    """NaN is not JSON, and a number beyond 64 bits is not a long."""
    with pytest.raises(SerializationError) as caught:
        serialize(value, serializer, setting="value_serializer")
    assert isinstance(caught.value.__cause__, cause)
