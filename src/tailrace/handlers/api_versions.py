"""ApiVersions (18): the APIs and versions that this broker serves.

Versions: 0 to 4.
Behaviour: lists every served API with its range. A request with a version that is not served gets a
    v0 response with UNSUPPORTED_VERSION and the same list, so that the client retries (KIP-511).
    Produce is listed from v0 although it is served from v3: otherwise librdkafka sends gzip, snappy
    and lz4 batches uncompressed, without a warning (KAFKA-18659).
    From v3 on a request names the client's software and its version, of letters, digits, dots and
    dashes; others are INVALID_REQUEST, without the list.
    From v3 on the finalized features of the cluster are there, among them `transaction.version`:
    from level 2 on, producers that know it have an epoch for each transaction (KIP-890). The level
    of `kraft.version` is that of the quorum's control records, and listed above 0, as in Kafka.
Version notes: up to v3 a feature that may be at level 0 is not listed as supported (KIP-584).
Not done: features of share groups and streams groups, which no API here serves.
"""

import re
from collections.abc import Mapping
from typing import Final

from tailrace.cluster.metadata.features import (
    FEATURES,
    KRAFT_VERSION,
    KRAFT_VERSIONS,
    Feature,
)
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

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")

_SERVED = tuple(
    ApiVersion(
        # Not the first version that is served: librdkafka compresses with gzip, snappy and lz4 only
        # for a broker that lists Produce from v0 (KAFKA-18659).
        api_key=int(api.key),
        min_version=api.advertised_first_version,
        max_version=api.last_version,
    )
    for api in APIS.values()
)

_SUPPORTED: Final = tuple(
    SupportedFeatureKey(name=name, min_version=each.lowest, max_version=each.highest)
    for name, each in {**FEATURES, KRAFT_VERSION: Feature(*KRAFT_VERSIONS)}.items()
    # A supported feature would promise the APIs of these groups, which are not served.
    if name not in ("share.version", "streams.version")
)
_NAMES: Final = frozenset(each.name for each in _SUPPORTED)


def handle_api_versions(
    services: Services, header: RequestHeader, request: ApiVersionsRequest | None
) -> ApiVersionsResponse:
    """The served APIs; None stands for a request whose version is not served."""
    levels = dict(services.cluster.image.features)
    # Control records of the quorum have this level, so the image lacks it. Level 0 is not listed.
    if (kraft_version := services.cluster.kraft_version) > 0:
        levels[KRAFT_VERSION] = kraft_version
    return versions_answer(
        header, request, served=_SERVED, levels=levels, epoch=services.cluster.features_epoch
    )


def versions_answer(
    header: RequestHeader,
    request: ApiVersionsRequest | None,
    *,
    served: tuple[ApiVersion, ...],
    levels: Mapping[str, int],
    epoch: int,
) -> ApiVersionsResponse:
    """The answer of a node that serves these APIs; `levels` of features are those of `epoch`."""
    # aiokafka sends v0 only, which names no software; librdkafka (v3) and Java (v4) name theirs.
    if request is not None and header.api_version >= SOFTWARE_SINCE:
        named = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, named)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    # The list is in this error too (KIP-511): Java sends its highest version first, and takes the
    # next one from here, where librdkafka falls back to v0.
    code = ErrorCode.UNSUPPORTED_VERSION if request is None else ErrorCode.NONE
    supported = _SUPPORTED
    if header.api_version < ZERO_LEVELS_SINCE:
        # Kafka's broker leaves them out below v4 too (`alterFeatureLevel0`).
        supported = tuple(each for each in _SUPPORTED if each.min_version)
    return ApiVersionsResponse(
        error_code=code,
        api_keys=served,
        supported_features=supported,
        finalized_features_epoch=epoch,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in levels.items()
            if name in _NAMES
        ),
    )
