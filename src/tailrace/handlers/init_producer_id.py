"""InitProducerId (22): an id for an idempotent producer.

Versions: 0 to 5.
Behaviour: returns a new id with epoch 0 that was never returned before, also not before a crash. It
    is larger than any id in the logs at the start, and than any that Apache Kafka assigns. A
    producer that sends its id and epoch (v3, KIP-360) gets a new id too, as in Kafka: the owner of
    an id without a transactional id is unknown, so a bump of a guessed id would fence its owner.
Not done: transactional ids (INVALID_REQUEST).
"""

from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


async def handle_init_producer_id(
    services: Services, _: RequestHeader, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a new producer id."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await services.changes.on_device(services.controller.next_producer_id)
    except TailraceError as error:
        return InitProducerIdResponse(error_code=error_code(error))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )
