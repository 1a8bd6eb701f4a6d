"""The examples in docs/formats/wire.md are real bytes."""

from pathlib import Path

from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

DOCUMENT = Path(__file__).parents[3] / "docs" / "formats" / "wire.md"


def examples() -> list[bytes]:
    """The bytes of each block marked `hex`: what stands left of the bar in each line."""
    blocks = DOCUMENT.read_text(encoding="utf-8").split("```hex\n")[1:]
    return [
        bytes.fromhex("".join(line.split("|")[0] for line in block.split("```")[0].splitlines()))
        for block in blocks
    ]


def test_the_api_versions_example_is_a_request() -> None:
    """The first example decodes to what its text says, and encodes to its bytes."""
    frame = examples()[0]
    body = ApiVersionsRequest(client_software_name="demo", client_software_version="1.0")
    view = memoryview(frame)[4:]
    header, position = frames.read_request_header(view)
    assert header == frames.RequestHeader(18, 3, 1, "me")
    assert frames.decode_request(header, view, position) == body
    assert frame == frames.encode_request(
        APIS[ApiKey.API_VERSIONS], body, version=3, correlation_id=1, client_id="me"
    )


def test_the_metadata_example_is_a_request() -> None:
    """The second example decodes to what its text says, and encodes to its bytes."""
    frame = examples()[1]
    body = MetadataRequest(
        topics=(MetadataRequestTopic(name="flights"),), allow_auto_topic_creation=False
    )
    view = memoryview(frame)[4:]
    header, position = frames.read_request_header(view)
    assert header == frames.RequestHeader(3, 12, 2, "me")
    assert frames.decode_request(header, view, position) == body
    assert frame == frames.encode_request(
        APIS[ApiKey.METADATA], body, version=12, correlation_id=2, client_id="me"
    )


def test_there_are_two_examples() -> None:
    """Every block of bytes in the document has a test here."""
    assert len(examples()) == 2
