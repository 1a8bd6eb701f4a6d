"""OffsetCommit requests that repeat the one before on their connection, but for the offsets.

A consumer commits again and again for the same group, member and partitions. So the bytes around
the offsets are compared with those of the earlier request and not decoded, and the answer is that
request's with another correlation id (decision 39). The offsets take the general path: the group's
machine decides on them, and the shard appends them.

    learn   the same request, but for its offsets and leader epochs, came twice in a row, and was
            answered at once without an error
    take    each other byte of the next one is equal, its topics have not changed, and the group's
            shard can answer at once

Invariant: whether the group takes the commit is decided for each request again.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from tailrace.cluster.image import Topic
from tailrace.coordinator.groups.commits import Commit, OffsetToCommit
from tailrace.errors import TailraceError
from tailrace.handlers.groups import OFFSETS_PER_TURN, decide_commit
from tailrace.handlers.offset_commit import commit_of, offset_to_commit, response_with
from tailrace.handlers.services import Services
from tailrace.model import NO_LEADER_EPOCH
from tailrace.protocol.answers import Answer
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import (
    SIZE_BYTES,
    RequestHeader,
    encode_request,
    encode_response,
    layout_of,
)
from tailrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tailrace.values import replace

BYTES_MAX: Final = 16 * 1024
"""Largest request that is remembered: with its metadata it is one batch, and one turn of the loop.
Requests up to this size claim no memory for their objects."""

_API: Final = APIS[ApiKey.OFFSET_COMMIT]

# The correlation id stays bytes, since it is only copied into the answer.
_VARYING: Final = {4: "4s", 8: "q", 12: "qi"}
"""Struct format of neighbouring bytes that may differ, by their count: the correlation id, an
offset up to v5, an offset and its leader epoch."""

LEADER_EPOCHS_SINCE: Final = 6

_ID_END: Final = 8
"""Position after the correlation id in an answer."""


class _Known(NamedTuple):
    """A request, cut by what may differ in its repetitions, and its answer."""

    request: OffsetCommitRequest
    commit: Commit
    topics: tuple[Topic | None, ...]
    """The topics of the request, as they were; none is None."""
    layout: Struct
    """Fields of the frame: constant bytes, correlation id, constant bytes; then of each partition
    its offset, its leader epoch from v6 on, and the constant bytes after them."""
    step: int
    """Fields of a partition: offset, leader epoch if there is one, and the constant bytes."""
    constants: tuple[bytes, ...]
    answer: bytes
    """The frame of the answer without an error."""


class RepeatedCommit:
    """The OffsetCommit request that a connection repeats."""

    taken = 1
    """See `Repeats`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._last: tuple[object, ...] = ()
        """The `_kind` of the last request that was looked at."""
        self._known: _Known | None = None

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """Remember a request that was answered at once, if the last one was the same.

        `frame` has the size in front cut off.
        """
        if not isinstance(request, OffsetCommitRequest) or len(frame) > BYTES_MAX:
            return
        # More offsets take several turns (decision 34), and `take` has only one.
        if sum(len(topic.partitions) for topic in request.topics) > OFFSETS_PER_TURN:
            return
        kind = _kind(header, request)
        # Twice in a row: to cut a request apart costs more than to decode it, and a client that
        # commits for other partitions each time would pay for nothing.
        was_last, self._last = kind == self._last, kind
        if was_last and isinstance(answer, OffsetCommitResponse) and _is_committed(answer):
            self._known = self._known_or_none(header, request, frame)

    def take(
        self,
        received: bytearray,
        start: int,
        limit: int,
        *,
        frame_bytes_max: int,  # noqa: ARG002 - the known request was within it
    ) -> tuple[int, bytes] | None:
        """Answer the request at `start`, if it repeats the known one; else None.

        Returns the position after it, and its answer. The log and the group are then as if
        `handle_offset_commit` had answered.
        """
        known = self._known
        if known is None or limit - start < known.layout.size:
            return None
        # Nothing is changed before the answer is certain: what is None here is decoded by the
        # general path, from the same bytes.
        fields, step = known.layout.unpack_from(received, start), known.step
        if _constants(fields, step) != known.constants:
            return None
        epochs = fields[4::step]
        if known.commit.version < LEADER_EPOCHS_SINCE:
            # KIP-320 brought the leader epoch of a commit with v6.
            epochs = (NO_LEADER_EPOCH,) * len(fields[3::step])
        group_id, committer, earlier, version, retention_ms, producer = known.commit
        offsets = [
            OffsetToCommit(each.partition, each.topic_id, offset, epoch, each.metadata)
            for each, offset, epoch in zip(earlier, fields[3::step], epochs, strict=True)
        ]
        commit = Commit(group_id, committer, offsets, version, retention_ms, producer)
        # Decided each time: after a rebalance the group refuses what it took before.
        codes = self._codes_or_none(known, commit)
        if codes is None:
            return None
        # An error is rare, and most of these answers are equal: they are encoded once.
        answer = _encoded(known.request, version, codes) if any(codes) else known.answer
        return (
            start + known.layout.size,
            b"".join((answer[:SIZE_BYTES], fields[1], answer[_ID_END:])),
        )

    def _codes_or_none(self, known: _Known, commit: Commit) -> Sequence[ErrorCode] | None:
        """A code for each offset; None if nothing was decided."""
        services = self._services
        for asked, topic in zip(known.request.topics, known.topics, strict=True):
            # The same object: an image that changes a topic makes a new one. A topic that was
            # created again has another id, for which these offsets must not count.
            if services.find_topic(asked.name, asked.topic_id) is not topic:
                return None
        try:
            shard = services.groups.shard_of(commit.group_id)
            # While records wait for a flush, or the partition moves, only the general path can
            # wait.
            if not shard.runs_at_once:
                return None
            return shard.run_at_once(partial(decide_commit, commit))
        # Nothing was changed. The general path meets the error again, and answers it.
        except TailraceError:
            return None

    def _known_or_none(
        self, header: RequestHeader, request: OffsetCommitRequest, frame: memoryview
    ) -> _Known | None:
        """The request cut apart; None if its repetitions cannot be answered at once."""
        services, version = self._services, header.api_version
        topics = [services.find_topic(each.name, each.topic_id) for each in request.topics]
        offsets = [
            # Partitions, ids and metadata are made once here; `take` changes only the two numbers.
            offset_to_commit(topic, each)
            for asked, topic in zip(request.topics, topics, strict=True)
            if topic is not None
            for each in asked.partitions
        ]
        is_at_once = services.groups.shard_of(request.group_id).runs_at_once
        if None in topics or not offsets or not is_at_once:
            return None
        # All bits 0 and all bits 1: wherever the two frames differ a repetition may differ too, so
        # the layout of no version is written down here (decision 39).
        zeros, ones = (
            encode_request(
                _API,
                _with_offsets(request, number),
                version=version,
                correlation_id=number,
                client_id=header.client_id,
            )
            for number in (0, -1)
        )
        layout = layout_of(zeros, ones, _VARYING)
        step = 3 if version >= LEADER_EPOCHS_SINCE else 2
        constants = _constants(layout.unpack(zeros), step)
        sent = b"".join((zeros[:SIZE_BYTES], frame))
        if len(sent) != layout.size or _constants(layout.unpack(sent), step) != constants:
            return None  # Its client encodes it in another way than we do.
        answer = _encoded(request, version, [ErrorCode.NONE] * len(offsets))
        commit = commit_of(header, request, offsets)
        return _Known(request, commit, tuple(topics), layout, step, constants, answer)


def _kind(header: RequestHeader, request: OffsetCommitRequest) -> tuple[object, ...]:
    """The values of a request that its repetitions have too."""
    partitions = [
        (topic.name, topic.topic_id, each.partition_index, each.committed_metadata)
        for topic in request.topics
        for each in topic.partitions
    ]
    return (
        request.group_id,
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        request.retention_time_ms,
        header.api_version,
        header.client_id,
        partitions,
    )


def _is_committed(answer: OffsetCommitResponse) -> bool:
    return not any(each.error_code for topic in answer.topics for each in topic.partitions)


def _with_offsets(request: OffsetCommitRequest, number: int) -> OffsetCommitRequest:
    """The request with this number as each offset and leader epoch."""
    return replace(
        request,
        topics=tuple(
            [
                replace(
                    topic,
                    partitions=tuple(
                        [
                            replace(each, committed_offset=number, committed_leader_epoch=number)
                            for each in topic.partitions
                        ]
                    ),
                )
                for topic in request.topics
            ]
        ),
    )


def _constants(fields: Sequence[Any], step: int) -> tuple[bytes, ...]:
    """The constant ones of a frame's fields."""
    return (fields[0], *fields[2::step])


def _encoded(request: OffsetCommitRequest, version: int, codes: Sequence[ErrorCode]) -> bytes:
    """The frame of the answer, with a code for each partition."""
    each_code = iter(codes)
    by_topic = [[next(each_code) for _ in topic.partitions] for topic in request.topics]
    return encode_response(
        _API, response_with(request, by_topic), version=version, correlation_id=0
    )
