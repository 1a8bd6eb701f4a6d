"""Serializers: make bytes of keys and values.

Bytes are sent unchanged, a `str` as UTF-8, and None as null, which in a compacted topic deletes the
key. Other types need a serializer: any callable of one argument that returns bytes, a `str` or
None, such as `json.dumps`. Those of this module give the same bytes as Kafka's own serializers of
the same type.

A serializer is not called for None, so it need not handle deletions.

Not here: serializers that register a schema.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

from tailrace.client.producer.errors import SerializationError

Serializer = Callable[[Any], bytes | bytearray | memoryview | str | None]
"""Turns a key or value into bytes, or into a type that can be sent without a serializer."""


def serialize(data: object, serializer: Serializer | None, *, setting: str) -> bytes | None:
    """The bytes of a key or value; a buffer that could change later is copied.

    `setting` is the name that the serializer is set by: `key_serializer` or `value_serializer`.

    Raises:
        SerializationError: the serializer failed, with its error as the cause; or it returned a
            type that cannot be sent; or there is no serializer and the type needs one.
    """
    if serializer is not None and data is not None:
        try:
            data = serializer(data)
        except Exception as error:
            raise SerializationError(
                f"{setting} failed on a {type(data).__qualname__}: {error}"
            ) from error
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        try:
            return str.encode(data)
        except UnicodeEncodeError as error:
            raise SerializationError(f"a str cannot be encoded as UTF-8: {error}") from error
    if isinstance(data, bytes | bytearray | memoryview):
        try:
            # By a memoryview, since a subclass may override `__bytes__`.
            return bytes(memoryview(data))
        except ValueError as error:
            raise SerializationError(f"a memoryview was released before: {error}") from error
    kind = type(data).__qualname__
    if serializer is not None:
        raise SerializationError(f"{setting} returned a {kind}, not bytes, str or None")
    raise SerializationError(
        f"a {kind} cannot be sent without a serializer: give bytes, str or None, or set {setting}"
    )


def serialize_json(value: object) -> str:
    """JSON without spaces, as UTF-8; NaN and infinities raise ValueError, as JSON lacks them."""
    return _json_encode()(value)


@cache
def _json_encode() -> Callable[[object], str]:
    import json  # Takes 2 ms, and most producers send none.

    return json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def serialize_long(value: int) -> bytes:
    """8 bytes, big-endian, as Kafka's LongSerializer; a larger number raises struct.error."""
    return struct.pack(">q", value)


def serialize_double(value: float) -> bytes:
    """8 bytes, big-endian IEEE 754, as Kafka's DoubleSerializer."""
    return struct.pack(">d", value)


def serialize_uuid(value: UUID) -> str:
    """The 36 characters of a UUID, as Kafka's UUIDSerializer."""
    return str(value)
