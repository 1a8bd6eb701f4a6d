"""OffsetDelete (47): forget offsets of topics that a group does not consume any more.

Versions: 0.
Behaviour: a topic that a member of the group subscribes to is refused (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from tailrace.handlers.groups import decide_in_turns
from tailrace.handlers.services import Services
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle_offset_delete(
    services: Services, _: RequestHeader, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete what exists, and answer for each partition."""
    asked = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    known = [each for each in asked if services.has_partition(each)]
    answer: ErrorCode | list[ErrorCode] = await decide_in_turns(
        services,
        request.group_id,
        known,
        decision=lambda groups, part: groups.delete_offsets(request.group_id, part),
    )
    if isinstance(answer, ErrorCode):
        return OffsetDeleteResponse(error_code=answer)
    codes = dict(zip(known, answer, strict=True))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(
                            TopicPartition(topic.name, each.partition_index), unknown
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
