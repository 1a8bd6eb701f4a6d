"""Settings as records: what of ConfigurationControlManagerTest is not among the tests of topics."""

import pytest

from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.metadata_records import ConfigRecord
from tests.unit.cluster.control.controlled import Controlled

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def test_values_are_put_into_lists_and_taken_out() -> None:
    """One that is there is not added again, and one that is not there is no error to take out."""
    cluster = Controlled()
    cluster.serve(0)
    cluster.topic([0], cleanup_policy="delete")

    def altered(operation: int, value: str) -> tuple[str, int]:
        before = len(cluster.appended)
        assert cluster.configure(TOPIC, "t", ("cleanup.policy", operation, value)) == (0, None)
        found = cluster.state.image.configs_of(TOPIC, "t")["cleanup.policy"]
        return found, len(cluster.appended) - before

    assert altered(APPEND, "compact") == ("delete,compact", 1)
    assert altered(APPEND, "compact,delete") == ("delete,compact", 0)
    assert altered(SUBTRACT, "delete") == ("compact", 1)
    assert altered(SUBTRACT, "delete") == ("compact", 0)


def test_settings_that_are_unknown_do_not_hinder_others() -> None:
    """A log has them from another release; they have no effect, and stay as they are."""
    cluster = Controlled()
    cluster.serve(0)
    cluster.topic([0], retention_ms="1000")
    for name in ("no.such", "flush.ms"):
        strange = ConfigRecord(resource_type=TOPIC, resource_name="t", name=name, value="x")
        cluster.state.replay([strange])
    assert cluster.state.topic_config("t").retention_ms == 1000
    assert cluster.configure(TOPIC, "t", ("segment.ms", SET, "5000"))[0] is ErrorCode.NONE
    assert cluster.state.topic_config("t").segment_ms == 5000
    assert cluster.state.image.configs_of(TOPIC, "t")["no.such"] == "x"
    # A value that is not possible can be removed.
    assert cluster.configure(TOPIC, "t", ("flush.ms", DELETE, None))[0] is ErrorCode.NONE
    assert "flush.ms" not in cluster.state.image.configs_of(TOPIC, "t")


@pytest.mark.parametrize(("level", "code"), [(29, ErrorCode.INVALID_CONFIG), (30, ErrorCode.NONE)])
@pytest.mark.parametrize("name", ["", "0"])
@pytest.mark.parametrize("change", [(SET, "/d"), (SET, ""), (DELETE, None)])
def test_directories_are_cordoned_at_levels_that_know_it(
    level: int, code: ErrorCode, name: str, change: tuple[int, str | None]
) -> None:
    """Registrations could not say it before 4.3-IV0 (KIP-1066); other settings always change."""
    cluster = Controlled(level=level)
    cluster.serve(0)
    before = len(cluster.appended)
    assert cluster.configure(BROKER, name, ("cordoned.log.dirs", *change))[0] is code
    assert (len(cluster.appended) == before) is bool(code)
    assert cluster.configure(BROKER, name, ("log.cleaner.threads", SET, "2"))[0] is ErrorCode.NONE


@pytest.mark.parametrize(
    ("operation", "value", "code"),
    [
        (SET, "/b, /a", ErrorCode.NONE),
        (SET, "/b", ErrorCode.NONE),
        (SET, "", ErrorCode.NONE),
        (DELETE, None, ErrorCode.NONE),
        (SET, "/a,/c", ErrorCode.INVALID_CONFIG),
        (SET, "*", ErrorCode.INVALID_CONFIG),
    ],
)
def test_only_a_broker_lets_directories_be_cordoned(
    operation: int, value: str | None, code: ErrorCode
) -> None:
    """It alone knows which it has; a controller that is asked itself takes some away at most."""
    cluster = Controlled()
    cluster.serve(0)
    assert cluster.configure(BROKER, "0", ("cordoned.log.dirs", SET, "/a,/b"))[0] is ErrorCode.NONE
    change = ("cordoned.log.dirs", operation, value)
    cluster.is_forwarded = False
    found, message = cluster.configure(BROKER, "0", change)
    assert found is code
    assert (message or "").startswith("When updating cordoned.log.dirs via") is bool(code)
    cluster.is_forwarded = True
    assert cluster.configure(BROKER, "0", change)[0] is ErrorCode.NONE
