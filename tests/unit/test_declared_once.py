"""A new row of a table is all that a new codec, column or setting takes.

docs/ARCHITECTURE.md says which file has which table; each test here adds a row to one of them.
"""

import pytest

from tailrace.config import describe_settings, parse_settings
from tailrace.errors import ConfigError
from tailrace.records.codecs import Levels
from tailrace.storage.config import level_setting


def test_levels_of_a_codec_are_its_topic_setting_and_its_document() -> None:
    """The levels of a codec in `FRAMINGS` give its topic setting, the errors, and the document."""
    setting = level_setting("brotli", Levels(default=6, low=0, high=11))
    name = "compression.brotli.level"
    assert parse_settings([setting], {}) == {name: 6}
    assert parse_settings([setting], {name: "11"}) == {name: 11}
    with pytest.raises(
        ConfigError, match=r"compression.brotli.level: 12 is out of range \(0 to 11\)"
    ):
        parse_settings([setting], {name: "12"})
    assert f"| `{name}` | 6 | 0 to 11 | Level for brotli. |" in describe_settings([setting])
