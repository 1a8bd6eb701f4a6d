"""OffsetCommit (8): a group's offsets, by a member or by a client with fixed partitions.

Versions: 2 to 10.
Behaviour: unknown partitions are refused; the others are committed together, many of them in
    several batches.
Version notes: up to v4 the client may say how long the offsets stay; v6 has leader epochs, v7
    static members; v9 serves members of both protocols; v10 names topics by id.
"""

from collections.abc import Awaitable
from uuid import UUID

from tailrace.coordinator.groups.commits import Commit, Committer, OffsetToCommit
from tailrace.handlers.groups import commit_offsets
from tailrace.handlers.services import Services
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tailrace.runtime.slices import Slices
from tailrace.runtime.steps import now_or_later

TOPIC_IDS_SINCE = 10


def handle_offset_commit(
    services: Services, header: RequestHeader, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit what exists, and answer for each partition."""
    return now_or_later(_commit(services, header, request))


async def _commit(
    services: Services, header: RequestHeader, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    slices = Slices()
    has_ids = header.api_version >= TOPIC_IDS_SINCE
    codes: list[list[ErrorCode]] = []
    found: list[OffsetToCommit] = []
    places: list[tuple[int, int]] = []
    for number, topic in enumerate(request.topics):
        name, topic_id, known = _find(services, topic, has_ids=has_ids)
        codes.append([])
        for each in topic.partitions:
            if each.partition_index not in known:
                codes[-1].append(
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if has_ids and not known
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            else:
                places.append((number, len(codes[-1])))
                codes[-1].append(ErrorCode.NONE)
                found.append(
                    OffsetToCommit(
                        TopicPartition(name, each.partition_index),
                        topic_id,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata or "",
                    )
                )
            await slices.turn()
    commit = Commit(
        group_id=request.group_id,
        committer=Committer(
            request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        ),
        offsets=found,
        version=header.api_version,
        retention_ms=request.retention_time_ms,
    )
    told = await commit_offsets(services, commit)
    for (number, place), code in zip(places, told, strict=True):
        codes[number][place] = code
    return OffsetCommitResponse(
        topics=tuple(
            [_answered(topic, code) for topic, code in zip(request.topics, codes, strict=True)]
        )
    )


def _find(
    services: Services, topic: OffsetCommitRequestTopic, *, has_ids: bool
) -> tuple[str, UUID, frozenset[int]]:
    """Name, id and partitions of a topic; without partitions if it does not exist."""
    if has_ids and topic.topic_id == NO_UUID:
        return "", NO_UUID, frozenset()
    found = services.find_topic(topic.name, topic.topic_id if has_ids else NO_UUID)
    if found is None:
        return "", NO_UUID, frozenset()
    return found.name, found.topic_id, frozenset(found.partitions)


def _answered(topic: OffsetCommitRequestTopic, codes: list[ErrorCode]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            [
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each, code in zip(topic.partitions, codes, strict=True)
            ]
        ),
    )
