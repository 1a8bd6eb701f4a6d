"""The rules for SCRAM credentials; `broker/test_scram_users` has those of a node alone."""

from typing import Any

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tailrace.protocol.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tests.unit.cluster.control.controlled import Controlled

SHA_256, SHA_512 = 1, 2


def upsertion(user: str, mechanism: int = SHA_256, salted: bytes = b"salted") -> Any:
    """A credential to set."""
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=salted
    )


def deletion(user: str, mechanism: int = SHA_256) -> Any:
    """A credential to remove."""
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def alter(cluster: Controlled, *changes: Any) -> dict[str, ErrorCode]:
    """The code of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in changes if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramCredentialUpsertion)),
    )
    answer = cluster.do(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    return {each.user: ErrorCode(each.error_code) for each in answer.results}


def test_credentials_are_records() -> None:
    """One for each mechanism of a user; the last one that was set counts, until it is removed."""
    cluster = Controlled()
    before = len(cluster.appended)
    assert alter(cluster, upsertion("a"), upsertion("b", SHA_512)) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.NONE,
    }
    assert alter(cluster, upsertion("a", SHA_512)) == {"a": ErrorCode.NONE}
    assert alter(cluster, upsertion("a", salted=b"other")) == {"a": ErrorCode.NONE}
    assert alter(cluster, deletion("b", SHA_512)) == {"b": ErrorCode.NONE}
    *set_, removed = cluster.appended[before:]
    assert all(isinstance(each, UserScramCredentialRecord) for each in set_)
    assert removed == RemoveUserScramCredentialRecord(name="b", mechanism=SHA_512)
    assert [tuple(each) for each in cluster.state.image.scram] == [(1, "a"), (2, "a")]
    assert cluster.state.image.scram[1, "a"] == set_[-1]  # type: ignore[index]


def test_no_credential_follows_from_an_empty_password() -> None:
    """Anybody knows its keys; the salt may be empty."""
    cluster = Controlled()
    assert alter(cluster, upsertion("a", salted=b"")) == {"a": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert not cluster.state.image.scram


@pytest.mark.parametrize(("level", "code"), [(10, ErrorCode.UNSUPPORTED_VERSION), (11, 0)])
def test_the_level_must_have_the_records(level: int, code: ErrorCode) -> None:
    """Before 3.5-IV2 brokers could not read them; that counts more than what else is wrong."""
    cluster = Controlled(level=level, has_elr=False)
    assert alter(cluster, upsertion("a")) == {"a": code}
    assert len(cluster.state.image.scram) == (not code)
    if code:
        assert alter(cluster, deletion("", 7)) == {"": code}
