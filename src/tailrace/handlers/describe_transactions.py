"""DescribeTransactions (65): the newest transactions of transactional ids, with their partitions.

Versions: 0.
Behaviour: an id that the request names often is answered once.
"""

from tailrace.handlers.services import Services
from tailrace.handlers.transactions import coordinator_of
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tailrace.runtime.slices import Slices


async def handle_describe_transactions(
    services: Services, _: RequestHeader, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    coordinator, slices = coordinator_of(services), Slices()
    described = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        described.append(await coordinator.describe(transactional_id, lambda _: True))
        await slices.turn()
    return DescribeTransactionsResponse(transaction_states=tuple(described))
