"""The requests of commits, OffsetCommit and OffsetFetch, and the codes in their answers.

A request has the fields of all versions: OffsetFetch names one group up to v7, and a list from v8
on.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from tailrace.client.consumer.membership.errors import RELOCATED
from tailrace.client.consumer.membership.interface import GroupIdentity, GroupRequest
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.nodes import Node
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

INSTANCE_SINCE: Final = 7
"""First version of OffsetCommit with instance ids."""

EPOCH_COMMIT_SINCE: Final = 9
"""First version of OffsetCommit that takes the epoch of a member of the consumer protocol."""

# Kafka's client does so after a timeout, too, when it commits.
COMMIT_RELOCATED: Final = RELOCATED | {ErrorCode.REQUEST_TIMED_OUT}
"""Error codes of commits and fetches after which the coordinator is looked up again."""

FetchedOffsets = Mapping[TopicPartition, OffsetAndMetadata | None]
"""Committed offsets; None for partitions without."""


class FetchAnswer(NamedTuple):
    """The answer to an OffsetFetch, of any version."""

    code: int
    """0, or the error of the group."""
    codes: Mapping[TopicPartition, int]
    """0 or the error, by partition."""
    offsets: FetchedOffsets
    """The offsets of partitions without an error."""


def commit_request(
    member: GroupIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    node: Node,
    timeout_ms: int,
    is_consumer_protocol: bool,
) -> GroupRequest:
    """An OffsetCommit of these offsets."""
    # A request names each topic once.
    topics = groupby(sorted(offsets), key=lambda each: each.topic)
    body = OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=each.partition,
                        committed_offset=offsets[each].offset,
                        committed_leader_epoch=offsets[each].leader_epoch,
                        committed_metadata=offsets[each].metadata,
                    )
                    for each in partitions
                ),
            )
            for name, partitions in topics
        ),
    )
    since = 0 if member.instance_id is None else INSTANCE_SINCE
    return GroupRequest(
        body,
        timeout_ms=timeout_ms,
        node=node,
        # The coordinator refuses older versions of such a member with UNSUPPORTED_VERSION.
        first_version=EPOCH_COMMIT_SINCE if is_consumer_protocol else since,
    )


def commit_codes(answer: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error codes of an answer, by partition."""
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch_request(
    member: GroupIdentity,
    partitions: Iterable[TopicPartition],
    *,
    node: Node,
    timeout_ms: int,
    names_member: bool,
) -> GroupRequest:
    """An OffsetFetch of stable offsets: brokers before Kafka 2.5 answer with others too."""
    topics = [
        (name, tuple(each.partition for each in group))
        for name, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]
    # A consumer that is no member asks without an epoch, and is not checked for one.
    is_named = names_member and member.generation >= 0
    group = OffsetFetchRequestGroup(
        group_id=member.group_id,
        member_id=member.member_id if is_named else None,
        member_epoch=member.generation if is_named else -1,
        topics=tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics
        ),
    )
    body = OffsetFetchRequest(
        group_id=member.group_id,
        topics=tuple(
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in topics
        ),
        groups=(group,),
        # Offsets of an open transaction may still change (KIP-447).
        require_stable=True,
    )
    return GroupRequest(body, timeout_ms=timeout_ms, node=node)


def read_fetch(answer: OffsetFetchResponse, group_id: str) -> FetchAnswer:
    """The codes and offsets of an answer; UNKNOWN_SERVER_ERROR if it is about other groups."""
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]
    if answer.groups:
        group = next((each for each in answer.groups if each.group_id == group_id), None)
        if group is None:
            return FetchAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, {}, {})
        code, topics = group.error_code, group.topics
    else:
        code, topics = answer.error_code, answer.topics
    codes: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            codes[partition] = each.error_code
            offsets[partition] = None
            if each.committed_offset >= 0:
                # Anything below -1 would be a negative epoch in a later request.
                epoch = max(each.committed_leader_epoch, -1)
                offsets[partition] = OffsetAndMetadata(each.committed_offset, epoch, each.metadata)
    return FetchAnswer(code, codes, offsets)
