"""The metadata log of a controller at its start: begun if there is none, opened, and led.

    nothing there      this node is named as the voter, and the cluster begins with one batch
    a log              the next epoch begins, if nothing that was acknowledged is missing

All of it waits for the device, and runs on a thread.
"""

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.broker.config import BrokerConfig
from tailrace.cluster.bootstrap import first_image
from tailrace.cluster.metadata import quorum_state
from tailrace.cluster.metadata.folder import MetadataFolder
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.log import MetadataLog, open_metadata_log
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot, snapshot_records
from tailrace.cluster.metadata.snapshot_files import save_snapshot
from tailrace.errors import DirectoryError, StorageError
from tailrace.storage.directories import unusable

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import VotersRecordVoter

logger = logging.getLogger(__name__)

EPOCH_STEP_MAX: Final = 1000
"""Largest step from a known epoch to the next one. At random: an older copy of the log that is
restored would begin the same next epoch as the log that was lost, and brokers, which compare
epochs and offsets, would take one for the continuation of the other."""


def epoch_step(chance: random.Random) -> int:
    """The difference of the next epoch from the last one that is known."""
    return chance.randint(1, EPOCH_STEP_MAX)


def start_log(
    folder: MetadataFolder,
    config: BrokerConfig,
    *,
    cluster_id: str,
    own: "VotersRecordVoter",
    has_partitions: Callable[[], bool],
) -> MetadataLog:
    """The log, led by this node; `own` is the node as its log has to name it.

    `has_partitions` tells whether the node has folders of partitions: a cluster that begins would
    not know them.

    Raises:
        DirectoryError: its state cannot be proven, lacks changes that were acknowledged, is of a
            later release or of a quorum with other voters, or the device refuses. Or a cluster
            would begin beside partitions.
        StorageError: a file of it cannot be used.
    """
    try:
        if not config.quorum_voters:
            _format(folder, own, has_partitions=has_partitions)
        log = open_metadata_log(
            folder,
            config.metadata_log,
            node_id=config.node_id,
            report=lambda sentence: logger.warning("metadata_damaged reason=%s", sentence),
        )
        try:
            if log.has_lost_records:
                # Brokers may have applied what is missing, and would follow another history. Each
                # of them has a copy of the log, which is better than this one.
                raise DirectoryError(
                    f"{folder.path}: changes that were acknowledged are missing, since the log was "
                    "damaged; replace the folder by that of a broker of the cluster, or remove "
                    f"{folder.path}/records-lost to continue without them"
                )
            if log.image.features:
                log.lead(own, step=epoch_step(folder.chance))
            else:
                _check_may_begin(folder.path, has_partitions)
                log.lead(own)
                _begin_cluster(log, folder, config, cluster_id=cluster_id)
        except BaseException:
            log.abandon()
            raise
    except (DirectoryError, StorageError):
        raise
    except OSError as error:
        raise unusable(folder.directory, error) from error
    return log


def _format(
    folder: MetadataFolder, own: "VotersRecordVoter", *, has_partitions: Callable[[], bool]
) -> None:
    """Name this node in a new log, as `kafka-storage format --standalone` does (KIP-853).

    With voters in the settings they are there instead, and no voter could join later.
    """
    from tailrace.protocol.metadata_records import VotersRecord

    files, path = folder.files, folder.path
    # Whatever is there is not new, a folder alone may be all that a crash has left of this.
    if files.is_directory(path) and any(
        name.endswith((".log", ".checkpoint")) or name == quorum_state.FILE
        for name in files.list(path)
    ):
        return
    _check_may_begin(path, has_partitions)
    folder.make(folder.read_memory(MetadataReplay()))
    voters = VotersRecord(voters=(own,))
    snapshot = Snapshot(image=MetadataImage(), log_timestamp=0, voters=voters)
    now_ms = folder.clock.now_ms()
    save_snapshot(files, path, snapshot, next_offset=0, epoch=0, now_ms=now_ms)


def _begin_cluster(
    log: MetadataLog, folder: MetadataFolder, config: BrokerConfig, *, cluster_id: str
) -> None:
    first = first_image(
        folder.files,
        folder.directory,
        min_insync_replicas=config.topic_defaults.given.get("min.insync.replicas", "1"),
    )
    # One batch: a crash leaves all of the beginning, or none of it.
    log.append(list(snapshot_records(first)))
    logger.info(
        "cluster_created cluster=%s next=%s", cluster_id,
        "start its brokers; if there are brokers of an older cluster, this controller has lost "
        "its directory, and needs their cluster id and a copy of __cluster_metadata-0 of one",
    )  # fmt: skip


def _check_may_begin(path: str, has_partitions: Callable[[], bool]) -> None:
    if has_partitions():
        raise DirectoryError(
            f"{path} has no state of a cluster, and its node has partitions: start it once with no "
            "listener of controller.listener.names in listeners, which takes their topics over; or "
            "move the folders of the partitions away"
        )
