"""`refusal`: the answer to a request that a controller refuses or does not answer, with the error.

Most answers have an error for each part that the request names, some have one for all, two have
both. As `getErrorResponse` of Kafka's requests, for those that a broker forwards.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tailrace.protocol.apis import Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, wire_fields


class _Parts(NamedTuple):
    """An array of an answer with an error in each part, and the array of the request for it."""

    answered: str
    asked: str
    names: tuple[str, ...] = ()
    """The fields that name the part; both sides call them the same."""


_PARTS: Final[Mapping[ApiKey, _Parts]] = {
    ApiKey.CREATE_TOPICS: _Parts("topics", "topics", ("name",)),
    ApiKey.CREATE_PARTITIONS: _Parts("results", "topics", ("name",)),
    ApiKey.CREATE_ACLS: _Parts("results", "creations"),
    ApiKey.DELETE_ACLS: _Parts("filter_results", "filters"),
    ApiKey.ALTER_CONFIGS: _Parts("responses", "resources", ("resource_type", "resource_name")),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Parts(
        "responses", "resources", ("resource_type", "resource_name")
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _Parts("entries", "entries", ("entity",)),
}


def refusal(
    api: Api,
    request: Any,  # noqa: ANN401 - any of them
    code: ErrorCode,
    *,
    message: str | None = None,
) -> Message:
    """The answer that refuses all of a request of a forwarded API, or of one between nodes."""
    make: Any = api.response
    error = {"error_code": code, "error_message": message or code.message}
    found: Message
    if (parts := _PARTS.get(api.key)) is not None:
        part = _part_of(make, parts.answered)
        asked = getattr(request, parts.asked)
        answered = (part(**error, **_named(each, parts.names)) for each in asked)
        found = make(**{parts.answered: tuple(answered)})
        return found
    match api.key:
        case ApiKey.DELETE_TOPICS:
            part = _part_of(make, "responses")
            # Up to version 5 a request has names alone.
            topics = [{"name": each} for each in request.topic_names]
            topics += [_named(each, ("name", "topic_id")) for each in request.topics]
            found = make(responses=tuple(part(**error, **each) for each in topics))
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            part = _part_of(make, "results")
            # One result for each user, whatever is asked for it.
            users = sorted({each.name for each in (*request.deletions, *request.upsertions)})
            found = make(results=tuple(part(user=each, **error) for each in users))
        case ApiKey.ELECT_LEADERS:
            # None stands for all partitions, which are not known here.
            elections = tuple(_elections(make, request.topic_partitions or (), error))
            found = make(error_code=code, replica_election_results=elections)
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            found = make(**error, responses=tuple(_reassignments(make, request.topics, error)))
        case _:
            # Those between nodes have no message.
            named = {each.name for each in wire_fields(make)}
            found = make(**{name: value for name, value in error.items() if name in named})
    return found


def _elections(answer: type[Any], topics: Iterable[Any], error: Mapping[str, Any]) -> Iterator[Any]:
    topic = _part_of(answer, "replica_election_results")
    part = _part_of(topic, "partition_result")
    for asked in topics:
        results = (part(partition_id=each, **error) for each in asked.partitions)
        yield topic(topic=asked.topic, partition_result=tuple(results))


def _reassignments(
    answer: type[Any], topics: Iterable[Any], error: Mapping[str, Any]
) -> Iterator[Any]:
    topic = _part_of(answer, "responses")
    part = _part_of(topic, "partitions")
    for asked in topics:
        results = (part(partition_index=each.partition_index, **error) for each in asked.partitions)
        yield topic(name=asked.name, partitions=tuple(results))


def _named(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _part_of(kind: type[Any], name: str) -> Any:  # noqa: ANN401 - a class of a message
    """The class of the elements of an array of a message."""
    return next(each.type for each in wire_fields(kind) if each.name == name)
