"""SCRAM credentials of users, which are records of the metadata log."""

import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage, ScramUser
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tailrace.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tailrace.protocol.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)


def handle_describe_user_scram_credentials(
    services: Services, _: RequestHeader, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials (50): the users that have SCRAM credentials (KIP-554).

    Versions: 0.
    Behaviour: mechanism and iterations of each credential in the metadata log, never a key or a
        salt. No user, or none named, means all. A user without credentials is RESOURCE_NOT_FOUND,
        and one that is named twice DUPLICATE_RESOURCE, with Kafka's messages.
    Not done: logins; see SaslHandshake.
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


CREDENTIALS_MAX: Final = 10_000
"""Most credentials of a cluster, since every broker keeps all of them in memory."""
# Kafka's limits for both mechanisms. Each login costs the client as many rounds of hashing.
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
SCRAM_SINCE: Final = 11
"""First level of `metadata.version` that has records of credentials."""

_HASHES: Final = {1: "sha256", 2: "sha512"}
"""The hash of each mechanism, by Kafka's number."""

_Change = ScramCredentialDeletion | ScramCredentialUpsertion
_Refusal = tuple[ErrorCode, str]

logger = logging.getLogger(__name__)


async def handle_alter_user_scram_credentials(
    services: Services, _: RequestHeader, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """AlterUserScramCredentials (51): set and remove SCRAM credentials of users (KIP-554).

    Versions: 0.
    Behaviour: credentials are records of the metadata log, as Kafka writes them: the keys that
        follow from the salted password, which itself is not kept. Each user is changed or refused
        by itself, and all changes are one batch. Refused with Kafka's messages: a user that is
        named twice (DUPLICATE_RESOURCE), also once with each mechanism; a credential to remove that
        there is not (RESOURCE_NOT_FOUND); an empty name, or fewer than 4,096 or more than 16,384
        iterations (UNACCEPTABLE_CREDENTIAL); an unknown mechanism (UNSUPPORTED_SASL_MECHANISM); a
        level of `metadata.version` without such records (UNSUPPORTED_VERSION). More than
        `CREDENTIALS_MAX` credentials are a POLICY_VIOLATION.
    After a crash: all of the changes are there if the request was answered; else all or none.
    Not done: logins; see SaslHandshake. A broker of Kafka that gets the directory logs users in by
        these credentials.
    """
    changes: tuple[_Change, ...] = (*request.deletions, *request.upsertions)
    refused: dict[str, _Refusal] = {}

    def records(image: MetadataImage) -> Iterator[RecordToWrite]:
        for user, refusal in _refusals(image, changes):
            # Deletions are looked at first, and as in Kafka the first error of a user counts.
            refused.setdefault(user, refusal)
        return (_record(each) for each in changes if each.name not in refused)

    users = dict.fromkeys(each.name for each in changes)
    try:
        await services.changes.make(
            # Serialized with changes of `metadata.version`, which decides whether there are such
            # records.
            METADATA_VERSION,
            lambda: services.changes.on_device(partial(services.own_controller.write, records)),
        )
    except TailraceError as error:
        refused = dict.fromkeys(users, (error_code(error), error_message(error)))
    changed = [user for user in users if user not in refused]
    if changed:
        logger.info("scram_credentials_changed users=%s", ",".join(changed))
    return AlterUserScramCredentialsResponse(
        results=tuple(_altered_user(user, refused.get(user)) for user in users)
    )


def _refusals(image: MetadataImage, changes: tuple[_Change, ...]) -> Iterator[tuple[str, _Refusal]]:
    """The users whose changes are refused, and why."""
    # By name and not by mechanism, as in Kafka: a user with both mechanisms takes two requests.
    counts = Counter(each.name for each in changes)
    # Each new credential counts for those after it, since all of them are one batch.
    count = len(image.scram)
    for each in changes:
        refusal = _refusal(image, each)
        if refusal is None and counts[each.name] > 1:
            refusal = (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        is_new = ScramUser(each.mechanism, each.name) not in image.scram
        if refusal is None and is_new:
            count += 1
            if count > CREDENTIALS_MAX:
                refusal = (
                    ErrorCode.POLICY_VIOLATION,
                    f"the cluster has {CREDENTIALS_MAX} SCRAM credentials, which is the limit",
                )
        if refusal is not None:
            yield each.name, refusal


def _refusal(image: MetadataImage, change: _Change) -> _Refusal | None:
    """Why one change is refused by itself."""
    # Before the values are looked at, as in Kafka: brokers of that level do not know the records.
    if image.metadata_version < SCRAM_SINCE:
        message = "The current metadata.version does not support SCRAM"
        return ErrorCode.UNSUPPORTED_VERSION, message
    if not change.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if change.mechanism not in _HASHES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(change, ScramCredentialDeletion):
        if ScramUser(change.mechanism, change.name) not in image.scram:
            message = "Attempt to delete a user credential that does not exist"
            return ErrorCode.RESOURCE_NOT_FOUND, message
        return None
    if change.iterations < ITERATIONS_MIN:
        # Kafka's own login would refuse such a credential too.
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if change.iterations > ITERATIONS_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return None


def _record(change: _Change) -> RecordToWrite:
    if isinstance(change, ScramCredentialDeletion):
        gone = RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
        return RecordToWrite(gone, 0)
    name, salted = _HASHES[change.mechanism], change.salted_password
    # RFC 5802, section 3: a server that keeps these can check a proof, and not make one.
    client_key = hmac.digest(salted, b"Client Key", name)
    kept = UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=bytes(change.salt),
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", name),
        iterations=change.iterations,
    )
    return RecordToWrite(kept, 0)


def _altered_user(user: str, refusal: _Refusal | None) -> AlterUserScramCredentialsResult:
    code, message = refusal or (ErrorCode.NONE, None)
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
