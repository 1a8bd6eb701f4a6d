r"""`tls_context`: an SSL context from the settings `ssl.*`.

    settings, files -> PEM blocks -> one PEM text for OpenSSL

Certificates and keys come from files of PEM or PKCS12, or from a setting. PEM may be on one line,
and its line ends may be written as `\n`, as Kafka's clients take it. Cipher suites have the names
of Java or of OpenSSL.

It is imported only where connections are encrypted. Not here: the connection; see `tls`.
"""

import contextlib
import difflib
import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Final, NamedTuple

from tailrace.errors import ConfigError
from tailrace.security.tls_config import TlsConfig

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The versions that clients of Kafka use; brokers refuse older ones too."""

TLS_1_3_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""The suites of TLS 1.3, under the one name that they have everywhere."""

_JAVA_NAME: Final = re.compile(
    r"(?:TLS|SSL)_([A-Z_]+)_WITH_([A-Z]+)_?(\w+?)_(GCM|CBC|POLY1305)_(SHA\d*)"
)
_NO_SUITE: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""A signal that Java lists among the suites."""

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest file that is read; the authorities of a whole system have 300 KB."""

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE: Final = b"\x30"
_CERTIFICATES: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"})


class PemBlock(NamedTuple):
    """One certificate or key."""

    label: str
    """Such as CERTIFICATE, or ENCRYPTED PRIVATE KEY."""
    text: str
    """The whole block with its first and last line, as OpenSSL reads it."""


class Store(NamedTuple):
    """Contents of a keystore or truststore as PEM; "" for what it does not have."""

    certificates: str
    key: str
    is_unlocked: bool = False
    """Whether the key was encrypted in the store, and is not encrypted here."""


def tls_context(settings: TlsConfig) -> ssl.SSLContext:
    """An SSL context with these settings.

    Raises:
        ConfigError: a file cannot be read, a certificate or key is not usable, or settings
            contradict each other; all of them at once.
    """
    faults: list[str] = []
    trusted = _trusted(settings, faults)
    try:
        # Without authorities of its own, those of the system.
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


def server_context(
    settings: TlsConfig, *, verify_mode: ssl.VerifyMode, faults: list[str]
) -> tuple[ssl.SSLContext, str]:
    """The SSL context of a listener, and its certificate chain as PEM.

    What is wrong with the settings goes to `faults`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = verify_mode
    # OpenSSL refuses renegotiation that a client asks for by itself, too, since version 3.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As in Java each certificate of a truststore is trusted, not only those that sign themselves.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    trusted = _trusted(settings, faults)
    try:
        if trusted:
            context.load_verify_locations(cadata=trusted)
        elif verify_mode is not ssl.CERT_NONE:
            # The authorities of the system are for names of hosts, and sign for everybody.
            faults.append(
                "ssl.truststore.location: it has to name the authorities of clients' certificates, "
                "since ssl.client.auth asks for them"
            )
    except (OSError, ValueError) as error:
        faults.append(f"{_trust_setting(settings)}: {error}; its PEM certificates are damaged")
    faults += restrict(
        context,
        versions=settings.ssl_enabled_protocols,
        highest=settings.ssl_protocol,
        suites=settings.ssl_cipher_suites,
    )
    if not (
        settings.ssl_keystore_location
        or settings.ssl_keystore_certificate_chain
        or settings.ssl_keystore_key
    ):
        faults.append(
            "ssl.keystore.location: an encrypted listener needs a certificate and its key; give "
            "this file, or ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    return context, _present(context, settings, faults)


def _trusted(settings: TlsConfig, faults: list[str]) -> str:
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


def _trust_setting(settings: TlsConfig) -> str:
    is_file = bool(settings.ssl_truststore_location)
    return "ssl.truststore.location" if is_file else "ssl.truststore.certificates"


def _present(context: ssl.SSLContext, settings: TlsConfig, faults: list[str]) -> str:
    """Give the context our own certificate, if there is one; returns its chain as PEM."""
    is_file = bool(settings.ssl_keystore_location)
    name = "ssl.keystore.location" if is_file else "ssl.keystore.certificate.chain"
    chain = settings.ssl_keystore_certificate_chain
    if is_file and (chain or settings.ssl_keystore_key):
        faults.append(
            f"ssl.keystore.{'certificate.chain' if chain else 'key'}: "
            "ssl.keystore.location is given too; give one of them"
        )
        return ""
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
        return ""
    key = _key(settings, store, faults)
    if store is None or key is None:
        return ""
    if not store.certificates:
        faults.append(f"{name}: there is no certificate; PEM has -----BEGIN CERTIFICATE-----")
        return ""
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
    return store.certificates


def _key(settings: TlsConfig, store: Store | None, faults: list[str]) -> str | None:
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


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2, from that of Java; other names as they are."""
    found = _JAVA_NAME.fullmatch(name)
    if found is None:
        return name
    exchange, cipher, size, mode, digest = found.groups()
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    match mode:
        case "POLY1305":
            parts += [f"{cipher}{size}", mode]
        case "GCM":
            parts += [f"{cipher}{size}", mode, digest]
        case _:
            parts += [f"{cipher}{size}", digest]
    return "-".join(parts)


def restrict(
    context: ssl.SSLContext, *, versions: Sequence[str], highest: str, suites: Sequence[str]
) -> list[str]:
    """Let a context use these versions and suites only; returns the faults of the settings.

    `versions` and `suites` are allowed ones, none for all; `highest` is the newest version, or TLS.
    """
    limit = VERSIONS.get(highest, ssl.TLSVersion.TLSv1_3)
    allowed = sorted(VERSIONS[each] for each in versions or VERSIONS if VERSIONS[each] <= limit)
    if not allowed:
        return [f"ssl.protocol: {highest} is older than all of ssl.enabled.protocols"]
    # Lists that were copied from a Java program have it.
    given = [each for each in suites if each != _NO_SUITE]
    # OpenSSL sets suites of TLS 1.3 by another function, which Python does not have.
    newest = [each for each in given if each in TLS_1_3_SUITES]
    older = [openssl_name(each) for each in given if each not in TLS_1_3_SUITES]
    if given:
        faults = _suite_faults(given, newest, is_1_3_allowed=allowed[-1] == VERSIONS["TLSv1.3"])
        wanted = {VERSIONS["TLSv1.3"]} if newest else set()
        wanted |= {VERSIONS["TLSv1.2"]} if older else set()
        allowed = [each for each in allowed if each in wanted]
        if not faults and not allowed:
            faults.append("ssl.cipher.suites: none is of a version that ssl.enabled.protocols has")
        if faults:
            return faults
    context.minimum_version, context.maximum_version = allowed[0], allowed[-1]
    if older:
        context.set_ciphers(":".join(older))
    return []


def _suite_faults(
    given: Sequence[str], newest: Sequence[str], *, is_1_3_allowed: bool
) -> list[str]:
    everything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Also weak ones: a name that is known and not allowed deserves another answer than one that is
    # not known.
    everything.set_ciphers("ALL:@SECLEVEL=0")
    known = {each["name"] for each in everything.get_ciphers()} | set(TLS_1_3_SUITES)
    faults = []
    for name in given:
        if openssl_name(name) not in known:
            close = difflib.get_close_matches(openssl_name(name), known, n=1, cutoff=0.4)
            faults.append(
                f"ssl.cipher.suites: {name[:60]!r} is no suite of this machine's OpenSSL"
                + (f"; did you mean {close[0]}?" if close else "")
            )
    missing = [each for each in TLS_1_3_SUITES if each not in newest]
    if newest and missing and is_1_3_allowed:
        faults.append(
            "ssl.cipher.suites: Python takes all suites of TLS 1.3 or none; add "
            f"{', '.join(missing)}, or leave out {', '.join(newest)}"
        )
    return faults


def pem_blocks(text: str) -> list[PemBlock]:
    """The blocks of a PEM text in their order; text between them is passed over.

    Raises:
        ValueError: a block has no end, or has characters that PEM does not have.
    """
    blocks = []
    for part in text.replace("\\r", "").replace("\\n", "\n").split("-----BEGIN ")[1:]:
        label, _, rest = part.partition("-----")
        body, end, _ = rest.partition(f"-----END {label}-----")
        if not end:
            raise ValueError(f"-----BEGIN {label[:40]}----- has no -----END {label[:40]}-----")
        if not "".join(body.split()).isascii():
            # Python's ssl raises TypeError for these, where OpenSSL would refuse them.
            raise ValueError(
                f"-----BEGIN {label[:40]}----- has characters outside of ASCII; it is damaged"
            )
        # An encrypted key in the old format has headers, which need their lines.
        lines = body.strip().splitlines() if ":" in body else wrap("".join(body.split()), 64)
        blocks.append(
            PemBlock(
                label, "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])
            )
        )
    return blocks


def read_pem(text: str) -> Store:
    """The certificates and the key of a PEM text.

    Raises:
        ValueError: a block has no end, or has characters that PEM does not have.
    """
    blocks = pem_blocks(text)
    return Store(
        "".join(f"{each.text}\n" for each in blocks if each.label in _CERTIFICATES),
        "".join(f"{each.text}\n" for each in blocks if each.label.endswith("PRIVATE KEY")),
    )


def read_store(path: str, *, kind: str, password: str) -> Store:
    """The contents of a file in PEM or PKCS12; `kind` is "" or the type that it is said to have.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, needs another password, or is of a kind that is not taken; the
            message says what to do.
    """
    with Path(path).open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"the file is larger than {FILE_BYTES_MAX} bytes")
    # Java's own format, with a cipher of its own.
    if data.startswith(_JKS_MAGIC):
        raise ValueError(
            "a JKS file is not taken; convert it with keytool -importkeystore -srckeystore "
            f"{path} -destkeystore {path}.p12 -deststoretype PKCS12, and give {path}.p12"
        )
    found = "PKCS12" if data.startswith(_DER_SEQUENCE) else "PEM"
    # Java's keytool writes PKCS12 by default, and Java reads that under the name of JKS too.
    if kind and kind != found and (kind, found) != ("JKS", "PKCS12"):
        raise ValueError(f"the file is {found}, and its type is set to {kind}; set it to {found}")
    return read_pkcs12(data, password) if found == "PKCS12" else read_pem(data.decode("latin-1"))


def read_pkcs12(data: bytes, password: str) -> Store:
    """The contents of a PKCS12 file, whose key comes out unlocked.

    Raises:
        ValueError: it is damaged or needs another password, or the package that reads it is not
            installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ValueError(
            "a PKCS12 file needs the package cryptography: pip install 'tailrace[pkcs12]'; or "
            "convert it to PEM with openssl pkcs12 -in FILE -out FILE.pem"
        ) from None
    try:
        # Python's ssl reads PEM alone.
        store = pkcs12.load_pkcs12(data, password.encode())
    except ValueError:
        raise ValueError(
            "the PKCS12 file is damaged, or its password is another; check ssl.keystore.password "
            "or ssl.truststore.password"
        ) from None
    pem = serialization.Encoding.PEM
    certificates = [store.cert, *store.additional_certs]
    key = store.key
    return Store(
        "".join(
            each.certificate.public_bytes(pem).decode() for each in certificates if each is not None
        ),
        ""
        if key is None
        else key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        is_unlocked=True,
    )


@contextmanager
def as_file(text: str) -> Iterator[str]:
    """The path of a file with this text, which only this process can read; gone afterwards.

    OpenSSL takes our own certificate from files alone. Where the system can, the file is in memory.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        descriptor = os.memfd_create("tailrace")
        path, is_named = f"/proc/self/fd/{descriptor}", False
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="tailrace-")  # with the mode 0600
        is_named = True
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            yield path
    finally:
        if is_named:
            with contextlib.suppress(OSError):
                Path(path).unlink()
