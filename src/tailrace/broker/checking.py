"""`checked`: all that is wrong with the settings of a broker, and what they mean here and in Kafka.

Nothing is started and no directory is looked at.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from tailrace.broker.config import BROKER_SETTINGS, BrokerConfig, broker_config
from tailrace.broker.roles import settings_without_effect
from tailrace.config.foreign import base_name, foreign_reason
from tailrace.config.settings import HIDDEN, is_secret_name
from tailrace.errors import ConfigError

DEPRECATED: Final = {
    "group.coordinator.rebalance.protocols": "the levels of features say which protocols there are",
    "log.cleaner.enable": "compaction is always on in Kafka 5",
    "remote.log.manager.thread.pool.size": "it is remote.log.manager.follower.thread.pool.size",
}
"""Settings that Kafka 4.3 takes and Kafka 5 does not, by their documentation there."""

OTHER_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({
    "broker.id": "-1, which is that of node.id",
    "controller.listener.names": "none: it has to be given",
    "listeners": "PLAINTEXT://:9092, all addresses of the machine",
    "log.dir": "/tmp/kafka-logs",  # noqa: S108 - it is Kafka's
    "log.flush.scheduler.interval.ms": "never, so that flush.ms alone has no effect",
    "max.connections": "no limit",
    "max.connections.per.ip": "no limit",
    "node.id": "none: it has to be given",
    "process.roles": "none: it has to be given",
    "queued.max.request.bytes": "no limit",
    "ssl.keystore.type": "JKS",
    "ssl.truststore.type": "JKS",
})  # fmt: skip
"""Settings whose default is another in Kafka, and what it is there."""


class Given(NamedTuple):
    """A setting as it was given."""

    name: str
    text: str
    place: str
    """Where: "line 3", or the name of a variable."""


class Finding(NamedTuple):
    """A sentence about the settings."""

    level: Literal["error", "warning", "kafka"]
    """`error`: the broker does not start; `warning`: something is not as it looks; `kafka`: Kafka
    takes it otherwise."""
    name: str
    """The setting; empty if it is about several."""
    place: str
    """Place of the setting; empty if it is not given."""
    text: str


class Checked(NamedTuple):
    """Findings about some settings, and their meaning."""

    findings: Sequence[Finding]
    """Errors first, then by their order."""
    config: BrokerConfig | None
    """None with errors."""
    changed: Mapping[str, str]
    """The settings with an effect that are not the defaults, by name; secrets are hidden."""


def checked(given: Sequence[Given]) -> Checked:
    """Check settings; of those with the same name the last counts."""
    texts = {each.name: each.text for each in given}
    places = {each.name: each.place for each in given}
    config, faults = None, []
    try:
        config = broker_config(texts)
    except ConfigError as error:
        faults = [*error.faults]
    order = {each.name: number for number, each in enumerate(given)}
    errors = sorted(
        (_error(fault, texts, places) for fault in faults),
        key=lambda each: order.get(each.name, len(order)),
    )
    wrong = {each.name for each in errors}
    # With errors nobody knows which listeners there are.
    ignored = () if config is None else config.ignored
    findings = [
        *errors,
        *_twice(given),
        *(
            Finding("warning", name, places[name], text)
            for name in texts
            if name not in wrong and (text := _without_effect(name, texts, ignored))
        ),
        *(
            Finding("warning", name, places[name], f"deprecated: {why}")
            for name, why in DEPRECATED.items()
            if name in texts
        ),
        *_other_values(given),
        *_other_defaults(texts),
    ]
    declared = {each.name: each for each in BROKER_SETTINGS}
    unused = settings_without_effect(texts)
    changed = {
        name: HIDDEN if declared[name].is_secret else texts[name]
        for name in texts.keys() & declared.keys() - unused - wrong
        if texts[name] != declared[name].format(declared[name].default)
    }
    return Checked(findings, config, dict(sorted(changed.items())))


def _error(fault: str, texts: Mapping[str, str], places: Mapping[str, str]) -> Finding:
    """A fault with the first setting that it names, of those that are given."""
    words = re.findall(r"[\w.-]+", fault)
    name = next((word.rstrip(".") for word in words if word.rstrip(".") in texts), "")
    return Finding("error", name, places.get(name, ""), fault.removeprefix(f"{name}: "))


def _twice(given: Iterable[Given]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for each in given:
        if each.name in seen:
            yield Finding(
                "warning", each.name, each.place, f"it is on {seen[each.name]} too; the last counts"
            )
        seen[each.name] = each.place


def _without_effect(name: str, texts: Mapping[str, str], ignored: Container[str]) -> str:
    """Why a setting has no effect; empty if it has one, or is unknown."""
    declared = {each.name: each for each in BROKER_SETTINGS}
    if name in declared:
        if declared[name].is_stored_only:
            return "kept and reported; it has no effect yet"
        if name in settings_without_effect(texts):
            roles = texts.get("process.roles") or "broker,controller"
            return f"no effect with process.roles={roles} and these listeners"
        return ""
    reason = foreign_reason(name)
    if reason is not None:
        return f"no effect here. {reason}"
    if name in ignored:
        base = base_name(name)
        return f"no effect here. There is no such listener, or it does not use its own {base}."
    return ""


def _other_values(given: Iterable[Given]) -> Iterator[Finding]:
    """Values and names that Kafka takes otherwise."""
    for each in given:
        if each.name.startswith("tailrace."):
            text = "Kafka has no such setting, and passes it over"
        elif each.name in ("listeners", "advertised.listeners") and any(
            part.strip() and "://" not in part for part in each.text.split(",")
        ):
            text = "Kafka refuses a listener without a name; PLAINTEXT:// is meant here"
        elif not each.text.isascii() and not is_secret_name(each.name):
            text = "Kafka reads the file as Latin-1, and here it is UTF-8; write \\uXXXX for both"
        else:
            continue
        yield Finding("kafka", each.name, each.place, text)


def _other_defaults(texts: Mapping[str, str]) -> Iterator[Finding]:
    """Settings that are left to a default that is another in Kafka."""
    declared = {each.name: each for each in BROKER_SETTINGS}
    left_out = {"broker.id"} | ({"log.dir"} if "log.dirs" in texts else set())
    left_out |= {
        f"ssl.{store}.type"
        for store in ("keystore", "truststore")
        if f"ssl.{store}.location" not in texts
    }
    for name, theirs in OTHER_DEFAULTS.items():
        if name not in texts and name not in left_out:
            ours = declared[name].format(declared[name].default) or "none"
            yield Finding("kafka", name, "", f"not given: {ours} here; in Kafka {theirs}")
