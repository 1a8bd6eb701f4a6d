"""ListTransactions (66): the transactions that this broker coordinates.

Versions: 0 to 2.
Version notes: v1 filters by duration, v2 by a pattern in RE2's syntax that matches the whole id
    (INVALID_REGULAR_EXPRESSION). While a partition is loaded there is no list, but
    COORDINATOR_LOAD_IN_PROGRESS.
"""

from tailrace.coordinator.groups.refusal import RefusedError
from tailrace.coordinator.groups.topic_patterns import compile_pattern
from tailrace.handlers.services import Services
from tailrace.handlers.transactions import coordinator_of
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


async def handle_list_transactions(
    services: Services, _: RequestHeader, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactions of all shards that pass the filters."""
    if not request.transactional_id_pattern:
        return await coordinator_of(services).list_transactions(request, lambda _: True)
    try:
        pattern = compile_pattern(request.transactional_id_pattern)
    except RefusedError as error:
        return ListTransactionsResponse(error_code=error.code)
    return await coordinator_of(services).list_transactions(
        request, lambda transactional_id: pattern.fullmatch(transactional_id) is not None
    )
