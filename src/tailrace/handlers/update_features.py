"""UpdateFeatures (57): change the levels of features of the cluster (KIP-584).

Versions: 0 to 2.
Behaviour: all changes of a request are made, or none: one that is not allowed makes the whole
    request INVALID_UPDATE_VERSION, with a message that names it. Lower levels need the kind of
    change that allows them; no kind lowers `metadata.version` below a level whose records the log
    may have. A level that the feature has already is no change. With `validate_only` the changes
    are checked and not made. More than `UPDATES_MAX` changes are INVALID_REQUEST.
    The level of `eligible.leader.replicas.version` that begins its use makes
    `min.insync.replicas` a setting of all brokers (KIP-966).
Version notes: v0 allows a downgrade by a flag, later versions by the kind of change (KIP-778), and
    they have dry runs. Up to v1 a response that is no error names each feature again.
After a crash: all levels are the old ones, or all are the new ones.
Not done: `kraft.version`, because a quorum with one static voter stays one.
"""

import logging
from functools import partial

from tailrace.cluster.metadata.features import SAFE_DOWNGRADE, UPGRADE, LevelChange
from tailrace.cluster.metadata.image import METADATA_VERSION
from tailrace.errors import TailraceError
from tailrace.handlers.services import InvalidRequestError, Services, error_code, error_message
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

KINDS_SINCE = 1
"""The first version that names the kind of a change."""

UPDATES_MAX = 256
"""Most changes in a request, of which there are a few features."""

logger = logging.getLogger(__name__)


async def handle_update_features(
    services: Services, header: RequestHeader, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Change all features that the request names, or refuse it."""
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
        # A topic of this name waits for it, and nothing else does.
        await services.changes.make(
            METADATA_VERSION,
            partial(_change, services, changes, is_dry_run=request.validate_only),
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


async def _change(services: Services, changes: dict[str, LevelChange], *, is_dry_run: bool) -> None:
    await services.changes.on_device(
        partial(services.controller.change_features, changes, is_dry_run=is_dry_run)
    )
    if not is_dry_run:
        named = ",".join(f"{name}={change.level}" for name, change in changes.items())
        logger.info("features_changed levels=%s", named)


def _kind(update: FeatureUpdateKey) -> int:
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
