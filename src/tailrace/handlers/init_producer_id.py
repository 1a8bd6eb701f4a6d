"""InitProducerId (22): an id for an idempotent producer.

Versions: 0 to 5.
Behaviour: a new id with epoch 0, never handed out before, also not before a crash; larger than any
    that a log knew at the start, and than any that Apache Kafka hands out. So it is too for a
    producer that sends an id and epoch along (v3, KIP-360), as in Kafka: nobody has noted to whom
    an id without a transactional id belongs, so a bump of an invented one would fence its owner.
Not done: transactional ids (INVALID_REQUEST).
"""

from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


async def handle_init_producer_id(
    services: Services, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A fresh id."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await services.changes.on_device(services.controller.next_producer_id)
    except TailraceError as error:
        return InitProducerIdResponse(error_code=error_code(error))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )
