"""TLS settings to an SSL context: inline PEM, PKCS12, versions, suites, and every refusal."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.errors import ConfigError
from tailrace.security.tls_config import TlsConfig
from tailrace.security.tls_context import (
    FILE_BYTES_MAX,
    TLS_1_3_SUITES,
    as_file,
    openssl_name,
    pem_blocks,
    tls_context,
)
from tests.unit.security.certificates import (
    BROKER,
    BROKER_KEY,
    BROKER_LOCKED_KEY,
    STRANGER,
    STRANGER_KEY,
    pkcs12,
)

OURS = TlsConfig(ssl_keystore_certificate_chain=BROKER, ssl_keystore_key=BROKER_KEY)


def faults(settings: TlsConfig) -> list[str]:
    """Return the faults of settings."""
    with pytest.raises(ConfigError) as raised:
        tls_context(settings)
    return list(raised.value.faults)


def shaken(client: TlsConfig) -> ssl.SSLObject:
    """The client's end of a handshake in memory with a broker that asks for a certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = tls_context(client).wrap_bio(to_client, to_server, server_hostname="broker")
    theirs = tls_server().wrap_bio(to_server, to_client, server_side=True)
    is_over = [False, False]
    while not all(is_over):
        for place, end in enumerate((ours, theirs)):
            try:
                end.do_handshake()
                is_over[place] = True
            except ssl.SSLWantReadError:
                pass
    return ours


def tls_server() -> ssl.SSLContext:
    """A context of a broker that trusts BROKER and asks for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with as_file(BROKER + BROKER_KEY) as path:
        context.load_cert_chain(path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=BROKER)
    return context


@pytest.mark.parametrize(
    "written",
    [
        lambda pem: pem,
        lambda pem: pem.replace("\n", "\\n"),
        lambda pem: " ".join(pem.split("\n")),
        lambda pem: f"# our certificate\n{pem}\n# the end",
    ],
    ids=["lines", "escaped", "one line", "between comments"],
)
def test_certificates_and_keys_may_stand_in_settings(written: object) -> None:
    """PEM in settings is used as from files, also on one line or with escaped line ends."""
    assert callable(written)
    settings = TlsConfig(
        ssl_truststore_certificates=written(BROKER),
        ssl_keystore_certificate_chain=written(BROKER),
        ssl_keystore_key=written(BROKER_KEY),
    )
    assert shaken(settings).version() == "TLSv1.3"


def test_an_encrypted_key_in_a_setting_needs_its_password() -> None:
    """ssl.key.password unlocks an inline key; a wrong one is a fault that shows no secret."""
    locked = TlsConfig(
        ssl_truststore_certificates=BROKER,
        ssl_keystore_certificate_chain=BROKER,
        ssl_keystore_key=BROKER_LOCKED_KEY,
    )
    assert shaken(replace(locked, ssl_key_password="secret")).version()
    (fault,) = faults(replace(locked, ssl_key_password="guessed"))
    assert "ssl.key.password" in fault
    assert "guessed" not in fault


def test_a_key_file_may_be_given_beside_an_inline_chain(tmp_path: Path) -> None:
    """The chain in a setting and the key in a file belong together."""
    key = tmp_path / "key.pem"
    key.write_text(BROKER_KEY)
    tls_context(TlsConfig(ssl_keystore_certificate_chain=BROKER, ssl_key_location=str(key)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            TlsConfig(ssl_truststore_certificates="none"),
            "ssl.truststore.certificates: there is no",
        ),
        (TlsConfig(ssl_truststore_certificates=BROKER[:200]), "has no -----END CERTIFICATE"),
        (TlsConfig(ssl_truststore_certificates=BROKER.replace("M", "é")), "outside of ASCII"),
        (
            TlsConfig(
                ssl_truststore_certificates=(
                    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
                )
            ),
            "ssl.truststore.certificates: ",
        ),
        (TlsConfig(ssl_keystore_certificate_chain=BROKER), "ssl.keystore.key: the key of"),
        (
            TlsConfig(ssl_keystore_key=BROKER_KEY),
            "ssl.keystore.certificate.chain: there is no",
        ),
        (replace(OURS, ssl_keystore_key=BROKER), "ssl.keystore.key: there is no private key"),
        (replace(OURS, ssl_keystore_key=STRANGER_KEY), "ssl.keystore.certificate.chain: "),
        (replace(OURS, ssl_keystore_location="x.pem"), "give one of them"),
        (replace(OURS, ssl_key_location="x.pem"), "give one of them"),
        (
            TlsConfig(ssl_truststore_location="/none", ssl_truststore_certificates=BROKER),
            "give one of them",
        ),
    ],
)
def test_unusable_certificates_are_told_with_their_setting(settings: TlsConfig, said: str) -> None:
    """Each fault names the setting, and none has key material in it."""
    found = faults(settings)
    assert any(said in each for each in found)
    assert not any("MIG" in each for each in found)


def test_all_faults_of_tls_come_together() -> None:
    """A missing truststore, an unknown suite and a missing key are one error with three faults."""
    settings = TlsConfig(
        ssl_truststore_location="/none/trust.pem",
        ssl_keystore_certificate_chain=BROKER,
        ssl_cipher_suites=("TLS_FOO",),
    )
    assert len(faults(settings)) == 3


def test_pkcs12_files_are_read(tmp_path: Path) -> None:
    """A keystore and a truststore as keytool writes them are used with their passwords."""
    pytest.importorskip("cryptography")
    keystore, truststore = tmp_path / "keys.jks", tmp_path / "trust.p12"
    keystore.write_bytes(pkcs12("first"))
    truststore.write_bytes(pkcs12("second", has_key=False))
    settings = TlsConfig(
        ssl_keystore_location=str(keystore),
        ssl_keystore_type="JKS",
        ssl_keystore_password="first",
        ssl_truststore_location=str(truststore),
        ssl_truststore_type="PKCS12",
        ssl_truststore_password="second",
    )
    assert shaken(settings).version()
    found = faults(replace(settings, ssl_keystore_password="x", ssl_truststore_password=""))
    assert [each.partition(":")[0] for each in found] == [
        "ssl.truststore.location",
        "ssl.keystore.location",
    ]
    (fault,) = faults(replace(settings, ssl_keystore_type="PEM"))
    assert "the file is PKCS12, and its type is set to PEM" in fault


def test_a_jks_file_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    """The fault has the whole keytool command with the file's name."""
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (fault,) = faults(TlsConfig(ssl_truststore_location=str(store), ssl_truststore_type="JKS"))
    assert f"keytool -importkeystore -srckeystore {store} -destkeystore {store}.p12" in fault


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    """A store that is larger than any is refused after its first megabytes."""
    store = tmp_path / "endless"
    with store.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    (fault,) = faults(TlsConfig(ssl_truststore_location=str(store)))
    assert "larger than" in fault


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ],
)
def test_suites_have_javas_names_or_those_of_openssl(java: str, openssl: str) -> None:
    """A suite is found by either name, and OpenSSL knows what comes of it."""
    assert openssl_name(java) == openssl
    if java != openssl:
        tls_context(TlsConfig(ssl_cipher_suites=(java,)))


def test_suites_decide_what_is_spoken() -> None:
    """With suites of TLS 1.2 alone that version and those suites are used, as in Java."""
    name = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    settings = replace(OURS, ssl_truststore_certificates=BROKER, ssl_cipher_suites=(name,))
    link = shaken(settings)
    cipher = link.cipher()
    assert cipher is not None
    assert (link.version(), cipher[0]) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")
    assert shaken(replace(settings, ssl_cipher_suites=TLS_1_3_SUITES)).version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("versions", "highest", "spoken"),
    [
        (("TLSv1.2", "TLSv1.3"), "TLSv1.3", "TLSv1.3"),
        (("TLSv1.2",), "TLSv1.3", "TLSv1.2"),
        (("TLSv1.2", "TLSv1.3"), "TLSv1.2", "TLSv1.2"),
        ((), "TLS", "TLSv1.3"),
    ],
)
def test_versions_are_those_enabled(versions: tuple[str, ...], highest: str, spoken: str) -> None:
    """The newest version that ssl.enabled.protocols and ssl.protocol allow is spoken."""
    settings = replace(
        OURS,
        ssl_truststore_certificates=BROKER,
        ssl_enabled_protocols=versions,
        ssl_protocol=highest,
    )
    assert shaken(settings).version() == spoken


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (TlsConfig(ssl_cipher_suites=("HIGH",)), "'HIGH' is no suite"),
        (
            TlsConfig(ssl_cipher_suites=("ECDHE-RSA-AES128-GCM-SHA",)),
            "did you mean ECDHE-RSA-AES128-GCM-SHA256?",
        ),
        (TlsConfig(ssl_cipher_suites=TLS_1_3_SUITES[:1]), "all suites of TLS 1.3 or none"),
        (
            TlsConfig(ssl_cipher_suites=TLS_1_3_SUITES, ssl_enabled_protocols=("TLSv1.2",)),
            "none is of a version",
        ),
        (
            TlsConfig(ssl_enabled_protocols=("TLSv1.3",), ssl_protocol="TLSv1.2"),
            "ssl.protocol: TLSv1.2 is older",
        ),
    ],
)
def test_versions_and_suites_that_cannot_be_are_told(settings: TlsConfig, said: str) -> None:
    """An unknown or contradictory choice is a fault with the next best name."""
    (fault,) = faults(settings)
    assert said in fault


def test_blocks_of_pem_come_in_their_order() -> None:
    """A chain of several certificates keeps its order, and text between is passed over."""
    blocks = pem_blocks(f"first\n{BROKER}second\n{STRANGER}{BROKER_KEY}")
    assert [each.label for each in blocks] == ["CERTIFICATE", "CERTIFICATE", "PRIVATE KEY"]
    assert f"{blocks[0].text}\n" == BROKER
