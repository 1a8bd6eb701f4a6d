"""AllocateProducerIds: a block of a thousand ids is a broker's (KIP-730)."""

from typing import Final

from tailrace.cluster.control.state import ControlState, Decision, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.config.settings import INT64_MAX
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

BLOCK: Final = 1000
"""Ids of a block: a broker that crashes loses the rest of its block, and there are 2^63."""


def allocate_producer_ids(state: ControlState, request: AllocateProducerIdsRequest) -> Decision:
    """Give a broker the next block of producer ids, none of which is ever given again.

    Raises:
        RefusedError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR: no ids are left.
    """
    from tailrace.protocol.metadata_records import ProducerIdsRecord

    state.check_epoch(request.broker_id, request.broker_epoch)
    first = state.image.next_producer_id or 0
    if first > INT64_MAX - BLOCK:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "No producer ids are left.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + BLOCK,
    )
    answer = AllocateProducerIdsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        producer_id_start=first,
        producer_id_len=BLOCK,
    )
    return Decision([RecordToWrite(record, 0)], answer)
