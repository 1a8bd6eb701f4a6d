"""Responses that refuse a request with an error code, for any API, made from the message classes.

    Produce       topics -> partitions -> error_code          one for each partition of the request
    JoinGroup     error_code                                  one
    Metadata      the broker's own answer, with the error in each topic, and without its partitions

A response names what the request named: the elements of its arrays are made from those of the
request, and have their topic, partition, group, key or resource. The error is in the outermost
`error_code` that the version has. Fetch is the exception, whose outermost one is of fetch sessions.

Not here: when a request is refused (`request_faults`).
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailrace.protocol.apis import Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, WireField, wire_fields

FROM_ANSWER: Final = frozenset({ApiKey.METADATA, ApiKey.API_VERSIONS})
"""APIs whose refusals are made from the broker's own answer: clients need the rest of it."""

_SAME: Final = {
    "topic": "name",
    "topic_name": "name",
    "index": "partition",
    "partition_index": "partition",
}
"""Names that mean the same as another."""

_NAMING: Final = frozenset(
    {"name", "topic_id", "partition", "group_id", "key", "resource_type", "resource_name",
     "transactional_id", "producer_id", "entity"}
)  # fmt: skip
"""Fields by which an element of a response says of which element of the request it is."""

_REFUSED: Final = {
    "base_offset": -1, "high_watermark": -1, "low_watermark": -1, "node_id": -1, "port": -1,
    "committed_offset": -1, "records": b"",
}  # fmt: skip
"""Values of other fields of a refusal, where they differ from their defaults."""

_OUTERMOST: Final = {
    ApiKey.FETCH: frozenset(
        {
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        }
    ),
    ApiKey.METADATA: frozenset({ErrorCode.REBOOTSTRAP_REQUIRED}),
}
"""APIs whose outermost error code is for these errors only."""


def error_response(api: Api, request: Message, *, version: int, code: ErrorCode) -> Message | None:
    """The response that refuses all of a request; None if it names nothing that could be refused.

    Not for the APIs in `FROM_ANSWER`.
    """
    is_outermost = code in _OUTERMOST.get(api.key, (code,))
    found: Message | None = _refusal(
        api.response, request, code=code, version=version, is_outermost=is_outermost
    )
    return found


def has_place(request: Any, version: int) -> bool:  # noqa: ANN401 - any message of FROM_ANSWER
    """Whether the answer to a request of `FROM_ANSWER` has a place for an error."""
    # A Metadata request without topics asks for the brokers alone; in v0 it asks for all topics.
    return version == 0 or getattr(request, "topics", None) != ()


def with_error(answer: Any, code: ErrorCode) -> Message:  # noqa: ANN401 - as in has_place
    """A copy of an answer of `FROM_ANSWER` with the error."""
    refused: Message
    if hasattr(answer, "topics") and code not in _OUTERMOST[ApiKey.METADATA]:
        topics = (
            dataclasses.replace(each, error_code=code, partitions=()) for each in answer.topics
        )
        refused = dataclasses.replace(answer, topics=tuple(topics))
    else:
        refused = dataclasses.replace(answer, error_code=code)
    return refused


def _refusal(
    kind: type[Any], source: object, *, code: ErrorCode, version: int, is_outermost: bool = True
) -> Any:  # noqa: ANN401 - a message, or a part of one
    """A response, or an element of one, for a request or an element of one; None without place."""
    fields = _fields(kind, version)
    errors = [name for name in fields if _is_error(name)]
    if errors and is_outermost:
        values = {name: _REFUSED[name] for name in fields if name in _REFUSED}
        if "error_message" in fields:
            values["error_message"] = code.message
        return kind(**values | dict.fromkeys(errors, code) | _names(kind, source, version))
    for field in fields.values():
        if field.is_array and isinstance(field.type, type) and _has_error(field.type, version):
            made = (
                _refusal(field.type, each, code=code, version=version)
                for each in _elements(source, version)
            )
            elements = tuple(each for each in made if each is not None)
            if elements:
                return kind(**{field.name: elements} | _names(kind, source, version))
    return None


def _fields(kind: type, version: int) -> Mapping[str, WireField]:
    return {field.name: field for field in wire_fields(kind) if field.is_in(version)}


def _is_error(name: str) -> bool:
    return name in {"error_code", "partition_error_code"}


def _has_error(kind: type[Any], version: int) -> bool:
    return any(
        _is_error(field.name)
        or (field.is_array and isinstance(field.type, type) and _has_error(field.type, version))
        for field in _fields(kind, version).values()
    )


def _elements(source: object, version: int) -> Iterator[object]:
    """The elements of a request's first array, or of its arrays if those have no names."""
    if not dataclasses.is_dataclass(source):
        return
    for field in _fields(type(source), version).values():
        if field.is_array:
            for each in getattr(source, field.name) or ():
                # AlterReplicaLogDirs names paths first; its response begins with the topics.
                named = not dataclasses.is_dataclass(each) or bool(_named(each, version))
                within = () if named else tuple(_elements(each, version))
                yield from within or (each,)
            return


def _named(source: object, version: int) -> dict[str, object]:
    """The names that an element of a request has, by what they are called most often."""
    return {
        _SAME.get(name, name): getattr(source, name)
        for name in _fields(type(source), version)
        if _SAME.get(name, name) in _NAMING
    }


def _names(kind: type[Any], source: object, version: int) -> dict[str, object]:
    """The names of an element of a response, from the element of the request."""
    fields = _fields(kind, version)
    if dataclasses.is_dataclass(source):
        named = _named(source, version)
        return {name: named[same] for name in fields if (same := _SAME.get(name, name)) in named}
    # A number or a text alone: the first field that takes it.
    wanted = "int32" if isinstance(source, int) else "string"
    for name, field in fields.items():
        if field.type == wanted and not field.is_array and not field.is_nullable(version):
            return {name: source}
    return {}
