"""Moves of log directories between Tailrace and Apache Kafka: what hinders one, Kafka's settings.

    understood    both brokers go on with it
    kept          one of them keeps it without acting on it
    hinders       it has to be dealt with first, or something is lost or refused

    server.properties                   of Kafka, as `server_properties` writes it
    process.roles=broker,controller     node.id and the voter are those of meta.properties
    listeners                           the addresses that the broker has registered, and one for
                                        the controller
    ...replication.factor=1             there is one broker

    of a node that is a controller and no broker, for Kafka and for Tailrace
    process.roles=controller            the listener is that of the voter in the log (KIP-853)

Settings that the node was started with are not in its directories, so they are not there. Nothing
is changed here, and nothing has to run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from tailrace.cluster.bootstrap import FILE as BOOTSTRAP
from tailrace.cluster.bootstrap import first_image
from tailrace.cluster.image import GROUP_RESOURCE, TOPIC_RESOURCE
from tailrace.cluster.metadata.features import check_levels, metadata_release
from tailrace.cluster.metadata.image import (
    BROKER_RESOURCE,
    MIN_INSYNC_REPLICAS,
    MetadataImage,
    TopicState,
)
from tailrace.cluster.metadata.proof import METADATA_FOLDER, LostMetadataError, prove_metadata
from tailrace.cluster.metadata.quorum_state import read_quorum_state
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.errors import CorruptionError, DirectoryError, counted
from tailrace.model import TopicPartition
from tailrace.offline.cat import readable
from tailrace.runtime.files import Files
from tailrace.storage import names
from tailrace.storage.checkpoints import parse_topic_id, read_partition_metadata
from tailrace.storage.config import SEGMENT_BYTES_MIN, usable_configs
from tailrace.storage.directories import MetaProperties, clean_stop_epoch, read_identity
from tailrace.values import dataclass, replace

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import VotersRecordVoter

CLIENT_METRICS_RESOURCE: Final = 16
# Directory ids of partitions for which the brokers look into all directories.
_ANYWHERE: Final = frozenset({UUID(int=0), UUID(int=1)})
# Most names in one sentence.
_NAMED_MAX: Final = 5
_PLAINTEXT: Final = 0
# Features whose groups are not served here.
_IDLE_FEATURES: Final = {"share.version": "share groups", "streams.version": "streams groups"}


class Effect(Enum):
    """The effect of a move on something."""

    UNDERSTOOD = "understood"
    KEPT = "kept"
    HINDERS = "hinders"


class Side(Enum):
    """The broker that a note is about."""

    BOTH = "both"
    KAFKA = "kafka"
    TAILRACE = "tailrace"


class Note(NamedTuple):
    """One thing that the operator should know."""

    effect: Effect
    side: Side
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The directories of one node, as a move would find them."""

    directories: tuple[str, ...]
    """The directories of log.dirs."""
    home: str
    """The directory that has the metadata log, or would get it."""
    identity: MetaProperties
    """The identity of the home."""
    replay: MetadataReplay
    """The state of the metadata log; empty if there is none, or if it cannot be proven."""
    image: MetadataImage
    """Its image, or that of `bootstrap.checkpoint` for a log that has no state."""
    notes: tuple[Note, ...]

    @property
    def is_ready(self) -> bool:
        """Whether nothing hinders a move, in either direction."""
        return not (self.hindrances(Side.KAFKA) or self.hindrances(Side.TAILRACE))

    def hindrances(self, side: Side) -> int:
        """The number of notes that hinder this broker in taking over the directories."""
        return sum(
            each.effect is Effect.HINDERS and each.side in (side, Side.BOTH) for each in self.notes
        )

    @property
    def is_controller(self) -> bool:
        """Whether the node is a controller and no broker: no broker has registered by its id."""
        return bool(self.replay.image.features) and self.identity.node_id not in self.image.brokers

    @property
    def release(self) -> str | None:
        """The name of the level of `metadata.version`, as `4.2-IV1`."""
        return metadata_release(self.image.metadata_version)


def plan_handover(files: Files, directories: Sequence[str]) -> Handover:
    """Look at all directories of a node: its log.dirs in their order, and metadata.log.dir.

    Raises:
        DirectoryError: one cannot be read; none has a `meta.properties`, or one that cannot be
            understood.
    """
    with readable(directories[0]):
        # First, so that a path that is not there is one error, and not a note on each of its files.
        for each in directories:
            files.list(each)
        identities = {each: read_identity(files, each) for each in directories}
        homes = [each for each in directories if files.is_directory(f"{each}/{METADATA_FOLDER}")]
        home = homes[0] if homes else directories[0]
        identity = identities[home] or next(filter(None, identities.values()), None)
        if identity is None:
            raise DirectoryError(
                f"{home} has no {names.META_PROPERTIES}; start Tailrace on it and stop it again, "
                "which takes over the partitions that it finds"
            )
        survey = _Survey(files, directories, identity, home=home)
        # In this order: each step uses what the ones before it have found, the ids and the state.
        survey.look_at_use()
        survey.look_at_identities(identities, homes)
        survey.look_at_state()
        survey.look_at_folders()
        survey.look_at_stop()
        survey.look_at_settings()
        found = Handover(
            directories=survey.log_dirs,
            home=home,
            identity=identity,
            replay=survey.replay,
            image=survey.image,
            notes=tuple(survey.notes),
        )
        return replace(found, notes=(*found.notes, *_understood(found), *_kept(found)))


class _Survey:
    """Collects what hinders a move, part by part; any method may raise OSError."""

    def __init__(
        self, files: Files, directories: Sequence[str], identity: MetaProperties, *, home: str
    ) -> None:
        self.notes: list[Note] = []
        self.replay = MetadataReplay()
        self.removed_topics: frozenset[UUID] = frozenset()
        self.image = MetadataImage()
        self._files = files
        self._directories = directories
        self._identity = identity
        self._home = home
        self.log_dirs = tuple(directories)
        """The directories that may have partitions, as far as it is known."""
        # The directory id of each directory, where it has one.
        self._ids: dict[str, UUID | None] = {}

    def _hinder(self, side: Side, sentence: str) -> None:
        self.notes.append(Note(Effect.HINDERS, side, sentence))

    def look_at_use(self) -> None:
        """Whether a broker runs. Its lock is tried and not kept."""
        for each in self._directories:
            path = f"{each}/{names.LOCK}"
            try:
                if self._files.exists(path):
                    # Tried, and let go at once: a question must not keep a broker from starting.
                    self._files.lock(path).release()
            except BlockingIOError:
                self._hinder(Side.BOTH, f"a node has {each} open; stop it and ask again")
            except OSError:
                continue  # A read-only copy, where no broker can be at work.

    def look_at_identities(
        self, identities: dict[str, MetaProperties | None], homes: Sequence[str]
    ) -> None:
        """Whether the directories belong together."""
        owners: dict[UUID, str] = {}
        for path, identity in identities.items():
            self._ids[path] = None
            if identity is None:
                self._hinder(
                    Side.KAFKA,
                    f"{path} has no {names.META_PROPERTIES}, and Kafka does not start; format it "
                    f"with --cluster-id {self._identity.cluster_id}",
                )
                continue
            if identity.node_id != self._identity.node_id:
                self._hinder(
                    Side.BOTH,
                    f"{path} belongs to node {identity.node_id}, and {self._home} to node "
                    f"{self._identity.node_id}",
                )
            if identity.cluster_id != self._identity.cluster_id:
                self._hinder(Side.BOTH, f"{path} belongs to another cluster than {self._home}")
            if identity.directory_id:
                with suppress(ValueError):
                    self._ids[path] = parse_topic_id(identity.directory_id)
            # KIP-858: a broker registers its directories by these ids, so each must be unique.
            directory_id = self._ids[path]
            if directory_id is not None and owners.setdefault(directory_id, path) != path:
                self._hinder(
                    Side.BOTH,
                    f"{path} and {owners[directory_id]} have the same directory id: one is a copy",
                )
        if len(homes) > 1:
            self._hinder(
                Side.BOTH, f"{' and '.join(homes)} have a metadata log each; move one away"
            )

    def look_at_state(self) -> None:
        """The state of the cluster, and whether each broker can go on with it."""
        folder = f"{self._home}/{METADATA_FOLDER}"
        damage: list[str] = []
        try:
            proof = prove_metadata(self._files, folder, report=damage.append)
            self.replay, self.removed_topics = proof.replay, proof.removed_topics
        # Without a proven state nothing below can be compared with anything.
        except LostMetadataError as error:
            self._hinder(Side.BOTH, str(error))
            return
        for each in damage:
            self._hinder(Side.KAFKA, f"{each}; Kafka would drop what follows it without a word")
        self.image = self.replay.image
        # Every state of a running cluster has `metadata.version`, so this log has no state.
        if not self.image.features:
            self._look_at_beginning()
        try:
            check_levels(self.image.features, folder=folder)
        except DirectoryError as error:
            self._hinder(Side.TAILRACE, str(error))
        self._look_at_quorum(folder)
        if self._is_home_apart():
            self.log_dirs = tuple(each for each in self._directories if each != self._home)

    def _is_home_apart(self) -> bool:
        """Whether the home is none of log.dirs, which the registration of the broker names.

        Before `metadata.version` 3.7 it does not. Both brokers write a checkpoint into each of
        log.dirs, and none into another home.
        """
        broker = self.image.brokers.get(self._identity.node_id)
        if broker is None or len(self._directories) == 1:
            return False
        if broker.log_dirs:
            return self._ids[self._home] not in broker.log_dirs
        return not self._files.exists(f"{self._home}/{names.RECOVERY_POINTS}")

    def _look_at_beginning(self) -> None:
        """A metadata log without any state, or none at all."""
        files, home = self._files, self._home
        if files.exists(f"{home}/{BOOTSTRAP}"):
            image = first_image(files, home, min_insync_replicas="1")
            self.image = MetadataImage(features=image.features)
        else:
            self._hinder(
                Side.KAFKA,
                f"{home} has neither a metadata log nor {BOOTSTRAP}; start Tailrace on it and stop "
                "it again, which writes what it finds into a metadata log",
            )
        if any(names.parse_partition_directory_name(name) for _, name in self._folders()):
            self._hinder(
                Side.KAFKA,
                "there are partitions, and no metadata log that has their topics, so that Kafka "
                "would set them aside; start Tailrace and stop it again, which writes them there",
            )

    def _folders(self) -> Iterator[tuple[str, str]]:
        """The directory and the name of every folder that is none of the metadata log."""
        for directory in self._directories:
            for name in sorted(self._files.list(directory)):
                is_folder = self._files.is_directory(f"{directory}/{name}")
                if is_folder and not names.is_metadata_directory_name(name):
                    yield directory, name

    def _look_at_quorum(self, folder: str) -> None:
        node_id = self._identity.node_id
        # From kraft.version 1 on (KIP-853) the log itself names the voters; before, of the files
        # only `quorum-state` does.
        if self.replay.voters is not None:
            named = [each.voter_id for each in self.replay.voters.voters]
            self._look_at_own_vote(self.replay.voters.voters)
        else:
            try:
                quorum = read_quorum_state(self._files, folder)
            except CorruptionError as error:
                self._hinder(Side.BOTH, str(error))
                return
            named = [] if quorum is None else list(quorum.voters or ())
        if named and named != [node_id]:
            self._hinder(
                Side.TAILRACE,
                f"the quorum has the voters {', '.join(map(str, named))}, and Tailrace can only "
                f"lead one of node {node_id} alone; while Kafka's controllers run, `tailrace "
                "cluster remove-controller` removes the others",
            )

    def _look_at_own_vote(self, voters: Sequence["VotersRecordVoter"]) -> None:
        for each in voters:
            is_own = each.voter_id == self._identity.node_id
            # Kafka's controller would wait for a leader without an end.
            if is_own and each.voter_directory_id != self._ids[self._home]:
                self._hinder(
                    Side.KAFKA,
                    f"the metadata log names another directory of node {each.voter_id} as the "
                    f"voter than {self._home}, which would not vote; start Tailrace on it and stop "
                    "it again, which names this one",
                )

    def look_at_folders(self) -> None:
        """Whether each partition folder is of a topic of the state, and the other way round."""
        self._look_at_foreign_folders()
        # Without topics in the state every folder would be called foreign.
        if not self.replay.image.features:
            return
        found: dict[TopicPartition, str] = {}
        for directory, name in self._folders():
            path = f"{directory}/{name}"
            partition = names.parse_partition_directory_name(name)
            # Reported by `_look_at_foreign_folders` already.
            if names.stops_kafka(name):
                continue
            if name.endswith(names.STRAY_DIRECTORY_SUFFIX):
                self._hinder(
                    Side.BOTH,
                    f"{path} was set aside, and no broker serves or deletes it; move it away",
                )
            elif partition is not None and self._is_known(partition, directory, path):
                if partition in found:
                    self._hinder(Side.BOTH, f"{partition} is in {found[partition]} and {path}")
                found[partition] = path
        # A directory that was left out of the command looks like lost partitions.
        missing = [each for each in self._own_partitions() if each not in found]
        if missing:
            self._hinder(
                Side.BOTH,
                f"{_list(missing)} of this node have no folder here, and would begin empty; name "
                "all of log.dirs",
            )

    def _look_at_foreign_folders(self) -> None:
        """Folders beside the partitions: a file system's own, backups, snapshots."""
        for directory, name in self._folders():
            if directory not in self.log_dirs:
                continue  # Kafka looks for no partitions where only the metadata log is.
            path = f"{directory}/{name}"
            if names.stops_kafka(name):
                self._hinder(
                    Side.KAFKA,
                    f"{path} has no name of a partition, and Kafka does not start beside it; "
                    "move it away",
                )
            elif not names.is_known_directory_name(name):
                self._hinder(
                    Side.KAFKA,
                    f"{path} is no partition, and Kafka would take it for one; move it away",
                )

    def _is_known(self, partition: TopicPartition, directory: str, path: str) -> bool:
        topic = self.image.topic(partition.topic)
        try:
            found_id = read_partition_metadata(self._files, f"{path}/{names.PARTITION_METADATA}")
        except CorruptionError as error:
            self._hinder(Side.KAFKA, f"{error}; start Tailrace, which writes it again, and stop it")
            return True
        if found_id is not None and found_id in self.removed_topics:
            return False  # Both brokers remove the folders of removed topics.
        if topic is None or partition.partition not in topic.partitions:
            self._hinder(
                Side.BOTH,
                f"{path} is of no partition in the cluster's metadata, and would be set aside",
            )
            return False
        if found_id is None:
            self._hinder(
                Side.KAFKA,
                f"{path} has no {names.PARTITION_METADATA}, and would be set aside; start "
                "Tailrace, which writes it, and stop it again",
            )
        elif found_id != topic.topic_id:
            self._hinder(
                Side.BOTH, f"{path} is of another topic of this name, and would be set aside"
            )
            return False
        self._look_at_place(topic, partition, directory)
        return True

    def _look_at_place(self, topic: TopicState, partition: TopicPartition, directory: str) -> None:
        """Whether the state has the partition in the directory that its folder is in."""
        state, node_id = topic.partitions[partition.partition], self._identity.node_id
        # Records before `metadata.version` 3.7-IV2 name no directories.
        if node_id not in state.replicas or not state.directories:
            return
        noted = state.directories[state.replicas.index(node_id)]
        # KIP-858: Kafka leads a partition only from the directory that its registration names.
        if noted not in _ANYWHERE and noted != self._ids[directory]:
            self._hinder(
                Side.KAFKA,
                f"{directory}/{partition} is in another directory than the metadata says, and "
                "Kafka would not lead it; start Tailrace and stop it again, which writes where it "
                "is",
            )

    def _own_partitions(self) -> Iterator[TopicPartition]:
        for topic in self.image.topics.values():
            for number, state in topic.partitions.items():
                if self._identity.node_id in state.replicas:
                    yield TopicPartition(topic.name, number)

    def look_at_stop(self) -> None:
        """Whether the last stop was in order, and by the broker that is registered."""
        broker = self.image.brokers.get(self._identity.node_id)
        if broker is None:
            return
        for each in self.log_dirs:
            epoch = clean_stop_epoch(self._files, each)
            if epoch is None:
                self._hinder(
                    Side.KAFKA,
                    f"{each} was not stopped in order ({names.CLEAN_SHUTDOWN} is missing), so that "
                    "Kafka would elect every leader again; start its broker and stop it in order",
                )
            # KIP-966: the mark of another epoch is of an older start, and says nothing about the
            # last one.
            elif epoch != broker.broker_epoch:
                self._hinder(
                    Side.KAFKA,
                    f"{each} was stopped in order in epoch {epoch}, and the broker has registered "
                    f"in epoch {broker.broker_epoch}; start its broker and stop it in order",
                )

    def look_at_settings(self) -> None:
        """Whether Kafka's broker starts with the settings of the topics."""
        if self._identity.node_id not in self.image.brokers:
            return
        for owner, settings in self.image.configs.items():
            # Settings are stored as text, and not all of them are numbers.
            size = settings.get("segment.bytes", "") if owner.type == TOPIC_RESOURCE else ""
            # Tailrace takes less. Kafka reads all topics at its start and ends at the first it
            # refuses.
            if size.isdigit() and int(size) < SEGMENT_BYTES_MIN:
                self._hinder(
                    Side.KAFKA,
                    f"topic {owner.name} has segment.bytes {size}, and Kafka does not start with "
                    f"less than {SEGMENT_BYTES_MIN}; delete the setting with Tailrace, or set "
                    "it to as much",
                )


def _understood(found: Handover) -> Iterator[Note]:
    """Notes on state that both nodes go on with."""
    image = found.image

    def note(sentence: str) -> Note:
        return Note(Effect.UNDERSTOOD, Side.BOTH, sentence)

    release = metadata_release(image.metadata_version)
    if release is not None:
        yield note(
            f"metadata.version is {image.metadata_version}, which is {release}: Kafka must be "
            f"{release.partition('-')[0]} or later"
        )
    partitions = sum(len(each.partitions) for each in image.topics.values())
    settings = sum(
        len(usable_configs(each)) for owner, each in image.configs.items()
        if owner.type == TOPIC_RESOURCE
    )  # fmt: skip
    yield note(
        f"{counted(len(image.topics), 'topic')} with {counted(partitions, 'partition')} and "
        f"{counted(settings, 'setting')}: names, ids, records, committed offsets and transactions"
    )
    if image.scram:
        yield note(f"{counted(len(image.scram), 'user')} with a SCRAM password")
    if image.acls:
        yield note(
            f"access control entries, {len(image.acls)} in all, which count if "
            "authorizer.class.name is set"
        )
    broker = image.brokers.get(found.identity.node_id)
    secured = [
        each.name
        for each in (() if broker is None else broker.end_points)
        if each.security_protocol != _PLAINTEXT
    ]
    if secured:
        yield note(
            f"listeners with encryption or a login: {_list(secured)}; their certificates and other "
            "settings are not in the directories, so add them"
        )
    groups = [owner.name for owner in image.configs if owner.type == GROUP_RESOURCE]
    if groups:
        yield note(f"settings of the groups {_list(groups)}")
    if image.quotas:
        yield note(f"quotas of {len(image.quotas)} users, client ids and addresses")
    if image.next_producer_id is not None:
        yield note(f"the next producer id, {image.next_producer_id}")
    # Both need its listener for controllers in the settings, without which neither starts.
    led = sorted(image.brokers.keys() - {found.identity.node_id})
    if led:
        yield note(
            f"registrations of the brokers {_list(led)}, whose controller this node is: keep its "
            "listener for controllers"
        )
    if not found.is_controller:
        return
    if found.replay.kraft_version == 0:
        yield note(
            "the voters are those of the settings (kraft.version 0): no controller can be added, "
            "and the address of this one is not in its log; put it into the settings"
        )


def _kept(found: Handover) -> Iterator[Note]:
    """Notes on state that Tailrace keeps for Kafka, without acting on it."""
    image = found.image
    if image.tokens:
        yield _kept_note(f"{len(image.tokens)} delegation tokens")
    for kind, what in (
        (BROKER_RESOURCE, "brokers, unless docs/configuration.md has them"),
        (CLIENT_METRICS_RESOURCE, "client metrics"),
    ):
        changed = {
            f"{name} of {owner.name or 'all'}"
            for owner, settings in image.configs.items()
            for name in settings
            if owner.type == kind and name != MIN_INSYNC_REPLICAS
        }
        if changed:
            yield _kept_note(f"settings of {what}: {_list(sorted(changed))}")
    idle = sorted(_idle_settings(image))
    if idle:
        yield _kept_note(f"settings of topics that are not known, or not possible: {_list(idle)}")
    for feature, what in _IDLE_FEATURES.items():
        if image.features.get(feature):
            yield _kept_note(f"{feature} {image.features[feature]}: {what} are not served")
    others = sorted(image.controllers.keys() - {found.identity.node_id})
    if others and not found.is_controller:
        yield _kept_note(f"registrations of other controllers: {_list(others)}")


def _kept_note(sentence: str) -> Note:
    return Note(Effect.KEPT, Side.TAILRACE, sentence)


def _idle_settings(image: MetadataImage) -> Iterator[str]:
    for owner, settings in image.configs.items():
        if owner.type == TOPIC_RESOURCE:
            for name, value in settings.items():
                if not usable_configs({name: value}):
                    yield f"{name} of {owner.name}"


def _list(items: Iterable[object]) -> str:
    shown = [*map(str, items)]
    more = len(shown) - _NAMED_MAX
    return ", ".join(shown[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


CONTROLLER: Final = "CONTROLLER"
CONTROLLER_PORTS: Final = (9093, 9094, 9095)
"""The first of these that no listener has is the controller's."""
_CLIENT_PORT: Final = 9092
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ONE_REPLICA: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)


class _Listener(NamedTuple):
    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def advertised(self) -> str:
        return f"{self.name}://{self.address}"

    @property
    def bound(self) -> str:
        """The address to listen on: all of the machine, unless clients come from it alone."""
        return self.advertised if self.host in _LOOPBACK else f"{self.name}://:{self.port}"


class Controller(NamedTuple):
    """A controller of Kafka's that joins the quorum after the move."""

    id: int
    """Its node id."""
    host: str
    port: int


def server_properties(handover: Handover, controllers: Sequence[Controller] = ()) -> dict[str, str]:
    """Kafka's settings by name, in the order of the file.

    Those of a controller are for Tailrace, too. `controllers` are others of the quorum then.
    """
    clients = [] if handover.is_controller else _clients(handover)
    controller = _controller(handover, clients)
    node_id = str(handover.identity.node_id)
    settings = {
        "process.roles": "controller" if handover.is_controller else "broker,controller",
        "node.id": node_id,
        "log.dirs": ",".join(handover.directories),
    }
    # Kafka takes the first of log.dirs by default.
    if handover.home != handover.directories[0]:
        settings["metadata.log.dir"] = handover.home
    # KIP-853: from kraft.version 1 on the log names the voters, and the setting only where to find
    # one of them.
    if handover.replay.kraft_version:
        others = [each.address for each in _joining(controller, controllers).values()]
        settings["controller.quorum.bootstrap.servers"] = ",".join([controller.address, *others])
    else:
        settings["controller.quorum.voters"] = f"{node_id}@{controller.address}"
    listeners = (*clients, controller)
    settings |= {
        "controller.listener.names": controller.name,
        "listeners": ",".join(each.bound for each in listeners),
        "advertised.listeners": ",".join(each.advertised for each in clients or listeners),
        "listener.security.protocol.map": ",".join(
            f"{each.name}:{each.protocol}" for each in listeners
        ),
    }
    if handover.is_controller:
        return settings
    settings["inter.broker.listener.name"] = clients[0].name
    # Kafka's defaults are 3 and 2, which one node cannot have: groups would get no coordinator.
    return settings | dict.fromkeys(_ONE_REPLICA, "1")


def next_steps(handover: Handover, controllers: Sequence[Controller], *, path: str) -> list[str]:
    """The commands of a controller's move, in order, each a line; empty for other nodes.

    `path` is the file with the settings.
    """
    if not handover.is_controller:
        return []
    addresses = [
        _Listener(end.name, end.host, end.port).address
        for each in handover.image.brokers.values()
        for end in each.end_points[:1]
    ]
    at_brokers = f"--bootstrap {','.join(addresses) or 'BROKER'}"
    own = _controller(handover, ())
    joining = _joining(own, controllers)
    steps = [
        "To Apache Kafka: stop this controller, and start Kafka's on its directory at once.",
        f"  kafka-server-start.sh {path}",
    ]
    format_command = f"kafka-storage.sh format --cluster-id {handover.identity.cluster_id}"
    for number, listener in joining.items():
        copy = f"controller-{number}.properties"
        steps += [
            f"Add controller {number}: copy {path} to {copy}, with an empty directory in log.dirs",
            "and these lines instead of its own.",
            f"  node.id={number}",
            f"  listeners={listener.bound}",
            f"  advertised.listeners={listener.advertised}",
            f"  {format_command} --no-initial-controllers --config {copy}",
            f"  kafka-server-start.sh {copy}",
            f"  tailrace cluster add-controller {number}@{listener.address} {at_brokers}",
        ]
    voters = handover.replay.voters
    named = {*joining, *(each.voter_id for each in (voters.voters if voters else ()))}
    others = sorted(named - {handover.identity.node_id})
    if others:
        steps += [
            "Back, first: remove the other controllers, then stop them.",
            *(f"  tailrace cluster remove-controller {each} {at_brokers}" for each in others),
        ]
    # Tailrace refuses several, since it is no part of a quorum of several.
    alone = f" --override controller.quorum.bootstrap.servers={own.address}" if joining else ""
    steps += [
        "To Tailrace: stop this controller, and start Tailrace's on its directory at once.",
        f"  tailrace serve --config {path}{alone}",
    ]
    return steps


def _joining(own: "_Listener", controllers: Sequence[Controller]) -> dict[int, "_Listener"]:
    """The listeners of other controllers by their ids; all have the name of this one's."""
    return {each.id: _Listener(own.name, each.host, each.port) for each in controllers}


def properties_text(settings: Mapping[str, str]) -> str:
    """The file of settings."""
    is_controller = settings.get("process.roles") == "controller"
    head = _OF_CONTROLLER if is_controller else _OF_ONE_NODE
    lines = [f"{name}={_escaped(value)}" for name, value in settings.items()]
    return "\n".join([head, *_HEAD, *lines]) + "\n"


_OF_ONE_NODE: Final = "# Apache Kafka as a quorum of one node, on directories of Tailrace."
_OF_CONTROLLER: Final = "# A controller of Apache Kafka or of Tailrace, on one directory."
_HEAD: Final = (
    "# Add the settings that your node was started with, such as log.retention.ms: they are not",
    "# in its directories.",
)


def _escaped(value: str) -> str:
    """A value as java.util.Properties reads it."""
    # A backslash begins an escape there, as in a path of Windows.
    return value.replace("\\", "\\\\")


def _clients(handover: Handover) -> list[_Listener]:
    broker = handover.image.brokers.get(handover.identity.node_id)
    found = () if broker is None else broker.end_points
    return [
        _Listener(each.name, each.host, each.port, _PROTOCOLS[each.security_protocol])
        for each in found
        if 0 <= each.security_protocol < len(_PROTOCOLS)
    ] or [_Listener("PLAINTEXT", "localhost", _CLIENT_PORT)]


def _controller(handover: Handover, clients: Sequence[_Listener]) -> _Listener:
    """The controller's listener: that of the voter in the log (KIP-853), or one on this machine."""
    for voter in _voters(handover):
        return voter
    taken = {each.port for each in clients}
    port = next(each for each in (*CONTROLLER_PORTS, 0) if each not in taken)
    return _Listener(CONTROLLER, "localhost", port)


def _voters(handover: Handover) -> Iterator[_Listener]:
    voters = handover.replay.voters
    for voter in () if voters is None else voters.voters:
        if voter.voter_id == handover.identity.node_id:
            for end in voter.endpoints:
                yield _Listener(end.name, end.host, end.port)
