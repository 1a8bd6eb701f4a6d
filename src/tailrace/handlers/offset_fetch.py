"""OffsetFetch (9): what groups have committed.

Versions: 1 to 10.
Behaviour: an unknown group, topic or partition has offset -1 and no error. Null topics mean all
    that the group has committed. What is asked for twice is answered once. Many partitions are
    fetched in several turns of the event loop. While the group is loaded it has
    COORDINATOR_LOAD_IN_PROGRESS: librdkafka does not retry NOT_COORDINATOR
    (confluentinc/librdkafka#5586).
Version notes: v2 has an error for the group, which up to v7 is repeated for each partition, unlike
    in Kafka: aiokafka 0.14 looks at partitions alone, and would take the group for one without
    offsets; v7 can ask for stable offsets (UNSTABLE_OFFSET_COMMIT while a transaction is open); v8
    takes several groups; v9 can say for which member of the consumer protocol, and at which epoch
    (STALE_MEMBER_EPOCH); v10 names topics by id.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from tailrace.coordinator.groups.commits import FetchedOffset, MemberAtEpoch
from tailrace.handlers.groups import decide, decide_in_turns
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
from tailrace.runtime.slices import Slices

# Before it a client sees the errors of partitions alone.
GROUP_ERROR_SINCE = 2
# One request of an admin client for many groups of one coordinator.
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
            # Each once: a short request could ask for all that a group has committed, many times.
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
    # Up to v7 there is one group, and its error is repeated for each partition: aiokafka 0.14 looks
    # at partitions alone.
    code = ErrorCode(group.error_code)
    if code is not ErrorCode.NONE:
        asked = [_Topic(each.name, NO_UUID, each.partition_indexes) for each in only.topics or ()]
        slices = Slices()
        refused = [await _answered(each, {}, code, slices=slices) for each in asked]
        group = OffsetFetchResponseGroup(
            error_code=code if version >= GROUP_ERROR_SINCE else ErrorCode.NONE,
            topics=tuple(refused),
        )
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
    slices = Slices()
    group_id, fetcher = group.group_id, MemberAtEpoch(group.member_id, group.member_epoch)
    asked = None if group.topics is None else [_named(services, t, version) for t in group.topics]
    if asked is None:
        # Names first and offsets after, since only a list of names can be cut into turns.
        known = await decide(
            services,
            group_id,
            lambda groups, _: groups.committed_partitions(group_id, fetcher=fetcher),
        )
        if isinstance(known, ErrorCode):
            return _refused(group_id, known)
        asked = await _of_all(services, known, version=version, slices=slices)
    wanted = [
        TopicPartition(topic.name, index)
        for topic in asked
        if topic.code is ErrorCode.NONE
        for index in topic.indexes
    ]
    # An offset of a topic that was deleted and created again counts no more.
    ids = {each.name: each.topic_id for each in asked if each.topic_id != NO_UUID}
    answer: ErrorCode | list[FetchedOffset] = await decide_in_turns(
        services,
        group_id,
        wanted,
        # KIP-447: a consumer must not begin at an offset that an open transaction is about to
        # replace. It gets UNSTABLE_OFFSET_COMMIT, and asks again.
        decision=lambda groups, part: groups.fetch_offsets(
            group_id, part, fetcher=fetcher, is_stable=is_stable, topic_ids=ids
        ),
    )
    if isinstance(answer, ErrorCode):
        return _refused(group_id, answer)
    found = {each.partition: each for each in answer}
    topics = [await _answered(each, found, slices=slices) for each in asked]
    return OffsetFetchResponseGroup(group_id=group_id, topics=tuple(topics))


def _refused(group_id: str, code: ErrorCode) -> OffsetFetchResponseGroup:
    # As in Kafka: consumers before 3.9 do not expect the other code from OffsetFetch, and fail.
    # After this one they look for the coordinator again.
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        code = ErrorCode.NOT_COORDINATOR
    return OffsetFetchResponseGroup(group_id=group_id, error_code=code)


def _named(services: Services, topic: OffsetFetchRequestTopics, version: int) -> _Topic:
    if version < TOPIC_IDS_SINCE:
        return _Topic(topic.name, NO_UUID, topic.partition_indexes)
    known = services.cluster.image.topic_by_id(topic.topic_id)
    if known is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        return _Topic("", topic.topic_id, topic.partition_indexes, unknown)
    return _Topic(known.name, topic.topic_id, topic.partition_indexes)


async def _of_all(
    services: Services, known: Iterable[TopicPartition], *, version: int, slices: Slices
) -> list[_Topic]:
    """The topics for which a group has committed, with their partitions."""
    indexes: dict[str, list[int]] = {}
    for partition in known:
        indexes.setdefault(partition.topic, []).append(partition.partition)
        await slices.turn()
    # Before v10 there is no place for an id.
    ids = dict.fromkeys(indexes, NO_UUID)
    if version >= TOPIC_IDS_SINCE:
        topics = services.cluster.image.topics
        # As in Kafka a topic that is gone is left out: no id can name it.
        ids = {name: topics[name].topic_id for name in indexes if name in topics}
    return [_Topic(name, ids[name], tuple(sorted(indexes[name]))) for name in sorted(ids)]


async def _answered(
    topic: _Topic,
    found: dict[TopicPartition, FetchedOffset],
    code: ErrorCode = ErrorCode.NONE,
    *,
    slices: Slices,
) -> OffsetFetchResponseTopics:
    partitions = []
    for index in topic.indexes:
        each = found.get(TopicPartition(topic.name, index), NOTHING)
        committed = each.committed
        partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=index,
                # -1 and no error: a consumer then begins by `auto.offset.reset`.
                committed_offset=NO_OFFSET if committed is None else committed.offset,
                committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
                metadata="" if committed is None else committed.metadata,
                error_code=topic.code or each.code or code,
            )
        )
        await slices.turn()
    return OffsetFetchResponseTopics(
        name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)
    )
