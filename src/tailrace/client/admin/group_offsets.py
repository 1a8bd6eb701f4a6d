"""Committed offsets of groups: list, alter, delete and reset them.

    admin.list_group_offsets("billing").results()
    admin.reset_group_offsets("billing", partitions, to=OffsetAt(Place.EARLIEST))

A group takes offsets from outside only while it has no members; it is made if it does not exist.

Not here: members of groups, which commit what they have processed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.admin.groups import no_such_group
from tailrace.client.admin.items import (
    ItemRequest,
    ask_one,
    by_topic,
    for_each,
    name_in,
    names,
    of_partitions,
    partition_values_in,
    partitions_in,
)
from tailrace.client.admin.offsets import CommittedOffset, FoundOffset, OffsetAt, find_offsets
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import RemoteRetriableError, UnsupportedBrokerError, error_for
from tailrace.client.routes import group_coordinator
from tailrace.errors import TailraceError, kind_of
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

_Committed = Outcomes[TopicPartition, CommittedOffset]


class OffsetReset(NamedTuple):
    """The new offset of one partition."""

    committed: CommittedOffset | None
    """The offset that the group had committed."""
    found: FoundOffset
    """The place; its nearest offset in the log is committed."""


def list_group_offsets(
    call: Call,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> Steps[_Committed]:
    """The offsets that a group has committed, ordered by partition; none for an unknown group.

    Those of `partitions`, or all; a partition without an offset is left out. With `require_stable`
    partitions whose offsets are in an open transaction are asked for until it has ended. Repeated
    after a lost connection.

    Raises:
        UnsupportedBrokerError: `require_stable`, and the broker cannot (before Kafka 2.5).
        RemoteFatalError: the coordinator refuses: GROUP_AUTHORIZATION_FAILED.
        OperationTimeoutError: no answer within the time limit.
    """
    name_in(group, what="group")
    # None asks for all partitions; an empty list asks for nothing, and is answered so.
    wanted = None if partitions is None else set(partitions_in(partitions))
    # Older brokers do not look at open transactions.
    request = _offsets_request(
        wanted, require_stable=require_stable, first_version=7 if require_stable else 0
    )
    return (yield from ask_one(call, request, group))


def list_offsets_of_groups(
    call: Call, groups: Iterable[str]
) -> Steps[Outcomes[str, Outcomes[TopicPartition, CommittedOffset]]]:
    """All offsets that each of these groups has committed, as `list_group_offsets` has them.

    One request for each coordinator; before Kafka 3.0 one for each group. Repeated after a lost
    connection.
    """
    found = yield from for_each(
        # From version 8 on a request can name several groups (KIP-709).
        call,
        names(groups, what="groups"),
        _offsets_request(None, first_version=8),
    )
    older = [each for each, e in found.errors.items() if isinstance(e, UnsupportedBrokerError)]
    if not older:
        return found
    return found.merged((yield from for_each(call, older, _offsets_request(None, is_single=True))))


def alter_group_offsets(
    call: Call, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
) -> Steps[Outcomes[TopicPartition, None]]:
    """Commit offsets for a group that has no members; it is made if it does not exist.

    A group with members refuses with UNKNOWN_MEMBER_ID. Repeated after a lost connection: a second
    request commits the same again.

    Raises:
        ValueError: an offset is negative.
    """
    name_in(group, what="group")
    given: dict[TopicPartition, int | CommittedOffset] = partition_values_in(
        offsets, what="offsets", kinds=(int, CommittedOffset)
    )
    wanted = {
        each: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset=offset)
        for each, offset in given.items()
    }
    for partition, at in wanted.items():
        # A broker takes it, and the group has no offset there any more.
        if at.offset < 0:
            raise ValueError(
                f"{partition}: offset {at.offset} is negative; delete_group_offsets removes one"
            )
    request: ItemRequest[TopicPartition, None, OffsetCommitResponse] = ItemRequest(
        what=f"the offset of group {group!r} for",
        target=group_coordinator(group),
        # Without a member, and with generation -1: the coordinator takes that for a group without
        # members, and refuses it otherwise, since a running consumer would overwrite it at once.
        request=lambda batch: OffsetCommitRequest(
            group_id=group,
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        _commit(number, wanted[TopicPartition(topic, number)]) for number in numbers
                    ),
                )
                for topic, numbers in by_topic(batch).items()
            ),
        ),
        response=OffsetCommitResponse,
        entries=lambda answer, _: of_partitions(answer.topics),
    )
    return (yield from for_each(call, wanted, request))


def delete_group_offsets(
    call: Call, group: str, partitions: Iterable[TopicPartition]
) -> Steps[Outcomes[TopicPartition, None]]:
    """Delete what a group has committed for these partitions.

    A partition that members of the group read has GROUP_SUBSCRIBED_TO_TOPIC; if there is no such
    group, each has a NoSuchGroupError. Repeated after a lost connection.
    """
    name_in(group, what="group")
    places = partitions_in(partitions)
    request: ItemRequest[TopicPartition, None, OffsetDeleteResponse] = ItemRequest(
        what=f"the offset of group {group!r} for",
        target=group_coordinator(group),
        request=lambda batch: OffsetDeleteRequest(
            group_id=group,
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                    ),
                )
                for topic, numbers in by_topic(batch).items()
            ),
        ),
        response=OffsetDeleteResponse,
        entries=lambda answer, _: of_partitions(answer.topics),
        special=lambda _, found: no_such_group(group, found),
    )
    return (yield from for_each(call, places, request))


def reset_group_offsets(
    call: Call,
    group: str,
    partitions: Collection[TopicPartition],
    *,
    to: OffsetAt,
    validate_only: bool = False,
) -> Steps[Outcomes[TopicPartition, OffsetReset]]:
    """Commit the offsets at a place in each log, for a group that has no members.

    A place outside of a log becomes its nearest end. A partition of which the group has committed
    nothing is left out where the distance from that is wanted. With `validate_only` the places are
    found and nothing changes.

    Raises: as `list_group_offsets`.
    """
    places = partitions_in(partitions)
    if not isinstance(to, OffsetAt):
        raise TypeError(f"to is {kind_of(to)}; give an OffsetAt")
    # Also for places that do not depend on it: the result shows what is replaced.
    # The members must be gone by now; a commit between the two requests would be lost.
    committed = (yield from list_group_offsets(call, group)).results()
    found = yield from find_offsets(call, places, at=to, committed=committed)
    resets = {each: OffsetReset(committed.get(each), at) for each, at in found.succeeded.items()}
    outcomes: dict[TopicPartition, OffsetReset | TailraceError] = {**found.errors, **resets}
    if not validate_only:
        # An offset outside of the log would be reset by the consumer's `auto.offset.reset`, maybe
        # to the other end.
        offsets = {each: reset.found.within for each, reset in resets.items()}
        outcomes |= (yield from alter_group_offsets(call, group, offsets)).errors
    return Outcomes({each: outcomes[each] for each in found})


def _offsets_request(
    wanted: Collection[TopicPartition] | None,
    *,
    require_stable: bool = False,
    first_version: int = 0,
    is_single: bool = False,
) -> ItemRequest[str, _Committed, OffsetFetchResponse]:
    """The offsets of groups, for these partitions or all."""
    chosen = None if wanted is None else by_topic(wanted)

    def request(batch: Sequence[str]) -> OffsetFetchRequest:
        return OffsetFetchRequest(
            # Until version 7 a request is about one group; later it has a list.
            group_id=batch[0],
            topics=None
            if chosen is None
            else tuple(
                OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in chosen.items()
            ),
            groups=tuple(
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=None
                    if chosen is None
                    else tuple(
                        OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(numbers))
                        for topic, numbers in chosen.items()
                    ),
                )
                for group in batch
            ),
            require_stable=require_stable,
        )

    def of_groups(
        answer: OffsetFetchResponse, batch: Sequence[str]
    ) -> Iterator[tuple[str, OffsetFetchResponse | OffsetFetchResponseGroup]]:
        if not answer.groups:
            yield batch[0], answer
        yield from ((each.group_id, each) for each in answer.groups)

    def offsets(
        group: str, found: OffsetFetchResponse | OffsetFetchResponseGroup
    ) -> _Committed | TailraceError:
        return _committed(found, wanted, about=f"offsets of group {group!r}")

    def unknown(_: str, found: OffsetFetchResponse | OffsetFetchResponseGroup) -> _Committed | None:
        is_unknown = found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        return Outcomes({}) if is_unknown else None

    return ItemRequest(
        what="the offsets of group",
        target=group_coordinator,
        request=request,
        response=OffsetFetchResponse,
        entries=of_groups,
        special=unknown,
        value=offsets,
        first_version=first_version,
        is_single=is_single,
    )


def _committed(
    answer: OffsetFetchResponse | OffsetFetchResponseGroup,
    wanted: Collection[TopicPartition] | None,
    *,
    about: str,
) -> _Committed | RemoteRetriableError:
    """The offsets in an answer; the retriable error of a partition is one of all."""
    found: dict[TopicPartition, CommittedOffset | TailraceError] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if wanted is not None and partition not in wanted:
                continue
            error = error_for(each.error_code, about=about)
            # The offsets are of one moment, or a lag that is made of them would mean nothing.
            if isinstance(error, RemoteRetriableError):
                return error
            if error is not None:
                found[partition] = error
            # -1: nothing was committed.
            elif each.committed_offset >= 0:
                found[partition] = CommittedOffset(
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata or "",
                )
    return Outcomes(dict(sorted(found.items(), key=lambda item: item[0])))


def _commit(number: int, wanted: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=wanted.offset,
        committed_leader_epoch=wanted.leader_epoch,
        committed_metadata=wanted.metadata,
    )
