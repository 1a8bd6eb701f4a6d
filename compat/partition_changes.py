"""Our controller's rules held against the classes of Kafka's controller, with random inputs.

    changes      single changes of partitions: `change_partition` and PartitionChangeBuilder
    placements   replicas of new partitions: `place` and StripedReplicaPlacer, with the same chance
    courses      a cluster under random requests: each answer and each record of both controllers

Control.java runs Kafka's part. It is compiled when it is run, so this takes a JDK.
"""

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from compat.kafka import run_java
from compat.processes import START_SECONDS_MAX, run
from compat.report import Report
from tailrace.cluster.control.placement import UsableBroker, place
from tailrace.cluster.control.state import RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.delta import changed_partition
from tailrace.cluster.metadata.features import partition_version
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.partition_change import (
    DIRECTORIES_SINCE,
    NO_LEADER,
    RECOVERED,
    Election,
    Rules,
    Wanted,
    change_partition,
)
from tailrace.cluster.records import partition_change_record
from tailrace.cluster.topic_rules import InvalidReplicationError
from tailrace.protocol import codec
from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.metadata_log import decode_data, encode_data
from tailrace.protocol.metadata_records import PartitionChangeRecord, PartitionRecord
from tailrace.values import replace
from tests.properties.test_controller import BROKERS, Course, Watched
from tests.unit.cluster.control.controlled import CLUSTER

CHANGES: Final = 20_000
PLACEMENTS: Final = 2_000
COURSES: Final = 100
_LEVELS: Final = (7, 11, 12, 16, 17, 22, 23, 30)
_ELR_SINCE: Final = 23
_PROGRAM = Path(__file__).with_name("Control.java")
_MAIN: Final = "org.apache.kafka.controller.Control"
_SESSION_MS: Final = 9000
_CLEAR_ELR: Final = "011c"
"""First bytes of a ClearElrRecord, in hex."""
_REPLAYED: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""Requests whose records are given to Kafka's: they have ids by chance, or need its validators."""


def check(report: Report, java: Path, class_path: str, directory: Path) -> None:
    """Have both sides do the same."""
    compiled = directory / "control"
    compiled.mkdir(exist_ok=True)
    javac = [str(java.with_name("javac")), "-nowarn", "-d", str(compiled), "-cp", class_path]
    run([*javac, str(_PROGRAM)], name="javac", seconds_max=START_SECONDS_MAX)
    asked: list[str] = []
    expected: list[str] = []
    for line, ours in (*_changes(), *_placements()):
        asked.append(line)
        expected.append(ours)
    single = len(asked)
    courses = [_recorded(seed, has_elr=seed % 2 == 0) for seed in range(COURSES)]
    for each in courses:
        asked += each.lines
    source, target = directory / "control.tsv", directory / "control.txt"
    source.write_text("".join(f"{line}\n" for line in asked))
    both = os.pathsep.join([str(compiled), class_path])
    run_java(java, both, [_MAIN, str(source), str(target)])
    printed = target.read_text().splitlines()
    different = [
        (line, ours, theirs)
        for line, ours, theirs in zip(asked, expected, printed, strict=False)
        if ours != theirs
    ]
    differences = [
        f"{line}: Kafka {theirs!r}, ours {ours!r}"
        for line, ours, theirs in different
        if not _keeps_removed(line, theirs)
    ]
    report.check(
        f"{CHANGES} changes of partitions and {PLACEMENTS} placements are those of Kafka's classes",
        differences,
        explained=f"for {len(different) - len(differences)} changes Kafka's keeps an eligible or "
        "last leader that is no replica any more",
    )
    rest = iter(printed[single:])
    differences = []
    count = 0
    for each in courses:
        found = each.differences([next(rest) for _ in each.lines])
        differences += found[:1]
        count += each.compared
    report.check(
        f"{count} requests and tasks of {COURSES} clusters have the answers and records of Kafka's "
        "controller",
        differences,
        explained=f"{sum(each.is_cut for each in courses)} end early, with a fault of Kafka's, and "
        f"{sum(len(each.lines) - each.compared for each in courses)} behind that are not compared",
    )


# -- single changes and placements ----------------------------------------------------------------


def _changes() -> Iterator[tuple[str, str]]:
    chance = random.Random(1)  # noqa: S311 - a test needs to be repeatable
    for _ in range(CHANGES):
        yield _change(chance)


def _change(chance: random.Random) -> tuple[str, str]:
    level = chance.choice(_LEVELS)
    has_elr = level >= _ELR_SINCE and chance.random() < 0.7
    state = _partition(chance, level, has_elr=has_elr)
    alive = frozenset(chance.sample(range(8), chance.randint(0, 8)))
    wanted = _wanted(chance, state)
    least = chance.randint(1, 3)
    rules = Rules(
        metadata_version=level,
        has_elr=has_elr,
        may_lead=lambda broker_id, _: broker_id in alive,
        default_directory=lambda broker_id: UUID(int=(1 << 64) + broker_id),
    )
    changes = change_partition(state, wanted, rules, insync_min=least)
    record = partition_change_record(state, changes, version=partition_version(level))
    parts = [
        "change",
        encode_data(state, 2).hex(),
        _numbers(sorted(alive)),
        str(level),
        str(has_elr).lower(),
        str(least),
        wanted.election.name,
        *map(_numbers, (wanted.isr, wanted.replicas, wanted.adding, wanted.removing)),
        _numbers(sorted(wanted.unclean) or None),
    ]
    return "\t".join(parts), _hex(record) if changes else ""


def _keeps_removed(line: str, theirs: str) -> bool:
    """Whether after a change of Kafka's a broker may lead one day that is no replica any more."""
    kind, *parts = line.split("\t")
    if kind != "change":
        return False
    _, state = decode_data(bytes.fromhex(parts[0]))
    assert isinstance(state, PartitionRecord)
    if theirs:
        _, record = decode_data(bytes.fromhex(theirs))
        assert isinstance(record, PartitionChangeRecord)
        state = changed_partition(state, record)
    known = {*(state.eligible_leader_replicas or ()), *(state.last_known_elr or ())}
    return not known <= {*state.replicas}


def _partition(chance: random.Random, level: int, *, has_elr: bool) -> PartitionRecord:
    replicas = tuple(chance.sample(range(8), chance.randint(1, 5)))
    isr = tuple(chance.sample(replicas, chance.randint(0 if has_elr else 1, len(replicas))))
    rest = [each for each in replicas if each not in isr]
    eligible = tuple(sorted(chance.sample(rest, chance.randint(0, len(rest))))) if has_elr else ()
    is_led = bool(isr) and chance.random() < 0.8
    last = (chance.choice(replicas),) if has_elr and not is_led and chance.random() < 0.5 else ()
    moving = chance.random() < 0.3
    named = level >= DIRECTORIES_SINCE
    return PartitionRecord(
        partition_id=3,
        topic_id=UUID(int=77 << 64),
        replicas=replicas,
        isr=isr,
        removing_replicas=tuple(chance.sample(replicas, 1)) if moving else (),
        adding_replicas=tuple(chance.sample(replicas, 1))
        if moving and chance.random() < 0.6
        else (),
        leader=chance.choice(isr) if is_led else NO_LEADER,
        leader_recovery_state=int(chance.random() < 0.2),
        leader_epoch=4,
        partition_epoch=9,
        directories=tuple(UUID(int=(each + 9 << 64) * named) for each in replicas),
        eligible_leader_replicas=eligible or None,
        last_known_elr=last or None,
    )


def _wanted(chance: random.Random, state: PartitionRecord) -> Wanted:
    def maybe(value: tuple[int, ...]) -> tuple[int, ...] | None:
        return value if chance.random() < 0.4 else None

    target = tuple(chance.sample(range(8), chance.randint(1, 4)))
    removing = tuple(sorted({*state.replicas} - {*target}))
    is_reassigned = chance.random() < 0.4
    everyone = (*target, *removing) if is_reassigned else state.replicas
    return Wanted(
        isr=maybe(tuple(chance.sample(everyone, chance.randint(0, len(everyone))))),
        replicas=everyone if is_reassigned else None,
        adding=maybe(tuple(sorted({*target} - {*state.replicas}))) if is_reassigned else None,
        removing=maybe(removing) if is_reassigned else None,
        election=chance.choice([*Election]),
        unclean=frozenset(chance.sample(state.replicas, 1) if chance.random() < 0.2 else ()),
    )


class _Fixed(random.Random):
    """A generator that gives the same for the same limit: it does not matter who asks first."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self._number = number

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """A number below `start`."""
        del stop, step
        return self._number % start


def _placements() -> Iterator[tuple[str, str]]:
    chance = random.Random(2)  # noqa: S311
    for _ in range(PLACEMENTS):
        racks: list[str | None] = chance.choice([[None], ["a", "b", "c"], ["a", "b", None], ["a"]])
        brokers = [
            UsableBroker(each, chance.choice(racks), chance.random() < 0.3)
            for each in chance.sample(range(20), chance.randint(1, 8))
        ]
        count, factor, number = chance.randint(1, 20), chance.randint(0, 5), chance.randrange(1000)
        try:
            placed = place(
                brokers,
                partition_count=count,
                replication_factor=factor,
                chance=_Fixed(number),
            )
            ours = ";".join(str([*each]) for each in placed)
        except InvalidReplicationError as error:
            ours = str(error)
        named = ",".join(f"{each[0]}:{each[1] or ''}:{int(each[2])}" for each in brokers)
        yield f"place\t{named}\t{count}\t{factor}\t{number}", ours


def _numbers(values: Sequence[int] | None) -> str:
    if values is None:
        return ""
    return ",".join(map(str, values)) or "-"


def _hex(record: RecordToWrite) -> str:
    return encode_data(*record).hex()


# -- courses --------------------------------------------------------------------------------------


class _Recorded(Watched):
    """A cluster that notes what it was asked, and what it made of it."""

    def __init__(self, *, seed: int, has_elr: bool) -> None:
        self.lines = [f"begin\t{CLUSTER}\t{_SESSION_MS}"]
        self._expected: list[tuple[ApiKey | None, int, Message | str | None, list[str]]] = [
            (None, 0, None, [])
        ]
        self._written: list[str] = []
        self._forgetful: set[int] = set()
        """Numbers of the lines in which a broker that might lead is no replica any more."""
        self.is_cut = False
        """Whether the comparison ends early, with a fault of Kafka's controller."""
        self.compared = 0
        """Number of the lines before that, each of which was held against Kafka's."""
        super().__init__(seed=seed, has_elr=has_elr)
        self._note("\t".join(["replay", *self._taken()]), None, [])

    def append(self, records: Sequence[RecordToWrite]) -> list[Message]:
        """Replay records, and note them."""
        taken = list(records)
        self._written += map(_hex, taken)
        return super().append(taken)

    def check_change(
        self, record: PartitionChangeRecord, before: MetadataImage, after: MetadataImage
    ) -> None:
        """Check one change of a partition, and note whether a leader to be is forgotten."""
        super().check_change(record, before, after)
        old = before.topics[record.topic_id].partitions[record.partition_id]
        new = after.topics[record.topic_id].partitions[record.partition_id]
        if not {old.leader, *old.isr, *(old.eligible_leader_replicas or ())} <= {*new.replicas}:
            self._forgetful.add(len(self.lines))

    def do(self, key: ApiKey, request: Message, *, version: int | None = None) -> Any:  # noqa: ANN401
        """Do a request, and note it with its answer."""
        api = APIS.get(key) or BETWEEN_NODES[key]
        number = api.last_version if version is None else version
        body = bytearray()
        codec.encode(request, number, body)
        line = f"request\t{int(key)}\t{number}\t{body.hex()}"
        try:
            answer = super().do(key, request, version=version)
        except RefusedError as error:
            self._note(line, f"error {int(error.code)}", self._taken())
            raise
        if key in _REPLAYED:
            self._note("\t".join(["replay", *self._taken()]), None, [])
        else:
            self._note(line, answer, self._taken(), key=key, version=number)
        return answer

    def pass_ms(self, ms: int) -> list[int]:
        """Let time pass, and note who was fenced."""
        self._note(f"time\t{self.now_ms + ms}", None, [])
        found = super().pass_ms(ms)
        self._note("fence", None, self._taken())
        return found

    def balance(self) -> None:
        """The controller's elections of preferred leaders."""
        super().balance()
        self._note("balance", None, self._taken())

    def elect_unclean(self) -> None:
        """The controller's unclean elections."""
        super().elect_unclean()
        self._note("unclean", None, self._taken())

    def _taken(self) -> list[str]:
        written, self._written = self._written, []
        return written

    def _note(
        self,
        line: str,
        answer: Message | str | None,
        records: list[str],
        *,
        key: ApiKey | None = None,
        version: int = 0,
    ) -> None:
        self.lines.append(line)
        self._expected.append((key, version, answer, records))

    def differences(self, printed: Sequence[str]) -> list[str]:
        """A sentence for each line of Kafka's controller that is not ours."""
        found = []
        is_cleared = False
        self.compared = len(self.lines)
        lines = zip(self.lines, self._expected, printed, strict=True)
        for number, (line, wanted, theirs) in enumerate(lines):
            key, version, answer, records = wanted
            shown, _, made = theirs.rpartition("\t")
            is_cleared |= any(each.startswith(_CLEAR_ELR) for each in line.split("\t")[1:])
            # Partitions come in the order of Kafka's hash tables.
            if sorted(made.split()) != sorted(records):
                # It keeps a leader to be that is no replica any more, which ours forgets.
                self.is_cut = number in self._forgetful or _is_fault_of_kafka(
                    key, shown, is_cleared=is_cleared, made=made.split(), ours=records
                )
                if self.is_cut:
                    self.compared = number
                    break
                found.append(f"{line}: Kafka writes {made}, ours {' '.join(records)}")
            elif isinstance(answer, str) and shown != answer:
                found.append(f"{line}: Kafka answers {shown}, ours {answer}")
            elif key is not None:
                api = APIS.get(key) or BETWEEN_NODES[key]
                data = memoryview(bytes.fromhex(shown)) if "error" not in shown else memoryview(b"")
                if not data:
                    found.append(f"{line}: Kafka answers {shown}, ours {answer}")
                    continue
                decoded, _ = codec.decode(api.response, version, data)
                if _comparable(key, decoded) != _comparable(key, answer):
                    found.append(f"{line}: Kafka answers {decoded}, ours {answer}")
        return found


class _OneByOne(Course):
    """A course in which one broker at a time is silent: Kafka takes several in no order."""

    def silence(self) -> None:
        """Time in which one broker is not heard of."""
        silent = self.chance.choice(BROKERS)
        for _ in range(3):
            self.cluster.pass_ms(4000)
            for broker_id in [*self.cluster.state.image.brokers]:
                if broker_id != silent:
                    self.cluster.beat(broker_id)

    def configure(self) -> None:
        """The size of an ISR changes seldom, since Kafka's controller goes wrong after it."""
        if self.chance.random() < 0.05:
            super().configure()

    def heal(self) -> None:
        """Nothing: all sessions would end together."""


def _recorded(seed: int, *, has_elr: bool) -> _Recorded:
    cluster = _Recorded(seed=seed, has_elr=has_elr)
    _OneByOne(seed, cluster).run()
    return cluster


def _is_fault_of_kafka(
    key: ApiKey | None, shown: str, *, is_cleared: bool, made: Sequence[str], ours: Sequence[str]
) -> bool:
    """Whether Kafka may make other records of a request, after which its epochs differ."""
    # The second record of a partition does not know of the first, which may end a reassignment.
    if key is ApiKey.ASSIGN_REPLICAS_TO_DIRS and len(made) > 1:
        return True
    # It may elect a leader that has come back with an empty disk, which ours forgets.
    if key is ApiKey.ASSIGN_REPLICAS_TO_DIRS and made:
        _, record = decode_data(bytes.fromhex(ours[0]))
        return isinstance(record, PartitionChangeRecord) and (
            record.last_known_elr == () or record.eligible_leader_replicas is not None
        )
    # It takes the word of a leader that has recovered for one that it elects uncleanly.
    if key is ApiKey.ALTER_PARTITION and len(made) == 1:
        _, record = decode_data(bytes.fromhex(made[0]))
        assert isinstance(record, PartitionChangeRecord)
        return record.leader >= 0 and record.leader_recovery_state == RECOVERED
    # It asks for the directory of a last known leader that is no replica any more, and fails.
    if shown == "error -1" or (key is ApiKey.ALTER_PARTITION_REASSIGNMENTS and "ffff" in shown):
        return True
    # Its index of eligible leaders keeps those that ClearElr has removed: when such a broker goes,
    # their partitions are changed twice, or elect though nothing has happened to them.
    return is_cleared and key in (ApiKey.BROKER_REGISTRATION, ApiKey.UNREGISTER_BROKER)


def _comparable(key: ApiKey, answer: Any) -> Any:  # noqa: ANN401 - any answer
    """An answer without texts, and without an order where Kafka's is that of its hash tables."""
    if key is ApiKey.ALTER_CLIENT_QUOTAS:
        return {(each.error_code, frozenset(map(_bare, each.entity))) for each in answer.entries}
    if key is ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        return {*_bare(answer).results}
    return _bare(answer)


def _bare(value: Any) -> Any:  # noqa: ANN401 - any part of a message
    """An answer without the texts of its errors, which are each side's own."""
    if isinstance(value, tuple):
        return tuple(map(_bare, value))
    names = getattr(type(value), "__slots__", None)
    if names is None or isinstance(value, UUID):
        return value
    parts = {name: _bare(getattr(value, name)) for name in names}
    if "error_message" in parts:
        parts["error_message"] = None
    return replace(value, **parts)
