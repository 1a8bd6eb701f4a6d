"""`TlsConfig`: the settings `ssl.*` that clients and listeners have in common.

Names, defaults and meaning are Kafka's (`SslConfigs`), with `ssl.key.location` of librdkafka.

Not here: what the settings mean (`tls_context`), and those of listeners alone (`listener_tls`).
"""

from collections.abc import Mapping
from typing import Final

from tailrace.config import field_values, parse_settings, setting, settings_of
from tailrace.config.settings import shown_fields
from tailrace.values import dataclass

_STORES: Final = ("PEM", "PKCS12", "JKS", "")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TlsConfig:
    """Own certificate, trusted authorities, versions and suites of encrypted connections."""

    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        default="",
        text="PEM or PKCS12 file with the authorities that certificates of others are "
        "checked against; the system's if empty.",
    )
    ssl_truststore_type: str = setting(
        # JKS is known to be refused with the command that converts it: Python's OpenSSL cannot read
        # it.
        "ssl.truststore.type",
        default="",
        choices=_STORES,
        text="Type of the truststore; its content decides if empty. JKS has to be converted.",
    )
    ssl_truststore_password: str = setting(
        "ssl.truststore.password",
        default="",
        is_secret=True,
        text="Password of a PKCS12 truststore.",
    )
    ssl_truststore_certificates: str = setting(
        "ssl.truststore.certificates",
        default="",
        is_secret=True,
        text="The authorities themselves, in PEM, instead of a file.",
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        default="",
        text="PEM or PKCS12 file with the own certificate chain, and its key unless "
        "`ssl.key.location` or `ssl.keystore.key` has it.",
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        default="",
        choices=_STORES,
        text="Type of the keystore; its content decides if empty. JKS has to be converted.",
    )
    ssl_keystore_password: str = setting(
        "ssl.keystore.password", default="", is_secret=True, text="Password of a PKCS12 keystore."
    )
    ssl_keystore_certificate_chain: str = setting(
        "ssl.keystore.certificate.chain",
        default="",
        is_secret=True,
        text="The certificate chain itself, in PEM, instead of a file.",
    )
    ssl_keystore_key: str = setting(
        "ssl.keystore.key",
        default="",
        is_secret=True,
        text="The private key itself, in PEM.",
    )
    ssl_key_location: str = setting(
        "ssl.key.location",
        default="",
        text="PEM file with the own private key.",
    )
    ssl_key_password: str = setting(
        "ssl.key.password",
        default="",
        is_secret=True,
        text="Password of the private key.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        # Kafka's own default; RFC 8996 forbids older versions.
        default=("TLSv1.2", "TLSv1.3"),
        choices=("TLSv1.2", "TLSv1.3"),
        text="Versions of TLS that may be used.",
    )
    ssl_protocol: str = setting(
        "ssl.protocol",
        default="TLSv1.3",
        choices=("TLSv1.2", "TLSv1.3", "TLS"),
        text="The newest version of TLS that may be used; TLS for the newest there is.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        default=(),
        text="Cipher suites that may be used, by Java's or OpenSSL's names; OpenSSL's choice if "
        "empty.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        # "none" is librdkafka's word and the empty text Kafka's.
        "ssl.endpoint.identification.algorithm",
        default="https",
        choices=("https", "HTTPS", "none", ""),
        text="Check that a broker's certificate has the host's name (https), or not (none, or "
        "empty).",
    )

    def __repr__(self) -> str:
        return f"TlsConfig({shown_fields(self)})"


TLS_SETTINGS: Final = settings_of(TlsConfig)

JAAS_PREFIX: Final = "ssl."
"""Begins the options of OAuthBearerLoginModule that are settings of TLS."""


def jaas_tls_config(options: Mapping[str, str], *, faults: list[str]) -> TlsConfig | None:
    """TLS to the endpoints of OAUTHBEARER, from the options of a JAAS entry; None: it has none.

    As in Kafka's JaasOptionsUtils: `ssl.truststore.location` there has the authorities of the token
    endpoint and of the key set, since those of brokers are others.
    """
    given = {name: text for name, text in options.items() if name.startswith(JAAS_PREFIX)}
    if not given:
        return None
    return TlsConfig(**field_values(TlsConfig, parse_settings(TLS_SETTINGS, given, faults=faults)))
