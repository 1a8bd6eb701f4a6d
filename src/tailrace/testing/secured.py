"""`Secured`: certificates and users of a broker under test, and the settings of its clients.

Certificates are made for each broker, and are in its settings and those of clients as PEM: there
are no files. The users log in by PLAIN and SCRAM with the same password.

Not here: the certificates (`certificates`), which need the package cryptography.
"""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

from tailrace.errors import MissingExtraError
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tailrace.security.scram import HASHES, ITERATIONS_MIN, new_salt, salted_password

if TYPE_CHECKING:
    from tailrace.testing.certificates import Party

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
"""Whether connections are encrypted (SSL), and whether clients log in (SASL)."""

ClientNames = Literal["kafka", "librdkafka", "python"]
"""The client by whose names settings are given: Java's and Tailrace's, librdkafka and what is over
it, or kafka-python and aiokafka."""

USERS: Final = {"test": "test-secret"}
"""The users of a broker for which the test names none."""

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_CLIENT_AUTH: Final = "ssl.client.auth"
_NODE: Final = "tailrace-node"
"""The user by which brokers log in to each other."""


class Secured:
    """The security of one broker or cluster."""

    def __init__(
        self,
        protocol: SecurityProtocol,
        users: Mapping[str, str] | None,
        settings: Mapping[str, str],
    ) -> None:
        """Make the certificates; `settings` are those of the test, which count first.

        Raises:
            ValueError: there is no such protocol, or it has no logins and there are users.
            MissingExtraError: it encrypts, and the package cryptography is not installed.
        """
        if protocol not in _PROTOCOLS:
            raise ValueError(f"security is {protocol!r}; it is one of {', '.join(_PROTOCOLS)}")
        self.protocol = protocol
        self.has_logins = protocol.startswith("SASL_")
        self._is_encrypted = protocol.endswith("SSL")
        if users is not None and not self.has_logins:
            raise ValueError(f"there are users, and nobody logs in with security={protocol!r}")
        self.users: Mapping[str, str] = (users or USERS) if self.has_logins else {}
        self._settings = settings
        self._parties = _parties() if self._is_encrypted else ()

    @property
    def broker_settings(self) -> dict[str, str]:
        """The settings of a broker, besides its listener, under those of the test."""
        found: dict[str, str] = {}
        if self._is_encrypted:
            authority, broker, _ = self._parties
            found |= authority.truststore | broker.keystore
        if self.has_logins:
            prefix = f"listener.name.{self.protocol.lower()}"
            password = next(iter(self.users.values()))
            users = {**self.users, _NODE: password}
            options = " ".join(f"user_{name}={_quoted(each)}" for name, each in users.items())
            found |= {
                _MECHANISMS: ",".join(("PLAIN", *HASHES)),
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"{prefix}.plain.sasl.jaas.config": (
                    f"PlainLoginModule required username={_quoted(_NODE)} "
                    f"password={_quoted(password)} {options};"
                ),
            }
        return found | dict(self._settings)

    def scram_requests(self) -> Iterator[AlterUserScramCredentialsRequest]:
        """The requests that make the users of SCRAM: one by mechanism, as Kafka asks for."""
        offered = self._mechanisms() if self.has_logins else ()
        for number, mechanism in enumerate(HASHES, start=1):
            if mechanism in offered:
                yield AlterUserScramCredentialsRequest(
                    upsertions=tuple(
                        _upsertion(mechanism, number, name=name, password=password)
                        for name, password in self.users.items()
                    )
                )

    def client_settings(
        self, bootstrap: str, *, client: ClientNames, user: str | None, mechanism: str | None
    ) -> dict[str, object]:
        """See `TestBroker.client_settings`."""
        found: dict[str, object] = {
            "bootstrap.servers": bootstrap, "security.protocol": self.protocol
        }  # fmt: skip
        if self._is_encrypted:
            found |= self._of_tls(client)
        if self.has_logins:
            name = next(iter(self.users)) if user is None else user
            if name not in self.users:
                raise ValueError(f"there is no user {name!r}; there are {', '.join(self.users)}")
            chosen = mechanism or self._mechanisms()[0]
            found |= {"sasl.mechanism": chosen}
            found |= _of_login(client, chosen, name=name, password=self.users[name])
        if client == "python":
            return {name.replace(".", "_"): value for name, value in found.items()}
        return found

    def ssl_context(self) -> ssl.SSLContext:
        """A client's context: it trusts the broker, and shows a certificate if it is asked."""
        from tailrace.security.tls_config import TlsConfig
        from tailrace.security.tls_context import tls_context

        authority, _, own = self._parties
        return tls_context(
            TlsConfig(
                ssl_truststore_certificates=authority.certificate,
                ssl_keystore_certificate_chain=own.certificate,
                ssl_keystore_key=own.key,
            )
        )

    def _mechanisms(self) -> Sequence[str]:
        return self.broker_settings[_MECHANISMS].replace(" ", "").split(",")

    def _of_tls(self, client: ClientNames) -> dict[str, object]:
        if client == "python":
            return {"ssl.context": self.ssl_context()}
        authority, _, own = self._parties
        is_asked = self._settings.get(_CLIENT_AUTH, "none") != "none"
        if client == "librdkafka":
            found: dict[str, object] = {"ssl.ca.pem": authority.certificate}
            if is_asked:
                found |= {"ssl.certificate.pem": own.certificate, "ssl.key.pem": own.key}
            return found
        # Java reads PEM only where the types say so.
        found = {"ssl.truststore.type": "PEM", **authority.truststore}
        return found | ({"ssl.keystore.type": "PEM", **own.keystore} if is_asked else {})


def _parties() -> "tuple[Party, ...]":
    """An authority, and a broker and a client that it has signed."""
    if find_spec("cryptography") is None:
        raise MissingExtraError("A broker with TLS", ["cryptography"], extra="pkcs12")
    from tailrace.testing.certificates import Party, name_of

    authority = Party(name_of("Authority"))
    return authority, *(Party(name_of(each), signed_by=authority) for each in ("broker", "client"))


def _of_login(
    client: ClientNames, mechanism: str, *, name: str, password: str
) -> dict[str, object]:
    match client:
        case "librdkafka":
            return {"sasl.username": name, "sasl.password": password}
        case "python":
            return {"sasl.plain.username": name, "sasl.plain.password": password}
    kind = "scram.Scram" if mechanism in HASHES else "plain.Plain"
    return {
        "sasl.jaas.config": f"org.apache.kafka.common.security.{kind}LoginModule required "
        f"username={_quoted(name)} password={_quoted(password)};"
    }


def _upsertion(
    mechanism: str, number: int, *, name: str, password: str
) -> ScramCredentialUpsertion:
    salt = new_salt()
    return ScramCredentialUpsertion(
        name=name,
        mechanism=number,
        iterations=ITERATIONS_MIN,
        salt=salt,
        salted_password=salted_password(
            mechanism, password.encode(), salt=salt, iterations=ITERATIONS_MIN
        ),
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'
