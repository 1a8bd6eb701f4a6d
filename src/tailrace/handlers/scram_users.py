"""SCRAM credentials of users, which are records of the metadata log."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tailrace.cluster.control.credentials import alter_user_scram_credentials
from tailrace.handlers.decided import decide_here
from tailrace.handlers.services import Services
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from tailrace.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle_describe_user_scram_credentials(
    services: Services, _: RequestHeader, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials (50): the users that have SCRAM credentials (KIP-554).

    Versions: 0.
    Behaviour: mechanism and iterations of each credential in the metadata log, never a key or a
        salt. No user, or none named, means all. A user without credentials is RESOURCE_NOT_FOUND,
        and one that is named twice DUPLICATE_RESOURCE, with Kafka's messages.
    """
    known: dict[str, list[CredentialInfo]] = {}
    for owner, record in services.cluster.metadata.scram.items():
        info = CredentialInfo(mechanism=owner.mechanism, iterations=record.iterations)
        known.setdefault(owner.name, []).append(info)
    # As in Kafka null and an empty list both mean all users.
    counts = Counter(each.name for each in request.users or ()) or dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        results=tuple(_described_user(name, count, known) for name, count in counts.items()),
    )


def _described_user(
    user: str, count: int, known: Mapping[str, Sequence[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, ""
    # Refused as in Kafka, also where the user is not known.
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


async def handle_alter_user_scram_credentials(
    services: Services, header: RequestHeader, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """AlterUserScramCredentials (51): set and remove SCRAM credentials of users (KIP-554).

    Versions: 0.
    Behaviour: credentials are records of the metadata log, as Kafka writes them: the keys that
        follow from the salted password, which itself is not kept. Each user is changed or refused
        by itself, and all changes are one batch. The rules are those of the controller
        (`cluster.control.credentials`), with Kafka's codes and messages.
    After a crash: all of the changes are there if the request was answered; else all or none.
    Logins by them are those of listeners with SASL, here and at a broker of Kafka that gets the
        directory; connections that have logged in before stay.
    """
    answer: AlterUserScramCredentialsResponse = await decide_here(
        services, header, request, rule=alter_user_scram_credentials
    )
    return answer
