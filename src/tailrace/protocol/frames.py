"""Frames of a connection: size, header and body of a request or a response.

    request     int32 size | int16 api key | int16 version | int32 correlation id
                | nullable string client id | tag section, if the version is flexible | body
    response    int32 size | int32 correlation id | tag section, likewise | body

The size counts what follows it. The client id has an int16 length in every version; the header
of an ApiVersions response never has a tag section (KIP-511).

Sockets, and the matching of responses to requests, are in `server` and `client`.

Invariant: a field is read completely, or the frame is refused. Extra bytes after the body of a
response mean that the peers disagree on the version, so they are refused too, but for Metadata:
librdkafka's mock cluster (2.16) appends one. Extra bytes after the body of a request are ignored,
as in Apache Kafka: librdkafka 2.16 appends three to a Metadata v13 request for all topics.
"""

from collections.abc import Mapping
from itertools import groupby
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeVar, cast

from tailrace.model import ANONYMOUS, Principal
from tailrace.protocol import codec
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.errors import ErrorCode, MalformedMessageError, UnencodableMessageError
from tailrace.protocol.fields import Buffer, Message, Records
from tailrace.protocol.primitives import UNLIMITED_PARTS, read_tagged

M = TypeVar("M", bound=Message)
R = TypeVar("R", Buffer, Records)

FRAME_BYTES_MAX = 100 * 1024 * 1024
"""Default limit of a frame's size: Kafka's socket.request.max.bytes."""

REQUEST_PARTS_MAX = 100_000
"""Most elements that the arrays of a request may have together: topics, partitions, settings.

Each becomes an object of some 250 bytes, so this is 25 MB, whatever the frame's size. Apache Kafka
makes as many as the bytes hold. A client names each partition of a broker once: the largest
clusters that run have 200,000 partitions, on a hundred brokers, and a topic here has 10,000."""

RESPONSE_PARTS_MAX = 2_000_000
"""Most elements that the arrays of a response may have together, outside of tagged fields.

Metadata of 200,000 partitions has 1.4 million: each with three replicas, all of them in sync. Of
three bytes a broker could make an object of 70, and 2 GB of a frame; so it is some 200 MB."""

SIZE_BYTES = 4
"""Bytes of the size in front of each frame."""

_SIZE = Struct(">i")
_REQUEST_HEAD = Struct(">hhih")
# The size and the correlation id; a response does not say which request or version it answers.
_RESPONSE_HEAD = Struct(">ii")
_ERROR_CODE = Struct(">h")


class Caller(NamedTuple):
    """The client at the other end of a connection."""

    peer: str = ""
    """Its address and port."""
    principal: Principal = ANONYMOUS
    """Its name by its login or its certificate."""
    listener: str = ""
    """The name of the listener to which it has connected."""
    forwarder: str = ""
    """The broker that has forwarded its request, as CLIENT_ID@HOST:PORT; empty: none has."""

    @property
    def host(self) -> str:
        """Its address without the port."""
        return self.peer.rpartition(":")[0]


NOBODY: Final = Caller()
"""The caller of a request that came from no connection."""


class RequestHeader(NamedTuple):
    """The header of a request; its `api_key` and `api_version` may not be served."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    caller: Caller = NOBODY
    """The client that has sent it."""

    @property
    def api(self) -> Api | None:
        """The request's API if this version of it is served, else None."""
        api = APIS.get(self.api_key)
        return api if api is not None and api.is_served(self.api_version) else None


def check_size(size: int, *, limit: int) -> None:
    """Check the size that a frame claims, in bytes.

    Raises:
        MalformedMessageError: it is negative or above `limit`; close the connection.
    """
    # Before anything is allocated: a TLS or HTTP client on this port sends text, whose first four
    # bytes claim a GB or more.
    if not 0 <= size <= limit:
        raise MalformedMessageError(
            f"a frame claims {size} bytes; 0 to {limit} are allowed", position=0
        )


def read_request_header(
    frame: memoryview, *, apis: Mapping[int, Api] = APIS, caller: Caller = NOBODY
) -> tuple[RequestHeader, int]:
    """The header of a request frame without its size, and the position of the body.

    `caller` is the client that has sent it. A key or version that is not in `apis` is no
    error, so that the caller can answer it. The position is meaningless then, because that
    version's header may be longer.

    Raises:
        MalformedMessageError: the frame ends inside the header, or the client id is not text.
    """
    try:
        key, version, correlation_id, length = _REQUEST_HEAD.unpack_from(frame)
    except struct_error:
        raise MalformedMessageError(
            f"a request header ends early: {len(frame)} bytes are there", position=0
        ) from None
    position = _REQUEST_HEAD.size
    # The client id is a string with an int16 length in every version of the header, also in
    # flexible ones: a broker has to read it before it knows the version (KIP-482).
    client_id = None
    if length >= 0:
        stop = position + length
        if stop > len(frame):
            raise MalformedMessageError(
                f"the client id claims {length} bytes, {len(frame) - position} remain",
                position=position,
            )
        try:
            client_id = str(frame[position:stop], "utf-8")
        except UnicodeDecodeError:
            raise MalformedMessageError("the client id is not UTF-8", position=position) from None
        position = stop
    api = apis.get(key)
    if api is not None and api.is_served(version) and api.is_flexible(version):
        position = _skip_tags(frame, position)
    return RequestHeader(key, version, correlation_id, client_id, caller), position


def _skip_tags(frame: memoryview, position: int) -> int:
    try:
        return read_tagged(frame, position, {})[1] if frame[position] else position + 1
    except IndexError:
        raise MalformedMessageError(
            f"the tags of a header end early: {len(frame)} bytes are there", position=position
        ) from None


def decode_body(
    message: type[M],
    version: int,
    frame: memoryview,
    *,
    position: int,
    parts_max: int = UNLIMITED_PARTS,
    may_have_more: bool = False,
) -> M:
    """The body of a frame, which must end with it; records are views of the frame.

    With `may_have_more`, bytes after the body are ignored.

    Raises:
        MalformedMessageError: the bytes are not this message, or more follow.
        TooManyPartsError: its arrays have more than `parts_max` elements together.
    """
    found, end = codec.decode(message, version, frame, position=position, parts_max=parts_max)
    if end != len(frame) and not may_have_more:
        raise MalformedMessageError(
            f"{message.__name__} v{version} ends here, {len(frame) - end} bytes follow",
            position=end,
        )
    return found


def decode_request(
    header: RequestHeader,
    frame: memoryview,
    position: int,
    *,
    api: Api | None = None,
    parts_max: int = REQUEST_PARTS_MAX,
) -> Message:
    """The body of a request whose header has an `api`; `position` is the end of the header.

    `api` is that of the request where it is not in `APIS`. Bytes after the body are ignored; see
    the module's invariant.

    Raises:
        MalformedMessageError: the bytes are not that request.
        TooManyPartsError: its arrays have more than `parts_max` elements together.
    """
    api = header.api if api is None else api
    assert api is not None, "asked to decode a request that is not served"
    return codec.decode(
        api.request, header.api_version, frame, position=position, parts_max=parts_max
    )[0]


def request_buffers(
    api: Api, body: Message, *, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A request frame as a list of buffers to send; `records` are not copied.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = bytearray(SIZE_BYTES)
    try:
        head += _REQUEST_HEAD.pack(api.key, version, correlation_id, length)
    except struct_error as error:
        raise UnencodableMessageError(f"a request header cannot hold this: {error}") from error
    # The header's client id keeps its int16 length in flexible versions.
    head += name
    if api.is_flexible(version):
        head.append(0)
    # The records of a request are never in files.
    return _sized(cast("list[Buffer]", codec.gather(body, version, head)), head)


def encode_request(
    api: Api, body: Message, *, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """A request frame as bytes; as `request_buffers`.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    return b"".join(
        request_buffers(
            api, body, version=version, correlation_id=correlation_id, client_id=client_id
        )
    )


def response_buffers(
    api: Api, body: Message, *, version: int, correlation_id: int
) -> list[Records]:
    """A response frame as a list of buffers to send; `records` are not copied.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    head = bytearray(_RESPONSE_HEAD.pack(0, correlation_id))
    # ApiVersions has none in any version: a client reads that answer before it knows what the
    # broker can do (KIP-511).
    if api.has_response_tags(version):
        head.append(0)
    return _sized(codec.gather(body, version, head), head)


def encode_response(api: Api, body: Message, *, version: int, correlation_id: int) -> bytes:
    """A response frame as bytes; as `response_buffers`, but no records may be in files.

    Raises:
        UnencodableMessageError: a value does not fit its field.
    """
    buffers = response_buffers(api, body, version=version, correlation_id=correlation_id)
    return b"".join(cast("list[Buffer]", buffers))


def _sized(buffers: list[R], head: bytearray) -> list[R]:
    """Write the frame's size into `head`, the first of the buffers; returns the buffers."""
    # The size does not count its own four bytes.
    size = sum(map(len, buffers)) - SIZE_BYTES
    try:
        _SIZE.pack_into(head, 0, size)
    except struct_error:
        raise UnencodableMessageError(f"a frame cannot have {size} bytes") from None
    return buffers


def read_correlation_id(frame: memoryview) -> int:
    """The correlation id of a response frame without its size.

    Raises:
        MalformedMessageError: the frame has fewer than four bytes.
    """
    if len(frame) < _SIZE.size:
        raise MalformedMessageError(
            f"a response header ends early: {len(frame)} bytes are there", position=0
        )
    (correlation_id,) = _SIZE.unpack_from(frame)
    return int(correlation_id)


def decode_response(api: Api, version: int, frame: memoryview) -> Message:
    """The body of a response frame without its size; records are views of the frame.

    An ApiVersions response with UNSUPPORTED_VERSION is read as v0, whatever the request's version
    (KIP-511). If it is not v0 either, the result has no versions: librdkafka's mock cluster (2.16)
    answers this way.

    Raises:
        MalformedMessageError: the bytes are not that response.
        TooManyPartsError: its arrays have more than RESPONSE_PARTS_MAX elements together.
    """
    read_correlation_id(frame)
    position = _SIZE.size
    if api.has_response_tags(version):
        position = _skip_tags(frame, position)
    # A broker that does not know the version cannot answer in it.
    if api.key is ApiKey.API_VERSIONS and len(frame) >= position + _ERROR_CODE.size:
        (code,) = _ERROR_CODE.unpack_from(frame, position)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return _unsupported_version(frame, position)
    return decode_body(
        api.response,
        version,
        frame,
        position=position,
        parts_max=RESPONSE_PARTS_MAX,
        may_have_more=api.key is ApiKey.METADATA,
    )


def _unsupported_version(frame: memoryview, position: int) -> Message:
    # Read by clients only: a broker that starts has no use for the classes yet (decision 24).
    from tailrace.protocol.messages.api_versions import ApiVersionsResponse

    try:
        return decode_body(ApiVersionsResponse, 0, frame, position=position)
    except MalformedMessageError:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


def layout_of(zeros: bytes, ones: bytes, varying: Mapping[int, str]) -> Struct:
    """The layout of a frame, given with all varying bits 0, and with all of them 1.

    `varying` has the format of neighbouring bytes that vary, by their count.
    """
    # The encoder tells where the fields are, so that no version's layout is written twice.
    runs = groupby(zip(zeros, ones, strict=True), key=lambda pair: pair[0] == pair[1])
    sizes = ((is_constant, sum(1 for _ in run)) for is_constant, run in runs)
    return Struct(
        ">" + "".join(f"{size}s" if is_constant else varying[size] for is_constant, size in sizes)
    )
