r"""`read_certificate`: what a broker needs to know of an X.509 certificate (RFC 5280), from DER.

    Certificate  TBS [0 version] serial algorithm issuer validity subject key ... [3 extensions]

Python's `ssl` shows a verified subject only as text, with long names and without types; Kafka's
principals are the subject as Java writes it (`X500Principal.getName`, RFC 2253):

    CN=Bob,OU=Data Team\, North,1.2.840.113549.1.9.1=#1603626f62

Not here: whether a certificate is valid. OpenSSL has checked it before.
"""

import ssl
from calendar import timegm
from collections.abc import Iterator
from time import strptime
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET",
    "2.5.4.10": "O", "2.5.4.11": "OU", "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
"""Attributes with a name in RFC 2253; others have their number, and their value in hexadecimal."""

_ENCODINGS: Final = {
    0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii",
    0x1E: "utf-16-be",
}  # fmt: skip
"""Encodings of text by the tag of its type, as Java reads them."""

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_OCTETS: Final = 0x04
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_SUBJECT_ALT_NAME: Final = "2.5.29.17"


class Certificate(NamedTuple):
    """Parts of a certificate."""

    subject: str
    """Its distinguished name by RFC 2253."""
    alt_names: frozenset[bytes]
    """Its subject alternative names, as they are encoded."""
    not_before_s: int
    """Begin of its validity, in seconds since 1970."""
    not_after_s: int
    """Its end."""


class _Value(NamedTuple):
    """One value of DER: `data[start:stop]` without its tag and length."""

    tag: int
    begin: int
    """The place of its tag."""
    start: int
    stop: int


def read_certificate(der: bytes) -> Certificate:
    """The parts of a certificate.

    Raises:
        ValueError: it is no certificate in DER.
    """
    outer = _one(der, 0, len(der), tag=_SEQUENCE)
    body = _one(der, outer.start, outer.stop, tag=_SEQUENCE)
    fields = list(_values(der, body.start, body.stop))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("a certificate ends early")
    validity, subject = fields[3], fields[4]
    times = list(_values(der, validity.start, validity.stop))
    if len(times) != 2:
        raise ValueError("a certificate has no validity")
    alt_names: frozenset[bytes] = frozenset()
    for each in fields[6:]:
        if each.tag == _EXTENSIONS:
            alt_names = _alt_names(der, each)
    return Certificate(
        _name(der, subject), alt_names, _seconds(der, times[0]), _seconds(der, times[1])
    )


def first_certificate(pem: str) -> Certificate:
    """The parts of the first certificate of a PEM text.

    Raises:
        ValueError: there is none, or it is no certificate.
    """
    end = "-----END CERTIFICATE-----"
    return read_certificate(ssl.PEM_cert_to_DER_cert(pem[: pem.index(end)] + end))


def _values(data: bytes, start: int, stop: int) -> Iterator[_Value]:
    while start < stop:
        value = _read(data, start, stop)
        yield value
        start = value.stop


def _one(data: bytes, start: int, stop: int, *, tag: int) -> _Value:
    value = _read(data, start, stop)
    if value.tag != tag:
        raise ValueError(f"DER has the tag {value.tag:#x} at {start}, and {tag:#x} was expected")
    return value


def _read(data: bytes, begin: int, stop: int) -> _Value:
    """The value that begins there, which ends at `stop` at the latest."""
    if begin + 2 > stop:
        raise ValueError("DER ends early")
    size, start = data[begin + 1], begin + 2
    if size >= 0x80:
        # Indefinite lengths (0x80) are BER's; five bytes of length are more than a certificate has.
        count = size & 0x7F
        if not 1 <= count <= 4 or start + count > stop:
            raise ValueError("DER has an invalid length")
        size, start = int.from_bytes(data[start : start + count], "big"), start + count
    if start + size > stop:
        raise ValueError("DER ends early")
    return _Value(data[begin], begin, start, start + size)


def _oid(data: bytes, value: _Value) -> str:
    numbers, number = [], 0
    for byte in data[value.start : value.stop]:
        number = number << 7 | byte & 0x7F
        if number >> 128:
            raise ValueError("DER has an object identifier that is too large")
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("DER has an empty object identifier")
    # The first two numbers are one on the wire.
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _name(data: bytes, subject: _Value) -> str:
    """A distinguished name; its last part comes first, as RFC 2253 has it."""
    parts = []
    for relative in _values(data, subject.start, subject.stop):
        pairs = []
        for pair in _values(data, relative.start, relative.stop):
            kind = _one(data, pair.start, pair.stop, tag=_OID)
            pairs.append(_attribute(data, _oid(data, kind), _read(data, kind.stop, pair.stop)))
        parts.append("+".join(pairs))
    return ",".join(reversed(parts))


def _attribute(data: bytes, oid: str, value: _Value) -> str:
    keyword, encoding = _KEYWORDS.get(oid), _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or oid}=#{data[value.begin : value.stop].hex()}"
    text = data[value.start : value.stop].decode(encoding, "replace")
    escaped = "".join(f"\\{each}" if each in ',=+<>#;"\\' else each for each in text)
    escaped = escaped.replace("\x00", "\\00")
    body = escaped.strip(" \r")
    before, _, after = escaped.partition(body) if body else (escaped, "", "")
    return f"{keyword}={_each_escaped(before)}{body}{_each_escaped(after)}"


def _each_escaped(text: str) -> str:
    return "".join(f"\\{each}" for each in text)


def _alt_names(data: bytes, outer: _Value) -> frozenset[bytes]:
    extensions = _one(data, outer.start, outer.stop, tag=_SEQUENCE)
    for each in _values(data, extensions.start, extensions.stop):
        parts = list(_values(data, each.start, each.stop))
        # Object identifier, maybe whether it is critical, and the value.
        if len(parts) < 2 or parts[0].tag != _OID or parts[-1].tag != _OCTETS:
            raise ValueError("a certificate has an invalid extension")
        if _oid(data, parts[0]) == _SUBJECT_ALT_NAME:
            names = _one(data, parts[-1].start, parts[-1].stop, tag=_SEQUENCE)
            return frozenset(
                data[name.begin : name.stop] for name in _values(data, names.start, names.stop)
            )
    return frozenset()


def _seconds(data: bytes, value: _Value) -> int:
    text = data[value.start : value.stop].decode("ascii", "replace")
    if value.tag == _UTC_TIME:
        # Two digits of a year: 1950 to 2049 (RFC 5280, 4.1.2.5.1).
        text = ("19" if text[:2] >= "50" else "20") + text
    return timegm(strptime(text, "%Y%m%d%H%M%SZ"))
