"""`listener_logins`: the mechanisms of a listener, from its settings."""

import logging
import ssl
from collections.abc import Callable

from tailrace.errors import ConfigError
from tailrace.security.authenticator import ListenerLogins, LoginThreads
from tailrace.security.exchange import ServerMechanism
from tailrace.security.gssapi import Gssapi, realm_of
from tailrace.security.kerberos_names import NameRules
from tailrace.security.key_set import KeySet, KeySetSource
from tailrace.security.oauthbearer import OAuthBearer
from tailrace.security.plain import Plain
from tailrace.security.sasl_config import (
    JAAS,
    ListenerSaslConfig,
    MechanismConfig,
)
from tailrace.security.scram import Scram, ScramKeys
from tailrace.security.tls_config import jaas_tls_config
from tailrace.security.tls_context import tls_context
from tailrace.security.tokens import SignedTokens, TokenRules, UnsecuredTokens
from tailrace.values import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginServices:
    """The parts of a node that logins need."""

    find_scram: Callable[[str, str], ScramKeys | None]
    """Gives the keys of a user, by mechanism and name."""
    usual_iterations: Callable[[str], int]
    """Gives the iterations that most users of a mechanism have."""
    threads: LoginThreads
    now: Callable[[], float]
    """Unix seconds."""


def listener_logins(
    name: str, config: ListenerSaslConfig, services: LoginServices
) -> ListenerLogins:
    """The logins of a listener; warns of tokens that anybody can make.

    Raises:
        MissingExtraError: a package for a mechanism is not installed.
        ConfigError: a file for TLS to the key set cannot be read.
    """
    mechanisms = {each.name: _mechanism(each, services, listener=name) for each in config.offered}
    return ListenerLogins(
        name=name,
        mechanisms=mechanisms,
        session_ms_max={each.name: each.settings.session_ms_max for each in config.offered},
        receive_bytes_max=config.settings.receive_bytes_max,
        failure_delay_s=config.settings.failure_delay_ms / 1000,
        threads=services.threads,
        now=services.now,
    )


def _mechanism(
    config: MechanismConfig, services: LoginServices, *, listener: str
) -> ServerMechanism:
    settings = config.settings
    match config.name:
        case "PLAIN":
            return Plain(config.users)
        case "OAUTHBEARER":
            return _tokens(config, services, listener=listener)
        case "GSSAPI":
            assert config.entry is not None, "GSSAPI without a JAAS entry is a fault"
            principal = config.entry.options["principal"]
            return Gssapi(
                principal=principal,
                keytab=config.entry.options["keyTab"],
                names=NameRules(settings.kerberos_rules, realm=realm_of(principal)),
            )
    mechanism = config.name

    return Scram(
        mechanism,
        lambda user: services.find_scram(mechanism, user),
        usual_iterations=lambda: services.usual_iterations(mechanism),
    )


def _tokens(config: MechanismConfig, services: LoginServices, *, listener: str) -> OAuthBearer:
    settings = config.settings
    if settings.keys_url:
        keys = KeySet(
            KeySetSource(
                url=settings.keys_url,
                refresh_s=settings.keys_refresh_ms / 1000,
                retry_s=settings.keys_retry_ms / 1000,
                retry_s_max=settings.keys_retry_ms_max / 1000,
                context=_keys_context(config, listener),
            )
        )
        rules = TokenRules(
            issuer=settings.expected_issuer,
            audiences=settings.expected_audience,
            name_claim=settings.name_claim,
            scope_claim=settings.scope_claim,
            clock_skew_s=settings.clock_skew_s,
        )
        return OAuthBearer(SignedTokens(keys, rules, now=services.now).check)
    logger.warning(
        "tokens_unsecured listener=%s consequence=any client can log in as any user "
        "remedy=set sasl.oauthbearer.jwks.endpoint.url",
        listener,
    )
    options = config.validator_options
    rules = TokenRules(
        name_claim=options.get("PrincipalClaimName", "").strip() or "sub",
        scope_claim=options.get("ScopeClaimName", "").strip() or "scope",
        scopes=tuple(options.get("RequiredScope", "").split()),
        clock_skew_s=int(options.get("AllowableClockSkewMs", "0")) / 1000,
    )
    return OAuthBearer(UnsecuredTokens(rules, now=services.now).check, is_quick=True)


def _keys_context(config: MechanismConfig, listener: str) -> ssl.SSLContext | None:
    """TLS to the key set; None: the authorities of the system count."""
    faults: list[str] = []
    found = jaas_tls_config({} if config.entry is None else config.entry.options, faults=faults)
    assert not faults, "they are faults of the listener's settings"
    try:
        return None if found is None else tls_context(found)
    except ConfigError as error:
        raise ConfigError(
            [f"listener {listener}: {JAAS}: {each}" for each in error.faults]
        ) from None
