"""InitProducerId (22): an id for an idempotent producer.

Versions: 0 to 5.
Behaviour: a new id with epoch 0, never handed out before, also not before a crash; larger than any
    that a log knew at the start, and than any that Apache Kafka hands out. A producer that
    sends its id and epoch along (v3) asks for the next epoch of it, and gets it; at the end of the
    epochs it gets a new id, as in Kafka.
Not done: transactional ids (INVALID_REQUEST).
"""

from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.model import NO_PRODUCER_ID
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

EPOCH_MAX = 2**15 - 2
"""The last epoch that may be in use; Kafka keeps one behind it to fence with."""


def handle_init_producer_id(
    services: Services, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A fresh id, or the next epoch of one."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.producer_id != NO_PRODUCER_ID and 0 <= request.producer_epoch < EPOCH_MAX:
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch + 1,
        )
    try:
        producer_id = services.controller.next_producer_id()
    except TailraceError as error:
        return InitProducerIdResponse(error_code=error_code(error))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )
