"""`encryption_of`: the SSL context of a client, from its settings `ssl.*`.

It is imported only where connections are encrypted: `ssl` and its certificates take 20 ms.
"""

import ssl

from tailrace.client.nodes.tls_context import TlsSettings, tls_context
from tailrace.client.security import SecurityConfig


def encryption_of(config: SecurityConfig) -> ssl.SSLContext:
    """An SSL context with the settings of a client.

    Raises:
        ConfigError: a file cannot be read, a certificate or key is not usable, or settings
            contradict each other; all of them at once.
    """
    algorithm = config.ssl_endpoint_identification_algorithm.lower()
    settings = TlsSettings(
        truststore_location=config.ssl_truststore_location,
        truststore_type=config.ssl_truststore_type,
        truststore_password=config.ssl_truststore_password,
        truststore_certificates=config.ssl_truststore_certificates,
        keystore_location=config.ssl_keystore_location,
        keystore_type=config.ssl_keystore_type,
        keystore_password=config.ssl_keystore_password,
        keystore_certificate_chain=config.ssl_keystore_certificate_chain,
        keystore_key=config.ssl_keystore_key,
        key_location=config.ssl_key_location,
        key_password=config.ssl_key_password,
        checks_host=algorithm == "https",
        enabled_protocols=config.ssl_enabled_protocols,
        protocol=config.ssl_protocol,
        cipher_suites=config.ssl_cipher_suites,
    )
    return tls_context(settings)
