"""SCRAM credentials of users: set, shown, removed and refused as Kafka does."""

import hashlib
import hmac

from tailrace.cluster.control.credentials import CREDENTIALS_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tailrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, running

Change = ScramCredentialDeletion | ScramCredentialUpsertion

SHA_256, SHA_512 = 1, 2
SALTED = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> Change:
    """A credential to set."""
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=SALTED
    )


def deletion(user: str, mechanism: int = SHA_256) -> Change:
    """A credential to remove."""
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


async def alter(peer: Peer, *changes: Change) -> dict[str, tuple[int, str | None]]:
    """Code and message of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in changes if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramCredentialUpsertion)),
    )
    key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    answer = await peer.ask(key, request, AlterUserScramCredentialsResponse)
    return {each.user: (each.error_code, each.error_message) for each in answer.results}


async def described(peer: Peer, *users: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    """Code, and mechanism and iterations of each credential, by user; all without users."""
    request = DescribeUserScramCredentialsRequest(users=tuple(UserName(name=u) for u in users))
    key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    answer = await peer.ask(key, request, DescribeUserScramCredentialsResponse)
    return {
        each.user: (
            each.error_code,
            [(info.mechanism, info.iterations) for info in each.credential_infos],
        )
        for each in answer.results
    }


async def test_a_request_that_names_nobody_is_about_all(outside: Outside) -> None:
    """With null and with no names; where there is nobody the answer is empty, and no error."""
    key = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    async with running(outside) as broker:
        peer = connect(outside, broker)
        for known in ([], ["a"]):
            for users in (None, ()):
                request = DescribeUserScramCredentialsRequest(users=users)
                answer = await peer.ask(key, request, DescribeUserScramCredentialsResponse)
                assert answer.error_code == ErrorCode.NONE
                assert [each.user for each in answer.results] == known
            await alter(peer, upsertion("a"))


async def test_credentials_are_kept(outside: Outside) -> None:
    """A credential is shown without keys, survives a restart, and goes when it is removed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert await alter(peer, upsertion("a"), upsertion("b", SHA_512, 8192)) == {
            "a": (ErrorCode.NONE, None),
            "b": (ErrorCode.NONE, None),
        }
        assert await alter(peer, upsertion("a", SHA_512)) == {"a": (ErrorCode.NONE, None)}
    async with running(outside) as broker:
        peer = connect(outside, broker)
        both = [(SHA_256, 4096), (SHA_512, 4096)]
        assert await described(peer) == {"a": (0, both), "b": (0, [(SHA_512, 8192)])}
        assert await alter(peer, deletion("a"), deletion("b", SHA_512)) == {
            "a": (ErrorCode.NONE, None),
            "b": (ErrorCode.NONE, None),
        }
        assert await described(peer) == {"a": (0, [(SHA_512, 4096)])}


async def test_a_credential_has_the_keys_of_the_standard(outside: Outside) -> None:
    """Stored key and server key are those of RFC 5802, by which Kafka logs the user in."""
    async with running(outside) as broker:
        await alter(connect(outside, broker), upsertion("a"))
        (kept,) = broker.controller.log.image.scram.values()
        client_key = hmac.digest(SALTED, b"Client Key", "sha256")
        assert kept.stored_key == hashlib.sha256(client_key).digest()
        assert kept.server_key == hmac.digest(SALTED, b"Server Key", "sha256")
        assert (kept.salt, kept.iterations) == (b"salt", 4096)


async def test_each_user_is_refused_by_itself(outside: Outside) -> None:
    """Codes and words are Kafka's, and the others are changed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        twice = "A user credential cannot be altered twice in the same request"
        assert await alter(
            peer, deletion("gone"), deletion("strange", 0), upsertion("good"), upsertion(""),
            upsertion("unknown", 3), upsertion("few", SHA_256, 4095),
            upsertion("many", SHA_256, 16_385), upsertion("twice"), upsertion("twice", SHA_512),
        ) == {
            "gone": (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            ),
            "strange": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
            "good": (ErrorCode.NONE, None),
            "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
            "unknown": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
            "few": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
            "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
            "twice": (ErrorCode.DUPLICATE_RESOURCE, twice),
        }  # fmt: skip
        assert await described(peer) == {"good": (0, [(SHA_256, 4096)])}
        assert await described(peer, "gone", "good", "good") == {
            "gone": (ErrorCode.RESOURCE_NOT_FOUND, []),
            "good": (ErrorCode.DUPLICATE_RESOURCE, []),
        }


async def test_the_first_error_of_a_user_counts(outside: Outside) -> None:
    """Deletions come first, and a second change is a duplicate only after one that is allowed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await alter(peer, upsertion("there"))
        answers = await alter(
            peer, deletion("gone"), upsertion("gone"), deletion("there"),
            upsertion("there", SHA_256, 4095), upsertion("few", SHA_256, 4095), upsertion("few"),
        )  # fmt: skip
        assert {user: code for user, (code, _) in answers.items()} == {
            "gone": ErrorCode.RESOURCE_NOT_FOUND,
            "there": ErrorCode.DUPLICATE_RESOURCE,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        }
        assert await described(peer) == {"there": (0, [(SHA_256, 4096)])}


async def test_credentials_have_a_limit(outside: Outside) -> None:
    """One user too many is refused, and those below the limit are there."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        half = CREDENTIALS_MAX // 2
        await alter(peer, *(upsertion(f"u{number}") for number in range(half)))
        users = [f"u{number}" for number in range(half, CREDENTIALS_MAX + 1)]
        answers = await alter(peer, *map(upsertion, users))
        refused = {user: code for user, (code, _) in answers.items() if code}
        assert refused == {users[-1]: ErrorCode.POLICY_VIOLATION}
