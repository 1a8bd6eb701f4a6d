"""DeleteTopics (20): delete topics.

Versions: 1 to 6.
Behaviour: a topic is deleted when the response is sent, also after a crash. Readers and writers get
    UNKNOWN_TOPIC_OR_PARTITION from then on. Its folders are renamed `-delete`, and removed after
    `file.delete.delay.ms`. What groups have committed for them is deleted, too.
Version notes: v6 names topics by name or by id, not both (INVALID_REQUEST).
Not done: `delete.topic.enable`.
"""

import itertools
from functools import partial

from tailrace.errors import TailraceError
from tailrace.handlers.groups import forget_topic
from tailrace.handlers.services import Services, error_code
from tailrace.handlers.topics import delete_topic
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


async def handle_delete_topics(
    services: Services, _: RequestHeader, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete the requested topics; refused ones get an error code."""
    slices = Slices()
    named = (DeleteTopicState(name=name) for name in request.topic_names)
    results = []
    for state in itertools.chain(request.topics, named):
        # A topic that does not exist yet may be in creation: the change waits in its queue.
        found = services.find_topic(state.name or "", state.topic_id)
        name = found.name if found is not None else state.name or ""
        results.append(await services.changes.make(name, partial(_delete, services, state)))
        await slices.turn()
    return DeleteTopicsResponse(responses=tuple(results))


async def _delete(services: Services, state: DeleteTopicState) -> DeletableTopicResult:
    is_by_id = state.topic_id != NO_UUID
    if is_by_id == (state.name is not None):
        return _refused(state, ErrorCode.INVALID_REQUEST, "give a name or an id")
    topic = services.find_topic(state.name or "", state.topic_id)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(state, code, "no such topic")
    try:
        await delete_topic(services.changes, services.controller, services.replicas, topic=topic)
    except TailraceError as error:
        return _refused(state, error_code(error), str(error))
    await forget_topic(services, topic)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)


def _refused(state: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=message
    )
