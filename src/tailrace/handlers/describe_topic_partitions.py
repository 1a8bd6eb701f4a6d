"""DescribeTopicPartitions (75): the leaders and replicas of topics, page by page (KIP-966).

Versions: 0.
Behaviour: topics in the order of their names, those of the request or all, up to
    `response_partition_limit` or `max.request.partition.size.limit` partitions; then a cursor with
    the topic and partition to go on with. A topic that is named twice is answered once. A topic
    that does not exist is UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION if its name is not
    allowed. A cursor whose topic the request does not name, or whose partition is negative, is
    INVALID_REQUEST for each named topic. As in Kafka a partition without a leader has no error.
    Topics that the client may not describe are refused where they are named, and else left out.
    Leaders and replicas are those of Metadata, with the eligible leader replicas of the image.
"""

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from tailrace.cluster.image import Topic
from tailrace.cluster.topic_rules import InvalidTopicNameError, check_topic_name
from tailrace.handlers.metadata import are_many
from tailrace.handlers.services import TOPIC_OPERATIONS, Services
from tailrace.handlers.views import View, view_of
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tailrace.runtime.slices import Slices, each_in_slices
from tailrace.values import replace

if TYPE_CHECKING:
    from tailrace.security.authorizer import Authorizer

SORTED_INLINE_MAX: Final = 1000
"""Most names that are sorted on the loop; 10,000 take some 3 ms."""


def handle_describe_topic_partitions(
    services: Services, header: RequestHeader, request: DescribeTopicPartitionsRequest
) -> Awaitable[DescribeTopicPartitionsResponse] | LongAnswer:
    """One page of topics and partitions."""
    make = partial(_describe_page, services, header, request)
    if len(request.topics) > PARTS_INLINE_MAX:
        return LongAnswer(make)
    known = services.cluster.image.topics
    found = [known[each.name] for each in request.topics if each.name in known]
    return LongAnswer(make) if are_many(found if request.topics else known.values()) else make()


async def _describe_page(
    services: Services, header: RequestHeader, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    slices = Slices()
    topics, view = services.cluster.image.topics, view_of(services)
    first = request.cursor or Cursor(topic_name="", partition_index=0)
    wanted: dict[str, None] = {}
    for each in request.topics:
        wanted[each.name] = None
        await slices.turn()
    is_misplaced = bool(wanted) and bool(request.cursor) and first.topic_name not in wanted
    if is_misplaced or first.partition_index < 0:
        refused = partial(_without_partitions, ErrorCode.INVALID_REQUEST)
        return DescribeTopicPartitionsResponse(
            topics=tuple(await each_in_slices(wanted, refused, slices))
        )
    left = max(1, min(request.response_partition_limit, services.partitions_per_answer_max))
    described: list[DescribeTopicPartitionsResponseTopic] = []
    names = await _sorted_from(services, wanted or topics, first.topic_name)
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    if services.authorizer is not None:
        # Before the page is cut: its cursor, too, may only tell of what the client can see.
        may_describe = partial(_may_describe, services.authorizer, header, is_access=bool(wanted))
        allowed = await each_in_slices(names, may_describe, slices)
        if wanted:
            refuse = partial(_without_partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            denied = [refuse(name) for name, each in zip(names, allowed, strict=True) if not each]
        names = [name for name, each in zip(names, allowed, strict=True) if each]
    for name in names:
        if not left:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            return _page([*described, *denied], next_cursor)
        topic = topics.get(name)
        if topic is None:
            missing = _without_partitions(_missing_code(name), name)
            bits = _operations(services, header, name)
            described.append(replace(missing, topic_authorized_operations=bits))
            await slices.turn()
            continue
        start = first.partition_index if name == first.topic_name else 0
        stop = min(topic.partition_count, start + left)
        numbers = range(start, stop)
        describe = partial(_describe_partition, view, topic)
        partitions = await each_in_slices(numbers, describe, slices)
        described.append(
            _described(topic, partitions, operations=_operations(services, header, name))
        )
        left -= len(numbers)
        if stop < topic.partition_count:
            next_cursor = Cursor(topic_name=name, partition_index=stop)
            return _page([*described, *denied], next_cursor)
    return _page([*described, *denied], None)


def _may_describe(
    authorizer: "Authorizer", header: RequestHeader, name: str, *, is_access: bool
) -> bool:
    from tailrace.security.needs import NEEDS

    [need] = NEEDS[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
    return authorizer.allows(header, need.operation, need.resource, name=name, is_access=is_access)


def _operations(services: Services, header: RequestHeader, name: str) -> int:
    if services.authorizer is None:
        return TOPIC_OPERATIONS
    from tailrace.security.acls import AclResource

    return services.authorizer.operations(header, AclResource.TOPIC, name)


async def _sorted_from(services: Services, names: Iterable[str], first: str) -> list[str]:
    """The names from `first` on, in order."""

    def in_order() -> list[str]:
        return sorted(name for name in known if name >= first)

    known = tuple(names)
    return in_order() if len(known) <= SORTED_INLINE_MAX else await services.threads.run(in_order)


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], next_cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _described(
    topic: Topic, partitions: list[DescribeTopicPartitionsResponsePartition], *, operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=operations,
    )


def _without_partitions(code: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=NO_UUID)


def _missing_code(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe_partition(
    view: View, topic: Topic, number: int
) -> DescribeTopicPartitionsResponsePartition:
    found = view.partition(topic, number)
    eligible, last_known = view.eligible(topic, number)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=number,
        leader_id=found.leader_id,
        leader_epoch=found.leader_epoch,
        replica_nodes=found.replica_nodes,
        isr_nodes=found.isr_nodes,
        eligible_leader_replicas=eligible,
        last_known_elr=last_known,
        offline_replicas=found.offline_replicas,
    )
