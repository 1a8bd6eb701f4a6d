"""Tests of single changes to a topic's settings."""

import pytest

from tailrace.cluster.config_changes import ConfigChange, plan_configs
from tailrace.errors import ConfigError
from tailrace.protocol.config_resources import ConfigOperation

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT
POLICY = "cleanup.policy"


def change(name: str, operation: ConfigOperation, value: str = "") -> ConfigChange:
    """One change."""
    return ConfigChange(name=name, operation=operation, value=value)


@pytest.mark.parametrize(
    ("current", "wanted", "planned"),
    [
        ({}, change("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, change("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "4"}, change("retention.ms", DELETE), {}),
        ({}, change("retention.ms", DELETE), {}),
        ({}, change("no.such.setting", DELETE), {}),
        ({POLICY: "delete"}, change(POLICY, APPEND, "compact"), {POLICY: "delete,compact"}),
        ({POLICY: "compact"}, change(POLICY, APPEND, " delete,compact"),
         {POLICY: "compact,delete"}),
        ({}, change(POLICY, APPEND, "compact"), {POLICY: "delete,compact"}),
        ({POLICY: "delete, compact"}, change(POLICY, SUBTRACT, "delete"), {POLICY: "compact"}),
        ({POLICY: "compact"}, change(POLICY, SUBTRACT, "delete"), {POLICY: "compact"}),
        ({}, change(POLICY, SUBTRACT, "delete"), {POLICY: ""}),
    ],
)  # fmt: skip
def test_a_change_sets_removes_appends_or_subtracts(
    current: dict[str, str], wanted: ConfigChange, planned: dict[str, str]
) -> None:
    """A value is set or removed; a list grows or shrinks and has each item once."""
    before = dict(current)
    assert plan_configs(current, [wanted], {}) == planned
    assert current == before


@pytest.mark.parametrize(
    ("operation", "planned"), [(APPEND, "compact,delete"), (SUBTRACT, "compact")]
)
def test_a_list_of_the_broker_is_what_changes(operation: ConfigOperation, planned: str) -> None:
    """A topic without its own list changes the list of the broker, not Kafka's default."""
    changes = [change(POLICY, operation, "delete")]
    assert plan_configs({}, changes, {POLICY: "compact"}) == {POLICY: planned}


def test_all_faults_are_told_together() -> None:
    """One error tells the faults of operations and of values, and suggests a known name."""
    changes = [
        change("retention.ms", APPEND, "1"),
        change("retention.bites", SET, "1"),
        change("segment.bites", SUBTRACT, "1"),
        change("segment.bytes", SET, "x"),
        change("flush.ms", SET, "1"),
    ]
    with pytest.raises(ConfigError) as caught:
        plan_configs({}, changes, {})
    assert [fault.split(":")[0] for fault in caught.value.faults] == [
        "Can't APPEND to key retention.ms because its type is not LIST.", "retention.bites",
        "segment.bites", "segment.bytes",
    ]  # fmt: skip
    assert "did you mean retention.bytes?" in caught.value.faults[1]


def test_a_list_operation_on_one_value_is_refused() -> None:
    """APPEND on a setting that is not a list is refused, even as the only fault."""
    with pytest.raises(ConfigError, match=r"Can't APPEND to key retention"):
        plan_configs({}, [change("retention.ms", APPEND, "1")], {})


def test_a_change_may_not_contradict_what_the_topic_has() -> None:
    """New settings are checked together with those that the topic has."""
    wanted = [change("max.compaction.lag.ms", SET, "5")]
    with pytest.raises(ConfigError, match="below min"):
        plan_configs({"min.compaction.lag.ms": "9"}, wanted, {})
    with pytest.raises(ConfigError, match="below min"):
        plan_configs({}, wanted, {"min.compaction.lag.ms": "9"})
