"""`audited`: a handler, with a line in the audit log for each change that its requests make.

The table has a function for each API that changes something for others: it gives the events of a
request by its answer. A change that was refused, or only checked (`validate_only`), is none. What a
client may not do has a line of the authorizer.

Not here: who has asked, and what a flood becomes (`security.audit`); groups, transactions and
records, which change by their ordinary use.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, Final

from tailrace.cluster.control.credentials import MECHANISMS
from tailrace.config.settings import HIDDEN, is_secret_name
from tailrace.protocol.answers import Answer, Deferred, Handled, Handler, LongAnswer
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigOperation, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.security.acls import AclOperation, AclResource, PatternType, Permission
from tailrace.security.audit import Audit
from tailrace.storage.checkpoints import format_topic_id

Data = Any
"""A message of any API, or a part of one."""

Events = Iterator[tuple[str, Mapping[str, Hashable]]]
"""Names of events with their fields."""


def _topics_created(request: Data, answer: Data) -> Events:
    for each in () if request.validate_only else _done(answer.topics):
        yield (
            "topic_created",
            {
                "topic": each.name,
                "topic_id": format_topic_id(each.topic_id),
                "partitions": each.num_partitions,
                "replication_factor": each.replication_factor,
            },
        )


def _topics_deleted(_: Data, answer: Data) -> Events:
    for each in _done(answer.responses):
        yield "topic_deleted", {"topic": each.name, "topic_id": format_topic_id(each.topic_id)}


def _partitions_created(request: Data, answer: Data) -> Events:
    counts = {each.name: each.count for each in request.topics}
    for each in () if request.validate_only else _done(answer.results):
        yield "partitions_created", {"topic": each.name, "partitions": counts[each.name]}


def _records_deleted(_: Data, answer: Data) -> Events:
    for topic in answer.topics:
        for each in _done(topic.partitions):
            yield (
                "records_deleted",
                {
                    "topic": topic.name,
                    "partition": each.partition_index,
                    "log_start_offset": each.low_watermark,
                },
            )


def _configs_changed(request: Data, answer: Data, *, is_replaced: bool = False) -> Events:
    done = {(each.resource_type, each.resource_name) for each in _done(answer.responses)}
    for resource in () if request.validate_only else request.resources:
        if (resource.resource_type, resource.resource_name) not in done:
            continue
        named = {
            "resource_type": _name(ResourceType, resource.resource_type),
            "resource": resource.resource_name,
        }
        if is_replaced:
            # Those that it does not name have their defaults then.
            yield "configs_reset", named
        for each in resource.configs:
            operation = getattr(each, "config_operation", ConfigOperation.SET)
            # A test holds that what is declared as a secret has such a name.
            is_secret = is_secret_name(each.name) or ".certificate" in each.name
            value = HIDDEN if is_secret and each.value else each.value
            changed = {
                "config": each.name,
                "operation": _name(ConfigOperation, operation),
                "value": None if operation == ConfigOperation.DELETE else value,
            }
            yield "config_changed", {**named, **changed}


def _acls_created(request: Data, answer: Data) -> Events:
    for each, result in zip(request.creations, answer.results, strict=False):
        if not result.error_code:
            yield "acl_created", _acl(each, each.resource_pattern_type)


def _acls_deleted(_: Data, answer: Data) -> Events:
    for result in _done(answer.filter_results):
        for each in _done(result.matching_acls):
            yield "acl_deleted", _acl(each, each.pattern_type)


def _acl(entry: Data, pattern: int) -> Mapping[str, Hashable]:
    return {
        "resource_type": _name(AclResource, entry.resource_type),
        "pattern": _name(PatternType, pattern),
        "resource": entry.resource_name,
        "acl_principal": entry.principal,
        "acl_host": entry.host,
        "operation": _name(AclOperation, entry.operation),
        "permission": _name(Permission, entry.permission_type),
    }


def _scram_changed(request: Data, answer: Data) -> Events:
    done = {each.user for each in _done(answer.results)}
    for event, changes in (
        ("scram_credential_deleted", request.deletions),
        ("scram_credential_set", request.upsertions),
    ):
        for each in changes:
            if each.name in done:
                yield event, {"user": each.name, "mechanism": MECHANISMS[each.mechanism]}


def _quotas_changed(request: Data, answer: Data) -> Events:
    done = {_entity(each.entity) for each in _done(answer.entries)}
    for entry in () if request.validate_only else request.entries:
        entity = _entity(entry.entity)
        for each in entry.ops if entity in done else ():
            yield (
                "quota_changed",
                {
                    "entity": entity,
                    "quota": each.key,
                    "value": None if each.remove else each.value,
                },
            )


def _entity(parts: Data) -> str:
    names = {each.entity_type: each.entity_name for each in parts}
    return ",".join(
        f"{kind}={'<default>' if name is None else name}" for kind, name in sorted(names.items())
    )


def _groups_deleted(_: Data, answer: Data) -> Events:
    for each in _done(answer.results):
        yield "group_deleted", {"group": each.group_id}


def _offsets_deleted(request: Data, answer: Data) -> Events:
    for topic in () if answer.error_code else answer.topics:
        if done := [each.partition_index for each in _done(topic.partitions)]:
            yield "group_offsets_deleted", {
                "group": request.group_id, "topic": topic.name, "partitions": _listed(done),
            }  # fmt: skip


def _broker_unregistered(request: Data, answer: Data) -> Events:
    if not answer.error_code:
        yield "broker_unregistered", {"broker": request.broker_id}


def _replicas_assigned(request: Data, answer: Data) -> Events:
    done = {
        (topic.name, each.partition_index)
        for topic in (() if answer.error_code else answer.responses)
        for each in _done(topic.partitions)
    }
    for topic in request.topics:
        for each in topic.partitions:
            if (topic.name, each.partition_index) not in done:
                continue
            named = {"topic": topic.name, "partition": each.partition_index}
            if each.replicas is None:
                yield "reassignment_cancelled", named
            else:
                yield "reassignment_started", {**named, "replicas": _listed(each.replicas)}


def _features_changed(request: Data, answer: Data) -> Events:
    refused = answer.error_code or request.validate_only
    for each in () if refused else request.feature_updates:
        yield "feature_changed", {"feature": each.feature, "level": each.max_version_level}


def _leaders_elected(request: Data, answer: Data) -> Events:
    for topic in () if answer.error_code else answer.replica_election_results:
        if done := [each.partition_id for each in _done(topic.partition_result)]:
            yield "leader_election", {
                "topic": topic.topic, "partitions": _listed(done),
                "election": "UNCLEAN" if request.election_type else "PREFERRED",
            }  # fmt: skip


def _directories_assigned(request: Data, answer: Data) -> Events:
    done = {
        (topic.topic_name, each.partition_index)
        for topic in answer.results
        for each in _done(topic.partitions)
    }
    for directory in request.dirs:
        for topic in directory.topics:
            for each in topic.partitions:
                if (topic.name, each) in done:
                    yield "replica_move_started", {
                        "topic": topic.name, "partition": each, "directory": directory.path,
                    }  # fmt: skip


EVENTS: Final[Mapping[int, Callable[[Data, Data], Events]]] = {
    ApiKey.CREATE_TOPICS: _topics_created,
    ApiKey.DELETE_TOPICS: _topics_deleted,
    ApiKey.CREATE_PARTITIONS: _partitions_created,
    ApiKey.DELETE_RECORDS: _records_deleted,
    ApiKey.ALTER_CONFIGS: partial(_configs_changed, is_replaced=True),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs_changed,
    ApiKey.CREATE_ACLS: _acls_created,
    ApiKey.DELETE_ACLS: _acls_deleted,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _scram_changed,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas_changed,
    ApiKey.DELETE_GROUPS: _groups_deleted,
    ApiKey.OFFSET_DELETE: _offsets_deleted,
    ApiKey.UNREGISTER_BROKER: _broker_unregistered,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _replicas_assigned,
    ApiKey.UPDATE_FEATURES: _features_changed,
    ApiKey.ELECT_LEADERS: _leaders_elected,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _directories_assigned,
}
"""The events of each API, from a request and its answer."""


def audited(handler: Handler, key: int, audit: Audit) -> Handler:
    """The handler, whose changes are logged; itself, if its API changes nothing of others."""
    events_of = EVENTS.get(key)
    if events_of is None:
        return handler
    events = events_of

    def handle(header: RequestHeader, request: Data) -> Handled:
        def note(answer: Answer) -> None:
            for event, fields in events(request, answer):
                audit.changed(header, event, fields)

        handled = handler(header, request)
        assert not isinstance(handled, LongAnswer | Deferred), "no answer of these APIs is"
        if isinstance(handled, Awaitable):
            return audit.whole(handled, note)
        note(handled)
        return handled

    return handle


def _done(results: Data) -> Iterator[Data]:
    return (each for each in results if each.error_code == ErrorCode.NONE)


def _listed(numbers: Data) -> str:
    return ",".join(map(str, numbers))


def _name(kind: type[IntEnum], number: int) -> str:
    # An entry or a setting may be of another release.
    return kind(number).name if number in set(kind) else str(number)
