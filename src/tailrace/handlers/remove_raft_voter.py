"""RemoveRaftVoter (81): remove a controller from the voters of the quorum (KIP-853).

Versions: 0.
Behaviour: as AddRaftVoter.
Not done: voters that come and go: this node is the only one.
"""

from tailrace.handlers.add_raft_voter import refuse_voters
from tailrace.handlers.services import Services
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)


def handle_remove_raft_voter(
    services: Services, _: RequestHeader, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """The refusal."""
    code, message = refuse_voters(services, request.cluster_id, "removing")
    return RemoveRaftVoterResponse(error_code=code, error_message=message)
