"""`tls_context`: an SSL context from the settings `ssl.*`.

It is imported only where connections are encrypted. Not here: the connection (`tls`), and how
certificates and keys are read (`keystores`).
"""

import ssl

from tailrace.client.nodes.ciphers import restrict
from tailrace.client.nodes.keystores import Store, as_file, read_pem, read_store
from tailrace.client.security import SecurityConfig
from tailrace.errors import ConfigError


def tls_context(settings: SecurityConfig) -> ssl.SSLContext:
    """An SSL context with these settings.

    Raises:
        ConfigError: a file cannot be read, a certificate or key is not usable, or settings
            contradict each other; all of them at once.
    """
    faults: list[str] = []
    trusted = _trusted(settings, faults)
    try:
        context = ssl.create_default_context(cadata=trusted or None)
    except (OSError, ValueError) as error:
        faults.append(f"{_trust_setting(settings)}: {error}; its PEM certificates are damaged")
        raise ConfigError(faults) from error
    algorithm = settings.ssl_endpoint_identification_algorithm
    context.check_hostname = algorithm.lower() == "https"
    faults += restrict(
        context,
        versions=settings.ssl_enabled_protocols,
        highest=settings.ssl_protocol,
        suites=settings.ssl_cipher_suites,
    )
    _present(context, settings, faults)
    if faults:
        raise ConfigError(faults)
    return context


def _trusted(settings: SecurityConfig, faults: list[str]) -> str:
    """The authorities as PEM, "" for those of the system."""
    name = _trust_setting(settings)
    if settings.ssl_truststore_location and settings.ssl_truststore_certificates:
        faults.append(
            "ssl.truststore.certificates: ssl.truststore.location is given too; give one of them"
        )
    if settings.ssl_truststore_location:
        store = _read(
            name,
            settings.ssl_truststore_location,
            kind=settings.ssl_truststore_type,
            password=settings.ssl_truststore_password,
            faults=faults,
        )
    elif settings.ssl_truststore_certificates:
        store = _parse(name, settings.ssl_truststore_certificates, faults)
    else:
        return ""
    if store is not None and not store.certificates:
        faults.append(f"{name}: there is no certificate; PEM has -----BEGIN CERTIFICATE-----")
    return "" if store is None else store.certificates


def _trust_setting(settings: SecurityConfig) -> str:
    is_file = bool(settings.ssl_truststore_location)
    return "ssl.truststore.location" if is_file else "ssl.truststore.certificates"


def _present(context: ssl.SSLContext, settings: SecurityConfig, faults: list[str]) -> None:
    """Give the context our own certificate, if there is one."""
    is_file = bool(settings.ssl_keystore_location)
    name = "ssl.keystore.location" if is_file else "ssl.keystore.certificate.chain"
    chain = settings.ssl_keystore_certificate_chain
    if is_file and (chain or settings.ssl_keystore_key):
        faults.append(
            f"ssl.keystore.{'certificate.chain' if chain else 'key'}: "
            "ssl.keystore.location is given too; give one of them"
        )
        return
    if is_file:
        store = _read(
            name,
            settings.ssl_keystore_location,
            kind=settings.ssl_keystore_type,
            password=settings.ssl_keystore_password,
            faults=faults,
        )
    elif chain or settings.ssl_keystore_key or settings.ssl_key_location:
        store = _parse(name, chain, faults)
    else:
        return
    key = _key(settings, store, faults)
    if store is None or key is None:
        return
    if not store.certificates:
        faults.append(f"{name}: there is no certificate; PEM has -----BEGIN CERTIFICATE-----")
        return
    password = "" if store.is_unlocked and key == store.key else settings.ssl_key_password
    with as_file(store.certificates + key) as path:
        try:
            # A function: with None, OpenSSL would prompt for a password on the terminal.
            context.load_cert_chain(path, password=lambda: password)
        except (OSError, ValueError) as error:
            faults.append(
                f"{name}: {getattr(error, 'reason', None) or error}; the key must belong to the "
                "first certificate, and ssl.key.password must fit"
            )


def _key(settings: SecurityConfig, store: Store | None, faults: list[str]) -> str | None:
    """The private key as PEM; None if there is none, which is a fault."""
    if settings.ssl_keystore_key and settings.ssl_key_location:
        faults.append("ssl.keystore.key: ssl.key.location is given too; give one of them")
        return None
    if settings.ssl_keystore_key:
        name, found = (
            "ssl.keystore.key",
            _parse("ssl.keystore.key", settings.ssl_keystore_key, faults),
        )
    elif settings.ssl_key_location:
        name = "ssl.key.location"
        found = _read(name, settings.ssl_key_location, kind="PEM", password="", faults=faults)
    elif settings.ssl_keystore_location:
        name, found = "ssl.keystore.location", store
    else:
        faults.append("ssl.keystore.key: the key of ssl.keystore.certificate.chain is not given")
        return None
    if found is None:
        return None
    if not found.key:
        faults.append(f"{name}: there is no private key; PEM has -----BEGIN PRIVATE KEY-----")
        return None
    return found.key


def _read(name: str, path: str, *, kind: str, password: str, faults: list[str]) -> Store | None:
    try:
        return read_store(path, kind=kind, password=password)
    except OSError as error:
        faults.append(f"{name}: {path}: {error.strerror or error}")
    except ValueError as error:
        faults.append(f"{name}: {path}: {error}")
    return None


def _parse(name: str, text: str, faults: list[str]) -> Store | None:
    try:
        return read_pem(text)
    except ValueError as error:
        faults.append(f"{name}: {error}")
    return None
