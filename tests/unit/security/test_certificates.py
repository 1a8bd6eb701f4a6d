"""Parts of certificates: the subject as Java writes it, names of hosts, and times."""

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from tailrace.security.certificates import first_certificate, read_certificate
from tests.unit.security.parties import DAY, NOW, Party, authority, name_of

CN = NameOID.COMMON_NAME
UTF8, BMP, NUMERIC = _ASN1Type.UTF8String, _ASN1Type.BMPString, _ASN1Type.NumericString
Attribute = tuple[x509.ObjectIdentifier, str, _ASN1Type]


def named(*parts: tuple[Attribute, ...]) -> Party:
    """A certificate whose subject has these parts in this order."""
    made = [
        x509.RelativeDistinguishedName(
            [x509.NameAttribute(oid, text, _type=kind) for oid, text, kind in part]
        )
        for part in parts
    ]
    return Party(x509.Name(made))


# What `X500Principal.getName()` of JDK 25 gives for the same certificates.
@pytest.mark.parametrize(
    ("parts", "subject"),
    [
        (
            [((NameOID.COUNTRY_NAME, "US", _ASN1Type.PrintableString),),
             ((NameOID.STATE_OR_PROVINCE_NAME, "MD", UTF8),),
             ((NameOID.LOCALITY_NAME, "Fulton", UTF8),),
             ((NameOID.ORGANIZATION_NAME, "Org", UTF8),),
             ((NameOID.ORGANIZATIONAL_UNIT_NAME, "Unit", UTF8),), ((CN, "Duke", UTF8),)],
            "CN=Duke,OU=Unit,O=Org,L=Fulton,ST=MD,C=US",
        ),
        ([((CN, ' a,b+c"d\\e<f>g;h=i#j ', UTF8),)],
         '''CN=\\ a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j\\ '''),
        ([((CN, "#lead", UTF8),)], "CN=\\#lead"),
        ([((CN, "  two  in  ", UTF8),)], "CN=\\ \\ two  in\\ \\ "),
        ([((CN, " ", UTF8),)], "CN=\\ "),
        ([((CN, "a\x00b", UTF8),)], "CN=a\\00b"),
        ([((CN, "a\nb\r", UTF8),)], "CN=a\nb\\\r"),
        ([((CN, "Jürgen 中", UTF8),)], "CN=Jürgen 中"),
        ([((CN, "Jü", BMP),)], "CN=Jü"),
        ([((CN, "12", NUMERIC),)], "CN=#12023132"),
        ([((CN, "Bob", UTF8), (NameOID.USER_ID, "b1", UTF8)),
          ((NameOID.DOMAIN_COMPONENT, "x", _ASN1Type.IA5String),)], "DC=x,CN=Bob+UID=b1"),
        ([((NameOID.EMAIL_ADDRESS, "bob@b", UTF8),), ((CN, "Bob", UTF8),)],
         "CN=Bob,1.2.840.113549.1.9.1=#0c05626f624062"),
        ([((NameOID.STREET_ADDRESS, "Main 1", UTF8),), ((NameOID.TITLE, "Dr", UTF8),)],
         "2.5.4.12=#0c024472,STREET=Main 1"),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_writes_it(
    parts: list[tuple[Attribute, ...]], subject: str
) -> None:
    """Order, escapes, and numbers for what RFC 2253 has no name for."""
    assert read_certificate(named(*parts).der).subject == subject


def test_names_of_hosts_and_times_are_read() -> None:
    """All subject alternative names, and both ends of the validity in seconds."""
    begins, ends = NOW - 3 * DAY, NOW + 40000 * DAY
    one = Party(
        name_of("a"), signed_by=authority(), hosts=("x", "1.2.3.4"), begins=begins, ends=ends
    )
    found = first_certificate(one.certificate)
    assert found.alt_names == {b"\x82\x01x", b"\x87\x04\x01\x02\x03\x04"}
    assert (found.not_before_s, found.not_after_s) == (
        int(begins.timestamp()), int(ends.timestamp())
    )  # fmt: skip
    assert not read_certificate(authority().der).alt_names


def test_a_cut_certificate_is_refused() -> None:
    """Each prefix of a certificate is an error, and none is an index that is out of range."""
    der = authority().der
    for size in range(len(der)):
        with pytest.raises(ValueError, match=r"DER|certificate"):
            read_certificate(der[:size])
