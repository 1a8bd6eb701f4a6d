"""AlterConfigs, also incremental: settings of topics, brokers and groups, as records of the log.

Each resource is changed or refused by itself, with all of its changes.

Not here: settings of loggers, which are no records; the values of broker settings, which the broker
checks before it forwards a request (it knows its own), as in Kafka. The rules for groups and for
subscriptions to metrics are given to the state.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from tailrace.cluster.config_changes import ConfigChange, changed_configs, plan_configs
from tailrace.cluster.control.state import ControlState, Decision, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    MIN_INSYNC_REPLICAS,
    ConfigResource,
    MetadataImage,
)
from tailrace.cluster.partition_change import CORDONS_SINCE
from tailrace.cluster.topic_rules import InvalidTopicNameError, check_topic_name
from tailrace.errors import ConfigError
from tailrace.protocol.config_resources import (
    RESOURCE_TYPES,
    ConfigOperation,
    ConfigSource,
    ResourceType,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tailrace.protocol.messages.create_topics import CreatableTopicConfigs
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tailrace.storage.config import usable_configs

_OF_LISTS: Final = (ConfigOperation.APPEND, ConfigOperation.SUBTRACT)
_CORDONED: Final = "cordoned.log.dirs"
_COMMA: Final = re.compile(r"\s*,\s*")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_VALUE_CHARACTERS_MAX: Final = 32_767
"""Kafka's limit of a value, so that appending to a list ends somewhere."""


class _Alteration(NamedTuple):
    """The changes of a request to one resource."""

    owner: ConfigResource
    changes: Callable[[], Sequence[ConfigChange]]
    """Checks them, and may refuse."""
    is_replaced: bool = False
    """Whether settings go that the request does not name."""


def alter_configs(
    state: ControlState, request: IncrementalAlterConfigsRequest, *, is_forwarded: bool
) -> Decision:
    """Change single settings of resources (KIP-339); `is_forwarded`: a broker has checked them."""
    records, refusals = _decide(
        state,
        [
            _Alteration(
                ConfigResource(each.resource_type, each.resource_name), partial(_changes, each)
            )
            for each in request.resources
        ],
        is_forwarded=is_forwarded,
    )
    answer = IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=tuple(
            IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each, (code, message) in zip(request.resources, refusals, strict=True)
        ),
    )
    return Decision([] if request.validate_only else records, answer)


def replace_configs(
    state: ControlState, request: AlterConfigsRequest, *, is_forwarded: bool
) -> Decision:
    """Replace the settings of resources: those that are not named go."""
    records, refusals = _decide(
        state,
        [
            _Alteration(
                ConfigResource(each.resource_type, each.resource_name),
                partial(_settings, each),
                is_replaced=True,
            )
            for each in request.resources
        ],
        is_forwarded=is_forwarded,
    )
    answer = AlterConfigsResponse(
        throttle_time_ms=0,
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each, (code, message) in zip(request.resources, refusals, strict=True)
        ),
    )
    return Decision([] if request.validate_only else records, answer)


def _decide(
    state: ControlState, alterations: Sequence[_Alteration], *, is_forwarded: bool
) -> tuple[list[RecordToWrite], list[tuple[ErrorCode, str | None]]]:
    """The records of all alterations, and what each of them is answered."""
    named = Counter(each.owner for each in alterations)
    known = _Known(state.image)
    records: list[RecordToWrite] = []
    refusals: list[tuple[ErrorCode, str | None]] = []
    for each in alterations:
        code, message = ErrorCode.NONE, None
        try:
            if named[each.owner] > 1:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            records += _alteration(state, each, known=known, is_forwarded=is_forwarded)
        except RefusedError as error:
            code, message = error.code, error.message
        except InvalidTopicNameError as error:
            code, message = ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)
        except ConfigError as error:
            code, message = ErrorCode.INVALID_CONFIG, str(error)
        refusals.append((code, message))
    return records, refusals


class _Known:
    """The names of the resources with settings of their own, during one request."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._names: dict[int, set[str]] = {}

    def of(self, kind: int) -> set[str]:
        """The names of one type, also those that the request has made; looked for once."""
        if kind not in self._names:
            self._names[kind] = {each.name for each in self._image.configs if each.type == kind}
        return self._names[kind]


def _alteration(
    state: ControlState, wanted: _Alteration, *, known: _Known, is_forwarded: bool
) -> list[RecordToWrite]:
    """The records of the changes of one resource."""
    owner, changes = wanted.owner, wanted.changes()
    if owner.type not in RESOURCE_TYPES:
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {owner.type}.")
    if owner.type == ResourceType.BROKER_LOGGER:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "Loggers are changed by IncrementalAlterConfigs."
        )
    current = state.image.configs_of(*owner)
    kept = {} if wanted.is_replaced else current
    planned = _planned(state, owner, kept=kept, changes=changes, known=known)
    if owner.type == ResourceType.TOPIC and state.image.topic(owner.name) is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{owner.name}' does not exist."
        )
    if any(len(each) > _VALUE_CHARACTERS_MAX for each in planned.values()):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{_VALUE_CHARACTERS_MAX} bytes.",
        )
    gone = [name for name in current if name not in planned]
    names = list(dict.fromkeys([*(each.name for each in changes), *gone]))
    _check_insync_min(state, owner, names, planned=planned)
    if owner.type == BROKER_RESOURCE and _CORDONED in names:
        level = state.image.metadata_version
        if level < CORDONS_SINCE:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"{_CORDONED} needs metadata.version {CORDONS_SINCE}, and the cluster has {level}.",
            )
        # Only a broker knows its directories, and one that it does not have contradicts all its
        # other changes, which its next start leaves out then.
        added = _directories(planned.get(_CORDONED)) - _directories(current.get(_CORDONED))
        if added and not is_forwarded:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"When updating {_CORDONED} via controllers, the new value must be a subset of the "
                "current configuration value.",
            )
    return [*config_records(state, owner, names, planned=planned)]


def _directories(value: str | None) -> frozenset[str]:
    return frozenset(filter(None, _COMMA.split((value or "").strip())))


def _planned(
    state: ControlState,
    owner: ConfigResource,
    *,
    kept: Mapping[str, str],
    changes: Sequence[ConfigChange],
    known: _Known,
) -> dict[str, str]:
    """The settings of a resource after changes to those that it keeps."""
    if owner.type == ResourceType.TOPIC:
        if not owner.name:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
            )
        check_topic_name(owner.name)
        # Another release may have left what is unknown here: it stays, and hinders no change.
        usable = usable_configs(kept)
        decided = {*usable, *(each.name for each in changes)}
        return {
            **{name: value for name, value in kept.items() if name not in decided},
            **plan_configs(usable, changes, state.default_configs),
        }
    if owner.type == ResourceType.BROKER:
        _check_broker(state, owner.name)
    rules = state.rules.get(ResourceType(owner.type))
    declared = {} if rules is None else rules.declared
    planned, faults = changed_configs(kept, changes, declared=declared, defaults={})
    faults += [
        f"Can't {each.operation.name} to key {each.name} because its type is not LIST."
        for each in changes
        if each.operation in _OF_LISTS and each.name not in declared
    ]
    if faults:
        raise ConfigError(faults)
    if rules is not None:
        names = known.of(owner.type)
        rules.check(names, owner.name, planned)
        if planned:
            names.add(owner.name)
    return planned


def _check_broker(state: ControlState, name: str) -> None:
    """Check that a broker is known whose settings change, or this controller; "" is all of them."""
    if not name:
        return
    # Python's `int` takes more, such as " 1" and "1_0", which no broker would find as its own.
    if _NUMBER.fullmatch(name) is None:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number."
        )
    node_id = int(name)
    if node_id < 0:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    if node_id not in {*state.image.brokers, *state.image.controllers, state.node_id}:
        raise RefusedError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")


def _changes(resource: IncrementalAlterConfigsResource) -> Sequence[ConfigChange]:
    names = Counter(each.name for each in resource.configs)
    found = []
    for each in resource.configs:
        if names[each.name] > 1:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"The setting {each.name} appears more than once."
            )
        try:
            operation = ConfigOperation(each.config_operation)
        except ValueError:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation {each.config_operation}"
            ) from None
        if each.value is None and operation is not ConfigOperation.DELETE:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for : {each.name}"
            )
        found.append(ConfigChange(name=each.name, operation=operation, value=each.value or ""))
    return found


def _settings(resource: AlterConfigsResource) -> Sequence[ConfigChange]:
    return [
        ConfigChange(
            name=each.name,
            operation=ConfigOperation.DELETE if each.value is None else ConfigOperation.SET,
            value=each.value or "",
        )
        for each in resource.configs
    ]


def _check_insync_min(
    state: ControlState, owner: ConfigResource, names: Iterable[str], *, planned: Mapping[str, str]
) -> None:
    # The size of an ISR that is large enough must be the same on all brokers, and the controller
    # must know it (KIP-966).
    if owner.type != BROKER_RESOURCE or MIN_INSYNC_REPLICAS not in names or not state.has_elr:
        return
    if owner != ALL_BROKERS:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled.",
        )
    if MIN_INSYNC_REPLICAS not in planned:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled.",
        )


def config_records(
    state: ControlState,
    owner: ConfigResource,
    names: Iterable[str],
    *,
    planned: Mapping[str, str],
) -> Iterator[RecordToWrite]:
    """The records that give some settings of a resource their planned values."""
    from tailrace.protocol.metadata_records import ClearElrRecord, ConfigRecord

    current = state.image.configs_of(*owner)
    clears = False
    for name in names:
        # Those of brokers also unchanged: a broker reads the files that they name again
        # (KAFKA-14136).
        if planned.get(name) == current.get(name) and owner.type != BROKER_RESOURCE:
            continue
        record = ConfigRecord(
            resource_type=owner.type,
            resource_name=owner.name,
            name=name,
            value=planned.get(name),
        )
        yield RecordToWrite(record, 0)
        clears |= name == MIN_INSYNC_REPLICAS
    # Who was eligible under another size of the ISR need not have all records (KIP-966).
    if clears and state.has_elr:
        topic = owner.name if owner.type == ResourceType.TOPIC else ""
        yield RecordToWrite(ClearElrRecord(topic_name=topic), 0)


def effective_configs(
    state: ControlState, own: Mapping[str, str]
) -> tuple[CreatableTopicConfigs, ...]:
    """The settings of a topic with these own ones, as the answer to CreateTopics has them."""
    defaults = state.shown_defaults
    shown = {
        name: CreatableTopicConfigs(name=name, value=value, config_source=ConfigSource.TOPIC)
        for name, value in own.items()
        if name in defaults
    }
    return tuple({**defaults, **shown}.values())
