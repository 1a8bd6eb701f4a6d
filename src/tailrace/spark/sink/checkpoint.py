"""`Checkpoint`: the parts of a checkpoint that an exactly-once sink looks at.

    CHECKPOINT/metadata            {"id": "0f3c…"}: the query, the same after each restart
    CHECKPOINT/offsets/42          what batch 42 reads, written before its tasks start
    CHECKPOINT/commits/42          batch 42 is done, written after its sink has committed
    CHECKPOINT/tailrace-commits/   ours; see `ledger`

Spark reads and writes the checkpoint through Hadoop, and this through PyArrow: both reach local
disks, HDFS, S3, Google's and Azure's stores by the same URI, up to `s3a://`, which is `s3://` here.

A job that writes batches has a location of its own with the last of these only.

Not here: other parts of a checkpoint. Nothing of Spark's is ever written.
"""

import json
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import UNEXPECTED_JSON, FatalError
from tailrace.spark.folder import Folder, open_folder
from tailrace.spark.progress import committed_positions
from tailrace.spark.sink.ledger import Ledger

if TYPE_CHECKING:
    from tailrace.model import TopicPartition

LEDGER: Final = "tailrace-commits"

_SCHEMES: Final = {"s3a://": "s3://", "s3n://": "s3://", "file://": ""}
"""Beginnings of Hadoop's URIs, and those that PyArrow has for the same."""

_VERSION: Final = "v1"
"""First line of a file of offsets."""


class Checkpoint:
    """The checkpoint at a location as Spark is given it."""

    def __init__(self, location: str) -> None:
        """Looks at nothing yet.

        Raises:
            ConfigError: PyArrow has no file system for the URI.
        """
        self._location = arrow_location(location)
        self._root = self._folder("")

    def query_id(self) -> str:
        """The id of the streaming query.

        Raises:
            FatalError: there is no checkpoint of Spark here.
        """
        try:
            return str(json.loads(self._root.read("metadata"))["id"])
        except FileNotFoundError as error:
            raise FatalError(
                f"{self._location} has no checkpoint of Spark as seen from this process, and "
                "exactly-once delivery keeps its record there; give checkpointLocation as a path "
                "or URI that both Hadoop and PyArrow open, such as file:///…, hdfs://… or s3a://…"
            ) from error
        except UNEXPECTED_JSON as error:
            raise FatalError(
                f"{self._location}/metadata is not what Spark writes: {error!r}"
            ) from error

    def ledger(self) -> Ledger:
        """The record of commits beside it."""
        return Ledger(self._folder(LEDGER))

    def is_committed(self, batch_id: int) -> bool:
        """Whether Spark has noted that the batch is done, after the sink has said so."""
        try:
            return self._folder("commits").size(str(batch_id)) > 0
        except FileNotFoundError:
            return False

    def group_offsets(self) -> "tuple[int, dict[str, dict[TopicPartition, int]]]":
        """The batch that is planned last, and the positions after it by consumer group.

        Only sources with the option `groupId` have a group; batch -1 stands for none.

        Raises:
            FatalError: a file of offsets is of a version that this does not read, or has offsets
                that are not those of our source.
        """
        folder = self._folder("offsets")
        numbers = [int(name) for name in folder.names() if name.isdecimal()]
        if not numbers:
            return -1, {}
        # Names such as `.42.crc` and `42.tmp` are Hadoop's.
        batch_id = max(numbers)
        version, *sources = folder.read(str(batch_id)).decode(errors="replace").split("\n")
        found: dict[str, dict[TopicPartition, int]] = {}
        for source in sources:
            group, positions = committed_positions(_json_or_none(source))
            if group is None:
                continue
            # Only now: another version is no fault of a stream that commits to no group.
            if version != _VERSION:
                raise FatalError(
                    f"{folder.path}/{batch_id} is of version {version!r}, and offsets of a group "
                    f"are only found in {_VERSION}; leave out groupId"
                )
            found.setdefault(group, {}).update(positions)
        return batch_id, found

    def _folder(self, name: str) -> Folder:
        return open_folder(f"{self._location}/{name}" if name else self._location)


def arrow_location(location: str) -> str:
    """The path or URI by which PyArrow opens what Hadoop opens by `location`."""
    location = location.rstrip("/") or "/"
    for theirs, ours in _SCHEMES.items():
        if location.startswith(theirs):
            return ours + location.removeprefix(theirs)
    # Hadoop writes a local path as `file:/tmp/x`, with one slash.
    return location.removeprefix("file:")


def _json_or_none(line: str) -> Any:  # noqa: ANN401 - of another source, it may be anything
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
