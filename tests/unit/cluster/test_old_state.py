"""`tailrace-cluster.json` of earlier releases: read, or refused in one line."""

import json

import pytest

from tailrace.cluster.old_state import FILE, read_old_state
from tailrace.errors import DirectoryError
from tailrace.testing import MemoryFiles

PATH = f"data/{FILE}"
GOOD = {"name": "a", "id": "EjRWeBI0QjSCNBI0Vniavw", "partitions": [0], "configs": {}}


BAD_TOPICS: tuple[object, ...] = (
    5, [5], ["x"], [{}], [GOOD, GOOD], [{**GOOD, "name": "../../etc"}],
    [{**GOOD, "name": 5}], [{**GOOD, "id": "x"}], [{**GOOD, "partitions": [-1]}],
    [{**GOOD, "partitions": [0, 0]}], [{**GOOD, "partitions": [2**31]}],
    [{**GOOD, "partitions": [1e400]}], [{**GOOD, "configs": []}],
    [{**GOOD, "configs": {"a": 1}}],
)  # fmt: skip

EMPTY = {"version": 1, "next_producer_id": 0, "deleted_topics": [], "topics": []}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"version": 2}', b'{"version": 1}',
        *(
            json.dumps(EMPTY | {"topics": topics}).encode()
            for topics in BAD_TOPICS
        ),
        b'{"version": 1, "next_producer_id": -1, "deleted_topics": [], "topics": []}',
        b'{"version": 1, "next_producer_id": 1e400, "deleted_topics": [], "topics": []}',
    ],
)  # fmt: skip
def test_an_image_that_cannot_be_is_refused(content: bytes) -> None:
    """In one line that names the file, and the file stays."""
    files = MemoryFiles()
    files.make_directory("data")
    files.open(PATH, create=True)
    files.overwrite(PATH, content)
    with pytest.raises(DirectoryError, match="tailrace-cluster") as caught:
        read_old_state(files, "data")
    assert "\n" not in str(caught.value)
    assert files.content(PATH) == content


def test_an_image_that_cannot_be_read_is_refused() -> None:
    """The start is refused if, for example, a directory is in the image's place."""
    files = MemoryFiles()
    files.make_directory(PATH)
    with pytest.raises(DirectoryError):
        read_old_state(files, "data")
