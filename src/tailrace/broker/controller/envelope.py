"""Envelopes (KIP-590): what a broker says about the client whose request it forwards.

    principal   int16 version (0) | compact string type | compact string name | bool | tags
    address     4 or 16 bytes

Kafka's `DefaultPrincipalData` and `EnvelopeUtils`. Nobody has to log in here, so a principal
decides nothing; but one that cannot be read is refused, or a mistake of a broker would be found
only when there are rules.
"""

from typing import Final, NamedTuple

from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.messages.envelope import EnvelopeRequest
from tailrace.protocol.primitives import read_tagged, read_uvarint

_VERSION_BYTES: Final = 2
_ADDRESS_SIZES: Final = (4, 16)


class Principal(NamedTuple):
    """A user, as the broker knows it."""

    type: str
    name: str
    is_by_token: bool
    """Whether it has logged in with a delegation token."""


def read_principal(data: bytes) -> Principal:
    """The principal of an envelope.

    Raises:
        MalformedMessageError: it is not one that Kafka's default builder writes.
    """
    view = memoryview(data)
    if len(view) < _VERSION_BYTES or bytes(view[:_VERSION_BYTES]) != b"\0\0":
        raise MalformedMessageError("a principal of an unknown version", position=0)
    try:
        kind, position = _read_text(view, _VERSION_BYTES)
        name, position = _read_text(view, position)
        is_by_token = bool(view[position])
        _, end = read_tagged(view, position + 1, {})
    except IndexError:
        raise MalformedMessageError("a principal ends early", position=len(view)) from None
    if end != len(view):
        raise MalformedMessageError(f"{len(view) - end} bytes after a principal", position=end)
    return Principal(kind, name, is_by_token)


def fault_of(request: EnvelopeRequest) -> ErrorCode:
    """The fault of an envelope, apart from the request in it; NONE: there is none."""
    try:
        # Null where the listener of the broker has no default principals: nobody is known then.
        if request.request_principal is None:
            return ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
        read_principal(bytes(request.request_principal))
    except MalformedMessageError:
        return ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    if len(request.client_host_address) not in _ADDRESS_SIZES:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _read_text(view: memoryview, position: int) -> tuple[str, int]:
    size, position = read_uvarint(view, position)
    end = position + size - 1
    if size == 0 or end > len(view):
        raise MalformedMessageError("a text of a principal ends early", position=position)
    try:
        return str(view[position:end], "utf-8"), end
    except UnicodeDecodeError:
        raise MalformedMessageError("a principal is not UTF-8", position=position) from None
