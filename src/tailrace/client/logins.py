"""The login of a client from its settings: `sasl.jaas.config`, faults, and the mechanism.

    texts -> take_jaas -> SecurityConfig -> login_faults -> login_of -> nodes.Login

It is imported only where a client logs in. Not here: the declared settings; see `security`.
"""

import ssl
from collections.abc import Mapping, MutableMapping
from functools import partial
from math import isfinite
from typing import Final

from tailrace.client.nodes.kerberos import KerberosLogin
from tailrace.client.nodes.oauth import (
    OAuthLogin,
    TokenFunction,
    TokenSource,
    extension_fault,
    unsecured_token,
)
from tailrace.client.nodes.oidc import ClientCredentials, endpoint_fault
from tailrace.client.nodes.sasl import Credentials, Login
from tailrace.client.security import SAME, TOKEN_FUNCTION, SecurityConfig, put_setting
from tailrace.errors import ConfigError
from tailrace.security.jaas import JaasEntry, parse_jaas
from tailrace.security.tls_config import JAAS_PREFIX, TlsConfig, jaas_tls_config
from tailrace.security.tls_context import tls_context

_ID = SAME["sasl.oauthbearer.client.id"]
_SECRET = SAME["sasl.oauthbearer.client.secret"]
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CA: Final = "https.ca.location"

_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": _ID,
        "clientSecret": _SECRET,
        "scope": "sasl.oauthbearer.scope",
    },
    "Krb5LoginModule": {
        "serviceName": "sasl.kerberos.service.name",
        "principal": "sasl.kerberos.principal",
        "keyTab": "sasl.kerberos.keytab",
    },
}
"""The settings that options of login modules stand for."""

_MECHANISMS: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
    "Krb5LoginModule": ("GSSAPI",),
}

_WITHOUT_EFFECT: Final = frozenset(
    {
        # Java's options for its own ticket cache and its own questions at the terminal.
        "clearPass", "debug", "doNotPrompt", "isInitiator", "refreshKrb5Config", "renewTGT",
        "storeKey", "storePass", "tryFirstPass", "useFirstPass", "useKeyTab", "useTicketCache",
    }
)  # fmt: skip
"""Options of Krb5LoginModule that are the case anyway, or say how Java keeps what it has."""

_EXTENSION: Final = "extension_"
_UNSECURED: Final = "unsecuredLogin"


def take_jaas(texts: MutableMapping[str, str], *, faults: list[str]) -> JaasEntry | None:
    """Add the settings of `sasl.jaas.config`; returns its entry if it is valid.

    A setting that is given with another value too is a fault.
    """
    text = texts.get("sasl.jaas.config", "")
    if not text.strip():
        return None
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        faults.append(f"sasl.jaas.config: {error}")
        return None
    if entry.module not in _OPTIONS:
        faults.append(f"sasl.jaas.config: {_unknown_module(entry.module)}")
        return None
    for option, value in entry.options.items():
        ours = _OPTIONS[entry.module].get(option)
        # Put under our names, so that a fault says which of the two places has another value.
        if ours is not None:
            put_setting(texts, ours, value, source="sasl.jaas.config", faults=faults)
        # A typing error in a password's name would be a login without it.
        elif not _is_option(entry.module, option):
            known = ", ".join(_OPTIONS[entry.module])
            faults.append(
                f"sasl.jaas.config: {entry.module} has no option {option[:40]!r} here; it has "
                f"{known}"
            )
    return entry


def _is_option(module: str, option: str) -> bool:
    match module:
        case "OAuthBearerLoginModule":
            # Those of TLS are checked with their values; see `_oauth_faults`.
            return option.startswith((_EXTENSION, _UNSECURED, JAAS_PREFIX))
        case "Krb5LoginModule":
            return option in _WITHOUT_EFFECT
    return False


def _unknown_module(module: str) -> str:
    if module == "IAMLoginModule":
        return (
            "for AWS_MSK_IAM give sasl.mechanism=OAUTHBEARER and the token of Amazon's signer by "
            "sasl.oauth.token; docs/security.md has the lines"
        )
    return f"{module} is not read; {', '.join(_OPTIONS)} are"


def login_faults(
    config: SecurityConfig, entry: JaasEntry | None, given: Mapping[str, str]
) -> list[str]:
    """Settings of the login that are missing or contradict each other, a sentence for each."""
    mechanism = config.sasl_mechanism
    if entry is not None and mechanism not in _MECHANISMS[entry.module]:
        wanted = " or ".join(_MECHANISMS[entry.module])
        return [
            (
                f"sasl.mechanism: it is {mechanism}, and sasl.jaas.config has {entry.module}; set "
                f"it to {wanted}"
            )
        ]
    match mechanism:
        case "OAUTHBEARER":
            return _oauth_faults(config, entry)
        case "GSSAPI":
            # Java has no default either, since a wrong one fails at the KDC, far from the setting.
            # It is part of the broker's principal, SERVICE/HOST@REALM.
            missing = not config.sasl_kerberos_service_name
            return ["sasl.kerberos.service.name: must be given for GSSAPI"] if missing else []
    faults = []
    if not config.sasl_username:
        faults.append("sasl.username: must be given with this security.protocol")
    others = [name for name in (TOKEN_FUNCTION, _URL) if name in given]
    # The default is PLAIN, so the missing user name would hide what is wrong.
    if "sasl.mechanism" not in given and others:
        faults = [f"sasl.mechanism: set it to OAUTHBEARER for {others[0]}"]
    return faults


def _oauth_faults(config: SecurityConfig, entry: JaasEntry | None) -> list[str]:
    unsecured = _unsecured_options(entry)
    sources = [
        name
        for name, is_given in (
            (TOKEN_FUNCTION, config.sasl_oauth_token is not None),
            (_URL, bool(config.sasl_oauthbearer_token_endpoint_url)),
            ("the options unsecuredLogin... of sasl.jaas.config", bool(unsecured)),
        )
        if is_given
    ]
    # With two, nobody could say which token a broker got.
    if len(sources) != 1:
        said = f"there are {' and '.join(sources)}" if sources else "there is none"
        return [
            (
                f"sasl.mechanism: OAUTHBEARER gets its token from one source, and {said}; give "
                f"{TOKEN_FUNCTION} (a function), or {_URL}"
            )
        ]
    faults = [
        f"sasl.oauthbearer.extensions: {fault}"
        for name, value in _extensions(config, entry).items()
        if (fault := extension_fault(name, value))
    ]
    if unsecured:
        try:
            _claims(unsecured)
        except ValueError as error:
            faults.append(f"sasl.jaas.config: {error}")
    of_tls: list[str] = []
    has_tls = entry is not None and jaas_tls_config(entry.options, faults=of_tls) is not None
    faults += [f"sasl.jaas.config: {each}" for each in of_tls]
    if has_tls and config.https_ca_location:
        faults.append(f"{_CA}: sasl.jaas.config has options ssl... for the same; give one of them")
    if config.sasl_oauthbearer_token_endpoint_url:
        fault = endpoint_fault(config.sasl_oauthbearer_token_endpoint_url)
        if fault:
            faults.append(f"{_URL}: {fault}")
        for name, value in (
            (_ID, config.sasl_oauthbearer_client_id),
            (_SECRET, config.sasl_oauthbearer_client_secret),
        ):
            if not value or not value.isprintable():
                faults.append(f"{name}: must be given for {_URL}, as printable text")
    return faults


def _unsecured_options(entry: JaasEntry | None) -> dict[str, str]:
    options = {} if entry is None else entry.options
    return {
        name.removeprefix(_UNSECURED): value
        for name, value in options.items()
        if name.startswith(_UNSECURED)
    }


def _extensions(config: SecurityConfig, entry: JaasEntry | None) -> dict[str, str]:
    """The SASL extensions by name, from the setting and from sasl.jaas.config."""
    pairs = [each.partition("=") for each in config.sasl_oauthbearer_extensions]
    # RFC 7628 sends them after the token, each as NAME=VALUE.
    found = {name.strip(): value.strip() for name, _, value in pairs}
    for name, value in ({} if entry is None else entry.options).items():
        for prefix in (_EXTENSION, f"{_UNSECURED}Extension_"):
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = value
    return found


def _claims(unsecured: Mapping[str, str]) -> tuple[dict[str, object], float]:
    """Claims and lifetime of an unsecured token, from Kafka's options.

    Raises:
        ValueError: an option is unknown, has a bad value, or is missing.
    """
    claims: dict[str, object] = {}
    # Kafka's default of an unsecured token: one hour.
    lifetime_s = 3600.0
    for option, value in unsecured.items():
        kind, _, name = option.partition("_")
        # These follow from the clock.
        if kind.endswith("Claim") and name in {"", "iat", "exp"}:
            raise ValueError(f"{_UNSECURED}{option[:40]}: this claim cannot be set")
        match kind:
            case "StringClaim":
                claims[name] = value
            case "NumberClaim":
                claims[name] = _number(option, value)
            case "ListClaim":
                # The first character separates the others, as in Java.
                claims[name] = value[1:].split(value[0]) if value[1:] else []
            case "LifetimeSeconds":
                lifetime_s = _number(option, value)
            # The extensions are the part of `_extensions`, and PrincipalClaimName is read below.
            case "Extension" | "PrincipalClaimName" | "ScopeClaimName":
                pass
            case _:
                raise ValueError(
                    f"{_UNSECURED}{option[:40]} is no option of OAuthBearerLoginModule"
                )
    # The broker takes the user's name from this claim, `sub` by default.
    principal = unsecured.get("PrincipalClaimName", "sub")
    if not claims.get(principal):
        raise ValueError(f"{_UNSECURED}StringClaim_{principal[:40]} must be given: the user's name")
    if lifetime_s <= 0:
        raise ValueError(f"{_UNSECURED}LifetimeSeconds must be more than 0")
    return claims, lifetime_s


def _number(option: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise ValueError(f"{_UNSECURED}{option[:40]} has to be a number")
    return number


def login_of(config: SecurityConfig) -> Login:
    """The login with the configured mechanism.

    Raises:
        ConfigError: a file cannot be read, a package is missing, or a name is not Unicode text.
    """
    match config.sasl_mechanism:
        case "OAUTHBEARER":
            return OAuthLogin(TokenSource(_token_function(config)))
        case "GSSAPI":
            return KerberosLogin(
                service_name=config.sasl_kerberos_service_name,
                principal=config.sasl_kerberos_principal,
                keytab=config.sasl_kerberos_keytab,
            )
    return Credentials(
        mechanism=config.sasl_mechanism,
        username=config.sasl_username,
        password=config.sasl_password,
    )


def _token_function(config: SecurityConfig) -> TokenFunction:
    if config.sasl_oauth_token is not None:
        return config.sasl_oauth_token
    entry = parse_jaas(config.sasl_jaas_config) if config.sasl_jaas_config.strip() else None
    extensions = _extensions(config, entry)
    if not config.sasl_oauthbearer_token_endpoint_url:
        claims, lifetime_s = _claims(_unsecured_options(entry))
        return partial(unsecured_token, claims, lifetime_s=lifetime_s, extensions=extensions)
    return ClientCredentials(
        url=config.sasl_oauthbearer_token_endpoint_url,
        client_id=config.sasl_oauthbearer_client_id,
        client_secret=config.sasl_oauthbearer_client_secret,
        scope=config.sasl_oauthbearer_scope,
        encodes_header=config.sasl_oauthbearer_header_urlencode,
        extensions=extensions,
        context=_https_context(config.https_ca_location, entry),
        connect_timeout_ms=config.sasl_login_connect_timeout_ms,
        read_timeout_ms=config.sasl_login_read_timeout_ms,
        retry_backoff_ms=config.sasl_login_retry_backoff_ms,
        retry_backoff_max_ms=config.sasl_login_retry_backoff_max_ms,
    ).fetch


def _https_context(location: str, entry: JaasEntry | None) -> ssl.SSLContext | None:
    """TLS to the token endpoint, by the one setting or Kafka's JAAS options; None: by neither."""
    # The same reading of PEM and PKCS12 files as for the certificates of brokers.
    if location:
        found: TlsConfig | None = TlsConfig(ssl_truststore_location=location)
    else:
        found = None if entry is None else jaas_tls_config(entry.options, faults=[])
    try:
        return None if found is None else tls_context(found)
    except ConfigError as error:
        # The user has given it under this name.
        faults = [
            each.replace("ssl.truststore.location", _CA)
            if location
            else f"sasl.jaas.config: {each}"
            for each in error.faults
        ]
        raise ConfigError(faults) from error
