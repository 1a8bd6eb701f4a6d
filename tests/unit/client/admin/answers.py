"""Answers with names and numbers as the calls of `calls` have them."""

import random
from typing import Any
from uuid import UUID

from tailrace.model import METADATA_TOPIC
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import WireField
from tests.unit.protocol.strategies import fields_of

_TEXTS = ("t", "g", "x", "u", "m", "f", "/d", "User:u", "user", "consumer", METADATA_TOPIC, "")
_NUMBERS = (0, 1, 2, 5, -1)
_CODES = (*[0] * 9, *map(int, ErrorCode))


def plausible(message: type, version: int, chance: random.Random) -> Any:
    """A message with the names and numbers of `calls`; one code in ten is an error."""
    values: dict[str, object] = {}
    for field in fields_of(message, version):
        if field.is_nullable(version) and chance.random() < 0.1:
            values[field.name] = None
        elif field.is_array:
            count = chance.choice((0, 1, 1, 2))
            values[field.name] = tuple(_one(field, version, chance) for _ in range(count))
        else:
            values[field.name] = _one(field, version, chance)
    return message(**values)


def _one(field: WireField, version: int, chance: random.Random) -> object:
    if isinstance(field.type, type):
        return plausible(field.type, version, chance)
    if field.name.endswith("error_code"):
        return chance.choice(_CODES)
    match field.type:
        case "bool":
            return chance.random() < 0.5
        case "string":
            return chance.choice(_TEXTS)
        case "uuid":
            return UUID(int=chance.choice((0, 7)))
        case "bytes" | "records":
            return b""
        case "float64":
            return 1.0
        case _:
            return chance.choice(_NUMBERS)
