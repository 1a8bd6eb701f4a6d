"""InitProducerId (22): an id and epoch for an idempotent producer, or for a transactional id.

Versions: 0 to 5.
Behaviour:
  - Without a transactional id: returns a new id with epoch 0 that was never returned before, also
    not before a crash. It is larger than any id in the logs at the start, and than any that Apache
    Kafka assigns. A producer that sends its id and epoch (v3, KIP-360) gets a new id too, as in
    Kafka: the owner of an id without a transactional id is unknown, so a bump of a guessed id would
    fence its owner.
  - With one: its producer id under the next epoch, which fences the producers before. An open
    transaction is aborted first, and the client asks again (CONCURRENT_TRANSACTIONS).
Version notes: up to v3 a fenced producer gets INVALID_PRODUCER_EPOCH, not PRODUCER_FENCED.
Not done: two-phase commits (v6, KIP-939).
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
    services: Services, header: RequestHeader, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a producer id and epoch."""
    if request.transactional_id is not None:
        # A producer that is only idempotent needs no module of transactions.
        from tailrace.handlers.transactions import coordinator_of

        return await coordinator_of(services).init_producer_id(request, header.api_version)
    # Id and epoch come together (KIP-360); Kafka refuses one without the other.
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        # A block of ids is reserved on the device first. An id that is given twice would make the
        # log drop or refuse the second producer's records.
        producer_id = await services.next_producer_id()
    except TailraceError as error:
        return InitProducerIdResponse(error_code=error_code(error))
    return InitProducerIdResponse(
        # Java and kafka-python ask by default: their producers are idempotent unless set
        # otherwise.
        error_code=ErrorCode.NONE,
        producer_id=producer_id,
        producer_epoch=0,
    )
