"""UpdateFeatures: the levels of features of the cluster (KIP-584, KIP-778)."""

from typing import Final

from tailrace.cluster.control.state import ControlState, Decision, RefusedError
from tailrace.cluster.metadata.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateError,
    LevelChange,
    plan_levels,
)
from tailrace.cluster.metadata.image import MIN_INSYNC_REPLICAS
from tailrace.cluster.records import feature_records
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_KINDS_SINCE: Final = 1
"""The first version that names the kind of a change."""


def update_features(
    state: ControlState, request: UpdateFeaturesRequest, *, version: int
) -> Decision:
    """Change levels, all of the request or none.

    Raises:
        RefusedError: INVALID_UPDATE_VERSION: a broker does not know a level, or the log may have
            records that a lower one lacks, as `plan_levels` says.
    """

    def kind(update: FeatureUpdateKey) -> int:
        if version >= _KINDS_SINCE:
            return update.upgrade_type
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE

    changes = {
        each.feature: LevelChange(each.max_version_level, kind(each))
        for each in request.feature_updates
    }
    try:
        levels = plan_levels(
            state.image, changes, node_id=state.node_id, kraft_version=state.kraft_version
        )
    except FeatureUpdateError as error:
        raise RefusedError(ErrorCode.INVALID_UPDATE_VERSION, str(error)) from None
    least = state.default_configs.get(MIN_INSYNC_REPLICAS, "1")
    records = [*feature_records(state.image, levels, min_insync_replicas=least)]
    answer = UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=tuple(
            UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message=None)
            for name in changes
        ),
    )
    return Decision([] if request.validate_only else records, answer)
