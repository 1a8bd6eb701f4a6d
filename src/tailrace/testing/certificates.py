"""Certificates that a test makes: an authority, and what it signs. Needs the package cryptography.

    authority = Party(name_of("Authority"))
    broker = Party(name_of("broker"), signed_by=authority)      # broker.certificate, broker.key

Not here: what reads certificates (`security.certificates`).
"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY: Final = timedelta(days=1)


class Party:
    """A certificate with its key, as PEM."""

    def __init__(
        self,
        name: x509.Name,
        *,
        signed_by: "Party | None" = None,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        begins: datetime | None = None,
        ends: datetime | None = None,
        extensions: tuple[x509.ExtensionType, ...] = (),
    ) -> None:
        """One that signs itself, as an authority does, or that another one has signed.

        By default it is valid from yesterday on, for a hundred years.
        """
        now = datetime.now(UTC)
        self.name = name
        self.private = ec.generate_private_key(ec.SECP256R1())
        issuer = signed_by or self
        names = [
            x509.IPAddress(ip_address(each)) if each[0].isdigit() else x509.DNSName(each)
            for each in hosts
        ]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer.name)
            .public_key(self.private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins or now - _DAY)
            .not_valid_after(ends or now + 36500 * _DAY)
            .add_extension(x509.BasicConstraints(ca=signed_by is None, path_length=None), True)  # noqa: FBT003
        )
        if signed_by is not None and names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)  # noqa: FBT003
        for each in extensions:
            builder = builder.add_extension(each, False)  # noqa: FBT003
        made = builder.sign(issuer.private, hashes.SHA256())
        self.der = made.public_bytes(serialization.Encoding.DER)
        self.certificate = made.public_bytes(serialization.Encoding.PEM).decode()
        self.key = self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    @property
    def keystore(self) -> dict[str, str]:
        """The settings that show this certificate."""
        return {
            "ssl.keystore.certificate.chain": self.certificate,
            "ssl.keystore.key": self.key,
        }

    @property
    def truststore(self) -> dict[str, str]:
        """The settings that trust what it has signed."""
        return {"ssl.truststore.certificates": self.certificate}


def name_of(common_name: str, *units: str) -> x509.Name:
    """A name of a certificate: CN, and organizational units."""
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, each) for each in units),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
