"""Envelopes (KIP-590): what a broker says about the client whose request it forwards.

    principal   int16 version (0) | compact string type | compact string name | bool | tags
    address     4 or 16 bytes

Kafka's `DefaultPrincipalData` and `EnvelopeUtils`. The rules for the request in it are those for
that client, so one that cannot be read is refused.
"""

from ipaddress import ip_address
from typing import Final

from tailrace.errors import FatalError
from tailrace.model import Principal
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.frames import Caller
from tailrace.protocol.messages.envelope import EnvelopeRequest
from tailrace.protocol.primitives import read_tagged, read_uvarint, write_uvarint

_VERSION: Final = b"\0\0"


class InvalidAddressError(FatalError, ValueError):
    """An envelope whose address of the client has neither 4 nor 16 bytes."""


_LOOPBACK: Final = bytes((127, 0, 0, 1))


def principal_bytes(principal: Principal) -> bytes:
    """A principal as Kafka's default builder writes it (DefaultPrincipalData v0)."""
    out = bytearray(_VERSION)
    for text in (principal.type, principal.name):
        data = text.encode()
        # Compact strings have their length plus one in front.
        write_uvarint(out, len(data) + 1)
        out += data
    out.append(principal.is_by_token)
    return bytes(out + b"\0")  # no tags


def address_bytes(host: str) -> bytes:
    """The IP address of a client, 4 or 16 bytes, for the rules of the controllers' ACLs."""
    try:
        return ip_address(host.strip("[]")).packed
    except ValueError:
        # Not of a socket, but of this process.
        return _LOOPBACK


def read_principal(data: bytes) -> Principal:
    """The principal of an envelope.

    Raises:
        MalformedMessageError: it is not one that Kafka's default builder writes.
    """
    view = memoryview(data)
    if bytes(view[: len(_VERSION)]) != _VERSION:
        raise MalformedMessageError("a principal of an unknown version", position=0)
    try:
        kind, position = _read_text(view, len(_VERSION))
        name, position = _read_text(view, position)
        is_by_token = bool(view[position])
        _, end = read_tagged(view, position + 1, {})
    except IndexError:
        raise MalformedMessageError("a principal ends early", position=len(view)) from None
    if end != len(view):
        raise MalformedMessageError(f"{len(view) - end} bytes after a principal", position=end)
    return Principal(kind, name, is_by_token)


def client_of(request: EnvelopeRequest, caller: Caller) -> Caller:
    """The client whose request is in an envelope that `caller`, a broker, has sent.

    Raises:
        MalformedMessageError: the principal is not one that Kafka's default builder writes, or is
            missing, as from a listener whose broker has another builder.
        InvalidAddressError: the client's address is none.
    """
    if request.request_principal is None:
        raise MalformedMessageError("an envelope without a principal", position=0)
    principal = read_principal(bytes(request.request_principal))
    try:
        address = ip_address(bytes(request.client_host_address))
    except ValueError:
        raise InvalidAddressError from None
    # The listener is the one of the controller, as in Kafka; the port is not known.
    return caller._replace(peer=f"{address}:0", principal=principal)


def _read_text(view: memoryview, position: int) -> tuple[str, int]:
    size, position = read_uvarint(view, position)
    end = position + size - 1
    if size == 0 or end > len(view):
        raise MalformedMessageError("a text of a principal ends early", position=position)
    try:
        return str(view[position:end], "utf-8"), end
    except UnicodeDecodeError:
        raise MalformedMessageError("a principal is not UTF-8", position=position) from None
