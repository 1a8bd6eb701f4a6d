"""ApiVersions (18): the APIs and versions that this broker serves.

Versions: 0 to 4.
Behaviour: lists every served API with its range. A request with a version that is not served gets a
    v0 response with UNSUPPORTED_VERSION and the same list, so that the client retries (KIP-511).
    Produce is listed from v0 although it is served from v3: otherwise librdkafka sends gzip, snappy
    and lz4 batches uncompressed, without a warning (KAFKA-18659).
Not done: features (`supported_features` and the finalized ones stay empty); the client's software
    name is not checked.
"""

from tailrace.handlers.services import Services
from tailrace.protocol.apis import APIS
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

_SERVED = tuple(
    ApiVersion(
        api_key=int(api.key), min_version=api.advertised_first_version, max_version=api.last_version
    )
    for api in APIS.values()
)


def handle_api_versions(
    _services: Services, _: RequestHeader, request: ApiVersionsRequest | None
) -> ApiVersionsResponse:
    """The served APIs; None stands for a request whose version is not served."""
    code = ErrorCode.UNSUPPORTED_VERSION if request is None else ErrorCode.NONE
    return ApiVersionsResponse(error_code=code, api_keys=_SERVED)
