"""Checks of the APIs whose requests or answers have a form that the table alone does not tell.

    Produce, InitProducerId, AddPartitionsToTxn   one right or another, by what the request does
    Metadata, OffsetFetch                         names, or all that may be seen
    FindCoordinator, DeleteTopics, settings       names of several kinds
    ConsumerGroupDescribe, DescribeTransactions   topics within what is described
    CreateTopics, DescribeGroups, DescribeCluster what an answer says besides

Operations and errors are those of the table; each function takes the needs of its API in the order
of the table.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from tailrace.handlers.guards import Check, Checked, Data, Guard, Steps, by_table
from tailrace.handlers.produce_refusals import has_transactional
from tailrace.handlers.refusals import answered_parts, refused_parts
from tailrace.handlers.services import NO_OPERATIONS
from tailrace.model import INTERNAL_TOPICS, Acks
from tailrace.protocol.answers import CloseConnectionError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, wire_fields
from tailrace.protocol.frames import RequestHeader
from tailrace.security.acls import CLUSTER_NAME, AclResource
from tailrace.security.needs import Need
from tailrace.values import replace

LONG: Final = frozenset({ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS})
"""Their answers to requests of many names are long."""

_METADATA_IDS_SINCE: Final = 12
_GROUPS_SINCE: Final = 8
_KEYS_SINCE: Final = 4
_OF_BROKERS_SINCE: Final = 4


def check_produce(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    if has_transactional(request):
        by_transaction, name = guard.needs[0], request.transactional_id
        if name is None or not guard.has(header, by_transaction, name):
            return _unless_unwanted(guard, request, guard.refuse(request, by_transaction))
    checked = yield from by_table(guard, header, request)
    return _unless_unwanted(guard, request, checked)


def _unless_unwanted(guard: Guard, request: Data, checked: Checked) -> Checked:
    if request.acks != Acks.NONE or (checked.request is not None and not checked.finish):
        return checked
    # The only way to tell a producer with acks 0; the batches of the others are in the log then.
    reason = f"a {guard.api.key.title} with acks 0 names what its client may not write to"

    def close(_: Data) -> Steps[Data]:
        yield
        raise CloseConnectionError(reason)

    if checked.request is None:
        raise CloseConnectionError(reason)
    return checked._replace(finish=(close,))


def check_metadata(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    describing, creating, on_cluster = guard.needs
    wants_all = request.topics is None or (header.api_version == 0 and not request.topics)
    refused: tuple[Any, ...] = ()
    is_by_id = any(each.name is None or each.topic_id != NO_UUID for each in request.topics or ())
    # With ids before they are served, the handler refuses all of the request.
    if not wants_all and not (is_by_id and header.api_version < _METADATA_IDS_SINCE):
        part = _element(guard, "topics")
        allowed, denied = yield from guard.split(header, describing, request.topics)
        refused = tuple(
            # As in Kafka an id says nothing that the client does not know.
            part(error_code=describing.code, name=None, topic_id=each.topic_id)
            if each.topic_id != NO_UUID
            else part(error_code=describing.code, name=each.name)
            for each in denied
        )
        if request.allow_auto_topic_creation and guard.creates_topics:
            missing = {each: None for each in allowed if _is_missing(guard, each)}
            _, denied = yield from guard.split(header, creating, tuple(missing))
            refused += tuple(
                part(
                    error_code=creating.code,
                    name=each.name,
                    is_internal=each.name in INTERNAL_TOPICS,
                )
                for each in denied
            )
            uncreatable = set(denied)
            allowed = [each for each in allowed if each not in uncreatable]
        request = replace(request, topics=tuple(allowed))

    def finish(answer: Data) -> Steps[Data]:
        # In v0 an empty list stands for all of them.
        topics = answer.topics if wants_all or request.topics else ()
        if wants_all:
            topics = yield from guard.only_allowed(header, describing, topics, name_of=_name)
        if request.include_topic_authorized_operations:
            topics = yield from _with_operations(
                guard,
                header,
                topics,
                resource=AclResource.TOPIC,
                field="topic_authorized_operations",
            )
        return replace(
            answer,
            topics=(*topics, *refused),
            cluster_authorized_operations=_cluster_operations(
                guard, header, request, need=on_cluster
            ),
        )

    return Checked(request, finish=(finish,))


def _is_missing(guard: Guard, topic: Data) -> bool:
    return topic.topic_id == NO_UUID and not guard.has_topic(topic.name or "")


def _name(part: Data) -> str:
    name: str = part.name
    return name


def _with_operations(
    guard: Guard,
    header: RequestHeader,
    parts: tuple[Any, ...],
    *,
    resource: AclResource,
    field: str,
    name: str = "name",
) -> Steps[tuple[Any, ...]]:
    """Described resources, with what the client may do with each (KIP-430)."""
    found = []
    for each in parts:
        text = getattr(each, name)
        is_known = text is not None and (resource is AclResource.TOPIC or not each.error_code)
        bits = guard.authorizer.operations(header, resource, text) if is_known else NO_OPERATIONS
        found.append(replace(each, **{field: bits}))
        yield
    return tuple(found)


def _cluster_operations(guard: Guard, header: RequestHeader, request: Data, *, need: Need) -> int:
    if not request.include_cluster_authorized_operations:
        return NO_OPERATIONS
    if not guard.has(header, need):
        return 0
    return guard.authorizer.operations(header, AclResource.CLUSTER, CLUSTER_NAME)


def check_describe_cluster(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    (on_cluster,) = guard.needs
    yield

    def finish(answer: Data) -> Steps[Data]:
        yield
        if answer.error_code:
            return answer
        bits = _cluster_operations(guard, header, request, need=on_cluster)
        return replace(answer, cluster_authorized_operations=bits)

    return Checked(request, finish=(finish,))


def check_describe_groups(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    checked = yield from by_table(guard, header, request)
    if not request.include_authorized_operations:
        return checked

    def finish(answer: Data) -> Steps[Data]:
        groups = yield from _with_operations(
            guard,
            header,
            answer.groups,
            resource=AclResource.GROUP,
            field="authorized_operations",
            name="group_id",
        )
        return replace(answer, groups=groups)

    return checked._replace(finish=(finish, *checked.finish))


def check_consumer_group_describe(
    guard: Guard,
    header: RequestHeader,
    request: Data,
) -> Steps[Checked]:
    checked = yield from check_describe_groups(guard, header, request)
    _, by_topic = guard.needs
    part = _element(guard, "groups")

    def finish(answer: Data) -> Steps[Data]:
        groups = []
        for group in answer.groups:
            names = {
                each.topic_name
                for member in group.members
                for assignment in (member.assignment, member.target_assignment)
                for each in assignment.topic_partitions
            }
            _, denied = yield from guard.split(header, by_topic, tuple(names))
            refused = part(
                group_id=group.group_id,
                error_code=by_topic.code,
                error_message="The group has described topic(s) that the client is not authorized "
                "to describe.",
            )
            groups.append(refused if denied else group)
        return replace(answer, groups=tuple(groups))

    return checked._replace(finish=(*checked.finish, finish))


def check_describe_transactions(
    guard: Guard,
    header: RequestHeader,
    request: Data,
) -> Steps[Checked]:
    checked = yield from by_table(guard, header, request)
    _, by_topic = guard.needs

    def finish(answer: Data) -> Steps[Data]:
        states = []
        for state in answer.transaction_states:
            topics = yield from guard.only_allowed(
                header, by_topic, state.topics, name_of=lambda each: str(each.topic)
            )
            states.append(replace(state, topics=topics))
        return replace(answer, transaction_states=tuple(states))

    return checked._replace(finish=(finish, *checked.finish))


def check_offset_fetch(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    by_group, by_topic = guard.needs
    if header.api_version < _GROUPS_SINCE:
        return (yield from _check_one_group(guard, header, request))
    part = _element(guard, "groups")
    allowed: list[Any] = []
    refused: list[Any] = []
    denied_of: dict[str, tuple[Any, ...]] = {}
    all_of: set[str] = set()
    for group in request.groups:
        yield
        if not guard.has(header, by_group, group.group_id):
            refused.append(part(group_id=group.group_id, error_code=by_group.code))
        elif group.topics is None:
            all_of.add(group.group_id)
            allowed.append(group)
        else:
            topics, denied = yield from guard.split(header, by_topic, group.topics)
            denied_of[group.group_id] = _without_offsets(
                _element_of(part, "topics"), denied, by_topic.code
            )
            allowed.append(replace(group, topics=tuple(topics)))
    if not allowed:
        return guard.answer(groups=tuple(refused))

    def finish(answer: Data) -> Steps[Data]:
        groups = []
        for group in answer.groups:
            topics = group.topics
            if group.group_id in all_of:
                topics = yield from guard.only_allowed(header, by_topic, topics, name_of=_name)
            elif not group.error_code:
                topics = (*topics, *denied_of.get(group.group_id, ()))
            groups.append(replace(group, topics=topics))
            yield
        return replace(answer, groups=(*groups, *refused))

    return Checked(replace(request, groups=tuple(allowed)), finish=(finish,))


def _check_one_group(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    """The same before v8, which has one group and no ids."""
    by_group, by_topic = guard.needs
    part, wants_all = _element(guard, "topics"), request.topics is None
    if not guard.has(header, by_group, request.group_id):
        topics = _without_offsets(part, request.topics or (), by_group.code)
        return guard.answer(error_code=by_group.code, topics=topics)
    allowed, denied = yield from guard.split(header, by_topic, request.topics or ())
    refused = _without_offsets(part, denied, by_topic.code)

    def finish(answer: Data) -> Steps[Data]:
        topics = answer.topics
        if wants_all:
            topics = yield from guard.only_allowed(header, by_topic, topics, name_of=_name)
        return replace(answer, topics=(*topics, *(() if answer.error_code else refused)))

    asked = None if wants_all else tuple(allowed)
    return Checked(replace(request, topics=asked), finish=(finish,))


def _without_offsets(kind: Data, topics: Data, code: ErrorCode) -> tuple[Any, ...]:
    part = _element_of(kind, "partitions")
    ids = "topic_id" in {each.name for each in wire_fields(kind)}
    return tuple(
        kind(
            name=each.name,
            **({"topic_id": each.topic_id} if ids else {}),
            partitions=tuple(
                part(partition_index=index, committed_offset=-1, error_code=code)
                for index in each.partition_indexes
            ),
        )
        for each in topics
    )


def check_find_coordinator(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    by_group, by_transaction = guard.needs
    needs = {
        CoordinatorKeyType.GROUP: by_group,
        CoordinatorKeyType.TRANSACTION: by_transaction,
    }
    need = needs.get(request.key_type)
    if need is None:
        return Checked(request)  # Not served, so that no right would help.
    nobody = {
        "node_id": -1,
        "port": -1,
        "error_code": need.code,
        "error_message": need.code.message,
    }
    if header.api_version < _KEYS_SINCE:
        yield
        if guard.has(header, need, request.key):
            return Checked(request)
        return guard.answer(**nobody)
    allowed, denied = yield from guard.split(header, need, request.coordinator_keys)
    part = _element(guard, "coordinators")
    refused = tuple(part(key=each, **nobody) for each in denied)
    if denied and not allowed:
        return guard.answer(coordinators=refused)

    def finish(answer: Data) -> Steps[Data]:
        yield
        return replace(answer, coordinators=(*answer.coordinators, *refused))

    return Checked(replace(request, coordinator_keys=tuple(allowed)), finish=(finish,))


def check_create_topics(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    checked = yield from by_table(guard, header, request)
    _, for_configs = guard.needs
    hidden: dict[str, Any] = {
        "topic_config_error_code": for_configs.code,
        "configs": None,
        "num_partitions": -1,
        "replication_factor": -1,
    }

    def finish(answer: Data) -> Steps[Data]:
        topics = []
        for each in answer.topics:
            is_shown = each.error_code or guard.has(header, for_configs, each.name, is_access=False)
            topics.append(each if is_shown else replace(each, **hidden))
            yield
        return replace(answer, topics=tuple(topics))

    return checked._replace(finish=(finish, *checked.finish))


def check_delete_topics(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    deleting, describing = guard.needs
    part = _element(guard, "responses")
    refused: list[Any] = []

    def is_allowed(name: str | None, topic_id: UUID) -> bool:
        is_by_id = topic_id != NO_UUID
        # The handler refuses both or neither, and an id of no topic.
        found = guard.topic_name(topic_id) if is_by_id else name
        if found is None or (is_by_id and name is not None):
            return True
        may_describe = guard.has(header, describing, found, is_access=not is_by_id)
        if may_describe and not guard.has_topic(found):
            return True  # It may know that there is none.
        if guard.has(header, deleting, found) and (may_describe or is_by_id):
            return True
        shown = found if may_describe or not is_by_id else None
        refused.append(
            part(
                name=shown,
                topic_id=topic_id,
                error_code=deleting.code,
                error_message=deleting.code.message,
            )
        )
        return False

    topics, names = [], []
    for each in request.topics:
        if is_allowed(each.name, each.topic_id):
            topics.append(each)
        yield
    for each in request.topic_names:
        if is_allowed(each, NO_UUID):
            names.append(each)
        yield
    if refused and not topics and not names:
        return guard.answer(responses=tuple(refused))

    def finish(answer: Data) -> Steps[Data]:
        yield
        return replace(answer, responses=(*answer.responses, *refused))

    kept = replace(request, topics=tuple(topics), topic_names=tuple(names))
    return Checked(kept, finish=(finish,))


def check_configs(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    by_topic, by_group, on_cluster = guard.needs
    needs: Mapping[int, Need] = {
        ResourceType.TOPIC: by_topic,
        ResourceType.GROUP: by_group,
        ResourceType.BROKER: on_cluster,
        ResourceType.BROKER_LOGGER: on_cluster,
        ResourceType.CLIENT_METRICS: on_cluster,
    }
    allowed: list[Any] = []
    refused: list[Any] = []
    for each in request.resources:
        need = needs.get(each.resource_type)
        name = CLUSTER_NAME if need is on_cluster else each.resource_name
        # Kinds that there are not are refused by the handler.
        if need is None or guard.has(header, need, name):
            allowed.append(each)
        else:
            refused += refused_parts(guard.api, [each], need.code)
        yield
    if refused and not allowed:
        return guard.answer(**{answered_parts(guard.api.key): tuple(refused)})

    def finish(answer: Data) -> Steps[Data]:
        yield
        array = answered_parts(guard.api.key)
        return replace(answer, **{array: (*getattr(answer, array), *refused)})

    return Checked(replace(request, resources=tuple(allowed)), finish=(finish,) if refused else ())


def check_init_producer_id(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    writing, preparing, idempotent = guard.needs
    name = request.transactional_id
    yield
    if name is not None:
        for need in (writing, preparing) if request.enable2_pc else (writing,):
            if not guard.has(header, need, name):
                return guard.refuse(request, need)
        return Checked(request)
    if guard.has(header, idempotent, is_access=False) or guard.authorizer.allows_some(
        header, writing.operation, AclResource.TOPIC
    ):
        return Checked(request)
    # Noted now: neither of the two has helped.
    guard.has(header, idempotent)
    return guard.refuse(request, idempotent)


def check_add_partitions_to_txn(
    guard: Guard,
    header: RequestHeader,
    request: Data,
) -> Steps[Checked]:
    by_transaction, by_topic, on_cluster = guard.needs
    if header.api_version >= _OF_BROKERS_SINCE:
        yield
        return (
            Checked(request) if guard.has(header, on_cluster) else guard.refuse(request, on_cluster)
        )
    if not guard.has(header, by_transaction, request.v3_and_below_transactional_id):
        return guard.refuse(request, by_transaction)
    topics = request.v3_and_below_topics
    # The handler refuses internal ones, with the same code.
    asked = tuple(each for each in topics if each.name not in INTERNAL_TOPICS)
    _, denied = yield from guard.split(header, by_topic, asked)
    if not denied:
        return Checked(request)
    refused = {id(each) for each in denied}
    results: list[Any] = []
    for each in topics:
        # All are added or none (KIP-98).
        is_refused = id(each) in refused or each.name in INTERNAL_TOPICS
        code = by_topic.code if is_refused else ErrorCode.OPERATION_NOT_ATTEMPTED
        results += refused_parts(guard.api, [each], code)
        yield
    return guard.answer(**{answered_parts(guard.api.key): tuple(results)})


def _element(guard: Guard, array: str) -> Data:
    return _element_of(guard.api.response, array)


def _element_of(kind: Data, array: str) -> Data:
    return next(each.type for each in wire_fields(kind) if each.name == array)


CHECKS: Final[Mapping[ApiKey, Check]] = MappingProxyType({
    ApiKey.PRODUCE: check_produce,
    ApiKey.METADATA: check_metadata,
    ApiKey.OFFSET_FETCH: check_offset_fetch,
    ApiKey.FIND_COORDINATOR: check_find_coordinator,
    ApiKey.DESCRIBE_GROUPS: check_describe_groups,
    ApiKey.CREATE_TOPICS: check_create_topics,
    ApiKey.DELETE_TOPICS: check_delete_topics,
    ApiKey.INIT_PRODUCER_ID: check_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: check_add_partitions_to_txn,
    ApiKey.DESCRIBE_CONFIGS: check_configs,
    ApiKey.ALTER_CONFIGS: check_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: check_configs,
    ApiKey.DESCRIBE_CLUSTER: check_describe_cluster,
    ApiKey.DESCRIBE_TRANSACTIONS: check_describe_transactions,
    ApiKey.CONSUMER_GROUP_DESCRIBE: check_consumer_group_describe,
})  # fmt: skip
"""The function of each API that has one."""
