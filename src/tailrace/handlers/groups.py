"""Functions for all handlers of groups: they name the client, and ask the group's shard."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from tailrace.cluster.image import Topic
from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.groups.commits import Commit, OffsetToCommit
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.machine import Client, Decision
from tailrace.coordinator.shard import ShardState
from tailrace.errors import RecordTooLargeError, TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.runtime.slices import Slices

logger = logging.getLogger(__name__)

T = TypeVar("T")
V = TypeVar("V")

OFFSETS_PER_TURN = 100
"""Offsets in one turn of the event loop, and in one batch of records: 2 to 3 ms."""

METADATA_PER_TURN = 100_000
"""Characters of metadata in one batch, which has to fit into `max.message.bytes`; at most four
bytes each."""


def client_of(header: RequestHeader) -> Client:
    """The client that has sent a request."""
    # Without the port, which changes with each connection of the client.
    return Client(header.client_id or "", header.caller.host, header.api_version)


async def decide(
    services: Services, group_id: str, decision: Callable[[GroupMachine, int], Decision[T]]
) -> T | ErrorCode:
    """The reply of the group's coordinator, or the code of the error."""
    try:
        return await services.groups.shard_of(group_id).run(decision)
    except CoordinatorNotAvailableError as error:
        return unavailable_code(error)
    except TailraceError as error:
        return error_code(error)


async def commit_offsets(services: Services, commit: Commit) -> list[ErrorCode]:
    """Commit offsets, and return a code for each, in their order.

    Many offsets are several batches, each with a turn of its own: a crash in between keeps the
    first ones, and a rebalance in between refuses the others.
    """
    codes: list[ErrorCode] = []
    slices = Slices()
    for offsets in _in_turns(commit.offsets):
        if codes:
            await slices.rest()
        part = commit._replace(offsets=offsets)
        answer = await decide(services, commit.group_id, partial(decide_commit, part))
        # OffsetCommit has no code for the request, so each of its partitions has the error.
        codes += [answer] * len(offsets) if isinstance(answer, ErrorCode) else answer
    return codes


def decide_commit(commit: Commit, groups: GroupMachine, now_ms: int) -> Decision[list[ErrorCode]]:
    """The decision on offsets that make one batch."""
    return groups.commit(commit, now_ms)


async def decide_in_turns(
    services: Services,
    group_id: str,
    items: Sequence[V],
    *,
    decision: Callable[[GroupMachine, Sequence[V]], Decision[ErrorCode | list[T]]],
) -> ErrorCode | list[T]:
    """The results for many items, with a turn for each `OFFSETS_PER_TURN` of them.

    A code instead of results ends it.
    """
    results: list[T] = []
    slices = Slices()
    # Once without items too: an unknown group is an error of the request.
    for start in range(0, max(len(items), 1), OFFSETS_PER_TURN):
        if start:
            await slices.rest()
        part = items[start : start + OFFSETS_PER_TURN]

        def decide_part(groups: GroupMachine, _: int) -> Decision[ErrorCode | list[T]]:
            return decision(groups, part)  # noqa: B023 - it runs before the next part

        answer = await decide(services, group_id, decide_part)
        if isinstance(answer, ErrorCode):
            return answer
        results += answer
    return results


async def decide_until_done(
    services: Services,
    group_id: str,
    decision: Callable[[GroupMachine], Decision[ErrorCode | None]],
) -> ErrorCode:
    """The code of work that a group does in several turns: None asks for one more."""
    slices = Slices()
    while True:
        answer = await decide(services, group_id, lambda groups, _: decision(groups))
        if answer is not None:
            return answer
        await slices.rest()


async def forget_topic(services: Services, topic: Topic) -> None:
    """Delete what groups have committed for a topic that is deleted.

    Offsets in a partition that is not active stay until they expire; they do not count for a new
    topic of the same name, which has another id.
    """
    slices = Slices()
    for shard in services.groups:
        if shard.state is not ShardState.ACTIVE:
            continue
        machine = shard.machine
        for group_id in machine.groups.offsets.groups():
            gone = []
            for each in machine.groups.offsets.all_partitions(group_id):
                if each.topic == topic.name:
                    gone.append(each)
                await slices.turn()
            code = await _forget(services, topic, group_id, partitions=gone)
            if code is not ErrorCode.NONE:
                logger.warning(
                    "offsets_not_deleted group=%s topic=%s error=%s",
                    group_id,
                    topic.name,
                    code.name,
                )
                break
            await slices.turn()


async def _forget(
    services: Services, topic: Topic, group_id: str, *, partitions: Sequence[TopicPartition]
) -> ErrorCode:
    def decide_part(
        groups: GroupMachine, part: Sequence[TopicPartition]
    ) -> Decision[ErrorCode | list[None]]:
        return groups.forget_offsets(group_id, part, topic_id=topic.topic_id)

    if not partitions:
        return ErrorCode.NONE
    await Slices().rest()
    answer = await decide_in_turns(services, group_id, partitions, decision=decide_part)
    return answer if isinstance(answer, ErrorCode) else ErrorCode.NONE


def _in_turns(offsets: Sequence[OffsetToCommit]) -> Iterator[Sequence[OffsetToCommit]]:
    """The offsets in parts; one empty part if there are none."""
    start, characters = 0, 0
    for index, each in enumerate(offsets):
        characters += len(each.metadata)
        is_full = index - start == OFFSETS_PER_TURN or characters > METADATA_PER_TURN
        if is_full and index > start:
            yield offsets[start:index]
            start, characters = index, len(each.metadata)
    yield offsets[start:]


def unavailable_code(error: CoordinatorNotAvailableError) -> ErrorCode:
    """The code that tells a client to ask again, to ask elsewhere, or to give up; as in Kafka."""
    match error.__cause__:
        # The write may still succeed. The client asks again, and a repeated commit does no harm.
        case TimeoutError():
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        # The device has failed: the client shall look for the coordinator again.
        case OSError():
            return ErrorCode.NOT_COORDINATOR
        # Nothing that a client would retry, since no repetition makes the record smaller.
        case RecordTooLargeError():
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
