"""Users that log in by SCRAM: which there are, and their passwords (KIP-554).

    admin.alter_user_scram_credentials(
        [ScramUpsertion("alice", ScramMechanism.SHA_512, "correct horse"), ScramDeletion("bob")]
    ).results()

A password is salted here, and the broker gets only the salted one.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum

from tailrace.client.admin.items import ItemRequest, ask_one, entry_error, for_each, many, names
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.routes import ANY
from tailrace.errors import kind_of
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
from tailrace.values import dataclass, field

ITERATIONS_DEFAULT = 4096
"""Kafka's lowest number, and that of its own tools."""


class ScramMechanism(IntEnum):
    """Mechanisms, by Kafka's number."""

    UNKNOWN = 0
    """One that this version does not know."""
    SHA_256 = 1
    SHA_512 = 2

    @property
    def label(self) -> str:
        """Its name in a login, such as SCRAM-SHA-512."""
        return f"SCRAM-{self.name.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A credential of a user, without the password."""

    mechanism: ScramMechanism
    """The mechanism of the login."""
    iterations: int
    """Iterations with which the password was salted."""


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A user's new password for one mechanism."""

    user: str
    mechanism: ScramMechanism
    # Not in `repr`, which appears in logs and tracebacks.
    password: str | bytes = field(repr=False)
    """The password; never shown, and not sent as it is."""
    # RFC 7677 asks for 4096 at least; Kafka refuses more than 16384, as each login pays for them.
    iterations: int = ITERATIONS_DEFAULT
    """Kafka takes 4096 to 16384."""
    salt: bytes | None = field(default=None, repr=False)
    """Random unless it is given."""

    def salted(self) -> ScramCredentialUpsertion:
        """The credential as the broker gets it."""
        # Loads OpenSSL, which takes 4 ms.
        from tailrace.security.scram import new_salt, salted_password

        password = self.password
        data = password.encode() if isinstance(password, str) else password
        salt = self.salt or new_salt()
        return ScramCredentialUpsertion(
            name=self.user,
            mechanism=self.mechanism,
            iterations=self.iterations,
            salt=salt,
            # KIP-554: the broker gets the salted password, and never the password itself.
            salted_password=salted_password(
                self.mechanism.label, data, salt=salt, iterations=self.iterations
            ),
        )


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A user who cannot log in with a mechanism any more."""

    user: str
    mechanism: ScramMechanism = ScramMechanism.SHA_512


def describe_user_scram_credentials(
    call: Call, users: Iterable[str] | None = None
) -> Steps[Outcomes[str, tuple[ScramCredential, ...]]]:
    """The credentials of these users, or of all.

    A user without credentials has a RemoteFatalError with RESOURCE_NOT_FOUND.

    Raises:
        TypeError: `users` is no list of names.
        RemoteFatalError: the broker refuses: CLUSTER_AUTHORIZATION_FAILED.
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.7).
        OperationTimeoutError: no answer within the time limit.
    """
    wanted = None if users is None else names(users, what="users")
    # An empty list asks for all users.
    if wanted == []:
        return Outcomes({})

    def found(
        _: str, answer: DescribeUserScramCredentialsResponse
    ) -> Outcomes[str, tuple[ScramCredential, ...]]:
        return Outcomes(
            {
                each.user: entry_error(each, about=f"user {each.user!r}")
                or tuple(
                    ScramCredential(_mechanism(info.mechanism), info.iterations)
                    for info in each.credential_infos
                )
                for each in answer.results
            }
        )

    request = ItemRequest(
        what="the users",
        target=ANY,
        request=lambda _: DescribeUserScramCredentialsRequest(
            users=None if wanted is None else tuple(UserName(name=each) for each in wanted)
        ),
        response=DescribeUserScramCredentialsResponse,
        value=found,
    )
    users_found = yield from ask_one(call, request)
    if wanted is None:
        return users_found
    # A user that the answer leaves out gets an error: no outcome may be missing.
    return users_found.about(wanted, answer="DescribeUserScramCredentials")


def alter_user_scram_credentials(
    call: Call, changes: Iterable[ScramUpsertion | ScramDeletion]
) -> Steps[Outcomes[str, None]]:
    """Set and remove credentials; the outcome of a user is that of all changes to the user.

    Repeated after a lost connection: a second request sets the same again. After one that was
    carried out, a deletion may have RESOURCE_NOT_FOUND.

    Raises:
        TypeError: `changes` is no list of `ScramUpsertion` and `ScramDeletion`.
        ValueError: a number of iterations is not positive, a password is empty, or a mechanism is
            UNKNOWN.
    """
    by_user: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
    for each in many(changes, what="changes"):
        if not isinstance(each, ScramUpsertion | ScramDeletion):
            raise TypeError(
                f"changes has {kind_of(each)}; each has to be a ScramUpsertion or ScramDeletion"
            )
        if each.mechanism == ScramMechanism.UNKNOWN:
            raise ValueError(f"user {each.user!r}: give the mechanism SHA_256 or SHA_512")
        if isinstance(each, ScramUpsertion) and each.iterations < 1:
            raise ValueError(
                f"user {each.user!r}: iterations is {each.iterations}; give 4096 to 16384"
            )
        if isinstance(each, ScramUpsertion) and not each.password:
            raise ValueError(f"user {each.user!r}: the password is empty; anybody could log in")
        # A broker refuses a request that names a user and mechanism twice; the answer is by user.
        by_user.setdefault(each.user, []).append(each)
    # Salting takes milliseconds: once for each change, not once for each attempt.
    salted = {
        each: each.salted()
        for chosen in by_user.values()
        for each in chosen
        if isinstance(each, ScramUpsertion)
    }

    def asked(batch: Sequence[str]) -> AlterUserScramCredentialsRequest:
        chosen = [each for user in batch for each in by_user[user]]
        return AlterUserScramCredentialsRequest(
            deletions=tuple(
                ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                for each in chosen
                if isinstance(each, ScramDeletion)
            ),
            upsertions=tuple(salted[each] for each in chosen if isinstance(each, ScramUpsertion)),
        )

    request: ItemRequest[str, None, AlterUserScramCredentialsResponse] = ItemRequest(
        what="user",
        target=ANY,
        request=asked,
        response=AlterUserScramCredentialsResponse,
        entries=lambda answer, _: ((each.user, each) for each in answer.results),
    )
    return (yield from for_each(call, by_user, request))


def _mechanism(number: int) -> ScramMechanism:
    return ScramMechanism(number) if number in set(ScramMechanism) else ScramMechanism.UNKNOWN
