"""The state that a new cluster begins with, and its file `bootstrap.checkpoint`.

    file of the storage tool, or levels of this release  ->  first records of the metadata log

The file has the layout of a snapshot, with epoch 0. Every new log directory gets one, as from
Kafka's storage tool; it is read only while the metadata log has no state.
"""

from contextlib import closing
from typing import Final

from tailrace.cluster.metadata.features import ELIGIBLE_LEADERS, initial_levels
from tailrace.cluster.metadata.image import ALL_BROKERS, MIN_INSYNC_REPLICAS, MetadataImage
from tailrace.errors import DirectoryError, TailraceError
from tailrace.runtime.files import Files, read_exactly
from tailrace.storage.checkpoints import write_whole
from tailrace.storage.names import TEMPORARY_SUFFIX
from tailrace.values import replace

FILE: Final = "bootstrap.checkpoint"


def bootstrap_file(image: MetadataImage, *, now_ms: int) -> bytes:
    """The content of the file for a cluster that begins with this image."""
    from tailrace.cluster.metadata.snapshot import Snapshot, write_snapshot

    return write_snapshot(Snapshot(image=image, log_timestamp=0), epoch=0, timestamp=now_ms)


def write_bootstrap_file(
    files: Files, directory: str, image: MetadataImage, *, now_ms: int
) -> None:
    """Write or replace the file of a directory; on the device on return.

    Raises:
        OSError: the device refuses; there may be a part of a file under another name.
    """
    path = f"{directory}/{FILE}"
    data = bootstrap_file(image, now_ms=now_ms)
    # Under another name first, so that a crash leaves the old file or the new one.
    write_whole(files, path + TEMPORARY_SUFFIX, data, is_synced=True)
    files.rename(path + TEMPORARY_SUFFIX, path)
    files.sync_directory(directory)


def new_image(metadata_version: int | None = None) -> MetadataImage:
    """The image of a new cluster: the levels of its features, and nothing else."""
    levels = initial_levels() if metadata_version is None else initial_levels(metadata_version)
    return MetadataImage(features=levels)


def first_image(files: Files, directory: str, *, min_insync_replicas: str) -> MetadataImage:
    """The state that the metadata log of a directory begins with.

    With eligible leader replicas, `min.insync.replicas` is a setting of all brokers from the
    beginning, as in Kafka (KIP-966); `min_insync_replicas` is that of this broker.

    Raises:
        DirectoryError: the file cannot be read or understood.
    """
    path = f"{directory}/{FILE}"
    image = new_image()
    if files.exists(path):
        # A new directory has no file, and its start needs no classes of records (decision 24).
        from tailrace.cluster.metadata.snapshot import read_snapshot

        try:
            with closing(files.open(path, read_only=True)) as file:
                data = read_exactly(file, path, position=0, size=file.size())
            image = read_snapshot(memoryview(data)).image
        except TailraceError as error:
            raise DirectoryError(
                f"{path} cannot be understood ({error}); restore it, or move it away to begin with "
                "the features of this release"
            ) from error
    if not image.features.get(ELIGIBLE_LEADERS) or MIN_INSYNC_REPLICAS in image.configs.get(
        ALL_BROKERS, {}
    ):
        return image
    own = {**image.configs.get(ALL_BROKERS, {}), MIN_INSYNC_REPLICAS: min_insync_replicas}
    return replace(image, configs={**image.configs, ALL_BROKERS: own})
