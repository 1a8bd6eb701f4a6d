"""IncrementalAlterConfigs: settings of topics, brokers and groups, as records of the log.

Each resource is changed or refused by itself, with all of its changes.

Not here: settings of loggers, which are no records; the checks of broker settings, which the broker
makes before it forwards a request (it knows its own), as in Kafka.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tailrace.cluster.config_changes import ConfigChange, changed_configs, plan_configs
from tailrace.cluster.control.state import ControlState, Decision, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    MIN_INSYNC_REPLICAS,
    ConfigResource,
)
from tailrace.errors import ConfigError
from tailrace.protocol.config_resources import ConfigOperation, ConfigSource, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_topics import CreatableTopicConfigs
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tailrace.storage.config import TOPIC_SETTINGS

_IN_LOG: Final = frozenset(
    {ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP}
)
_VALUE_CHARACTERS_MAX: Final = 32_767
"""Kafka's limit of a value, so that appending to a list ends somewhere."""


def alter_configs(state: ControlState, request: IncrementalAlterConfigsRequest) -> Decision:
    """Change single settings of resources."""
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    records: list[RecordToWrite] = []
    responses = []
    for resource in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            records += _alteration(state, resource)
        except RefusedError as error:
            code, message = error.code, error.message
        except ConfigError as error:
            code, message = ErrorCode.INVALID_CONFIG, str(error)
        responses.append(
            IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    answer = IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=tuple(responses))
    return Decision([] if request.validate_only else records, answer)


def _alteration(
    state: ControlState, resource: IncrementalAlterConfigsResource
) -> list[RecordToWrite]:
    """The records of the changes of one resource."""
    if resource.resource_type not in _IN_LOG:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Settings of resources of type {resource.resource_type} are not the controller's.",
        )
    owner = ConfigResource(resource.resource_type, resource.resource_name)
    changes = list(_changes(resource))
    current = state.image.configs_of(*owner)
    if owner.type == ResourceType.TOPIC:
        if state.image.topic(owner.name) is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{owner.name}' does not exist."
            )
        planned = plan_configs(current, changes, state.default_configs)
    else:
        planned, faults = changed_configs(current, changes, declared={}, defaults={})
        if faults:
            raise ConfigError(faults)
    if any(len(each) > _VALUE_CHARACTERS_MAX for each in planned.values()):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{_VALUE_CHARACTERS_MAX} bytes.",
        )
    names = [each.name for each in changes]
    _check_insync_min(state, owner, names, planned=planned)
    return [*config_records(state, owner, names, planned=planned)]


def _changes(resource: IncrementalAlterConfigsResource) -> Iterator[ConfigChange]:
    names = Counter(each.name for each in resource.configs)
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
        yield ConfigChange(name=each.name, operation=operation, value=each.value or "")


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
    defaults = state.defaults.with_state(state.image, state.node_id)
    layers = ((ConfigSource.BROKER, defaults.given), *defaults.dynamic.items())
    found = []
    for setting in sorted(TOPIC_SETTINGS, key=lambda each: each.name):
        value, source = setting.format(setting.default), ConfigSource.DEFAULT
        for each, settings in (*layers, (ConfigSource.TOPIC, own)):
            if setting.name in settings:
                value, source = settings[setting.name], each
        found.append(CreatableTopicConfigs(name=setting.name, value=value, config_source=source))
    return tuple(found)
