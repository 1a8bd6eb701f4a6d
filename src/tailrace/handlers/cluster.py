"""The cluster: its brokers, their registrations, and the levels of its features."""

from enum import IntEnum
from functools import partial

from tailrace.cluster.metadata.features import SAFE_DOWNGRADE, UPGRADE, LevelChange
from tailrace.cluster.metadata.image import METADATA_VERSION
from tailrace.cluster.records import unregistration_records
from tailrace.errors import TailraceError
from tailrace.handlers.services import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS,
    InvalidRequestError,
    Services,
    error_code,
    error_message,
)
from tailrace.handlers.views import view_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class _EndpointType(IntEnum):
    """The nodes that a client asks for, by Kafka's number."""

    BROKER = 1
    CONTROLLER = 2


def handle_describe_cluster(
    services: Services, _: RequestHeader, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """DescribeCluster (60): the brokers of the cluster (KIP-700).

    Versions: 0 to 2.
    Behaviour: this broker, where it is the controller too; in a cluster the brokers of the image
        that are alive, and any of them as the controller, since each forwards to it. A request for
        the endpoints of controllers is MISMATCHED_ENDPOINT_TYPE, any other type
        UNSUPPORTED_ENDPOINT_TYPE.
    Version notes: v1 has the type of endpoints; v2 can ask for fenced brokers too (KIP-1073).
    """
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
    view, is_asked = view_of(services), request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=services.cluster_id,
        controller_id=view.controller_id,
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=each.node_id,
                host=each.host,
                port=each.port,
                rack=each.rack,
                is_fenced=each.is_fenced,
            )
            for each in view.nodes
            if request.include_fenced_brokers or not each.is_fenced
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else NO_OPERATIONS,
    )


async def handle_unregister_broker(
    services: Services, _: RequestHeader, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """UnregisterBroker (64): end the registration of a broker that has left the cluster for good.

    Versions: 0.
    Behaviour: a broker that is not registered is BROKER_ID_NOT_REGISTERED with Kafka's message.
        Another broker, which a metadata log of Kafka may have, loses its registration, and the
        partitions that it leads have no leader. This broker is INVALID_REQUEST: it serves, and is
        the controller.
    After a crash: the registration is there if the request was not answered, or gone.
    """
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
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)


async def _unregister(services: Services, broker_id: int) -> bool:
    if broker_id == services.node_id:
        raise InvalidRequestError(f"broker {broker_id} is this broker, which serves")
    # Looked up in the queue of changes: of two requests for one broker, one finds it gone.
    if broker_id not in services.cluster.metadata.brokers:
        return False
    make = partial(unregistration_records, broker_id=broker_id)
    await services.changes.on_device(partial(services.own_controller.write, make))
    return True


KINDS_SINCE = 1
"""The first version that names the kind of a change."""

UPDATES_MAX = 256
"""Most changes in a request, of which there are a few features."""


async def handle_update_features(
    services: Services, header: RequestHeader, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """UpdateFeatures (57): change the levels of features of the cluster (KIP-584).

    Versions: 0 to 2.
    Behaviour: all changes of a request are made, or none: one that is not allowed makes the whole
        request INVALID_UPDATE_VERSION, with a message that names it. Lower levels need the kind of
        change that allows them; no kind lowers `metadata.version` below a level whose records the
        log may have. A level that the feature has already is no change. With `validate_only` the
        changes are checked and not made. More than `UPDATES_MAX` changes are INVALID_REQUEST. The
        level of `eligible.leader.replicas.version` that begins its use makes `min.insync.replicas`
        a setting of all brokers (KIP-966).
    Version notes: v0 allows a downgrade by a flag, later versions by the kind of change (KIP-778),
        and they have dry runs. Up to v1 a response that is no error names each feature again.
    After a crash: all levels are the old ones, or all are the new ones.
    Not done: `kraft.version`, because a quorum with one static voter stays one.
    """
    has_kinds = header.api_version >= KINDS_SINCE
    try:
        if len(request.feature_updates) > UPDATES_MAX:
            raise InvalidRequestError(
                f"{len(request.feature_updates)} changes; at most {UPDATES_MAX} are allowed"
            )
        changes = {
            each.feature: LevelChange(
                each.max_version_level, each.upgrade_type if has_kinds else _kind(each)
            )
            for each in request.feature_updates
        }
        # The key of the change queue: changes of features and registrations come one after the
        # other. A topic of this name waits for it, and nothing else does.
        await services.changes.make(
            METADATA_VERSION,
            partial(_change_features, services, changes, is_dry_run=request.validate_only),
        )
    except TailraceError as error:
        return UpdateFeaturesResponse(
            error_code=error_code(error), error_message=error_message(error)
        )
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=tuple(
            UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message=None)
            for name in changes
        ),
    )


async def _change_features(
    services: Services, changes: dict[str, LevelChange], *, is_dry_run: bool
) -> None:
    await services.changes.on_device(
        partial(services.own_controller.change_features, changes, is_dry_run=is_dry_run)
    )


def _kind(update: FeatureUpdateKey) -> int:
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
