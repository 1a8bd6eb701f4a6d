"""AddRaftVoter (80): add a controller to the voters of the quorum (KIP-853).

Versions: 0 to 1.
Behaviour: as Kafka at level 0 of `kraft.version`, whose voters are those of the settings: another
    cluster's id is INCONSISTENT_CLUSTER_ID, and all else UNSUPPORTED_VERSION; at level 1 likewise.
Not done: voters that come and go: this node is the only one.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


def handle_add_raft_voter(
    services: Services, _: RequestHeader, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """The refusal."""
    code, message = refuse_voters(services, request.cluster_id, "adding")
    return AddRaftVoterResponse(error_code=code, error_message=message)


def refuse_voters(services: Services, cluster_id: str | None, change: str) -> tuple[ErrorCode, str]:
    """The code and Kafka's message for a change of the voters."""
    if cluster_id is not None and cluster_id != services.cluster_id:
        return (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "{cluster_id}" doesn\'t match the cluster id "{services.cluster_id}"',
        )
    reason = "it has one node"
    if services.controller.log.kraft_version == 0:
        reason = "the kraft.version feature is 0"
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {change} voter because {reason}",
    )
