r"""Certificates and keys as text, in files of PEM and PKCS12, or in a setting.

    settings, files -> PEM blocks -> one PEM text for OpenSSL

PEM may be on one line, and its line ends may be written as `\n`, as Kafka's clients take it.

Not here: the SSL context that is made of them; see `tls_context`.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Final, NamedTuple

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


def pem_blocks(text: str) -> list[PemBlock]:
    """The blocks of a PEM text in their order; text between them is passed over.

    Raises:
        ValueError: a block has no end.
    """
    blocks = []
    for part in text.replace("\\r", "").replace("\\n", "\n").split("-----BEGIN ")[1:]:
        label, _, rest = part.partition("-----")
        body, end, _ = rest.partition(f"-----END {label}-----")
        if not end:
            raise ValueError(f"-----BEGIN {label[:40]}----- has no -----END {label[:40]}-----")
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
        ValueError: a block has no end.
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
