"""Fuzz targets of a peer: every request a broker reads, every response our client reads."""

from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, SPOKEN, Api
from tailrace.protocol.errors import MalformedMessageError
from tests.fuzz.engine import FuzzTarget
from tests.unit.protocol.strategies import full_message


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
            full_message(api.request, version),
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
        full_message(api.response, version),
        version=version,
        correlation_id=1,
    )[frames.SIZE_BYTES :]
    return FuzzTarget(
        name=f"{api.key.title} v{version} response",
        seeds=(seed,),
        run=lambda data: frames.decode_response(api, version, memoryview(data)),
        refusals=(MalformedMessageError,),
    )


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
        for api in SPOKEN.values()
        for version in api.versions
        if version in {api.response.flexible_since - 1, api.last_version}
    ),
)
