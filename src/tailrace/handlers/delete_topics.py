"""DeleteTopics (20): delete topics.

Versions: 1 to 6.
Behaviour: a topic is deleted when the response is sent, also after a crash. Readers and writers get
    UNKNOWN_TOPIC_OR_PARTITION from then on. Its folders are renamed `-delete`, and removed after
    `file.delete.delay.ms`. What groups have committed for them is deleted, too.
    A topic that is named twice is not deleted (INVALID_REQUEST).
Version notes: from v5 on a topic above the quota of its client is refused
    (THROTTLING_QUOTA_EXCEEDED), and below it is deleted and the client delayed (KIP-599); v6 names
    topics by name or by id, not both (INVALID_REQUEST).
    With `delete.topic.enable=false` none is deleted (TOPIC_DELETION_DISABLED, before v3
    INVALID_REQUEST).
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from uuid import UUID

from tailrace.cluster.control.topics import deletion_refusal
from tailrace.cluster.image import Topic
from tailrace.errors import TailraceError
from tailrace.handlers.groups import forget_topic
from tailrace.handlers.refusals import refusal
from tailrace.handlers.services import Services, error_code
from tailrace.handlers.topics import delete_topic
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.runtime.slices import Slices
from tailrace.security.quotas import Mutations


async def handle_delete_topics(
    services: Services, header: RequestHeader, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete the requested topics; refused ones get an error code."""
    if not services.can_delete_topics:
        code = deletion_refusal(header.api_version)
        answer = refusal(APIS[ApiKey.DELETE_TOPICS], request, code)
        assert isinstance(answer, DeleteTopicsResponse)
        return answer
    slices = Slices()
    counts: Counter[tuple[str | None, UUID]] = Counter()
    # A name and an id may mean the same topic, so both are counted before the first deletion; after
    # it, the id would find nothing.
    for state in _named(request):
        counts[state.name, state.topic_id] += 1
        await slices.turn()
    results = []
    mutations = services.quotas.mutations(header)
    # A topic that is named twice, in either way, is refused; the others are deleted.
    for (name, topic_id), count in counts.items():
        state = DeleteTopicState(name=name, topic_id=topic_id)
        # A topic that does not exist yet may be in creation: the change waits in its queue.
        found = services.find_topic(name or "", topic_id)
        # Kafka refuses such a topic as well, and does not delete it once.
        is_twice = count > 1 or (found is not None and len(_names_in(counts, found)) > 1)
        if is_twice:
            results.append(_refused(state, ErrorCode.INVALID_REQUEST, "the topic is named twice"))
        else:
            key = found.name if found is not None else name or ""
            delete = partial(_delete, services, state, mutations)
            results.append(await services.changes.make(key, delete))
        await slices.turn()
    return mutations.settle(DeleteTopicsResponse(responses=tuple(results)))


def _named(request: DeleteTopicsRequest) -> Iterator[DeleteTopicState]:
    yield from request.topics
    yield from (DeleteTopicState(name=name) for name in request.topic_names)


def _names_in(
    counts: Counter[tuple[str | None, UUID]], topic: Topic
) -> list[tuple[str | None, UUID]]:
    """The ways in which a request names a topic: by name, by id."""
    ways = [(topic.name, NO_UUID), (None, topic.topic_id)]
    return [way for way in ways if way in counts]


async def _delete(
    services: Services, state: DeleteTopicState, mutations: Mutations
) -> DeletableTopicResult:
    is_by_id = state.topic_id != NO_UUID
    # Both or neither. With both, the name might be of a new topic and the id of the one before it;
    # Kafka refuses that too.
    if is_by_id == (state.name is not None):
        return _refused(state, ErrorCode.INVALID_REQUEST, "give a name or an id")
    topic = services.find_topic(state.name or "", state.topic_id)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(state, code, "no such topic")
    if not mutations.take(len(topic.partitions)):
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return _refused(state, code, code.message)
    try:
        await delete_topic(
            services.changes, services.own_controller, services.replicas, topic=topic
        )
    except TailraceError as error:
        return _refused(state, error_code(error), str(error))
    # Afterwards: a crash in between leaves offsets of an id that no topic has, which do not count.
    await forget_topic(services, topic)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)


def _refused(state: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=message
    )
