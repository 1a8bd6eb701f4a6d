"""Counts of random examples: the whole count in `make slow`, and fewer for every change."""

from hypothesis import settings

IS_EVERY_CHANGE = settings.get_current_profile_name() not in {"full", "slow"}
"""Whether this is no run of `make slow`, which names a profile."""


def examples(count: int) -> int:
    """`count` in `make slow`, and two fifths of it for every change."""
    return 2 * count // 5 if IS_EVERY_CHANGE else count
