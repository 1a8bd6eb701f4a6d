"""`parse_duration_ms`: durations as ISO 8601 writes them, such as PT1H30M or P2DT3.5S."""

import re
from typing import Final

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def parse_duration_ms(text: str) -> int | None:
    """The milliseconds of a duration of days or smaller units; None if the text is none."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
