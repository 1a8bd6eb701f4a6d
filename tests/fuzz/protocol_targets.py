"""Fuzz every generated decoder: of requests, responses, coordinators' and metadata records."""

from dataclasses import replace
from typing import Any

from tailrace.protocol import codec, frames
from tailrace.protocol.apis import APIS, BETWEEN_NODES, Api
from tailrace.protocol.coordinator_records import (
    GroupRecordType,
    RecordType,
    TransactionRecordType,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_class,
    record_type,
    value_class,
)
from tailrace.protocol.errors import MalformedMessageError, MalformedRecordError, UnknownRecordError
from tailrace.protocol.fields import Message
from tailrace.protocol.metadata_log import (
    CONTROL_TYPES,
    MetadataRecordType,
    control_class,
    data_class,
    decode_control,
    decode_data,
    encode_control,
    encode_data,
)
from tailrace.records.control import ControlType
from tests.fuzz.engine import FuzzTarget
from tests.unit.protocol.strategies import WIRE_MESSAGES, full_message, versions_of


def read_request(data: bytes) -> object:
    """Read a frame without its size as a broker does."""
    view = memoryview(data)
    header, position = frames.read_request_header(view)
    if header.api is None:
        return header
    return frames.decode_request(header, view, position)


def _versions(api: Api) -> tuple[int, ...]:
    """The versions at which the encoding of an API changes most."""
    flexible = api.request.flexible_since
    return tuple(sorted({api.first_version, flexible - 1, flexible, api.last_version}))


def _requests(api: Api) -> FuzzTarget:
    seeds = tuple(
        frames.encode_request(
            api,
            full_message(api.request, version),  # type: ignore[arg-type]
            version=version,
            correlation_id=1,
            client_id="fuzz",
        )[frames.SIZE_BYTES :]
        for version in _versions(api)
    )
    return FuzzTarget(
        name=f"{api.key.title} request",
        seeds=seeds,
        run=read_request,
        refusals=(MalformedMessageError,),
    )


def _responses(api: Api, version: int) -> FuzzTarget:
    seed = frames.encode_response(
        api,
        full_message(api.response, version),  # type: ignore[arg-type]
        version=version,
        correlation_id=1,
    )[frames.SIZE_BYTES :]
    return FuzzTarget(
        name=f"{api.key.title} v{version} response",
        seeds=(seed,),
        run=lambda data: frames.decode_response(api, version, memoryview(data)),
        refusals=(MalformedMessageError,),
    )


def _bodies(message: type[Message]) -> FuzzTarget:
    """A message that no table of APIs has yet: the first byte says which version it is."""
    flexible = message.flexible_since
    versions = {message.first_version, flexible - 1, flexible, message.last_version}

    def run(data: bytes) -> object:
        version = data[0] if data and data[0] in versions_of(message) else message.last_version
        return codec.decode(message, version, memoryview(data)[1:])

    seeds = []
    for version in sorted(versions & {*versions_of(message)}):
        seed = bytearray([version])
        codec.encode(full_message(message, version), version, seed)  # type: ignore[arg-type]
        seeds.append(bytes(seed))
    return FuzzTarget(
        name=message.__name__, seeds=tuple(seeds), run=run, refusals=(MalformedMessageError,)
    )


def _records(kind: RecordType) -> FuzzTarget:
    """Keys and values of one type: the first byte says which of them it is."""
    key, value = key_class(kind), value_class(kind)

    def run(data: bytes) -> object:
        if data[:1] == b"k":
            return record_type(type(kind), data[1:]), decode_key(key, data[1:])
        return decode_value(value, data[1:])

    seeds = [b"k" + encode_key(full_message(key, 0))]  # type: ignore[arg-type]
    seeds += [
        b"v" + encode_value(full_message(value, version), version)  # type: ignore[arg-type]
        for version in versions_of(value)
    ]
    return FuzzTarget(
        name=f"{kind.name} records",
        seeds=tuple(seeds),
        run=run,
        refusals=(MalformedRecordError, UnknownRecordError),
    )


def read_metadata(data: bytes) -> object:
    """Read a record of the metadata log, and write it again; the first byte says which kind."""
    if data[:1] == b"c":
        found = decode_control(data[1:5], data[5:])
        kind = ControlType(data[4])
        again = decode_control(*encode_control(kind, found.record, found.version))
    else:
        found = decode_data(data[1:])
        again = decode_data(encode_data(found.record, found.version))  # type: ignore[arg-type]
    # As texts, in which NaN is equal to itself.
    assert repr(again) == repr(found)
    return found


def _control(kind: ControlType) -> Message:
    found: Any = full_message(control_class(kind), 0)
    first: Message = replace(found, version=0)
    return first


def _metadata() -> FuzzTarget:
    seeds = [
        b"d" + encode_data(full_message(message, version), version)  # type: ignore[arg-type]
        for message in map(data_class, MetadataRecordType)
        for version in versions_of(message)
    ]
    seeds += [b"c" + b"".join(encode_control(kind, _control(kind), 0)) for kind in CONTROL_TYPES]
    return FuzzTarget(
        name="metadata records",
        seeds=tuple(seeds),
        run=read_metadata,
        refusals=(MalformedRecordError, UnknownRecordError),
    )


# Requests between nodes are not served, so no frame of theirs is read; their bodies are below.
_ANSWERED = (*APIS.values(), *BETWEEN_NODES.values())
_API_MESSAGES = {api.request for api in APIS.values()} | {api.response for api in _ANSWERED}

TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(
        name="request header",
        seeds=(b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x04fuzz\x01\x05\x01x",),
        run=lambda data: frames.read_request_header(memoryview(data)),
        refusals=(MalformedMessageError,),
    ),
    *(_requests(api) for api in APIS.values()),
    *(
        _responses(api, version)
        for api in _ANSWERED
        for version in api.versions
        if version in {api.response.flexible_since - 1, api.last_version}
    ),
    *(_bodies(message) for message in WIRE_MESSAGES if message not in _API_MESSAGES),
    *map(_records, (*GroupRecordType, *TransactionRecordType)),
    _metadata(),
)
