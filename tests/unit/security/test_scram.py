"""A broker's side of SCRAM, message by message, and against our own client."""

from base64 import b64decode, b64encode
from collections.abc import Mapping

import pytest

from tailrace.client.nodes import AuthenticationError, Credentials
from tailrace.security.exchange import Granted, RefusedLoginError
from tailrace.security.scram import (
    HASHES,
    Scram,
    ScramKeys,
    client_proof,
    escaped,
    keys_of,
    new_salt,
    salted_password,
    server_signature,
    unescaped,
)
from tests.unit.security.exchanges import Running, calls_until_refused, granted, log_in

NONCE = "rOprNGfwEbeRWgbNEkqO"
MORE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SHA_256, SHA_512 = HASHES

SIGNED = (
    f"n=user,r={NONCE},r={NONCE}{MORE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}{MORE}"
).encode()
"""The three messages of the example in RFC 7677 that are signed."""


def keys(password: str = "pencil", mechanism: str = SHA_256, iterations: int = 4096) -> ScramKeys:
    """The keys of a password with the example's salt."""
    salted = salted_password(mechanism, password.encode(), salt=SALT, iterations=iterations)
    return keys_of(mechanism, salted, salt=SALT, iterations=iterations)


def server(users: Mapping[str, ScramKeys] | None = None, mechanism: str = SHA_256) -> Scram:
    """A broker that knows the user of the example, or others; its nonces are the example's."""
    known = {"user": keys(mechanism=mechanism)} if users is None else users
    return Scram(mechanism, known.get, nonce=lambda: MORE)


def final(nonce: str = NONCE + MORE, *, binding: str = "biws", proof: str = "") -> bytes:
    """The client's last message in the example, with other fields if they are given."""
    proof = proof or "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    return f"c={binding},r={nonce},p={proof}".encode()


FIRST = f"n,,n=user,r={NONCE}".encode()


def test_the_example_of_the_standard() -> None:
    """Both answers of the example in RFC 7677 are as they are printed there."""
    running = Running(server().exchange(FIRST))
    assert running.take() == f"r={NONCE}{MORE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert running.take(final()) == Granted("user", answer=signature)


def test_proof_and_signature_are_those_of_the_standard() -> None:
    """The arithmetic gives proof and signature of the example in RFC 7677."""
    salted = salted_password(SHA_256, b"pencil", salt=SALT, iterations=4096)
    proof = b64encode(client_proof(SHA_256, salted, SIGNED))
    assert proof == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    signature = b64encode(server_signature(SHA_256, keys().server_key, SIGNED))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("user1", "user1"), ("123", "123"), ("1,2", "1=2C2"), ("user=alice", "user=3Dalice"),
        ("=2C,=3D", "=3D2C=2C=3D3D"), ("", ""),
    ],
)  # fmt: skip
def test_names_are_escaped_and_read_back(name: str, wire: str) -> None:
    """A comma and an equals sign in a name are escaped in a message, and read back."""
    assert escaped(name) == wire
    assert unescaped(wire) == name


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("name", ["user", "a,b=c", "=2C"])
def test_our_client_logs_in(mechanism: str, name: str) -> None:
    """Our client and our broker know each other by each mechanism, whatever is in the name."""
    known = {name: keys("wörd", mechanism)}
    client = Credentials(mechanism=mechanism, username=name, password="wörd").tokens("b")
    found, sent = log_in(client, server(known, mechanism).exchange)
    assert found.name == name
    assert found.expires_at is None
    assert "wörd".encode() not in b"".join(sent)


def test_an_identity_that_is_the_user_is_taken() -> None:
    """A client may ask for the identity that it has anyway; it is bound by the last message."""
    running = Running(server().exchange(b"n,a=user," + FIRST.removeprefix(b"n,,")))
    assert running.take()
    binding = b64encode(b"n,a=user,").decode()
    signed = SIGNED.replace(b"c=biws", f"c={binding}".encode())
    salted = salted_password(SHA_256, b"pencil", salt=SALT, iterations=4096)
    proof = b64encode(client_proof(SHA_256, salted, signed)).decode()
    found = running.take(final(binding=binding, proof=proof))
    assert isinstance(found, Granted)
    assert found.name == "user"


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_another_identity_is_refused_in_words(user: str) -> None:
    """A client that asks for another identity learns it, whether or not its own name exists."""
    first = f"n,a=other,n={user},r={NONCE}".encode()
    with pytest.raises(RefusedLoginError) as refused:
        Running(server().exchange(first)).take()
    assert "authorization id that is different from username" in str(refused.value.message)


@pytest.mark.parametrize(
    "nonce", [NONCE, MORE, "x" + NONCE + MORE, NONCE + MORE + "x", NONCE + NONCE + MORE]
)
def test_a_nonce_that_is_not_the_challenges_is_refused(nonce: str) -> None:
    """The last message has the whole nonce of the challenge, with nothing in front of it."""
    running = Running(server().exchange(FIRST))
    running.take()
    with pytest.raises(RefusedLoginError, match="nonce"):
        running.take(final(nonce))


def test_another_binding_is_refused() -> None:
    """The last message repeats the header of the first one (RFC 5802, 5.1)."""
    running = Running(server().exchange(FIRST))
    running.take()
    with pytest.raises(RefusedLoginError, match="channel binding"):
        running.take(final(binding="eSws"))


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=user,r=abc", b"n,a=user,n=user,r=abc", b"n,,m=reserved,n=user,r=abc",
        b"n,,n=us=2Cer=3D,r=abc", b"n,,n=user,r=abc,x=val1,y=val2", b"n,,n=user,r=abc,tokenauth=1",
    ],
)  # fmt: skip
def test_first_messages_that_are_read(first: bytes) -> None:
    """A first message may have an identity, escapes, and extensions, which are not used."""
    users = {"user": keys(), "us,er=": keys()}
    assert Running(server(users).exchange(first)).take()


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n,,", b"n,x,n=user,r=abc", b"y,,n=user,r=abc", b"p=tls,,n=user,r=abc",
        b"n,,n=us,er,r=abc", b"n,,n=us=er,r=abc", b"n,,n=,r=abc", b"n,,n=user", b"n,,r=abc",
        b"n,,n=user,r=", b"n,,n=user,r=a b", b"n,,n=user,r=abc,1=x", b"n,,n=user,r=abc,x=",
        b"n,a=,n=user,r=abc", "n,,n=\xfcser,r=abc".encode(), b"n,,n=user,r=abc\n", b"\xff" * 40,
    ],
)  # fmt: skip
def test_first_messages_that_are_refused(first: bytes) -> None:
    """A first message of another form is refused, and the client learns no more than that."""
    with pytest.raises(RefusedLoginError, match="RFC 5802") as refused:
        Running(server().exchange(first)).take()
    assert refused.value.message is None


@pytest.mark.parametrize(
    "last",
    [
        b"", b"c=biws", b"c=biws,r=abc", b"c=biws,p=AAAA", b"r=abc,c=biws,p=AAAA",
        b"c=b!ws,r=abc,p=AAAA", b"c=biws,r=abc,p=AAA", b"c=biws,r=a b,p=AAAA",
        b"c=biws,r=abc,p=AAAA,x=1", b"c=biws,r=abc,1=x,p=AAAA",
    ],
)  # fmt: skip
def test_last_messages_that_are_refused(last: bytes) -> None:
    """A last message of another form is refused."""
    running = Running(server().exchange(FIRST))
    running.take()
    with pytest.raises(RefusedLoginError, match="RFC 5802"):
        running.take(last)


def test_extensions_of_the_last_message_are_signed() -> None:
    """A last message may have extensions, which are part of what is signed."""
    running = Running(server().exchange(FIRST))
    running.take()
    salted = salted_password(SHA_256, b"pencil", salt=SALT, iterations=4096)
    proof = b64encode(client_proof(SHA_256, salted, SIGNED + b",x=1"))
    last = b"c=biws,r=" + (NONCE + MORE).encode() + b",x=1,p=" + proof
    assert isinstance(running.take(last), Granted)


@pytest.mark.parametrize("mechanism", HASHES)
def test_an_unknown_user_looks_like_a_wrong_password(mechanism: str) -> None:
    """Both are refused at the second step, with the same words for the client."""
    refusals = []
    for name in ("user", "nobody"):
        client = Credentials(mechanism=mechanism, username=name, password="x").tokens("b")
        running = Running(server(mechanism=mechanism).exchange(next(client)))  # type: ignore[arg-type]
        challenge = running.take()
        assert isinstance(challenge, bytes)
        with pytest.raises(RefusedLoginError) as refused:
            running.take(client.send(challenge))  # type: ignore[arg-type]
        refusals.append(refused.value)
    assert [each.message for each in refusals] == [None, None]
    assert [each.user for each in refusals] == ["user", "nobody"]
    assert "password is wrong" in refusals[0].reason
    assert "no such user" in refusals[1].reason


@pytest.mark.parametrize("mechanism", HASHES)
def test_an_unknown_user_costs_the_same_work(mechanism: str) -> None:
    """The broker makes the same calls in the same order, so the time of an answer says nothing."""
    calls = []
    # Before the first one the library's own caches are empty.
    for name in ("user", "user", "none"):
        client = Credentials(mechanism=mechanism, username=name, password="x").tokens("b")
        first = next(client)
        assert isinstance(first, bytes)
        exchange = server(mechanism=mechanism).exchange(first)
        made = calls_until_refused(exchange, client.send)  # type: ignore[arg-type]
        # The salt that is made for each name has 25 or 26 digits, by chance.
        calls.append([each for each in made if each not in {"divmod", "append"}])
    assert calls[1] == calls[2]
    assert sum(each in {"hmac_digest", "hmac_new", "new"} for each in calls[2]) >= 3


def test_the_salt_of_an_unknown_user_stays_the_same() -> None:
    """Each try gives a name the same salt, and each name and each process another one."""
    asked = server()
    challenges = [
        Running(each.exchange(f"n,,n={name},r=abc".encode())).take()
        for each, name in (
            (asked, "nobody"), (asked, "nobody"), (asked, "somebody"), (server(), "nobody")
        )
    ]  # fmt: skip
    assert challenges[0] == challenges[1]
    assert len(set(challenges)) == 3


def test_made_up_salts_look_like_those_of_users() -> None:
    """A made-up salt has the letters and the length of a salt of a new password."""
    made_up = set()
    for number in range(200):
        challenge = Running(server().exchange(f"n,,n=u{number},r=abc".encode())).take()
        assert isinstance(challenge, bytes)
        made_up.add(b64decode(challenge.split(b",s=")[1].split(b",")[0]))
    fresh = {new_salt() for _ in range(200)}
    for salts in (made_up, fresh):
        # 130 bits in base 36; one in twenty is shorter.
        assert {25, 26} <= {len(each) for each in salts} <= {22, 23, 24, 25, 26}
    assert set(b"".join(made_up)) == set(b"".join(fresh))


def test_a_user_of_the_other_mechanism_is_unknown() -> None:
    """The iterations of an unknown user are those that most users have."""
    usual = Scram(SHA_512, lambda _: None, usual_iterations=lambda: 8192)
    challenge = Running(usual.exchange(FIRST)).take()
    assert isinstance(challenge, bytes)
    assert challenge.endswith(b",i=8192")


def test_a_delegation_token_is_unknown() -> None:
    """A login with a delegation token, of which there are none, takes both steps."""
    running = Running(server().exchange(FIRST + b",tokenauth=true"))
    assert running.take()
    with pytest.raises(RefusedLoginError, match="no such delegation token"):
        running.take(final())


def test_a_credential_with_too_few_iterations_is_refused() -> None:
    """A record with fewer iterations than a controller takes logs nobody in, as in Kafka."""
    weak = {"user": keys()._replace(iterations=4095)}
    with pytest.raises(RefusedLoginError, match="4095 iterations"):
        Running(server(weak).exchange(FIRST)).take()


def test_a_client_finds_out_a_broker_without_the_keys() -> None:
    """Our client refuses a broker that knows the stored key and not the server key."""
    stolen = {"user": keys()._replace(server_key=bytes(32))}
    client = Credentials(mechanism=SHA_256, username="user", password="pencil").tokens("b")
    with pytest.raises(AuthenticationError, match="could not prove"):
        log_in(client, server(stolen).exchange)


def test_a_login_by_a_proof_alone() -> None:
    """A login needs nothing but the two messages."""
    found = granted(server().exchange(FIRST), final())
    assert found.name == "user"
