"""Answers that refuse a request, or parts of one, with an error.

    refusal         the answer to all of a request: not allowed, or no controller answers
    refused_parts   the elements for some parts of a request, beside the answer for the others

Most answers have an error for each part that the request names, some have one for all, two have
both. As `getErrorResponse` of Kafka's requests; here are the APIs whose answer has parts.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tailrace.protocol.apis import Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, wire_fields

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class _Parts(NamedTuple):
    """An array of an answer with an error in each part, and the array of the request for it."""

    answered: str
    asked: str
    names: tuple[str, ...] = ()
    """The fields that name the part; both sides call them the same, unless the request has only
    names or numbers there."""
    inner: "_Parts | None" = None
    """The array within that has the errors; None: this one has them."""
    values: Mapping[str, Any] = _NOTHING
    """Values of other fields beside an error, where they are not the defaults."""


_INDEXES: Final = _Parts("partitions", "partitions", ("partition_index",))
_INDEX_LIST: Final = _Parts("partitions", "partition_indexes", ("partition_index",))
_ADDED: Final = _Parts("results_by_partition", "partitions", ("partition_index",))
_RESOURCE: Final = ("resource_type", "resource_name")

_PARTS: Final[Mapping[ApiKey, _Parts]] = {
    ApiKey.PRODUCE: _Parts(
        "responses", "topic_data", ("name", "topic_id"),
        _Parts("partition_responses", "partition_data", ("index",), values={"base_offset": -1}),
    ),
    ApiKey.LIST_OFFSETS: _Parts("topics", "topics", ("name",), _INDEXES),
    ApiKey.OFFSET_COMMIT: _Parts("topics", "topics", ("name", "topic_id"), _INDEXES),
    ApiKey.DESCRIBE_GROUPS: _Parts("groups", "groups", ("group_id",)),
    ApiKey.CREATE_TOPICS: _Parts("topics", "topics", ("name",)),
    ApiKey.DELETE_RECORDS: _Parts(
        "topics", "topics", ("name",), _INDEXES._replace(values={"low_watermark": -1})
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Parts(
        "topics", "topics", ("topic",), _Parts("partitions", "partitions", ("partition",))
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _Parts(
        "results_by_topic_v3_and_below", "v3_and_below_topics", ("name",), _ADDED
    ),
    ApiKey.WRITE_TXN_MARKERS: _Parts(
        "markers", "markers", ("producer_id",), _Parts("topics", "topics", ("name",), _INDEX_LIST)
    ),
    ApiKey.TXN_OFFSET_COMMIT: _Parts("topics", "topics", ("name",), _INDEXES),
    ApiKey.CREATE_ACLS: _Parts("results", "creations"),
    ApiKey.DELETE_ACLS: _Parts("filter_results", "filters"),
    ApiKey.DESCRIBE_CONFIGS: _Parts("results", "resources", _RESOURCE),
    ApiKey.ALTER_CONFIGS: _Parts("responses", "resources", _RESOURCE),
    ApiKey.CREATE_PARTITIONS: _Parts("results", "topics", ("name",)),
    ApiKey.DELETE_GROUPS: _Parts("results", "groups_names", ("group_id",)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Parts("responses", "resources", _RESOURCE),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _Parts("responses", "topics", ("name",), _INDEXES),
    ApiKey.OFFSET_DELETE: _Parts("topics", "topics", ("name",), _INDEXES),
    ApiKey.ALTER_CLIENT_QUOTAS: _Parts("entries", "entries", ("entity",)),
    ApiKey.DESCRIBE_PRODUCERS: _Parts("topics", "topics", ("name",), _INDEX_LIST),
    ApiKey.DESCRIBE_TRANSACTIONS: _Parts(
        "transaction_states", "transactional_ids", ("transactional_id",)
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Parts("groups", "group_ids", ("group_id",)),
}  # fmt: skip

_WITHOUT_PARTS: Final = frozenset({ApiKey.OFFSET_DELETE})
"""The APIs whose answer has one error where all of a request is refused, and parts otherwise."""

_CODES: Final = ("error_code", "partition_error_code")


def answered_parts(key: ApiKey) -> str:
    """The array of an API's answer that `refused_parts` are elements of."""
    return _PARTS[key].answered


def refused_parts(
    api: Api, asked: Iterable[Any], code: ErrorCode, *, message: str | None = None
) -> tuple[Any, ...]:
    """The elements of an API's answer that refuse these parts of a request."""
    parts = _PARTS[api.key]
    kind = _part_of(api.response, parts.answered)
    message = message or code.message
    return tuple(_refused(kind, each, parts, code=code, message=message) for each in asked)


def _refused(
    kind: type[Any],
    asked: Any,  # noqa: ANN401 - a part of any request
    parts: _Parts,
    *,
    code: ErrorCode,
    message: str,
) -> Any:  # noqa: ANN401 - a part of its answer
    if isinstance(asked, str | int):
        fields: dict[str, Any] = {parts.names[0]: asked}
    else:
        fields = _named(asked, parts.names)
    if parts.inner is None:
        return kind(**fields, **_errors(kind, code, message), **parts.values)
    inner, inner_kind = parts.inner, _part_of(kind, parts.inner.answered)
    fields[inner.answered] = tuple(
        _refused(inner_kind, each, inner, code=code, message=message)
        for each in getattr(asked, inner.asked)
    )
    return kind(**fields)


def _errors(kind: type[Any], code: ErrorCode, message: str) -> dict[str, Any]:
    """The fields of a message that have an error; those between nodes have no text for it."""
    named = {each.name for each in wire_fields(kind)}
    found: dict[str, Any] = {name: code for name in _CODES if name in named}
    return found | ({"error_message": message} if "error_message" in named else {})


def refusal(
    api: Api,
    request: Any,  # noqa: ANN401 - any of them
    code: ErrorCode,
    *,
    message: str | None = None,
) -> Message:
    """The answer that refuses all of a request, as far as the API has one for that."""
    make: Any = api.response
    message = message or code.message
    found: Message
    error = _errors(make, code, message)
    match api.key:
        case ApiKey.DELETE_TOPICS:
            part = _part_of(make, "responses")
            # Up to version 5 a request has names alone.
            topics = [{"name": each} for each in request.topic_names]
            topics += [_named(each, ("name", "topic_id")) for each in request.topics]
            error = _errors(part, code, message)
            found = make(responses=tuple(part(**error, **each) for each in topics))
        case ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
            part = _part_of(make, "results")
            # One result for each user, whatever is asked for it.
            users = sorted({each.name for each in (*request.deletions, *request.upsertions)})
            error = _errors(part, code, message)
            found = make(results=tuple(part(user=each, **error) for each in users))
        case ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:
            part = _part_of(make, "results")
            # As in Kafka without the users.
            results = tuple(part(**_errors(part, code, message)) for _ in request.users or ())
            found = make(**error, results=results)
        case ApiKey.ELECT_LEADERS:
            parts = _Parts(
                "replica_election_results", "topic_partitions", ("topic",),
                _Parts("partition_result", "partitions", ("partition_id",)),
            )  # fmt: skip
            # None stands for all partitions, which are not known here.
            asked = request.topic_partitions or ()
            kind = _part_of(make, parts.answered)
            results = tuple(
                _refused(kind, each, parts, code=code, message=message) for each in asked
            )
            found = make(error_code=code, replica_election_results=results)
        case ApiKey.ALTER_REPLICA_LOG_DIRS:
            topic = _part_of(make, "results")
            part = _part_of(topic, "partitions")
            asked = [each for moved in request.dirs for each in moved.topics]
            indexes: dict[str, list[Any]] = {each.name: [] for each in asked}
            for each in asked:
                indexes[each.name] += (
                    part(partition_index=index, error_code=code) for index in each.partitions
                )
            found = make(
                results=tuple(
                    topic(topic_name=name, partitions=tuple(each)) for name, each in indexes.items()
                )
            )
        case ApiKey.ADD_PARTITIONS_TO_TXN if request.transactions:
            found = make(**error)  # The transactions of a broker.
        case ApiKey.INIT_PRODUCER_ID:
            found = make(**error, producer_id=-1, producer_epoch=-1)
        case _ if api.key in _PARTS and api.key not in _WITHOUT_PARTS:
            parts = _PARTS[api.key]
            asked = getattr(request, parts.asked)
            refused = refused_parts(api, asked, code, message=message)
            found = make(**error, **{parts.answered: refused})
        case _:
            found = make(**error)
    return found


def _named(source: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _part_of(kind: type[Any], name: str) -> Any:  # noqa: ANN401 - a class of a message
    """The class of the elements of an array of a message."""
    return next(each.type for each in wire_fields(kind) if each.name == name)
