"""The decode and encode functions of each message in each version, created at first use.

    message, position = decode(MetadataRequest, 9, view)
    buffers = gather(message, 9, head)

Making a pair costs about a millisecond; a broker that answers three versions of five APIs
makes fifteen pairs. `decoders` and `encoders` write them, and are imported for the first.

`frames` has headers and sizes, `apis` the served versions.

Invariant: for bytes that are not the message, `decode` raises only `MalformedMessageError`.
"""

from collections.abc import Callable
from functools import cache
from struct import error as struct_error
from typing import TypeVar, cast

from tailrace.protocol.errors import UnencodableMessageError
from tailrace.protocol.fields import Buffer, Message, Records, wire_fields
from tailrace.protocol.primitives import UNLIMITED_PARTS, MessageDecoder
from tailrace.values import compile_methods

M = TypeVar("M", bound=Message)

_MISFITS = (UnencodableMessageError, struct_error, AttributeError, TypeError, UnicodeEncodeError)
"""Python's errors for a value that is too large for its field, None, or of another type."""


def decode(
    message: type[M],
    version: int,
    view: memoryview,
    *,
    position: int = 0,
    parts_max: int = UNLIMITED_PARTS,
) -> tuple[M, int]:
    """The message at `position` of a view of bytes, and the position after it.

    `records` are views of `view`: they live as long as its buffer, and nothing is copied.

    Raises:
        MalformedMessageError: the bytes are not this message in this version.
        TooManyPartsError: its arrays have more than `parts_max` elements together.
    """
    # Kept for the life of the process: versions are few, and making one takes longer than its use.
    found: tuple[M, int] = _decoder(message, version)(view, position, parts_max)
    return found


def encode(message: Message, version: int, out: bytearray) -> None:
    """Append the encoded message in this version to `out`; a `FileSlice` cannot be among it.

    Raises:
        UnencodableMessageError: a value does not fit its field; `out` may have grown.
    """
    _, *rest = gather(message, version, out)
    for buffer in rest:
        out += cast("Buffer", buffer)


def gather(message: Message, version: int, head: bytearray) -> list[Records]:
    """The bytes of `head` and of the message as a list of buffers; `records` are not copied.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    buffers: list[Records] = []
    try:
        _encoder(type(message), version)(message, head, buffers)
    except _MISFITS as error:
        raise UnencodableMessageError(
            f"{type(message).__name__} v{version} cannot carry these values: {error}"
        ) from error
    return buffers


def prepare(message: type[Message], version: int) -> None:
    """Make the decoder and the encoder of a version now, on the caller's thread: a few ms."""
    _decoder(message, version)
    _encoder(message, version)
    _compile_classes(message)


def _compile_classes(message: type) -> None:
    # Our dataclasses compile their methods at first use (decision 56), which is too late within a
    # request.
    compile_methods(message)
    for field in wire_fields(message):
        if isinstance(field.type, type):
            _compile_classes(field.type)


@cache
def _decoder(message: type[Message], version: int) -> MessageDecoder:
    from tailrace.protocol.decoders import DecoderSource

    source = DecoderSource(
        f"{message.__name__} v{version}",
        version=version,
        is_flexible=version >= message.flexible_since,
    )
    return source.of_message(message)


@cache
def _encoder(message: type[Message], version: int) -> Callable[..., None]:
    from tailrace.protocol.encoders import EncoderSource

    source = EncoderSource(
        f"{message.__name__} v{version}",
        version=version,
        is_flexible=version >= message.flexible_since,
    )
    return source.of_message(message)
