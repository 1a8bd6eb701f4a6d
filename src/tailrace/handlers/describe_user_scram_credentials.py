"""DescribeUserScramCredentials (50): the users that have SCRAM credentials (KIP-554).

Versions: 0.
Behaviour: mechanism and iterations of each credential in the metadata log, never a key or a salt.
    No user, or none named, means all. A user without credentials is RESOURCE_NOT_FOUND, and one
    that is named twice DUPLICATE_RESOURCE, with Kafka's messages.
Not done: logins; see SaslHandshake.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle_describe_user_scram_credentials(
    services: Services, _: RequestHeader, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The credentials of every user that is asked for."""
    known: dict[str, list[CredentialInfo]] = {}
    for owner, record in services.controller.log.image.scram.items():
        info = CredentialInfo(mechanism=owner.mechanism, iterations=record.iterations)
        known.setdefault(owner.name, []).append(info)
    counts = Counter(each.name for each in request.users or ()) or dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        results=tuple(_result(name, count, known) for name, count in counts.items()),
    )


def _result(
    user: str, count: int, known: Mapping[str, Sequence[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, ""
    if count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = (
            "Cannot describe SCRAM credentials for the same user twice in a single request: " + user
        )
    elif user not in known:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    found = () if code else sorted(known[user], key=lambda each: each.mechanism)
    return DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=tuple(found)
    )
