"""Counts of random examples, by the profile of the run: see `tests/conftest.py`."""

from hypothesis import settings

IS_EVERY_CHANGE = settings.get_current_profile_name() == "default"
"""Whether this is no run of `make slow`, which names a profile."""

_EXAMPLES_MIN = 5


def examples(percent: int) -> int:
    """A share of the profile's examples, for a property that is cheaper or dearer than others.

    `make slow` has the time to try as many of a dear one as of others.
    """
    of = settings().max_examples
    return max(of * percent // 100, _EXAMPLES_MIN if IS_EVERY_CHANGE else of)
