"""The controller, the only writer of the cluster's state: the records of its metadata log.

Each change is planned, written to the log as records, and counts when they are on the device. It
may run on any thread; a lock serializes changes.

    prepare(topics)    the topics are in the log, and nobody sees them
    publish(*names)    they are in the image; their logs are made then

After a crash between the two, or after the second, the next start makes the logs that are missing,
as a broker of Kafka does with what the metadata log has.

At a start `settle` saves what `beginning` has found, and `register` says where the broker listens.
What a new log begins with is saved in front of the first change (`bootstrap`): no start waits for
the device, or imports the classes of records, without need.
"""

import random
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType

from tailrace.cluster.config_changes import ConfigChange, plan_configs
from tailrace.cluster.image import (
    GROUP_RESOURCE,
    ClusterImage,
    Topic,
    group_configs_of,
    image_on_node,
    topic_on_node,
)
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import LevelChange, plan_levels
from tailrace.cluster.metadata.image import (
    MIN_INSYNC_REPLICAS,
    ConfigResource,
    MetadataImage,
)
from tailrace.cluster.metadata.log import MetadataLog
from tailrace.cluster.records import (
    NO_BROKER_EPOCH,
    Endpoint,
    Node,
    config_records,
    directories_record,
    feature_records,
    fence_record,
    needs_directories,
    placement_records,
    producer_ids_record,
    registration_records,
    remove_topic_record,
    topic_records,
)
from tailrace.cluster.state import DEFAULT_LISTENER, ClusterState
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.cluster.topic_rules import (
    InvalidPartitionsError,
    InvalidReplicationError,
    TakenNames,
    check_group_limit,
    check_partition_limit,
)
from tailrace.errors import StorageError
from tailrace.model import ProducerId, TopicPartition
from tailrace.runtime.coalescing import Coalesced
from tailrace.runtime.ids import random_uuid
from tailrace.storage.config import log_config
from tailrace.values import replace

PRODUCER_ID_BLOCK = 1000
"""Ids reserved at a time (KIP-730): after a crash at most this many are skipped."""

RECORDS_AT_ONCE = 1000
"""Most records of a start that are written at once."""


class Controller(ClusterState):
    """Holds the current cluster image, and changes it."""

    def __init__(
        self, log: MetadataLog, node: Node, *, chance: random.Random, defaults: TopicDefaults
    ) -> None:
        self.image = ClusterImage()
        """The cluster as clients see it; empty until the start has put its topics here."""
        self.defaults = defaults
        self.broker_epoch = NO_BROKER_EPOCH
        """The epoch of this broker's registration; -1 before it."""
        self.log = log
        """The log of the records; others only ask it."""
        self.node_id = node.node_id
        self.listener = DEFAULT_LISTENER
        self.names = TakenNames()
        # A node alone has none: where its one replica is makes no difference to a group.
        self.rack_changes = 0
        self._node = node
        self._chance = chance
        self._producer_ids = range(0)
        self._first: tuple[MetadataImage, Callable[[], Iterable[RecordToWrite]]] | None = None
        """The state that a new log begins with, and its records, until the log has them."""
        self._changing = threading.Lock()
        self._showing = threading.Lock()
        """For the image; held for no device, since the event loop takes it too."""
        # `TopicChanges` keeps changes of one topic apart, so these do not know of each other.
        self._topics = Coalesced[Callable[[], Iterable[RecordToWrite]]](
            lambda changes: self._append(record for change in changes for record in change()),
            self._changing,
            weight_max=RECORDS_AT_ONCE,
        )

    def new_id(self) -> uuid.UUID:
        """A random id (version 4), never zero."""
        return random_uuid(self._chance)

    @property
    def metadata(self) -> MetadataImage:
        """The whole state that the log has; newer than `image` while a change is made."""
        # Levels, and the users that a directory was formatted with, count from the start on.
        first = self._first
        return self.log.image if first is None else first[0]

    @property
    def features_epoch(self) -> int:
        """The offset of the metadata log up to which the image has the levels of features."""
        return max(self.log.end_offset - 1, 0)

    @property
    def kraft_version(self) -> int:
        """The level of `kraft.version`."""
        return self.log.kraft_version

    def controller_id(self, listener: str | None = None) -> int:  # noqa: ARG002 - see below
        """This node: there is no other."""
        return self.node_id

    # -- plans --------------------------------------------------------------------------------

    def plan_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """Check a request for a topic, and return the topic; -1 means the broker's default.

        Changes nothing.

        Raises:
            InvalidTopicNameError: the name is empty, too long, `.` or `..`, or has other characters
                than letters, digits, dot, underscore and dash.
            ReservedTopicError: it is the name of Kafka's metadata log.
            TopicExistsError: the name is taken, or differs only in dots and underscores.
            InvalidPartitionsError, InvalidReplicationError: the number is not possible here.
            TooManyPartitionsError: more than `PARTITIONS_MAX`.
            ConfigError: settings that do not exist, are out of range or contradict each other.
        """
        self.check_new_name(name)
        count = self.defaults.partition_count if partition_count == -1 else partition_count
        if count < 1:
            raise InvalidPartitionsError(f"{count} partitions; a topic has at least 1")
        check_partition_limit(count)
        if replication_factor not in (-1, 1):
            raise InvalidReplicationError(
                f"replication factor {replication_factor}; this cluster has 1 broker"
            )
        given = dict(configs or {})
        log_config(given, self.defaults.configs)
        topic_id = self.new_id()
        # A simulation's generator may give the ids of an earlier start again.
        while topic_id in self.log.image.topics:
            topic_id = self.new_id()
        return Topic(
            name=name,
            topic_id=topic_id,
            partitions=tuple(range(count)),
            configs=MappingProxyType(given),
        )

    def plan_partitions(self, topic: Topic, count: int) -> Topic:
        """The topic with `count` partitions, which must be more than it has. Changes nothing.

        Raises:
            InvalidPartitionsError: it has as many or more.
            TooManyPartitionsError: more than `PARTITIONS_MAX`.
        """
        if count <= topic.partition_count:
            now = topic.partition_count
            raise InvalidPartitionsError(
                f"Topic already has {now} partition(s)."
                if count == now
                else f"The topic {topic.name} currently has {now} partition(s); {count} would not "
                "be an increase."
            )
        check_partition_limit(count)
        added = range(topic.partition_count, count)
        return replace(topic, partitions=(*topic.partitions, *added))

    def plan_configs(
        self, topic: Topic, changes: Iterable[ConfigChange], *, is_replaced: bool = False
    ) -> Topic:
        """The topic with changed settings; `is_replaced` drops all others. Changes nothing.

        Raises:
            ConfigError: see `config_changes.plan_configs`; all faults together.
        """
        current = {} if is_replaced else topic.configs
        planned = plan_configs(current, changes, self.defaults.configs)
        return replace(topic, configs=MappingProxyType(planned))

    # -- changes ------------------------------------------------------------------------------

    def prepare(self, topics: Sequence[Topic]) -> None:
        """Save planned topics in one batch, with others that are saved at this time.

        After a crash all of them are there, or none.

        Raises:
            StorageError: the state could not be saved; nothing has changed.
        """
        self._topics.run(
            lambda: chain.from_iterable(
                topic_records(topic, self.log.image, self._node) for topic in topics
            ),
            weight=sum(len(topic.partitions) for topic in topics),
        )

    def publish(self, *names: str) -> None:
        """Make the topics of these names in the image what the log says of them."""
        # A copy, and replaced whole: readers on the loop take no lock.
        with self._showing:
            topics = {}
            for name in names:
                state = self.log.image.topic(name)
                topics[name] = (
                    None if state is None else topic_on_node(state, self.log.image, self.node_id)
                )
            self.image = self.image.with_topics(topics)

    def change(self, topic: Topic) -> None:
        """Replace a topic by its planned version; after a crash it is the old or the new one.

        Raises:
            StorageError: the state could not be saved; the topic is unchanged.
        """
        assert self.image.topics[topic.name].topic_id == topic.topic_id
        self.prepare([topic])
        self.publish(topic.name)

    def configure_group(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the settings of a group; after a crash it has the old ones or the new ones.

        Raises:
            TooManyGroupsError: as `check_group_limit`.
            StorageError: the state could not be saved; the settings are unchanged.
        """
        with self._changing:
            self._begin()
            check_group_limit(group_id, self.image.group_configs)
            self._append(
                config_records(self.log.image, ConfigResource(GROUP_RESOURCE, group_id), configs)
            )
            with self._showing:
                self.image = replace(self.image, group_configs=group_configs_of(self.log.image))

    def change_features(self, changes: Mapping[str, LevelChange], *, is_dry_run: bool) -> None:
        """Change the levels of features, all of them or none; a dry run changes nothing.

        Raises:
            FeatureUpdateError: see `features.plan_levels`.
            StorageError: the state could not be saved; the levels are unchanged.
        """
        with self._changing:
            self._begin()
            image = self.log.image
            levels = plan_levels(
                image, changes, node_id=self.node_id, kraft_version=self.kraft_version
            )
            if is_dry_run:
                return
            least = self.defaults.configs.get(MIN_INSYNC_REPLICAS, "1")
            records = [*feature_records(image, levels, min_insync_replicas=least)]
            if needs_directories(image, levels):
                records.append(directories_record(self._node, self.broker_epoch))
            self._append(records)
            with self._showing:
                self.image = replace(self.image, features=self.log.image.features)

    def write(self, records: Callable[[MetadataImage], Iterable[RecordToWrite]]) -> None:
        """Save the records that a function makes of the state, for what `image` does not show.

        No other change comes between the look at the state and the records.

        Raises:
            StorageError: the state could not be saved; nothing has changed.
        """
        with self._changing:
            self._begin()
            self._append(records(self.log.image))

    def remove(self, topic: Topic) -> None:
        """Remove a topic from the cluster; the caller removes its logs.

        Raises:
            StorageError: the state could not be saved; the topic still exists.
        """
        # One record: partitions and settings go with their topic, as in Kafka.
        self._topics.run(lambda: [remove_topic_record(topic.topic_id)])
        self.publish(topic.name)

    def next_producer_id(self) -> ProducerId:
        """A producer id that was never assigned before, also not before a crash.

        Raises:
            StorageError: a new block of ids could not be reserved.
        """
        with self._changing:
            # One write to the device for a thousand producers.
            if not self._producer_ids:
                self._begin()
                first = self.log.image.next_producer_id or 0
                limit = first + PRODUCER_ID_BLOCK
                self._append([producer_ids_record(self._node, self.broker_epoch, limit)])
                self._producer_ids = range(first, limit)
            producer_id = self._producer_ids[0]
            self._producer_ids = self._producer_ids[1:]
            return ProducerId(producer_id)

    # -- start and stop -----------------------------------------------------------------------

    def settle(self, records: Iterable[RecordToWrite]) -> None:
        """Save the records of a start.

        Raises:
            StorageError: the state could not be saved, and the next start does all of it again.
        """
        with self._changing:
            rest, before = iter(records), self.log.end_offset
            while part := list(islice(rest, RECORDS_AT_ONCE)):
                self._append(part)
            if self.log.end_offset > before:
                self.image = image_on_node(self.log.image, self.node_id)

    def bootstrap(
        self, image: MetadataImage, records: Callable[[], Iterable[RecordToWrite]]
    ) -> None:
        """Serve what a new log begins with, and have the first change save the records of it."""
        self._first = image, records

    def register(
        self,
        endpoints: Mapping[str, Endpoint],
        protocols: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Say in the log where this broker listens, by listener, and that it serves.

        `protocols` are Kafka's numbers of their security protocols; PLAINTEXT without one.

        Raises:
            StorageError: the state could not be saved.
        """
        with self._changing:
            self._begin()
            try:
                self.log.lead_if_needed()
            except OSError as error:
                raise _unsaved(error) from error
            # As in Kafka the epoch of a broker is the offset of its registration.
            epoch = self.log.end_offset
            self._append(
                registration_records(
                    self.log.image,
                    self._node,
                    endpoints,
                    protocols=protocols,
                    incarnation=self.new_id(),
                    epoch=epoch,
                )
            )
            self.broker_epoch = epoch

    def retire(self, directories: Mapping[TopicPartition, uuid.UUID]) -> None:
        """Say that this broker serves no more, and in which directory each log is.

        Raises:
            StorageError: the state could not be saved.
        """
        with self._changing:
            self._begin()
            # Moves since the start: Kafka's brokers report them at once (AssignReplicasToDirs,
            # KIP-858). Here the stop is early enough: each start finds the logs wherever they are.
            records = [*placement_records(self.log.image, self._node, directories)]
            if self.broker_epoch != NO_BROKER_EPOCH:
                records.append(fence_record(self._node, self.broker_epoch))
            self._append(records)

    def tidy(self) -> None:
        """Write a snapshot of the log if one is due, and delete what is kept no longer.

        Raises:
            StorageError: the device refuses; the log is as usable as before.
        """
        with self._changing:
            self._begin()
            try:
                self.log.tidy()
            except OSError as error:
                raise _unsaved(error) from error

    def close(self) -> None:
        """Close the log. All that was answered is on the device.

        Raises:
            StorageError: the device refuses.
        """
        with self._changing:
            try:
                self.log.close()
            except OSError as error:
                raise _unsaved(error) from error

    def _begin(self) -> None:
        """Save what a new log begins with, in one batch, unless that is done."""
        # Where the device refuses, the next change tries again: nothing may come before these.
        if self._first is not None:
            self._save(self._first[1]())
            self._first = None

    def _append(self, records: Iterable[RecordToWrite]) -> None:
        self._begin()
        self._save(records)

    def _save(self, records: Iterable[RecordToWrite]) -> None:
        made: Sequence[RecordToWrite] = list(records)
        if not made:
            return
        try:
            self.log.append(made)
        except OSError as error:
            raise _unsaved(error) from error


def _unsaved(error: OSError) -> StorageError:
    return StorageError(error.errno, f"the cluster's state cannot be saved: {error}")
