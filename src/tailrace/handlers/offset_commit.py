"""OffsetCommit (8): a group's offsets, by a member or by a client with fixed partitions.

Versions: 2 to 10.
Behaviour: unknown partitions are refused; the others are committed together, many of them in
    several batches.
Version notes: up to v4 the client may say how long the offsets stay; v6 has leader epochs, v7
    static members; v9 serves members of both protocols; v10 names topics by id.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

from tailrace.cluster.image import Topic
from tailrace.coordinator.groups.commits import Commit, Committer, OffsetToCommit
from tailrace.handlers.groups import commit_offsets
from tailrace.handlers.services import Services
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tailrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition
from tailrace.runtime.slices import Slices
from tailrace.runtime.steps import run_eagerly

# KIP-848: a topic that was created again does not get the offsets of the one before.
TOPIC_IDS_SINCE = 10

AskedPartition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


def handle_offset_commit(
    services: Services, header: RequestHeader, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Commit what exists, and answer for each partition."""
    # Most commits are answered at once, without a task.
    return run_eagerly(_commit(services, header, request))


async def _commit(
    services: Services, header: RequestHeader, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    has_ids = header.api_version >= TOPIC_IDS_SINCE
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = await codes_of_commit(
        [
            (_find(services, topic, has_ids=has_ids) or unknown, topic.partitions)
            for topic in request.topics
        ],
        lambda found: commit_offsets(services, commit_of(header, request, found)),
    )
    return response_with(request, codes)


async def codes_of_commit(
    topics: Iterable[tuple[Topic | ErrorCode, Iterable[AskedPartition]]],
    commit: Callable[[list[OffsetToCommit]], Awaitable[Sequence[ErrorCode]]],
) -> list[list[ErrorCode]]:
    """Commit offsets for the partitions that exist; return a code for each one of each topic.

    A topic that does not exist is the code of its partitions. `commit` returns a code for each
    offset.
    """
    slices = Slices()
    codes: list[list[ErrorCode]] = []
    found: list[OffsetToCommit] = []
    for topic, partitions in topics:
        codes.append([])
        for each in partitions:
            if isinstance(topic, ErrorCode):
                codes[-1].append(topic)
            elif not topic.has(each.partition_index):
                codes[-1].append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                codes[-1].append(ErrorCode.NONE)
                found.append(offset_to_commit(topic, each))
            await slices.turn()
    # As in Kafka the group is asked only if there is something to commit: else a request for
    # partitions that are gone would keep its member alive, or begin a transaction.
    committed = iter(await commit(found) if found else ())
    return [[code or next(committed) for code in of_topic] for of_topic in codes]


def offset_to_commit(topic: Topic, asked: AskedPartition) -> OffsetToCommit:
    """The offset that a request has for a partition of a topic."""
    return OffsetToCommit(
        TopicPartition(topic.name, asked.partition_index),
        topic.topic_id,
        # Negative offsets are stored as they come, as in Kafka.
        asked.committed_offset,
        asked.committed_leader_epoch,
        # Kafka stores null as the empty string too.
        asked.committed_metadata or "",
    )


def commit_of(
    header: RequestHeader, request: OffsetCommitRequest, offsets: Sequence[OffsetToCommit]
) -> Commit:
    """The commit of these offsets that a request asks for."""
    return Commit(
        group_id=request.group_id,
        # A client that assigns its own partitions, or an admin tool, has -1 and no ids.
        committer=Committer(
            request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        ),
        offsets=offsets,
        version=header.api_version,
        # v2 to v4 only: since v5 the setting of the broker decides (KIP-211).
        retention_ms=request.retention_time_ms,
    )


def response_with(
    request: OffsetCommitRequest, codes: Sequence[Sequence[ErrorCode]]
) -> OffsetCommitResponse:
    """The response to a request, with a code for each partition of each topic."""
    return OffsetCommitResponse(
        topics=tuple(
            [_answered(topic, each) for topic, each in zip(request.topics, codes, strict=True)]
        )
    )


def _find(services: Services, topic: OffsetCommitRequestTopic, *, has_ids: bool) -> Topic | None:
    # Else it would be looked up by its name, which is empty in these versions.
    if has_ids and topic.topic_id == NO_UUID:
        return None
    return services.find_topic(topic.name, topic.topic_id if has_ids else NO_UUID)


def _answered(
    topic: OffsetCommitRequestTopic, codes: Sequence[ErrorCode]
) -> OffsetCommitResponseTopic:
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
