"""Which steps of an enumeration a test tries, such as the file operations to crash at."""

from collections.abc import Callable, Sequence

SAMPLED_STEPS = 6
"""Most steps that are tried without `--every`."""

Steps = Callable[[Sequence[int]], Sequence[int]]
"""The fixture `steps`: from all steps, those to try."""


def every(steps: Sequence[int]) -> Sequence[int]:
    """All of them."""
    return steps


def spread(steps: Sequence[int]) -> Sequence[int]:
    """Six at most, spread evenly, with the last."""
    return steps[:: -max(-(-len(steps) // SAMPLED_STEPS), 1)]
