"""OffsetFetch (9): what groups have committed.

Versions: 1 to 10.
Behaviour: an unknown group, topic or partition has offset -1 and no error. Null topics mean all
    that the group has committed. What is asked for twice is answered once, since a group may have
    committed much.
Version notes: v2 has an error for the group; v7 can ask for stable offsets (UNSTABLE_OFFSET_COMMIT
    while a transaction is open); v8 takes several groups; v9 can say for which member of
    the consumer protocol, and at which epoch (STALE_MEMBER_EPOCH); v10 names topics by id.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from tailrace.coordinator.groups.commits import FetchedOffset
from tailrace.coordinator.groups.consumer_offsets import MemberAtEpoch
from tailrace.handlers.groups import decide
from tailrace.handlers.services import Services
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_SINCE = 2
GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
NOTHING = FetchedOffset(TopicPartition("", -1), None, ErrorCode.NONE)
NO_OFFSET = -1


class _Topic(NamedTuple):
    """A topic that is asked for."""

    name: str
    topic_id: UUID
    indexes: tuple[int, ...]
    code: ErrorCode = ErrorCode.NONE


async def handle_offset_fetch(
    services: Services, header: RequestHeader, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Answer for each group."""
    version = header.api_version
    if version >= GROUPS_SINCE:
        groups = [
            await _fetch(services, each, version=version, is_stable=request.require_stable)
            for each in dict.fromkeys(request.groups)
        ]
        return OffsetFetchResponse(groups=tuple(groups))
    topics = request.topics
    only = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else tuple(
            [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in topics
            ]
        ),
    )
    group = await _fetch(services, only, version=version, is_stable=request.require_stable)
    code = ErrorCode(group.error_code)
    if code is not ErrorCode.NONE and version < GROUP_ERROR_SINCE:
        # These versions have errors of partitions alone.
        asked = [_Topic(each.name, NO_UUID, each.partition_indexes) for each in only.topics or ()]
        group = OffsetFetchResponseGroup(topics=tuple(_answered(asked, {}, code)))
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in group.topics
        ),
    )


async def _fetch(
    services: Services, group: OffsetFetchRequestGroup, *, version: int, is_stable: bool
) -> OffsetFetchResponseGroup:
    asked = None if group.topics is None else [_named(services, t, version) for t in group.topics]
    wanted = None if asked is None else [
        TopicPartition(topic.name, index)
        for topic in asked
        if topic.code is ErrorCode.NONE
        for index in topic.indexes
    ]  # fmt: skip
    # An offset of a topic that was deleted and created again counts no more.
    ids = {each.name: each.topic_id for each in asked or () if each.topic_id != NO_UUID}
    fetcher = MemberAtEpoch(group.member_id, group.member_epoch)
    answer = await decide(
        services,
        group.group_id,
        lambda groups, _: groups.fetch_offsets(
            group.group_id, wanted, fetcher=fetcher, is_stable=is_stable, topic_ids=ids
        ),
    )
    if isinstance(answer, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=answer)
    if asked is None:
        asked = [_of_all(services, version, found) for found in _by_topic(answer)]
    found = {each.partition: each for each in answer}
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(_answered(asked, found)))


def _named(services: Services, topic: OffsetFetchRequestTopics, version: int) -> _Topic:
    if version < TOPIC_IDS_SINCE:
        return _Topic(topic.name, NO_UUID, topic.partition_indexes)
    known = services.controller.image.topic_by_id(topic.topic_id)
    if known is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        return _Topic("", topic.topic_id, topic.partition_indexes, unknown)
    return _Topic(known.name, topic.topic_id, topic.partition_indexes)


def _by_topic(found: Iterable[FetchedOffset]) -> Iterable[list[FetchedOffset]]:
    for _, group in groupby(found, lambda each: each.partition.topic):
        yield list(group)


def _of_all(services: Services, version: int, found: list[FetchedOffset]) -> _Topic:
    name = found[0].partition.topic
    indexes = tuple([each.partition.partition for each in found])
    topic = services.controller.image.topics.get(name)
    has_id = version >= TOPIC_IDS_SINCE and topic is not None
    return _Topic(name, topic.topic_id if has_id and topic is not None else NO_UUID, indexes)


def _answered(
    asked: Iterable[_Topic],
    found: dict[TopicPartition, FetchedOffset],
    code: ErrorCode = ErrorCode.NONE,
) -> Iterable[OffsetFetchResponseTopics]:
    for topic in asked:
        partitions = []
        for index in topic.indexes:
            each = found.get(TopicPartition(topic.name, index), NOTHING)
            committed = each.committed
            partitions.append(
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=NO_OFFSET if committed is None else committed.offset,
                    committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
                    metadata="" if committed is None else committed.metadata,
                    error_code=topic.code or each.code or code,
                )
            )
        yield OffsetFetchResponseTopics(
            name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)
        )
