"""`SecurityConfig`: the settings `security.protocol`, `ssl.*` and `sasl.*` of all clients.

Not here: the declarations of `ssl.*` (`security.tls_config`), what the settings mean
(`security.tls_context`, `logins`), how a client encrypts and logs in (`nodes`), and settings
without counterpart (`foreign`).
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.config import Setting, setting, settings_of
from tailrace.config.settings import INT64_MAX, settings_together, shown_fields
from tailrace.security.tls_config import TLS_SETTINGS, TlsConfig
from tailrace.values import dataclass

if TYPE_CHECKING:
    import ssl

    from tailrace.client.nodes.oauth import TokenFunction
    from tailrace.client.nodes.sasl import Login
    from tailrace.security.listener_tls import OutgoingTls

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOKEN_FUNCTION: Final = "sasl.oauth.token"  # noqa: S105 - the name of a setting
SAME: Final = {
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}
"""librdkafka's names that are taken besides Kafka's."""


class Security(NamedTuple):
    """Encryption and login of connections, ready for use."""

    tls: "ssl.SSLContext | OutgoingTls | None" = None
    """Begins encryption; None for plain connections."""
    login: "Login | None" = None
    """None for connections without a login by SASL."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SecurityConfig:
    """Whether and how connections are encrypted, and how the client logs in."""

    security_protocol: str = setting(
        "security.protocol",
        default="PLAINTEXT",
        choices=PROTOCOLS,
        text="Whether connections are encrypted (SSL), and whether the client logs in (SASL).",
    )
    sasl_mechanism: str = setting(
        "sasl.mechanism",
        default="PLAIN",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
        text="How the client logs in.",
    )
    sasl_username: str = setting(
        "sasl.username", default="", text="The user's name, for PLAIN and SCRAM."
    )
    sasl_password: str = setting(
        "sasl.password",
        default="",
        is_secret=True,
        text="The user's password, for PLAIN and SCRAM.",
    )
    sasl_jaas_config: str = setting(
        "sasl.jaas.config",
        default="",
        is_secret=True,
        text="The login as Java's clients have it, instead of the settings of the mechanism: one "
        "entry of PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule or Krb5LoginModule.",
    )
    sasl_oauth_token: "TokenFunction | None" = settings_together(
        Setting(
            name=TOKEN_FUNCTION,
            default="",
            is_secret=True,
            text="A function (also a coroutine function) that returns a token for OAUTHBEARER, as "
            "a str or an `OAuthToken`. It runs on a thread of its own.",
        ),
        default=None,
    )
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "sasl.oauthbearer.token.endpoint.url",
        default="",
        text="Address of an identity provider's token endpoint, for OAUTHBEARER with client "
        "credentials; `https`, or `http` on this machine.",
    )
    sasl_oauthbearer_client_id: str = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        default="",
        text="The client's id at the token endpoint; also as `sasl.oauthbearer.client.id`.",
    )
    sasl_oauthbearer_client_secret: str = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        default="",
        is_secret=True,
        text="Its secret; also as `sasl.oauthbearer.client.secret`.",
    )
    sasl_oauthbearer_scope: str = setting(
        "sasl.oauthbearer.scope",
        default="",
        text="Scopes that the token endpoint is asked for, with spaces between.",
    )
    sasl_oauthbearer_extensions: tuple[str, ...] = setting(
        "sasl.oauthbearer.extensions",
        default=(),
        text="SASL extensions that are sent with a token of the token endpoint, as NAME=VALUE.",
    )
    sasl_oauthbearer_header_urlencode: bool = setting(
        "sasl.oauthbearer.header.urlencode",
        default=False,
        text="URL-encode id and secret for the token endpoint, as RFC 6749 asks.",
    )
    https_ca_location: str = setting(
        "https.ca.location",
        default="",
        text="PEM file with the authorities that the token endpoint's certificate is checked "
        "against; the system's if empty.",
    )
    sasl_login_connect_timeout_ms: int = setting(
        # Without a limit an identity provider that hangs would hang each reconnect of each client.
        "sasl.login.connect.timeout.ms",
        default=10000,
        low=1,
        high=INT64_MAX,
        text="How long a connection to the token endpoint may take. (Kafka's default is no limit.)",
    )
    sasl_login_read_timeout_ms: int = setting(
        "sasl.login.read.timeout.ms",
        default=10000,
        low=1,
        high=INT64_MAX,
        text="How long its whole answer may take. (Kafka's default is no limit.)",
    )
    sasl_login_retry_backoff_ms: int = setting(
        "sasl.login.retry.backoff.ms",
        default=100,
        low=0,
        high=INT64_MAX,
        text="Pause before the token endpoint is asked again; doubled for each further time.",
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        "sasl.login.retry.backoff.max.ms",
        default=10000,
        low=0,
        high=INT64_MAX,
        text="How long the token endpoint is asked again until the login fails.",
    )
    sasl_kerberos_service_name: str = setting(
        "sasl.kerberos.service.name",
        default="",
        text="First part of the brokers' Kerberos principals, usually `kafka`; for GSSAPI.",
    )
    sasl_kerberos_principal: str = setting(
        "sasl.kerberos.principal",
        default="",
        text="The client's Kerberos principal; that of the ticket cache or keytab if empty.",
    )
    sasl_kerberos_keytab: str = setting(
        "sasl.kerberos.keytab",
        default="",
        text="Keytab from which tickets are fetched; the ticket cache (`kinit`) if empty.",
    )
    tls: TlsConfig = settings_together(*TLS_SETTINGS, default_factory=TlsConfig)

    def __repr__(self) -> str:
        return f"SecurityConfig({shown_fields(self)})"


def take_other_names(texts: MutableMapping[str, str], *, faults: list[str]) -> None:
    """Put settings of `SAME` under the names that they have here."""
    # Two names for one setting: a fault only if their values differ.
    for name, ours in SAME.items():
        if name in texts:
            put_setting(texts, ours, texts.pop(name), source=name, faults=faults)


def put_setting(
    texts: MutableMapping[str, str], name: str, value: str, *, source: str, faults: list[str]
) -> None:
    """Set `name` to a value that `source` has; another value that was given is a fault."""
    # Both are taken if they agree, so that a file for another client can be used as it is.
    if texts.setdefault(name, value) != value:
        faults.append(f"{name}: {source} has another value; give one of them")


SECURITY_SETTINGS: Final = settings_of(SecurityConfig)
"""The settings of encryption and login."""
