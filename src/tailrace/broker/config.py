"""Settings of the broker: Kafka's names, from a properties file, the command line or keywords.

The broker's defaults for topics (`log.segment.bytes` and so on) are derived from the topic
settings themselves, so each has its default and its text in one place only.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.cluster.controller import TopicDefaults
from tailrace.config.settings import INT32_MAX, Setting, parse_settings
from tailrace.errors import ConfigError
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.storage.config import TOPIC_SETTINGS

OWN_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="node.id",
        kind="int",
        default=1,
        low=0,
        high=INT32_MAX,
        text="Number of this broker; must be that in the directory's meta.properties.",
    ),
    Setting(
        name="log.dirs",
        kind="string",
        default="",
        text="The data directory; --data on the command line.",
    ),
    Setting(
        name="listeners",
        kind="string",
        default="127.0.0.1:9092",
        text="HOST:PORT to listen on, also as PLAINTEXT://HOST:PORT; port 0 takes any free one.",
    ),
    Setting(
        name="advertised.listeners",
        kind="string",
        default="",
        text="HOST:PORT that clients are told to connect to; the one listened on if empty.",
    ),
    Setting(
        name="num.partitions",
        kind="int",
        default=1,
        low=1,
        high=10_000,
        text="Partitions of a topic that was created without a number.",
    ),
    Setting(
        name="default.replication.factor",
        kind="int",
        default=1,
        low=1,
        high=1,
        text="Replicas of a topic that was created without a number; one node has one.",
    ),
    Setting(
        name="auto.create.topics.enable",
        kind="bool",
        default=True,
        text="Whether asking for a topic that does not exist creates it.",
    ),
    Setting(
        name="socket.request.max.bytes",
        kind="int",
        default=FRAME_BYTES_MAX,
        low=1,
        high=INT32_MAX,
        text="Largest produce request in bytes; other requests have a lower limit of their own.",
    ),
    Setting(
        name="connections.max.idle.ms",
        kind="int",
        default=600_000,
        low=1,
        text="How long a connection may be silent before the broker closes it.",
    ),
    Setting(
        name="fetch.max.bytes",
        kind="int",
        default=55 * 1024 * 1024,
        low=1024,
        high=INT32_MAX,
        text="Most bytes of records in one fetch response; one batch may be larger.",
    ),
    Setting(
        name="log.flush.offset.checkpoint.interval.ms",
        kind="int",
        default=60_000,
        low=1,
        text="How often closed segments are flushed and the recovery points written.",
    ),
)


def _as_broker_setting(setting: Setting) -> Setting:
    name = setting.broker_name or setting.name
    return dataclasses.replace(
        setting, name=name, text=f"Default of the topic setting `{setting.name}`."
    )


TOPIC_DEFAULT_SETTINGS = tuple(_as_broker_setting(setting) for setting in TOPIC_SETTINGS)
BROKER_SETTINGS = OWN_SETTINGS + TOPIC_DEFAULT_SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything that a broker is started with."""

    data: str
    """The log directory."""
    node_id: int
    host: str
    port: int
    advertised: tuple[str, int] | None
    """Host and port for clients; None: where the broker listens."""
    auto_create_topics: bool
    frame_bytes_max: int
    idle_ms_max: int
    fetch_bytes_max: int
    checkpoint_interval_ms: int
    topic_defaults: TopicDefaults


def broker_config(given: Mapping[str, str]) -> BrokerConfig:
    """Typed settings from text.

    Raises:
        ConfigError: unknown names, values out of range, addresses that are none: all of them.
    """
    faults: list[str] = []
    try:
        values = parse_settings(BROKER_SETTINGS, given)
    except ConfigError as error:
        faults += error.faults
        known = {setting.name for setting in BROKER_SETTINGS}
        rest = {name: text for name, text in given.items() if _parses(name, text, known)}
        values = parse_settings(BROKER_SETTINGS, rest)
    host, port = _address("listeners", str(values["listeners"]), faults)
    advertised = None
    if values["advertised.listeners"]:
        advertised = _address("advertised.listeners", str(values["advertised.listeners"]), faults)
    if not values["log.dirs"]:
        faults.append("log.dirs: no data directory given; pass --data DIR")
    elif "," in str(values["log.dirs"]):
        faults.append("log.dirs: several data directories are not supported yet; give one")
    if faults:
        raise ConfigError(faults)
    return BrokerConfig(
        data=str(values["log.dirs"]),
        node_id=int(str(values["node.id"])),
        host=host,
        port=port,
        advertised=advertised,
        auto_create_topics=bool(values["auto.create.topics.enable"]),
        frame_bytes_max=int(str(values["socket.request.max.bytes"])),
        idle_ms_max=int(str(values["connections.max.idle.ms"])),
        fetch_bytes_max=int(str(values["fetch.max.bytes"])),
        checkpoint_interval_ms=int(str(values["log.flush.offset.checkpoint.interval.ms"])),
        topic_defaults=TopicDefaults(
            partition_count=int(str(values["num.partitions"])),
            replication_factor=int(str(values["default.replication.factor"])),
            configs={
                topic.name: given[broker.name]
                for topic, broker in zip(TOPIC_SETTINGS, TOPIC_DEFAULT_SETTINGS, strict=True)
                if broker.name in given
            },
        ),
    )


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[V6]:PORT`, `:PORT` (all addresses) or `PLAINTEXT://…`.

    Raises:
        ValueError: none of these; the message says what is expected.
    """
    scheme, _, rest = text.rpartition("://")
    if scheme not in ("", "PLAINTEXT"):
        raise ValueError(f"{text!r} wants {scheme}; only PLAINTEXT is supported")
    host, colon, port = rest.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - as asked for


def _address(name: str, text: str, faults: list[str]) -> tuple[str, int]:
    try:
        return parse_address(text)
    except ValueError as error:
        faults.append(f"{name}: {error}")
        return "", 0


def _parses(name: str, text: str, known: set[str]) -> bool:
    try:
        parse_settings([s for s in BROKER_SETTINGS if s.name == name], {name: text})
    except ConfigError:
        return False
    return name in known
