"""ApiVersions (18): the APIs and versions that this broker serves.

Versions: 0 to 4.
Behaviour: lists every served API with its range. A request with a version that is not served gets a
    v0 response with UNSUPPORTED_VERSION and the same list, so that the client retries (KIP-511).
    Produce is listed from v0 although it is served from v3: otherwise librdkafka sends gzip, snappy
    and lz4 batches uncompressed, without a warning (KAFKA-18659).
    From v3 on a request names the client's software and its version, of letters, digits, dots and
    dashes; others are INVALID_REQUEST, without the list.
    From v3 on the finalized features are told: `group.version` 1, groups of the consumer protocol
    (clients look for the API itself; tools show the feature), and `transaction.version` 2:
    producers that know it have an epoch for each transaction (KIP-890).
Version notes: up to v3 a feature that may be at level 0 is not listed as supported (KIP-584).
Not done: other features.
"""

import re
from typing import Final

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

SOFTWARE_SINCE: Final = 3
"""The first version that names the client's software."""
ZERO_LEVELS_SINCE = 4
FEATURES_EPOCH = 0
"""Never changes, as no feature does."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")

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
    if request is not None and header.api_version >= SOFTWARE_SINCE:
        named = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, named)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    code = ErrorCode.UNSUPPORTED_VERSION if request is None else ErrorCode.NONE
    return ApiVersionsResponse(
        error_code=code,
        api_keys=_SERVED,
        supported_features=_SUPPORTED if header.api_version >= ZERO_LEVELS_SINCE else (),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=_IN_USE,
    )
