"""UnregisterBroker (64): end the registration of a broker that has left the cluster for good.

Versions: 0.
Behaviour: a broker that is not registered is BROKER_ID_NOT_REGISTERED with Kafka's message. Another
    broker, which a metadata log of Kafka may have, loses its registration, and the partitions that
    it leads have no leader. This broker is INVALID_REQUEST: it serves, and is the controller.
After a crash: the registration is there if the request was not answered, or gone.
"""

import logging
from functools import partial

from tailrace.cluster.metadata.image import METADATA_VERSION
from tailrace.cluster.records import unregistration_records
from tailrace.errors import TailraceError
from tailrace.handlers.services import InvalidRequestError, Services, error_code, error_message
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

logger = logging.getLogger(__name__)


async def handle_unregister_broker(
    services: Services, _: RequestHeader, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """End the registration, or refuse to."""
    broker_id = request.broker_id
    try:
        is_done = await services.changes.make(
            METADATA_VERSION, partial(_unregister, services, broker_id)
        )
    except TailraceError as error:
        return UnregisterBrokerResponse(
            error_code=error_code(error), error_message=error_message(error)
        )
    if not is_done:
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {broker_id} is not currently registered",
        )
    logger.info("broker_unregistered node=%d", broker_id)
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)


async def _unregister(services: Services, broker_id: int) -> bool:
    if broker_id == services.node_id:
        raise InvalidRequestError(f"broker {broker_id} is this broker, which serves")
    if broker_id not in services.controller.log.image.brokers:
        return False
    make = partial(unregistration_records, broker_id=broker_id)
    await services.changes.on_device(partial(services.controller.write, make))
    return True
