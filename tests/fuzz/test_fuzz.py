"""Every decoder, fed mutated inputs: it accepts them or refuses them, and nothing else."""

import pytest

from tests.fuzz import protocol_targets, records_targets, storage_targets
from tests.fuzz.engine import FuzzTarget, fuzz

TARGETS = (*protocol_targets.TARGETS, *records_targets.TARGETS, *storage_targets.TARGETS)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_mutated_input_is_accepted_or_refused(
    target: FuzzTarget, pytestconfig: pytest.Config
) -> None:
    """No mutation of a valid input lets anything but a refusal out of the decoder."""
    fuzz(target, inputs=pytestconfig.getoption("--fuzz-inputs"), seed=20)
