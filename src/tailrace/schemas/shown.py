"""Decoded keys and values as JSON has them, for commands that print records.

Times are ISO 8601, decimals and UUIDs text, messages objects with the field names of their schema;
bytes are text where they are UTF-8 and {"hex": "..."} elsewhere, as in all output of records.
"""

import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tailrace.schemas.errors import UndecodableError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tailrace.schemas.deserializers import SchemaDeserializer


class ShownValue(NamedTuple):
    """A key or value as it is printed."""

    value: object
    """The value as JSON has it; None if it could not be decoded."""
    fault: str | None
    """Why it could not be decoded."""


class ShownDecoder:
    """Decodes keys and values to be printed, and counts those that cannot be."""

    def __init__(
        self, *, key: "SchemaDeserializer | None", value: "SchemaDeserializer | None"
    ) -> None:
        """Without a deserializer keys or values are left as they are."""
        self._key = key
        self._value = value
        self.fault_count = 0
        """Keys and values that could not be decoded."""

    def key(self, data: bytes | None) -> ShownValue | None:
        """A key, or None if keys are not decoded.

        Raises:
            RegistryUnavailableError, RegistryRefusedError: as `SchemaDeserializer`.
        """
        return self._shown(self._key, data)

    def value(self, data: bytes | None) -> ShownValue | None:
        """A value, or None if values are not decoded; raises as `key`."""
        return self._shown(self._value, data)

    def _shown(
        self, deserializer: "SchemaDeserializer | None", data: bytes | None
    ) -> ShownValue | None:
        if deserializer is None:
            return None
        try:
            return ShownValue(as_json(deserializer.decode(data)), None)
        except (UndecodableError, RecursionError, ValueError) as error:
            self.fault_count += 1
            return ShownValue(None, str(error))


def as_json(value: object) -> object:
    """A decoded value as JSON has it.

    Raises:
        ValueError: a message has something that JSON has no form for, such as a year above 9999.
    """
    match value:
        case None | bool() | int():
            return value
        case str():
            return _text(value)
        case float():
            # JSON has neither NaN nor Infinity.
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {_text(str(name)): as_json(each) for name, each in value.items()}
        case list() | tuple():
            return [as_json(each) for each in value]
        case bytes():
            return _bytes(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case _:
            return _message(value)


def _text(text: str) -> str:
    # JSON can say half of a surrogate pair, which UTF-8 has no bytes for.
    return text if text.isascii() else text.encode(errors="replace").decode()


def _bytes(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _message(value: object) -> object:
    from google.protobuf import json_format

    message: Message = value
    try:
        # By default the names would be in camel case, which the schema does not have.
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (TypeError, json_format.Error, OverflowError) as error:
        raise ValueError(f"the message has no form in JSON: {error}") from error
