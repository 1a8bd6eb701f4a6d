"""Every decoder, fed mutated inputs, and whole directories with damage in them.

A decoder accepts an input or refuses it, and nothing else. What a directory gives back was written.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.fuzz import (
    admin_targets,
    append_targets,
    cleaning_targets,
    consumer_targets,
    controller_targets,
    coordinator_targets,
    directory_targets,
    kernel_targets,
    login_targets,
    membership_targets,
    metadata_targets,
    observer_targets,
    offline_targets,
    peer_targets,
    pipeline_targets,
    protocol_targets,
    reading_targets,
    records_targets,
    schemas_targets,
    security_targets,
    storage_targets,
)
from tests.fuzz.engine import DamageTarget, FuzzTarget, fuzz, strike

TARGETS = (
    *protocol_targets.TARGETS,
    *coordinator_targets.TARGETS,
    *membership_targets.TARGETS,
    *admin_targets.TARGETS,
    *consumer_targets.TARGETS,
    *controller_targets.TARGETS,
    *metadata_targets.TARGETS,
    *observer_targets.TARGETS,
    *peer_targets.TARGETS,
    *records_targets.TARGETS,
    *append_targets.TARGETS,
    *cleaning_targets.TARGETS,
    *kernel_targets.TARGETS,
    *storage_targets.TARGETS,
    *reading_targets.TARGETS,
    *offline_targets.TARGETS,
    *pipeline_targets.TARGETS,
    *schemas_targets.TARGETS,
    *security_targets.TARGETS,
    *login_targets.TARGETS,
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Damage is told in log lines, of which there would be a hundred thousand."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_mutated_input_is_accepted_or_refused(
    target: FuzzTarget, pytestconfig: pytest.Config
) -> None:
    """No mutation of a valid input lets anything but a refusal out of the decoder."""
    fuzz(target, inputs=pytestconfig.getoption("--fuzz-inputs"), seed=20)


@pytest.mark.parametrize("target", directory_targets.TARGETS, ids=lambda target: target.name)
def test_damage_in_a_directory_is_never_returned_as_data(
    target: DamageTarget, pytestconfig: pytest.Config
) -> None:
    """Any data that comes back was written, and refusals say where the damage is."""
    strike(target, inputs=pytestconfig.getoption("--fuzz-inputs"), seed=20)
