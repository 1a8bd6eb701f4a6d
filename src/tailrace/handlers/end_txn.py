"""EndTxn (26): commit or abort a transaction.

Versions: 0 to 5.
Behaviour: the answer comes when the decision is in the log and the markers are written; where these
    take longer than 5 ms, they follow.
Version notes: below v2 a fenced producer gets INVALID_PRODUCER_EPOCH; v5 raises the epoch and
    returns it (KIP-890).
"""

from tailrace.handlers.services import Services
from tailrace.handlers.transactions import coordinator_of
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse


async def handle_end_txn(
    services: Services, header: RequestHeader, request: EndTxnRequest
) -> EndTxnResponse:
    """End a transaction."""
    return await coordinator_of(services).end(request, header.api_version)
