"""AlterUserScramCredentials: the SCRAM credentials of users, as records (KIP-554).

Each user is changed or refused by itself, by the rules of Kafka's `ScramControlManager`. Stricter
than those: there are at most `CREDENTIALS_MAX` credentials.

Not here: logins by them; see `security.scram`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tailrace.cluster.control.state import Decision
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import MetadataImage, ScramUser
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

CREDENTIALS_MAX: Final = 10_000
"""Most credentials of a cluster, since every node keeps all of them in memory."""
# Kafka's limits for both mechanisms. Each login costs the client as many rounds of hashing.
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
SCRAM_SINCE: Final = 11
"""First level of `metadata.version` that has records of credentials."""

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by Kafka's number."""

_Change = ScramCredentialDeletion | ScramCredentialUpsertion
_Refusal = tuple[ErrorCode, str]


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Decision:
    """Set and remove credentials, of which the keys are kept and not the salted password.

    A user that is named twice is a DUPLICATE_RESOURCE, also once with each mechanism; a credential
    to remove that there is not, RESOURCE_NOT_FOUND; an empty name or salted password, too few or
    too many iterations, UNACCEPTABLE_CREDENTIAL; an unknown mechanism, UNSUPPORTED_SASL_MECHANISM;
    a level of `metadata.version` without such records, UNSUPPORTED_VERSION; and one credential too
    many, a POLICY_VIOLATION.
    """
    changes: tuple[_Change, ...] = (*request.deletions, *request.upsertions)
    refused: dict[str, _Refusal] = {}
    for user, refusal in _refusals(image, changes):
        # Deletions are looked at first, and as in Kafka the first error of a user counts.
        refused.setdefault(user, refusal)
    results = []
    for user in dict.fromkeys(each.name for each in changes):
        code, message = refused.get(user, (ErrorCode.NONE, None))
        results.append(
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
        )
    records = [_record(each) for each in changes if each.name not in refused]
    return Decision(records, AlterUserScramCredentialsResponse(results=tuple(results)))


def _refusals(image: MetadataImage, changes: Sequence[_Change]) -> Iterator[tuple[str, _Refusal]]:
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
    if change.mechanism not in MECHANISMS:
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
    # Anybody could log in with the keys that follow from nothing. Java's HMAC refuses an empty
    # key, so that Kafka's code for it is UNKNOWN_SERVER_ERROR.
    if not change.salted_password:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty"
    return None


def _record(change: _Change) -> RecordToWrite:
    from tailrace.protocol.metadata_records import (
        RemoveUserScramCredentialRecord,
        UserScramCredentialRecord,
    )

    # With the first of them: hashlib loads OpenSSL, which takes 4 ms.
    from tailrace.security.scram import keys_of

    if isinstance(change, ScramCredentialDeletion):
        gone = RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
        return RecordToWrite(gone, 0)
    keys = keys_of(
        MECHANISMS[change.mechanism],
        change.salted_password,
        salt=bytes(change.salt),
        iterations=change.iterations,
    )
    kept = UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=keys.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=keys.iterations,
    )
    return RecordToWrite(kept, 0)
