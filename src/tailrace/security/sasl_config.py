"""`ListenerSaslConfig`: the settings of SASL of a listener, by mechanism.

    listener.name.outside.scram-sha-512.sasl.jaas.config   of the listener OUTSIDE and a mechanism
    listener.name.outside.connections.max.reauth.ms        of the listener, for all its mechanisms
    connections.max.reauth.ms                              of all listeners

The first of these that is given counts. JAAS entries are those of Kafka: `user_NAME="PASSWORD"` of
PlainLoginModule are users; `username` and `password` are the node's own, with which it logs in to
other nodes.

Not here: what the settings mean (`listener_logins`).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tailrace.config import field_values, parse_settings, setting, settings_of
from tailrace.config.settings import INT32_MAX, INT64_MAX, shown_fields
from tailrace.security.jaas import JaasEntry, parse_jaas
from tailrace.security.kerberos_names import NameRules
from tailrace.security.tls_config import jaas_tls_config
from tailrace.values import dataclass

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

JAAS: Final = "sasl.jaas.config"

_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
USER_OPTION: Final = "user_"
"""Begins the options of PlainLoginModule that are users."""
_UNSECURED: Final = "unsecuredValidator"
_VALIDATOR: Final = "OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SaslConfig:
    """Settings of SASL, as they count for one mechanism of a listener."""

    enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        default=("GSSAPI",),
        choices=MECHANISMS,
        text="How clients of listeners with SASL_PLAINTEXT or SASL_SSL log in.",
    )
    inter_broker_mechanism: str = setting(
        "sasl.mechanism.inter.broker.protocol",
        default="GSSAPI",
        choices=MECHANISMS,
        text="How brokers log in to each other, with the login of their listener's JAAS entry.",
    )
    controller_mechanism: str = setting(
        "sasl.mechanism.controller.protocol",
        default="GSSAPI",
        choices=MECHANISMS,
        text="How nodes log in to controllers, likewise.",
    )
    session_ms_max: int = setting(
        "connections.max.reauth.ms",
        default=0,
        low=0,
        high=INT64_MAX,
        text="How long a login lasts: clients log in again on the same connection (KIP-368), or it "
        "ends. A login with a token lasts no longer than that. 0: without end.",
    )
    failure_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        default=100,
        low=0,
        high=INT32_MAX,
        text="How long after a login fails its client gets the answer, and the connection ends.",
    )
    receive_bytes_max: int = setting(
        "sasl.server.max.receive.size",
        default=524_288,
        low=1,
        high=INT32_MAX,
        text="Most bytes of a request before the login; a larger one ends the connection.",
    )
    callback_handler: str = setting(
        "sasl.server.callback.handler.class",
        default="",
        is_allowed=lambda name: not name or str(name).endswith(f".{_VALIDATOR}"),
        rule_text=f"empty, or Kafka's {_VALIDATOR}, because no Java class is loaded",
        text="Kafka's class that checks tokens against a key set, which is done here wherever "
        "there is one. With it, a listener without a key set is refused.",
    )
    keys_url: str = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        default="",
        text="Address of the key set (JWKS) that checks the tokens of OAUTHBEARER: `https:`, "
        "`file:`, or `http:` on this machine. Without one, unsecured tokens are taken, as in "
        "Kafka: for development alone.",
    )
    keys_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        default=3_600_000,
        low=1,
        high=INT64_MAX,
        text="How old a key set may become until it is read again.",
    )
    keys_retry_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        default=100,
        low=1,
        high=INT64_MAX,
        text="Pause after a key set could not be read; doubled for each further time.",
    )
    keys_retry_ms_max: int = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        default=10_000,
        low=1,
        high=INT64_MAX,
        text="The longest such pause, and the least time between two reads for unknown keys.",
    )
    expected_issuer: str = setting(
        "sasl.oauthbearer.expected.issuer",
        default="",
        text="The issuer (`iss`) that a token must have; any if empty.",
    )
    expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        default=(),
        text="Audiences (`aud`) of which a token must have one; if empty it must have none.",
    )
    clock_skew_s: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        default=30,
        low=0,
        high=INT32_MAX,
        text="Seconds by which the times of a token may be off.",
    )
    name_claim: str = setting(
        "sasl.oauthbearer.sub.claim.name",
        default="sub",
        text="The claim with the user's name.",
    )
    scope_claim: str = setting(
        "sasl.oauthbearer.scope.claim.name",
        default="scope",
        text="The claim with the scopes.",
    )
    token_endpoint_url: str = setting(
        "sasl.oauthbearer.token.endpoint.url",
        default="",
        text="Where this node gets its own token for OAUTHBEARER to other nodes.",
    )
    client_id: str = setting(
        "sasl.oauthbearer.client.credentials.client.id",
        default="",
        text="This node's id at that endpoint.",
    )
    client_secret: str = setting(
        "sasl.oauthbearer.client.credentials.client.secret",
        default="",
        is_secret=True,
        text="This node's secret there.",
    )
    token_scope: str = setting(
        "sasl.oauthbearer.scope",
        default="",
        text="Scopes that this node asks for there, with spaces between.",
    )
    kerberos_service_name: str = setting(
        "sasl.kerberos.service.name",
        default="",
        text="First part of the nodes' Kerberos principals, usually `kafka`; `serviceName` of the "
        "JAAS entry if empty.",
    )
    kerberos_rules: tuple[str, ...] = setting(
        "sasl.kerberos.principal.to.local.rules",
        default=("DEFAULT",),
        text="How a Kerberos principal becomes a user's name: DEFAULT, or "
        "RULE:[COUNT:FORM] with (REGEX) and s/OLD/NEW/ after it; the first that fits counts.",
    )

    def own_mechanism(self, named_by: str) -> str:
        """The mechanism that one of the two settings of a node's own logins names; empty: none."""
        match named_by:
            case "sasl.mechanism.controller.protocol":
                return self.controller_mechanism
            case "sasl.mechanism.inter.broker.protocol":
                return self.inter_broker_mechanism
        return ""

    def __repr__(self) -> str:
        return f"SaslConfig({shown_fields(self)})"


SASL_SETTINGS: Final = settings_of(SaslConfig)
"""All settings of SASL but the JAAS entries."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MechanismConfig:
    """A mechanism of a listener."""

    name: str
    settings: SaslConfig
    entry: JaasEntry | None
    """Its JAAS entry."""
    jaas: str
    """The text of that."""

    @property
    def client_jaas(self) -> str:
        """An entry with the options of this node's own login alone."""
        if self.entry is None:
            return ""
        options = (
            f'{name}="{_quoted(value)}"'
            for name, value in self.entry.options.items()
            if not name.startswith((USER_OPTION, _UNSECURED))
        )
        return f"{self.entry.module} required {' '.join(options)};"

    @property
    def users(self) -> Mapping[str, str]:
        """The passwords of PLAIN, by name."""
        return self._options(USER_OPTION)

    @property
    def validator_options(self) -> Mapping[str, str]:
        """The options for unsecured tokens, without their prefix."""
        return self._options(_UNSECURED)

    def _options(self, prefix: str) -> Mapping[str, str]:
        """The options of the entry that begin with a prefix, without it."""
        options = {} if self.entry is None else self.entry.options
        return {
            name.removeprefix(prefix): value
            for name, value in options.items()
            if name.startswith(prefix)
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ListenerSaslConfig:
    """The logins of a listener: those of its clients, and the node's own to other nodes."""

    settings: SaslConfig
    """The settings of mechanisms that have none of their own."""
    offered: tuple[MechanismConfig, ...]
    """The mechanisms for clients, in the order of `sasl.enabled.mechanisms`; none on a listener of
    other nodes."""
    own: MechanismConfig | None
    """The mechanism by which this node logs in to others on this listener; None: it does not."""


def sasl_setting_names(prefix: str) -> Iterator[str]:
    """The names that settings of SASL may have for the listener with this prefix."""
    for each in SASL_SETTINGS:
        yield f"{prefix}{each.name}"
    for mechanism in MECHANISMS:
        yield f"{prefix}{mechanism.lower()}.{JAAS}"
        for each in SASL_SETTINGS:
            yield f"{prefix}{mechanism.lower()}.{each.name}"


def listener_sasl_config(
    texts: Mapping[str, str],
    *,
    prefix: str,
    own_login: str = "",
    is_offered: bool = True,
    faults: list[str],
) -> ListenerSaslConfig:
    """The settings of one listener, from all settings by their names with and without prefix.

    `own_login` is the setting that names the mechanism by which this node logs in to other nodes on
    this listener; empty: it does not. `is_offered` says whether it is a listener of this node.
    """
    settings = _settings(texts, [prefix], faults)
    names = settings.enabled_mechanisms if is_offered else ()
    if is_offered and not names:
        faults.append(f"{prefix}sasl.enabled.mechanisms: a listener with SASL needs a mechanism")
    own_name = settings.own_mechanism(own_login)
    found = {}
    for name in dict.fromkeys((*names, own_name) if own_name else names):
        of_mechanism = f"{prefix}{name.lower()}."
        jaas = texts.get(f"{of_mechanism}{JAAS}", "")
        entry = _entry(name, jaas, name=f"{of_mechanism}{JAAS}", faults=faults)
        mechanism = MechanismConfig(
            name=name,
            settings=_settings(texts, [prefix, of_mechanism], faults),
            entry=entry,
            jaas=jaas,
        )
        found[name] = mechanism
        if name in names:
            faults += _faults(mechanism, prefix=of_mechanism)
        if name == own_name:
            faults += _own_login_faults(mechanism, prefix=of_mechanism, named_by=own_login)
    return ListenerSaslConfig(
        settings=settings,
        offered=tuple(found[each] for each in names),
        own=found.get(own_name),
    )


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _settings(texts: Mapping[str, str], prefixes: list[str], faults: list[str]) -> SaslConfig:
    given = {}
    for each in SASL_SETTINGS:
        for prefix in ("", *prefixes):
            if f"{prefix}{each.name}" in texts:
                given[each.name] = texts[f"{prefix}{each.name}"]
    return SaslConfig(
        **field_values(SaslConfig, parse_settings(SASL_SETTINGS, given, faults=faults))
    )


def _entry(mechanism: str, text: str, *, name: str, faults: list[str]) -> JaasEntry | None:
    if not text.strip():
        return None
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        faults.append(f"{name}: {error}")
        return None
    if entry.module != _MODULES[mechanism]:
        faults.append(f"{name}: {mechanism} needs {_MODULES[mechanism]}, and it has {entry.module}")
        return None
    return entry


def _faults(config: MechanismConfig, *, prefix: str) -> Iterator[str]:
    """Why clients could not log in by a mechanism."""
    settings = config.settings
    match config.name:
        case "PLAIN":
            if not config.users and config.entry is not None:
                yield f'{prefix}{JAAS}: it has no user; add user_NAME="PASSWORD" for each'
            elif config.entry is None:
                yield (
                    f"{prefix}{JAAS}: PLAIN needs the users, as in PlainLoginModule required "
                    'user_NAME="PASSWORD";'
                )
        case "OAUTHBEARER":
            yield from _token_faults(config, prefix=prefix)
        case "GSSAPI":
            options = {} if config.entry is None else config.entry.options
            if not options.get("principal") or not options.get("keyTab"):
                yield (
                    f"{prefix}{JAAS}: GSSAPI needs Krb5LoginModule with the principal and the "
                    "keyTab of this node"
                )
            try:
                NameRules(settings.kerberos_rules, realm="")
            except ValueError as error:
                yield f"sasl.kerberos.principal.to.local.rules: {error}"


def _token_faults(config: MechanismConfig, *, prefix: str) -> Iterator[str]:
    settings = config.settings
    url = "sasl.oauthbearer.jwks.endpoint.url"
    if settings.keys_url:
        # Only here: it brings an HTTP client, which other nodes start without.
        from tailrace.security.key_set import key_set_fault

        fault = key_set_fault(settings.keys_url)
        if fault:
            yield f"{url}: {fault}"
        faults: list[str] = []
        jaas_tls_config({} if config.entry is None else config.entry.options, faults=faults)
        yield from (f"{prefix}{JAAS}: {each}" for each in faults)
        return
    # Everybody could make a token that has them.
    if settings.expected_issuer or settings.expected_audience or settings.callback_handler:
        yield (
            f"{url}: must be given, since the settings of OAUTHBEARER ask for tokens that are "
            "signed"
        )
    elif config.entry is None:
        yield (
            f"{url}: must be given for OAUTHBEARER; or, for development, {prefix}{JAAS} with "
            "OAuthBearerLoginModule, which takes unsecured tokens"
        )
    skew = config.validator_options.get("AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        yield f"{prefix}{JAAS}: unsecuredValidatorAllowableClockSkewMs is not a number"


def _own_login_faults(config: MechanismConfig, *, prefix: str, named_by: str) -> Iterator[str]:
    """Why this node could not log in to others."""
    options = {} if config.entry is None else config.entry.options
    has_password = config.name in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    if has_password and not (options.get("username") and options.get("password")):
        yield (
            f"{prefix}{JAAS}: {named_by} is {config.name}, so it needs username and password of "
            "this node"
        )
    elif config.entry is None:
        yield f"{prefix}{JAAS}: {named_by} is {config.name}, so it has the login of this node"
