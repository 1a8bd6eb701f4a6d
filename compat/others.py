"""Clients of other languages at work on our broker: franz-go, sarama, kafkajs, and Kafka's own.

Each has the same commands, in `compat/others/`:

    produce TOPIC COUNT          records 0 to COUNT - 1 with ten keys, idempotent, acks=all
    consume TOPIC GROUP SECONDS  what a member of the group reads, one `PARTITION OFFSET VALUE` a
                                 line; commits after each poll, ends when nothing comes for 3 s, and
                                 waits SECONDS for the first record
    transform FROM TO GROUP      the same, with each value `v` sent as `tv` in the transaction that
                                 commits its offset; the first of three is aborted, and repeated
    transact TOPIC COUNT         COUNT times a transaction that commits `cN`, and at once one that
                                 sends `aN` and aborts; `leaked aN` for a record that the
                                 client has not given up then; `transaction_loops` runs it
    exchange TOPIC GROUP COUNT   produce and then consume
    trickle TOPIC COUNT          records 0 to COUNT - 1, one every 0.1 s, each when the one before
                                 is acknowledged; Kafka's client says how often it has logged in
                                 again

krafka, which is Rust, and librdkafka have those without transactions. Arguments NAME=VALUE are
settings by Kafka's names; `secured_clients` gives those of certificates and logins.

Invariant: the versions of the libraries are pinned, in `go.mod`, `Cargo.toml` and here.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from compat import clients, ours
from compat.artifacts import cache_directory
from compat.kafka import java_command
from compat.processes import bound_to_us, run
from compat.report import Report
from compat.topics import create_topics
from tailrace.errors import FatalError

KAFKAJS_VERSION = "2.2.4"
PARTITION_COUNT = 4
MEMBER_COUNT = 2
RECORD_COUNT = 2_000
BUILD_SECONDS_MAX = 600
RUN_SECONDS_MAX = 240
SHARED_SECONDS_MAX = 90
"""Until a group has its members. The first one of a broker waits until its topic is created and
loaded, for 30 s on a machine with a load of 17."""
PATIENCE_SECONDS = "120"
"""For how long these members wait for the first record."""
LATER_SECONDS = "8"
"""Patience of a member that should read nothing; it joins in a fraction of that."""

_RECORD = re.compile(r"\d+ \d+ ")
_SOURCES = Path(__file__).with_name("others")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherClient:
    """A client library, and the command that begins each of its runs."""

    name: str
    command: tuple[str, ...]
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Mechanisms of SASL that it does not have, with the reason."""


def find_clients(java: Path, class_path: str, environment: Mapping[str, str]) -> list[OtherClient]:
    """Build what is not in the cache, and return every client that has transactions.

    Raises:
        FatalError: Go or Node is missing, or a build fails; one line says what to do.
    """
    cache = cache_directory(environment)
    classes = _build_java(cache, java, class_path)
    java_run = java_command(java, f"{classes}:{class_path}", ["Others"])
    go, node = _build_go(cache), _install_kafkajs(cache)
    return [
        OtherClient(name="franz-go", command=(str(go), "franz-go")),
        OtherClient(name="sarama", command=(str(go), "sarama")),
        OtherClient(name="kafkajs", command=node, lacks={"GSSAPI": "only with code of one's own"}),
        OtherClient(name="Kafka's client, classic groups", command=(*java_run, "classic")),
        OtherClient(name="Kafka's client, consumer groups", command=(*java_run, "consumer")),
    ]


def find_more_clients(environment: Mapping[str, str]) -> list[OtherClient]:
    """Build what is not in the cache, and return the clients whose programs have no transactions.

    Raises:
        FatalError: Rust is missing, or a build fails; one line says what to do.
    """
    krafka = _build_rust(cache_directory(environment))
    program = str(_SOURCES / "librdkafka.py")
    no_kerberos = "the package from PyPI is built without Kerberos"
    return [
        OtherClient(name="krafka", command=(str(krafka),), lacks={"GSSAPI": "not in this library"}),
        OtherClient(
            name="librdkafka", command=(sys.executable, program), lacks={"GSSAPI": no_kerberos}
        ),
    ]


def check(report: Report, found: Iterable[OtherClient], directory: Path) -> None:
    """Have each produce, consume in a group of two, and transform in transactions."""
    logs = directory / "others"
    logs.mkdir()
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with ours.serving(logs, settings=settings) as servers:
        check_at(report, found, servers)


def check_at(report: Report, found: Iterable[OtherClient], servers: str) -> None:
    """The same on brokers that run."""
    for number, client in enumerate(found):
        _check_client(report, client, servers, prefix=f"others-{number}")


def _check_client(report: Report, client: OtherClient, servers: str, *, prefix: str) -> None:
    source, target = f"{prefix}-source", f"{prefix}-target"
    create_topics(servers, {source: {}, target: {}}, partition_count=PARTITION_COUNT)
    expected = Counter(str(number) for number in range(RECORD_COUNT))
    group = f"{prefix}-shared"
    with ThreadPoolExecutor(MEMBER_COUNT) as members:
        told = [
            members.submit(_run, client, "consume", servers, source, group, PATIENCE_SECONDS)
            for _ in range(MEMBER_COUNT)
        ]
        _wait_until_shared(servers, group)
        _run(client, "produce", servers, source, str(RECORD_COUNT))
        read = [each.result() for each in told]
    sent = _values(servers, source, is_committed=False)
    report.check(f"{client.name}: what it produces is there once", [*_differing(expected, sent)])
    values = Counter(line.split(" ", 2)[2] for lines in read for line in lines)
    report.check(
        f"{client.name}: two members of a group share its records",
        [
            *_differing(expected, values),
            *(f"member {number} has read none" for number, each in enumerate(read) if not each),
        ],
    )
    report.check(
        f"{client.name}: its group has committed everything", [*_lagging(servers, source, group)]
    )
    again = _run(client, "consume", servers, source, group, LATER_SECONDS)
    report.check(f"{client.name}: a member that comes later reads nothing again", again)

    _run(client, "transform", servers, source, target, f"{prefix}-transform")
    made = _values(servers, target, is_committed=True)
    wanted = Counter(f"t{value}" for value in expected)
    report.check(
        f"{client.name}: transactions that consume and produce do so exactly once",
        [*_differing(wanted, made), *_lagging(servers, source, f"{prefix}-transform")],
    )
    aborted = sum(_values(servers, target, is_committed=False).values()) - RECORD_COUNT
    report.check(
        f"{client.name}: records of aborted transactions are in the log, and not committed",
        [] if aborted > 0 else ["no transaction was aborted"],
    )


def _wait_until_shared(servers: str, group: str) -> None:
    """Return when every member of the group has partitions.

    Raises:
        FatalError: that takes too long.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    deadline = time.monotonic() + SHARED_SECONDS_MAX
    while True:
        refusal = ""
        try:
            found = admin.describe_consumer_groups([group])[group].result()
            shares = [each.assignment.topic_partitions for each in found.members]
        except KafkaException as error:
            shares, refusal = [], f": {error}"
        if len(shares) == MEMBER_COUNT and all(shares):
            return
        if time.monotonic() > deadline:
            raise FatalError(f"{group}: its members have the partitions {shares}{refusal}")
        time.sleep(0.2)


def run_client(client: OtherClient, command: str, *arguments: str) -> str:
    """Run a command and return what it prints.

    Raises:
        FatalError: it failed, with a line of its error; or it takes too long.
    """
    whole = bound_to_us([*client.command, command, *arguments])
    return run(whole, name=f"{client.name}, {command},", seconds_max=RUN_SECONDS_MAX)


def records_of(printed: str) -> list[str]:
    """The lines of records, without what the library of a client logs."""
    return [line for line in printed.splitlines() if _RECORD.match(line)]


def _run(client: OtherClient, *arguments: str) -> list[str]:
    return records_of(run_client(client, *arguments))


def _values(servers: str, topic: str, *, is_committed: bool) -> Counter[str]:
    places = [(topic, number) for number in range(PARTITION_COUNT)]
    read = clients.read_partitions(servers, places, is_committed=is_committed)
    return Counter(
        (each.value or b"").decode() for found in read.values() for each in found.records
    )


def _differing(expected: Counter[str], found: Counter[str]) -> Iterator[str]:
    yield from (f"{value} is missing" for value in expected - found)
    yield from (f"{value} is there too often" for value in found - expected)


def _lagging(servers: str, topic: str, group: str) -> Iterator[str]:
    """The partitions whose committed offset is not the end for readers of committed records."""
    places = [TopicPartition(topic, number) for number in range(PARTITION_COUNT)]
    settings = {"bootstrap.servers": servers, "group.id": group, "log_level": 0}
    reader = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        for each in reader.committed(places, clients.WAIT_SECONDS):
            _, end = reader.get_watermark_offsets(each, clients.WAIT_SECONDS)
            if each.offset != end:
                yield f"{group}: {topic}-{each.partition} is at {each.offset} of {end}"
    finally:
        reader.close()


def _build_java(cache: Path, java: Path, class_path: str) -> Path:
    source = _SOURCES / "Others.java"
    directory = cache / f"java-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not (directory / "Others.class").exists():
        javac = str(java.with_name("javac"))
        cache.mkdir(parents=True, exist_ok=True)
        _run_in(cache, [javac, "-cp", class_path, "-d", str(directory), str(source)], name="javac")
    return directory


def _build_go(cache: Path) -> Path:
    sources = sorted([*_SOURCES.glob("*.go"), _SOURCES / "go.mod"])
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    directory = cache / f"go-{digest}"
    program = directory / "others"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise FatalError(
                "no Go to build franz-go and sarama: install it (golang, 1.24 or newer)"
            )
        directory.mkdir(parents=True, exist_ok=True)
        for each in sources:
            shutil.copy(each, directory)
        for arguments in (["mod", "tidy"], ["build", "-o", "built", "."]):
            _run_in(directory, [go, *arguments], name=f"go {arguments[0]}")
        (directory / "built").replace(program)
    return program


def _build_rust(cache: Path) -> Path:
    sources = [_SOURCES / name for name in ("Cargo.toml", "krafka.rs")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    directory = cache / f"rust-{digest}"
    program = directory / "krafka-at-work"
    if not program.exists():
        cargo = shutil.which("cargo")
        if cargo is None:
            raise FatalError("no Rust to build krafka: install it (rustup, 1.95 or newer)")
        directory.mkdir(parents=True, exist_ok=True)
        for each in sources:
            shutil.copy(each, directory)
        # One directory for all versions of the program: its dependencies are most of the work.
        target = cache / "rust-target"
        arguments = ["build", "--quiet", "--target-dir", str(target)]
        _run_in(directory, [cargo, *arguments], name="cargo build")
        shutil.copy(target / "debug" / program.name, program)
    return program


def _install_kafkajs(cache: Path) -> tuple[str, ...]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise FatalError("no Node to run kafkajs: install it (Debian: apt-get install nodejs npm)")
    directory = cache / f"kafkajs-{KAFKAJS_VERSION}"
    modules = directory / "node_modules"
    if not (modules / "kafkajs" / "package.json").exists():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "package.json").write_text(
            json.dumps({"private": True, "dependencies": {"kafkajs": KAFKAJS_VERSION}})
        )
        _run_in(directory, [npm, "install", "--no-audit", "--no-fund"], name="npm install")
    env = shutil.which("env") or "/usr/bin/env"
    return (env, f"NODE_PATH={modules}", node, str(_SOURCES / "kafkajs.js"))


def _run_in(directory: Path, command: Sequence[str], *, name: str) -> None:
    try:
        told = subprocess.run(  # noqa: S603 - the Go or npm that was found
            bound_to_us(command), cwd=directory, capture_output=True, text=True, check=False,
            timeout=BUILD_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise FatalError(f"{name} has not ended in {BUILD_SECONDS_MAX} s; try again") from error
    if told.returncode:
        raise FatalError(f"{name} failed: {(told.stderr or told.stdout)[-500:]}")
