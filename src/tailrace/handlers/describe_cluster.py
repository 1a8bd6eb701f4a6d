"""DescribeCluster (60): the brokers of the cluster (KIP-700).

Versions: 0 to 2.
Behaviour: this broker, which is the controller too. A request for the endpoints of controllers is
    MISMATCHED_ENDPOINT_TYPE, any other type UNSUPPORTED_ENDPOINT_TYPE.
Version notes: v1 has the type of endpoints; v2 can ask for fenced brokers, of which there are none.
Not done: racks.
"""

from enum import IntEnum

from tailrace.handlers.services import CLUSTER_OPERATIONS, NO_OPERATIONS, Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


class _EndpointType(IntEnum):
    """The nodes that a client asks for, by Kafka's number."""

    BROKER = 1
    CONTROLLER = 2


def handle_describe_cluster(
    services: Services, _: RequestHeader, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The cluster, without topics."""
    match request.endpoint_type:
        case _EndpointType.BROKER:
            code = ErrorCode.NONE
        case _EndpointType.CONTROLLER:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        case _:
            code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    if code is not ErrorCode.NONE:
        message = f"endpoints of type {request.endpoint_type} are not here; brokers are type 1"
        return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="")
    host, port = services.endpoint()
    is_asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=(DescribeClusterBroker(broker_id=services.node_id, host=host, port=port),),
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else NO_OPERATIONS,
    )
