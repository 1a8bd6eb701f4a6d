"""`ListenerTlsConfig`: the settings `ssl.*` of a listener.

    listener.name.outside.ssl.client.auth=required      for the listener OUTSIDE
    ssl.client.auth=none                                for those without a setting of their own

Not here: what they mean (`listener_tls`).
"""

from collections.abc import Mapping
from typing import Final

from tailrace.config import field_values, parse_settings, setting, settings_of
from tailrace.config.settings import settings_together
from tailrace.security.principal_rules import PrincipalRules
from tailrace.security.tls_config import TLS_SETTINGS, TlsConfig
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTlsConfig:
    """Settings of encrypted connections of a listener, and of the node's own to such listeners."""

    tls: TlsConfig = settings_together(*TLS_SETTINGS, default_factory=TlsConfig)
    client_auth: str = setting(
        "ssl.client.auth",
        default="none",
        choices=("required", "requested", "none"),
        text="Whether clients of encrypted listeners have to show a certificate, may do so, or are "
        "not asked for one.",
    )
    principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        default="DEFAULT",
        text="How the name of a client's certificate becomes that of its principal: "
        "`RULE:pattern/replacement/` with L or U after it for lower or upper case, and DEFAULT for "
        "the whole name, with commas between; the first whose pattern fits the name counts.",
    )
    allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes",
        default=False,
        text="Let a certificate be replaced, while the broker runs, by one with another subject.",
    )
    allow_san_changes: bool = setting(
        "ssl.allow.san.changes",
        default=False,
        text="Likewise by one with other names of hosts (subject alternative names).",
    )


LISTENER_TLS_SETTINGS: Final = settings_of(ListenerTlsConfig)
"""All settings `ssl.*` of a listener."""


def listener_tls_config(texts: Mapping[str, str], *, faults: list[str]) -> ListenerTlsConfig:
    """The settings of one listener, from texts of which those of other things are passed over."""
    names = {each.name for each in LISTENER_TLS_SETTINGS}
    given = {name: text for name, text in texts.items() if name in names}
    values = parse_settings(LISTENER_TLS_SETTINGS, given, faults=faults)
    try:
        PrincipalRules(str(values["ssl.principal.mapping.rules"]))
    except ValueError as error:
        faults.append(f"ssl.principal.mapping.rules: {error}")
    return ListenerTlsConfig(
        **field_values(ListenerTlsConfig, values), tls=TlsConfig(**field_values(TlsConfig, values))
    )
