"""Every generated message in every version, as we and as Kafka's own classes write it.

Kafka's classes read a message from JSON and write its bytes; Encode.java calls them. It is compiled
when it is run, so this takes a JDK.

Not here: messages with `records`, for which Kafka's JSON has only their size: requests of Produce
and responses of Fetch.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from compat.kafka import run_java
from compat.report import Report
from tailrace.protocol import codec
from tailrace.protocol.fields import Message, WireField, wire_fields
from tests.unit.protocol.strategies import EVERY_MESSAGE, full_message, versions_of

_PROGRAM = Path(__file__).with_name("Encode.java")


def check(report: Report, java: Path, class_path: str, directory: Path) -> None:
    """Have both sides write the same messages."""
    written = [
        (message.__name__, version, sample)
        for message in EVERY_MESSAGE
        if not _has_records(message)
        for version in versions_of(message)
        for sample in samples(message, version)
    ]
    path = directory / "messages.tsv"
    lines = (
        f"{name}\t{number}\t{json.dumps(as_json(each, number))}\n" for name, number, each in written
    )
    path.write_text("".join(lines))
    printed = run_java(java, class_path, [str(_PROGRAM), str(path)]).splitlines()
    differences = [] if len(printed) == len(written) else [f"Kafka has written {len(printed)}"]
    for (name, version, sample), theirs in zip(written, printed, strict=False):
        ours = bytearray()
        codec.encode(sample, version, ours)
        if ours.hex() != theirs:
            differences.append(f"{name} v{version} {ours.hex()} is {theirs} for Kafka")
    report.check(
        f"{len(written)} messages of all kinds and versions are the bytes that Kafka writes",
        differences,
    )


def samples(message: type[Message], version: int) -> Iterator[Any]:
    """Messages with every field set, with all fields at their defaults, and with nulls."""
    full: Any = full_message(message, version)
    fields = [each for each in wire_fields(message) if each.is_in(version)]
    nulls = [each.name for each in fields if each.is_nullable(version)]
    yield from (full, message(), replace(full, **dict.fromkeys(nulls)))


def as_json(message: Any, version: int) -> dict[str, Any]:  # noqa: ANN401 - a message or a struct
    """The fields of a version as Kafka shows them, tagged ones only if they are written."""
    return {
        _camel_case(field.name): _shown(field, getattr(message, field.name), version)
        for field in wire_fields(type(message))
        if field.is_in(version)
        and (field.tag is None or getattr(message, field.name) != field.default)
    }


def _has_records(message: type) -> bool:
    return any(
        field.type == "records" or (isinstance(field.type, type) and _has_records(field.type))
        for field in wire_fields(message)
    )


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _shown(field: WireField, value: Any, version: int) -> Any:  # noqa: ANN401 - of any field
    if value is None:
        return None
    if field.is_array:
        return [_one(each, version) for each in value]
    return _one(value, version)


def _one(value: Any, version: int) -> Any:  # noqa: ANN401 - of any field
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case UUID():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case bool() | int() | float() | str():
            return value
    return as_json(value, version)
