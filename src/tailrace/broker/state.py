"""The cluster's state when a broker starts: from its metadata log, or from what lies beside it.

    the log has a state     its topics; a folder of no topic is set aside, as Kafka does, unless
                            the log was damaged and may lack the topic: then it is adopted
    the log has none        bootstrap.checkpoint, and every partition folder, which is adopted

`broker` opens the logs of the partitions between `sort_folders` and `settle`.
"""

import logging
from collections.abc import Mapping
from typing import Self

from tailrace.broker.config import BrokerConfig
from tailrace.cluster import bootstrap
from tailrace.cluster.beginning import Beginning
from tailrace.cluster.controller import Controller
from tailrace.cluster.metadata.folder import MetadataFolder
from tailrace.cluster.metadata.log import MetadataLog, open_metadata_log
from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.cluster.records import FoundLog, Node
from tailrace.errors import DirectoryError, StorageError
from tailrace.model import TopicPartition
from tailrace.replication.replicas import Replicas
from tailrace.runtime.files import Files
from tailrace.runtime.system import Runtime
from tailrace.storage.directories import unusable
from tailrace.storage.directory_logs import DirectoryLogs
from tailrace.storage.manager import LogManager, is_shortage

logger = logging.getLogger(__name__)


class StartingState:
    """The state of a cluster during one start of its broker."""

    def __init__(
        self,
        runtime: Runtime,
        logs: LogManager,
        controller: Controller,
        *,
        beginning: Beginning,
        node_id: int,
    ) -> None:
        self.controller = controller
        self._runtime = runtime
        self._logs = logs
        self._beginning = beginning
        self._node_id = node_id

    @classmethod
    def open(cls, config: BrokerConfig, runtime: Runtime, logs: LogManager) -> Self:
        """Open the metadata log, to be led from the first change on.

        Raises:
            DirectoryError: its state cannot be proven, is of a later release or of another quorum,
                or the device refuses. Or other brokers are registered.
        """
        home = logs.metadata_home
        try:
            log = open_metadata_log(
                MetadataFolder(
                    runtime.files, runtime.clock, runtime.chance, home.removals, home.path
                ),
                config.metadata_log,
                node_id=config.node_id,
                report=lambda sentence: logger.warning("metadata_damaged reason=%s", sentence),
            )
            try:
                return cls._begin(config, runtime, logs, log=log)
            except BaseException:
                log.abandon()
                raise
        except (DirectoryError, StorageError):
            raise
        except OSError as error:
            raise unusable(home.path, error) from error

    @classmethod
    def _begin(
        cls, config: BrokerConfig, runtime: Runtime, logs: LogManager, *, log: MetadataLog
    ) -> Self:
        home, defaults = logs.metadata_home.path, config.topic_defaults
        others = sorted(log.image.brokers.keys() - {config.node_id})
        if others:
            # They would have no controller, and their replicas of this node's partitions, which may
            # be the leaders, would count for nothing.
            raise DirectoryError(
                f"{home} has the metadata of a cluster in which other brokers are registered "
                f"({', '.join(map(str, others))}), and this node would be the only one: start it "
                "with a listener of controller.listener.names in listeners; to have it alone, move "
                "all partitions to it and unregister the others before"
            )
        node = Node(
            node_id=config.node_id,
            directories={each.path: each.directory.directory_id for each in logs.directories},
        )
        controller = Controller(log, node, chance=runtime.chance, defaults=defaults)
        controller.listener = config.inter_broker_listener
        beginning = Beginning(
            log,
            node,
            first=lambda: bootstrap.first_image(
                runtime.files,
                home,
                min_insync_replicas=defaults.given.get("min.insync.replicas", "1"),
            ),
            defaults=defaults.given,
            new_id=controller.new_id,
        )
        # Topics of the log are known before their folders are looked at: what is unknown then is a
        # leftover, or of a log that was lost.
        controller.image = beginning.image
        controller.defaults = defaults.with_state(beginning.base, config.node_id)
        return cls(runtime, logs, controller, beginning=beginning, node_id=config.node_id)

    def changed_settings(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The settings that were changed for all brokers, and for this one."""
        return self._beginning.base.broker_configs(self._node_id)

    def sort_folders(self) -> None:
        """Find the partition folders; adopt, set aside or discard those that no topic knows.

        Raises:
            DirectoryError: a folder cannot be renamed, or a partition is in two directories.
        """
        logs, image, new_id = self._logs, self._beginning.image, self.controller.new_id
        known_ids = {name: topic.topic_id for name, topic in image.topics.items()}
        unknown = {}
        for partition, topic_id in logs.find_partitions(known_ids).items():
            home = logs.directory_of(partition)
            # A directory that has failed keeps its folders for the next start.
            if image.has(partition) or home is None or home.failure is not None:
                continue
            # A crash after the deletion of a topic leaves its folder; its name may be in use again.
            if topic_id in self._beginning.deleted_topic_ids:
                logs.discard(partition, new_id().hex)
            elif self._is_adopted(home):
                unknown[partition] = topic_id
            else:
                home.set_aside(
                    partition,
                    topic_id or new_id(),
                    reason="the cluster's metadata has no such partition; nothing deletes it",
                )
        if unknown:
            self._warn_of_missing_log(len(unknown))
            compacted = {
                each.topic for each in unknown if _was_compacted(logs.directory_of(each), each)
            }
            self._beginning.adopt(unknown, compacted=compacted)
            self.controller.image = self._beginning.image

    def _warn_of_missing_log(self, count: int) -> None:
        """Log that there was a state of the cluster, as directories have an id only since then."""
        if self._beginning.is_new and not all(d.directory.is_new for d in self._logs.online):
            logger.warning(
                "metadata_log_missing partitions=%d consequence=their topics are adopted without "
                "settings and users advice=if it is in another directory, stop, move %s away and "
                "start with metadata.log.dir",
                count,
                f"{self._logs.metadata_home.path}/{METADATA_FOLDER}",
            )

    def _is_adopted(self, home: DirectoryLogs) -> bool:
        """Whether a folder that no topic knows is adopted, and not set aside."""
        # With a whole log the folder is a leftover, which Kafka sets aside too. Without one it may
        # be all that is left of its topic.
        beginning = self._beginning
        return beginning.is_new or beginning.has_lost_records or home.directory.is_new

    def settle(self, replicas: Replicas) -> None:
        """Save what was found, and lead the partitions in their epochs; waits for the device.

        A new log is saved by the first change: the registration, which is made beside serving.

        Raises:
            DirectoryError: the device refuses.
        """
        logs, home = self._logs, self._logs.metadata_home.path
        # A new broker serves before anything is on the device: its state is what any new one has.
        if self._beginning.is_blank:
            self.controller.bootstrap(
                self._beginning.base,
                lambda: self._beginning.records({}, was_clean=True, largest_producer_id=-1),
            )
            return
        found = {
            log.partition: FoundLog(
                max(log.epochs.latest, 0), logs.home_of(log).directory.directory_id
            )
            for log in logs
        }
        # A counter that was lost must not give ids that are in a log already: records of the new
        # producer would be taken for duplicates.
        ids = (producer_id for log in logs for producer_id, _ in log.producers.items())
        records = self._beginning.records(
            found,
            was_clean=logs.is_complete and all(d.directory.was_clean for d in logs.directories),
            largest_producer_id=max(ids, default=-1),
        )
        try:
            self.controller.settle(records)
            # After that: a crash between the two adopts once more, and a loss is never forgotten
            # before what was found instead is in the log.
            self.controller.log.forget_loss()
        except OSError as error:
            # A full disk does not keep a broker from starting that has found nothing new: it can
            # serve readers, and free some space.
            if self._beginning.has_news or not is_shortage(error):
                raise unusable(home, error) from error
            logger.warning(
                "leaders_not_saved reason=%s consequence=the leader epochs stay as they were", error
            )
        replicas.set_leader_epochs(
            {
                TopicPartition(state.name, number): each.leader_epoch
                for state in self.controller.log.image.topics.values()
                for number, each in state.partitions.items()
            }
        )


def check_home(files: Files, config: BrokerConfig) -> None:
    """Check that no other directory has a state of the cluster, which the start would pass over.

    One that the device refuses is passed by: it is left out when it is opened, which says why.

    Raises:
        DirectoryError: one has, or the device refuses the home beside it; nothing was changed.
    """
    home = config.metadata_directory
    for other in config.directories:
        try:
            found = None if other == home else _find_state(files, other)
        except OSError:
            continue
        if found is None:
            continue
        try:
            own = _find_state(files, home)
        except OSError as error:
            raise unusable(home, error) from error
        advice = (
            f"{home} has none; start with --override metadata.log.dir={other}"
            if own is None
            else f"{home} has another; see tailrace cluster describe, and move the older away"
        )
        raise DirectoryError(f"the state of the cluster is in {found}, and {advice}")


def _find_state(files: Files, directory: str) -> str | None:
    state = f"{directory}/{METADATA_FOLDER}"
    return state if files.exists(state) else None


def _was_compacted(home: DirectoryLogs | None, partition: TopicPartition) -> bool:
    return home is not None and home.offsets.cleaner_offset(partition) is not None
