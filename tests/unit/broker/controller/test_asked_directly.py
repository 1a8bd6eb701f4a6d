"""Tools that ask the controller itself, without a broker (KIP-919)."""

import logging

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigSource, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tailrace.runtime.log_lines import TRACE
from tailrace.testing import Outside, Peer
from tests.unit.broker.controller.own_clusters import CONTROLLER, OwnCluster, own_cluster


async def describe(
    cluster: OwnCluster, kind: ResourceType, name: str, key: str
) -> tuple[ErrorCode, str | None, int]:
    """The code for a resource, and the value of one of its settings with its source."""
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=(key,)
    )
    answer = await cluster.ask().ask(
        ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=(asked,)), DescribeConfigsResponse
    )
    [found] = answer.results
    values = [(each.value, each.config_source) for each in found.configs]
    value, source = values[0] if values else (None, 0)
    return ErrorCode(found.error_code), value, source


async def alter(
    cluster: OwnCluster,
    kind: ResourceType,
    name: str,
    key: str,
    value: str,
    *,
    peer: Peer | None = None,
    code: ErrorCode = ErrorCode.NONE,
) -> None:
    """Change a setting by the controller, or by a broker that forwards it."""
    change = IncrementalAlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=(change,)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = await (peer or cluster.ask()).ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse
    )
    assert answer.responses[0].error_code == code, answer.responses[0].error_message


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "default", "source"),
    [
        (ResourceType.TOPIC, "t", "retention.ms", "7000", "604800000", ConfigSource.TOPIC),
        (
            ResourceType.BROKER, str(CONTROLLER), "log.cleaner.threads", "3", "1",
            ConfigSource.DYNAMIC_BROKER,
        ),
        (
            ResourceType.BROKER, "", "log.cleaner.threads", "2", None,
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ),
        (
            ResourceType.GROUP, "g", "consumer.session.timeout.ms", "50000", "45000",
            ConfigSource.GROUP,
        ),
        (
            ResourceType.CLIENT_METRICS, "m", "interval.ms", "60000", "300000",
            ConfigSource.CLIENT_METRICS,
        ),
    ],
)  # fmt: skip
async def test_settings_are_described_before_and_after_a_change(
    outside: Outside,
    kind: ResourceType,
    name: str,
    key: str,
    value: str,
    default: str | None,
    source: ConfigSource,
) -> None:
    """kafka-configs --bootstrap-controller looks at them before it alters, and shows them."""
    async with own_cluster(outside, 1) as cluster:
        await cluster.add_topic(replicas=(1,))
        assert (await describe(cluster, kind, name, key))[:2] == (ErrorCode.NONE, default)
        await alter(cluster, kind, name, key, value)
        assert await describe(cluster, kind, name, key) == (ErrorCode.NONE, value, source)


async def test_directories_are_cordoned_by_their_broker_alone(outside: Outside) -> None:
    """Only that knows which it has; by the controller a cordon is taken away."""
    async with own_cluster(outside, 1) as cluster:
        where, key = (ResourceType.BROKER, "1"), "cordoned.log.dirs"
        home = cluster.brokers[1].logs.directories[0].path
        await alter(cluster, *where, key, home, code=ErrorCode.INVALID_CONFIG)
        await alter(cluster, *where, key, home, peer=cluster.peer(1))
        await cluster.until(lambda image: bool(image.brokers[1].cordoned_log_dirs))
        await alter(cluster, *where, key, "")
        await cluster.until(lambda image: not image.brokers[1].cordoned_log_dirs)


async def test_settings_of_others_are_not_described(outside: Outside) -> None:
    """A topic that is not there, and a broker, which knows its own."""
    async with own_cluster(outside, 1) as cluster:
        code, *_ = await describe(cluster, ResourceType.TOPIC, "none", "retention.ms")
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code, *_ = await describe(cluster, ResourceType.BROKER, "1", "log.cleaner.threads")
        assert code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "request_", "response", "code"),
    [
        (
            ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(), DescribeAclsResponse,
            ErrorCode.SECURITY_DISABLED,
        ),
        (
            ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenRequest(),
            CreateDelegationTokenResponse, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ),
        (
            ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse,
            ErrorCode.ILLEGAL_SASL_STATE,
        ),
    ],
)  # fmt: skip
async def test_there_are_no_logins_rules_and_tokens(
    outside: Outside, key: ApiKey, request_: Message, response: type[Message], code: ErrorCode
) -> None:
    """A tool is told so with Kafka's code, and keeps its connection."""
    async with own_cluster(outside) as cluster:
        answer = await cluster.ask().ask(key, request_, response)
        assert getattr(answer, "error_code") == code  # noqa: B009 - of several classes


async def test_the_levels_of_its_loggers_change(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, of this process alone; the audit log has a line, as for other settings."""
    kind, name, key = ResourceType.BROKER_LOGGER, str(CONTROLLER), "tailrace.broker.controller"
    caplog.set_level("INFO")
    caplog.set_level("INFO", key)  # It is given back by the fixture.
    async with own_cluster(outside, 1) as cluster:
        await alter(cluster, kind, name, key, "TRACE")
        assert await describe(cluster, kind, name, key) == (0, "TRACE", ConfigSource.BROKER_LOGGER)
        assert not logging.getLogger("tailrace.broker").isEnabledFor(TRACE)
    [line] = [each for each in caplog.messages if each.startswith("config_changed ")]
    assert line.endswith(
        f"resource_type=BROKER_LOGGER resource={name} config={key} operation=SET value=TRACE"
    )
