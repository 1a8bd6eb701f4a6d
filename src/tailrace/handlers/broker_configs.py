"""Read and alter the settings of this broker, for the APIs of settings (resource type BROKER).

    server.properties  <  settings of all brokers (name "")  <  settings of this broker  (KIP-226)

The last two are ConfigRecords of the metadata log. Those that change while the broker runs are in
`Services.settings.is_changeable`; all others are read only, and refused with Kafka's words.

An unknown name is refused, where Kafka keeps it for plug-ins: there are none here, so it is a
mistake. What a request deletes need not be there, and need not be known.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, partial
from typing import Final, NamedTuple

from tailrace.cluster.config_changes import ConfigChange, changed_configs
from tailrace.cluster.metadata.features import ELIGIBLE_LEADERS
from tailrace.cluster.metadata.image import MIN_INSYNC_REPLICAS, ConfigResource
from tailrace.cluster.records import config_records
from tailrace.config.foreign import ForeignSetting, base_name, foreign_settings
from tailrace.config.settings import (
    INT32_MAX,
    Setting,
    is_secret_name,
    parse_settings,
)
from tailrace.errors import ConfigError
from tailrace.handlers.config_entries import ConfigValue
from tailrace.handlers.services import InvalidRequestError, Services
from tailrace.protocol.config_resources import ConfigOperation, ConfigSource, ResourceType
from tailrace.security.sasl_config import JAAS
from tailrace.values import replace

ALL: Final = ""
"""The resource name of the settings that all brokers have."""

THROTTLES: Final = {
    "leader.replication.throttled.rate": "Most bytes in a second that followers get of the "
    "partitions which `leader.replication.throttled.replicas` names.",
    "follower.replication.throttled.rate": "Most bytes in a second that this broker fetches of the "
    "partitions which `follower.replication.throttled.replicas` names.",
}
"""Rates of copies between brokers (KIP-73), which exist only as changes, and their texts.
kafka-reassign-partitions sets and deletes them."""

_LIMITS: Final = (".max.connections", ".max.connection.creation.rate")
"""Ends of the limits of one listener, which are others than those of all."""

_RATE: Final = Setting(name="", default=0, low=0, text="")
"""The declaration of throttles, and of the limits of one listener."""

TYPES: Final = {
    "bool": 1, "string": 2, "int": 3, "short": 4, "long": 5, "float": 6, "list": 7, "class": 8,
    "password": 9,
}  # fmt: skip
"""Types of values, by Kafka's numbers."""

_OTHER_TYPES: Final = {
    "advertised.listeners": "list",
    "default.replication.factor": "int",
    "listener.security.protocol.map": "string",
    "listeners": "list",
    "log.cleaner.dedupe.buffer.size": "long",
    "log.dir": "list",
    "log.flush.offset.checkpoint.interval.ms": "int",
    "log.flush.start.offset.checkpoint.interval.ms": "int",
    "max.connections.per.ip.overrides": "string",
    "min.insync.replicas": "int",
    "offsets.topic.replication.factor": "short",
    "producer.id.expiration.ms": "int",
    "sasl.server.callback.handler.class": "class",
    "transaction.state.log.replication.factor": "short",
}
"""Settings whose type in Kafka does not follow from what they may be here."""

_UNSET: Final = frozenset({
    "advertised.listeners", "broker.rack", "controller.listener.names",
    "inter.broker.listener.name", "log.dir", "log.dirs", "log.flush.interval.ms",
    "log.retention.minutes", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms",
    "metadata.log.dir", "replica.selector.class", "sasl.kerberos.service.name",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url",
    "sasl.server.callback.handler.class", "ssl.key.location", "ssl.key.password",
    "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location",
    "ssl.keystore.password", "ssl.truststore.certificates", "ssl.truststore.location",
    "ssl.truststore.password",
})  # fmt: skip
"""Settings whose default in Kafka is null: they have no effect, or another one counts."""

_SYNONYMS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Settings that say the same in other units, the one that counts most first."""

_STORES: Final = frozenset({
    "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.type",
})  # fmt: skip
"""Settings that Kafka changes for single listeners alone (`SslConfigs.RECONFIGURABLE_CONFIGS`)."""

_PROTOCOLS: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
"""Kafka's default of listener.security.protocol.map."""


class BrokerEntry(NamedTuple):
    """A setting of this broker or of all brokers, as DescribeConfigs returns it."""

    name: str
    values: Sequence[ConfigValue]
    """In order of precedence; empty if only other units or nothing at all is set."""
    value: str | None
    """The one that counts, in Kafka's notation; None: nothing is set, or it is secret."""
    type: int
    text: str
    """Its documentation."""
    is_sensitive: bool = False
    is_read_only: bool = True


def broker_entries(services: Services, name: str) -> Iterator[BrokerEntry]:
    """Every setting of this broker, or with the name "" those that are set for all brokers.

    Raises:
        InvalidRequestError: the name is of another broker, or no number.
    """
    if name:
        check_is_this_broker(services, name, kind="Broker id", also=" or empty string,")
    layers = _layers(services)
    settings, foreign = services.settings, _shown_foreign()
    known = dict.fromkeys((*settings.declared, *foreign))
    # Names that only another broker knows are shown too: a tool can delete them.
    dynamic = {key: None for layer in layers[:2] for key in layer.values}
    # As in Kafka those of single listeners are shown where they are given.
    dynamic |= dict.fromkeys(filter(settings.is_changeable, layers[2].values))
    names = known | dynamic if name else dict.fromkeys(layers[1].values)
    for each in names:
        values = _values(each, layers)
        if not name:
            values = [v for v in values if v.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
        declared, other = _declared(services, each), foreign.get(each)
        is_changeable = settings.is_changeable(each)
        if declared is not None:
            value = _normal(services, declared, str(values[0].text)) if values else None
            other_type = _OTHER_TYPES.get(each)
            type_ = type_of(declared) if other_type is None else TYPES[other_type]
            if declared.is_secret:
                values, value, type_ = _without_texts(values), None, TYPES["password"]
            yield BrokerEntry(
                each, values, value, type_, declared.text,
                is_sensitive=declared.is_secret, is_read_only=not is_changeable,
            )  # fmt: skip
        elif other is not None:
            is_secret = other.kind == "password"
            if is_secret:
                values = _without_texts(values)
            value = values[0].text if values else None
            text = f"No effect here. {other.reason}"
            yield BrokerEntry(each, values, value, TYPES[other.kind], text, is_sensitive=is_secret)
        elif is_changeable and each.endswith(_LIMITS):
            text = "The limit of connections of one listener."
            yield BrokerEntry(each, values, values[0].text, TYPES["int"], text, is_read_only=False)
        elif is_changeable:
            yield BrokerEntry(
                each, _without_texts(values), None, TYPES["password"],
                "The JAAS entry of a mechanism of one listener.",
                is_sensitive=True, is_read_only=False,
            )  # fmt: skip
        elif each in THROTTLES:
            yield BrokerEntry(
                each, values, values[0].text, TYPES["long"], THROTTLES[each], is_read_only=False
            )
        else:
            # Another broker has stored it. Kafka shows no value of a name that it does not know.
            values = _without_texts(values)
            yield BrokerEntry(each, values, None, 0, "Not known here.", is_sensitive=True)


async def alter_broker(
    services: Services,
    name: str,
    changes: Sequence[ConfigChange],
    *,
    is_replaced: bool,
    is_dry_run: bool,
) -> None:
    """Change the settings of this broker, or of all; they are on the device, and in use, then.

    Raises:
        InvalidRequestError: another broker; a setting that does not change while a broker runs; a
            value out of range, or that contradicts others.
        ConfigError: an unknown name; an operation of lists on another setting; the setting of all
            brokers without which eligible leader replicas could not be kept.
        StorageError: the device refused; nothing has changed.
    """
    if name:
        check_is_this_broker(services, name, kind="Node id")
    _check_names(services, changes)
    image = services.cluster.metadata
    stored = image.configs_of(ResourceType.BROKER, name)
    planned, faults = changed_configs(
        {} if is_replaced else stored, changes, declared=services.settings.declared, defaults={}
    )
    if faults:
        raise ConfigError(faults)
    _check_values(services, planned, changes)
    _check_insync(services, name, before=stored, after=planned)
    layers = {ALL: image.configs_of(ResourceType.BROKER, ALL), str(services.node_id): {}}
    layers[str(services.node_id)] = image.configs_of(ResourceType.BROKER, str(services.node_id))
    layers[name and str(services.node_id)] = planned
    try:
        # Both together: a change for all brokers may contradict what this one has of its own
        # (KIP-226).
        services.settings.check(layers[ALL], layers[str(services.node_id)])
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from None
    if planned == stored or is_dry_run:
        return
    make = partial(config_records, owner=ConfigResource(ResourceType.BROKER, name), wanted=planned)
    await services.changes.on_device(partial(services.own_controller.write, make))
    # After the write: settings that were refused by the device must not be in use.
    await services.settings.apply()


def check_is_this_broker(services: Services, name: str, *, kind: str, also: str = ",") -> None:
    """Check that a resource names this broker, by its number.

    Raises:
        InvalidRequestError: the name is another number, or no number; the words are Kafka's.
    """
    # As Java reads it: Python's `int` takes more, such as "1_0".
    if re.fullmatch(r"[+-]?[0-9]{1,10}", name) is None:
        raise InvalidRequestError(f"{kind} must be an integer, but it is: {name[:40]}")
    number = int(name)
    if number != services.node_id:
        raise InvalidRequestError(
            f"Unexpected broker id, expected {services.node_id}{also} but received {number}"
        )


def _check_names(services: Services, changes: Iterable[ConfigChange]) -> None:
    settings, foreign = services.settings, _shown_foreign()
    # A deletion is always allowed: the setting may be from a broker with plug-ins.
    named = [each.name for each in changes if each.operation is not ConfigOperation.DELETE]
    unprefixed = [each for each in named if each in _STORES]
    if unprefixed:
        raise InvalidRequestError(
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: [{', '.join(unprefixed)}]"
        )
    known = settings.declared.keys() | foreign.keys()
    others = [each for each in named if not settings.is_changeable(each)]
    fixed = [each for each in others if base_name(each) in known]
    if fixed:
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    unknown = {each: "" for each in others if each not in THROTTLES}
    if unknown:
        changeable = (*filter(settings.is_changeable, settings.declared), *THROTTLES)
        # It knows none of them, and finds what may have been meant.
        parse_settings((), unknown, others=lambda: sorted(changeable))


def _check_values(
    services: Services, planned: Mapping[str, str], changes: Iterable[ConfigChange]
) -> None:
    faults = []
    for name in {each.name for each in changes} & planned.keys():
        setting = _declared(services, name)
        if setting is None and name.endswith(JAAS):
            continue  # It is read with the other settings of its listener.
        try:
            replace(setting or _RATE, name=name).parse(planned[name])
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise InvalidRequestError("; ".join(sorted(faults)))


def _declared(services: Services, name: str) -> Setting | None:
    """The declaration of a setting; of one listener's it is the one without its prefix."""
    declared = services.settings.declared
    base = name if name.endswith(_LIMITS) else base_name(name)
    return declared.get(name, declared.get(base))


def _check_insync(
    services: Services, name: str, *, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Check the setting that eligible leader replicas depend on (KIP-966), with Kafka's words."""
    if not services.cluster.image.features.get(ELIGIBLE_LEADERS):
        return
    old, new = before.get(MIN_INSYNC_REPLICAS), after.get(MIN_INSYNC_REPLICAS)
    # One value for the whole cluster, because eligible leaders are decided by the controller.
    if name and old != new:
        raise ConfigError(
            [f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."]
        )
    if not name and old is not None and new is None:
        raise ConfigError(
            [f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."]
        )


def _is_secret(services: Services, name: str) -> bool:
    """Whether the value of a setting, which may be of a single listener, is shown nowhere."""
    base = base_name(name)
    declared, foreign = services.settings.declared.get(base), foreign_settings().get(base)
    if declared is not None:
        return declared.is_secret
    return is_secret_name(name) or (foreign is not None and foreign.kind == "password")


def _without_texts(values: Iterable[ConfigValue]) -> list[ConfigValue]:
    return [value._replace(text=None) for value in values]


@cache
def _shown_foreign() -> Mapping[str, ForeignSetting]:
    """The settings without effect that Kafka's DescribeConfigs shows."""
    return {name: each for name, each in foreign_settings().items() if each.kind}


class _Layer(NamedTuple):
    """The values that one source has."""

    source: ConfigSource
    values: Mapping[str, str]


def _layers(services: Services) -> tuple[_Layer, ...]:
    """The values of every source, the one that counts most first."""
    image = services.cluster.metadata
    return (
        _Layer(
            ConfigSource.DYNAMIC_BROKER,
            _usable(services, image.configs_of(ResourceType.BROKER, str(services.node_id))),
        ),
        _Layer(
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
            _usable(services, image.configs_of(ResourceType.BROKER, ALL)),
        ),
        _Layer(ConfigSource.BROKER, _given(services)),
        _Layer(ConfigSource.DEFAULT, _defaults(services)),
    )


def _usable(services: Services, stored: Mapping[str, str]) -> dict[str, str]:
    """The stored values without those that are refused here, which do not count; as in Kafka."""
    found = {}
    for name, text in stored.items():
        setting = services.settings.declared.get(name)
        with suppress(ValueError):
            if setting is not None:
                setting.parse(text)
            found[name] = text
    return found


def _given(services: Services) -> dict[str, str]:
    """The settings of the start in the notation of Kafka."""
    found = dict(services.settings.given)
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if name in found:
            found.setdefault(other, found[name])
    for name in found.keys() & services.settings.declared.keys():
        found[name] = _normal(services, services.settings.declared[name], found[name])
    return found


def _defaults(services: Services) -> dict[str, str]:
    found = {
        name: _normal(services, each, each.format(each.default))
        for name, each in services.settings.declared.items()
        if name not in _UNSET
    }
    found["listener.security.protocol.map"] = _PROTOCOLS
    found["ssl.keystore.type"] = found["ssl.truststore.type"] = "JKS"
    found |= {
        name: each.default for name, each in _shown_foreign().items() if each.default is not None
    }
    return found


def _normal(services: Services, setting: Setting, text: str) -> str:
    """The text of a value as Kafka writes it: `true` for `TRUE`, PLAINTEXT://h:1 for h:1."""
    text = setting.format(setting.parse(text))
    if setting.kind == "float":
        return _java_double(float(text))
    if setting.name in ("listeners", "advertised.listeners"):
        return ",".join(_listener(services, part.strip()) for part in text.split(",") if part)
    return text


def _java_double(number: float) -> str:
    """The number as Java prints it: 0.5, 1.0E7."""
    # The limits at which Double.toString changes to scientific notation.
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    mantissa, _, exponent = f"{Decimal(repr(number)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _listener(services: Services, text: str) -> str:
    """A listener with its name, and with the port that is open instead of port 0."""
    name, _, address = text.rpartition("://")
    host, _, port = address.rpartition(":")
    name = name or "PLAINTEXT"
    if port == "0":
        # That of a controller is not open here.
        port = str(services.settings.port_of(name.upper()) or 0)
    return f"{name}://{host}:{port}"


def _values(name: str, layers: Sequence[_Layer]) -> list[ConfigValue]:
    """The values of a setting and of those in other units, in the order of their precedence.

    As in Kafka, values before the first of the setting itself are left out.
    """
    group = next((each for each in _SYNONYMS if name in each), (name,))
    found = [
        ConfigValue(each, layer.values[each], layer.source)
        for layer in layers
        for each in group
        if each in layer.values
    ]
    own = [number for number, value in enumerate(found) if value.name == name]
    return found[own[0] :] if own else []


def type_of(setting: Setting) -> int:
    """The type of a setting by Kafka's number, as far as its limits tell."""
    is_long = setting.kind == "int" and (setting.high is None or setting.high > INT32_MAX)
    return TYPES["long" if is_long else setting.kind]
