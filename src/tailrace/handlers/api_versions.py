"""ApiVersions (18): the APIs and versions that this broker serves.

Versions: 0 to 4.
Behaviour: lists every served API with its range. A request with a version that is not served gets a
    v0 response with UNSUPPORTED_VERSION and the same list, so that the client retries (KIP-511).
    Produce is listed from v0 although it is served from v3: otherwise librdkafka sends gzip, snappy
    and lz4 batches uncompressed, without a warning (KAFKA-18659).
    From v3 on the finalized features are told: `group.version` 1, groups of the consumer protocol
    (clients look for the API itself; tools show the feature), and `transaction.version` 2:
    producers that know it have an epoch for each transaction (KIP-890).
Version notes: up to v3 a feature that may be at level 0 is not listed as supported (KIP-584).
Not done: other features; the client's software name is not checked.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.apis import APIS
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

ZERO_LEVELS_SINCE = 4
FEATURES_EPOCH = 0
"""Never changes, as no feature does."""

_SERVED = tuple(
    ApiVersion(
        api_key=int(api.key), min_version=api.advertised_first_version, max_version=api.last_version
    )
    for api in APIS.values()
)

_LEVELS = {"group.version": 1, "transaction.version": 2}
_SUPPORTED = tuple(
    SupportedFeatureKey(name=name, min_version=0, max_version=level)
    for name, level in _LEVELS.items()
)
_IN_USE = tuple(
    FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
    for name, level in _LEVELS.items()
)


def handle_api_versions(
    _services: Services, header: RequestHeader, request: ApiVersionsRequest | None
) -> ApiVersionsResponse:
    """The served APIs; None stands for a request whose version is not served."""
    code = ErrorCode.UNSUPPORTED_VERSION if request is None else ErrorCode.NONE
    return ApiVersionsResponse(
        error_code=code,
        api_keys=_SERVED,
        supported_features=_SUPPORTED if header.api_version >= ZERO_LEVELS_SINCE else (),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=_IN_USE,
    )
