"""`ConsumerConfig`: the settings of one consumer, parsed and checked against each other.

Names, defaults and ranges are Kafka's; times are ms, sizes bytes. Names may be written dotted or
with underscores.
"""

import re
from collections.abc import Mapping
from itertools import count
from typing import Any, ClassVar, Final

from tailrace.client.config import RecordsConfig, given_settings, typed_settings
from tailrace.client.consumer.subscription import ResetPolicy
from tailrace.client.foreign import Client
from tailrace.config import setting, settings_of
from tailrace.config.settings import INT32_MAX
from tailrace.errors import ConfigError
from tailrace.model import IsolationLevel
from tailrace.values import dataclass

_numbers = count(1)

_RESETS: Final = ("earliest", "latest", "none")
_BY_DURATION: Final = "by_duration:"


_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def parse_duration_ms(text: str) -> int | None:
    """The milliseconds of an ISO 8601 duration such as PT1H30M or P2DT3.5S; None if it is none."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def _is_reset(text: object) -> bool:
    if not isinstance(text, str):
        return False
    if text.startswith(_BY_DURATION):
        return parse_duration_ms(text.removeprefix(_BY_DURATION)) is not None
    return text in _RESETS


def _reset_policy(text: str) -> ResetPolicy:
    duration = text.removeprefix(_BY_DURATION)
    if duration == text:
        return ResetPolicy(text)
    return ResetPolicy("by_duration", parse_duration_ms(duration) or 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ConsumerConfig(RecordsConfig):
    """Settings of one consumer, checked against each other."""

    client: ClassVar[Client] = Client.CONSUMER

    group_id: str | None = setting(
        "group.id",
        default="",
        convert=lambda text: text or None,
        text="The group of the consumer; needed to subscribe and to commit.",
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        default="",
        convert=lambda text: text or None,
        text=(
            "A name that this member keeps when it starts again: it gets its partitions back "
            "within `session.timeout.ms`, without a rebalance."
        ),
    )
    # Kafka's default: brokers before 4.0 do not know the other one.
    group_protocol: str = setting(
        "group.protocol",
        default="classic",
        choices=("classic", "consumer"),
        text=(
            "classic: a member assigns the partitions; consumer: the broker does (KIP-848, Kafka "
            "4.0 and later)."
        ),
    )
    group_remote_assignor: str | None = setting(
        "group.remote.assignor",
        default="",
        convert=lambda text: text or None,
        text="The broker's assignor with `group.protocol=consumer`, such as uniform or range.",
    )
    # Kafka's default. With both names a group moves to cooperative rebalances by one rolling
    # restart, which removes `range` (KIP-429).
    partition_assignment_strategy: tuple[str, ...] = setting(
        "partition.assignment.strategy",
        default=("range", "cooperative-sticky"),
        choices=("range", "roundrobin", "sticky", "cooperative-sticky"),
        text=(
            "How a group of the classic protocol distributes partitions; the first one that all "
            "members have."
        ),
    )
    # by_duration is KIP-1106.
    auto_offset_reset: ResetPolicy = setting(
        "auto.offset.reset",
        default="latest",
        is_allowed=_is_reset,
        rule_text="earliest, latest, none, by_duration:PnDTnHnMn.nS",
        convert=_reset_policy,
        text=(
            "Where to begin without a committed offset, or where the log does not have the "
            "position any more. none raises an error."
        ),
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit",
        default=True,
        text=(
            "Commit what the program has handled, every `auto.commit.interval.ms`, before "
            "partitions go to others, and in `close`."
        ),
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms",
        default=5000,
        low=0,
        high=INT32_MAX,
        text="How often offsets are committed.",
    )
    # Kafka's default: it needs no transactions, and has no wait for open ones (KIP-98).
    isolation_level: IsolationLevel = setting(
        "isolation.level",
        default="read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        convert=lambda text: IsolationLevel[text.upper()],
        text=(
            "read_committed: leave out records of aborted transactions, and end before the first "
            "open one."
        ),
    )
    fetch_min_bytes: int = setting(
        "fetch.min.bytes",
        default=1,
        low=0,
        high=INT32_MAX,
        text="Bytes that a broker waits for before it answers, up to `fetch.max.wait.ms`.",
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms",
        default=500,
        low=0,
        high=INT32_MAX,
        text="How long a broker waits for `fetch.min.bytes`.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        default=52428800,
        low=0,
        high=INT32_MAX,
        text=(
            "Bytes of records that are kept in memory for each broker: received and not returned, "
            "or asked for. A larger batch comes alone."
        ),
    )
    # Kafka has 1048576. An answer costs the same CPU whatever its size (decision 50).
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes",
        default=4194304,
        low=0,
        high=INT32_MAX,
        text=(
            "Bytes of one partition in one answer; up to three answers are kept or under way. The "
            "partitions of a broker share them, and each gets 1048576 at least."
        ),
    )
    max_poll_records: int = setting(
        "max.poll.records",
        default=500,
        low=1,
        high=INT32_MAX,
        text="Most records that one `poll` returns.",
    )
    # Heartbeats go out beside the program, so a program that hangs needs its own limit (KIP-62).
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms",
        default=300000,
        low=1,
        high=INT32_MAX,
        text=(
            "Longest time between two calls of `poll`, or between two records of a loop; after "
            "that the consumer leaves its group, since its program seems to hang."
        ),
    )
    # 45 s since Kafka 3.0 (KIP-735): 10 s were too short for the networks of clouds.
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        default=45000,
        low=1,
        high=INT32_MAX,
        text=(
            "A member that the coordinator does not hear from for so long is out of the group; "
            "`group.protocol=classic` only."
        ),
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms",
        default=3000,
        low=1,
        high=INT32_MAX,
        text="How often the member reports; below `session.timeout.ms`.",
    )
    # Also for range and the sticky assignors (KIP-881).
    client_rack: str = setting(
        "client.rack",
        default="",
        text="The consumer's rack: brokers may have it fetch from a replica there (KIP-392).",
    )
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        default=True,
        text="Whether a broker may create a topic because this consumer asks for it.",
    )
    # Every batch is checked when it arrives, whatever this says (decision 43).
    check_crcs: bool = setting(
        "check.crcs",
        default=True,
        is_stored_only=True,
        text="Accepted for Kafka's sake: every batch is always checked.",
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics",
        default=True,
        text="Whether a pattern leaves out Kafka's own topics.",
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        default=60000,
        low=0,
        high=INT32_MAX,
        text="How long a call waits that is given no timeout: commit, position, end_offsets.",
    )

    @property
    def group(self) -> str:
        """The id of the group, for the parts of a consumer that has one."""
        assert self.group_id is not None, "there is a group"
        return self.group_id


CONSUMER_SETTINGS = settings_of(ConsumerConfig)
"""All settings of a consumer."""


def parse_consumer_config(
    given: object, more: Mapping[str, object] | None = None
) -> ConsumerConfig:
    """The settings of a consumer from names and values; the rest have their defaults.

    See `given_settings` for what `given` and `more` may be.

    Raises:
        TypeError: `given` is no mapping.
        ConfigError: unknown names with what may have been meant, bad values, and settings that
            contradict each other; all of them at once.
    """
    if isinstance(given, str):
        raise TypeError(f"settings is a str; read a topic by subscribe({given!r})")
    faults: list[str] = []
    texts = given_settings(given, more, faults=faults)
    if texts.get("group.id", "").isspace():
        faults.append("group.id: it has only spaces; give a name, or leave it out to have no group")
    _shorten_assignors(texts)
    typed = typed_settings(ConsumerConfig, texts, faults=faults)
    typed["client_id"] = (
        typed["client_id"] or f"consumer-{typed['group_id'] or 'nogroup'}-{next(_numbers)}"
    )
    _check_group(typed, texts, faults)
    if faults:
        raise ConfigError(faults)
    return ConsumerConfig(**typed)


_JAVA_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def _shorten_assignors(texts: dict[str, str]) -> None:
    """Take the class names of Kafka's assignors for their names."""
    name = "partition.assignment.strategy"
    if name in texts:
        # Settings are copied from Java programs.
        parts = (each.strip() for each in texts[name].split(","))
        texts[name] = ",".join(_JAVA_ASSIGNORS.get(each, each) for each in parts)


def _check_group(typed: dict[str, Any], given: Mapping[str, str], faults: list[str]) -> None:
    if typed["group_id"] is None:
        # Kafka's client refuses it, too, and turns the default off without a group.
        if typed["enable_auto_commit"] and "enable.auto.commit" in given:
            faults.append("enable.auto.commit: group.id must be given, since a group has offsets")
        typed["enable_auto_commit"] = False
        if typed["group_instance_id"] is not None:
            faults.append("group.instance.id: group.id must be given")
    # Kafka's client refuses these three, too: a setting without effect hides a mistake.
    if typed["group_protocol"] == "consumer":
        faults += [
            f"{name}: has no effect with group.protocol=consumer, the broker decides; leave it out"
            for name in (
                "session.timeout.ms",
                "heartbeat.interval.ms",
                "partition.assignment.strategy",
            )
            if name in given
        ]
    else:
        if "group.remote.assignor" in given:
            faults.append("group.remote.assignor: needs group.protocol=consumer")
        # The session would end between two heartbeats.
        if typed["heartbeat_interval_ms"] >= typed["session_timeout_ms"]:
            faults.append(
                f"heartbeat.interval.ms: {typed['heartbeat_interval_ms']} must be below "
                f"session.timeout.ms ({typed['session_timeout_ms']}), a third of it at most"
            )
        if not typed["partition_assignment_strategy"]:
            faults.append("partition.assignment.strategy: name at least one")
