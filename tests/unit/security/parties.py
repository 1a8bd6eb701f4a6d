"""Certificates that a test makes: an authority, and what it signs."""

from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


class Party:
    """A certificate with its key, as PEM."""

    def __init__(
        self,
        name: x509.Name,
        *,
        signed_by: "Party | None" = None,
        hosts: tuple[str, ...] = ("memory", "localhost", "127.0.0.1"),
        begins: datetime = NOW - DAY,
        ends: datetime = NOW + 36500 * DAY,
        extensions: tuple[x509.ExtensionType, ...] = (),
    ) -> None:
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
            .not_valid_before(begins)
            .not_valid_after(ends)
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


@cache
def authority(name: str = "Authority") -> Party:
    """One that signs the others; the same for the whole run."""
    return Party(name_of(name))


@cache
def party(name: str, *units: str) -> Party:
    """One that the authority has signed."""
    return Party(name_of(name, *units), signed_by=authority())
