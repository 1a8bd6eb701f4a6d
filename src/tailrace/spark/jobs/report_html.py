"""Reports as one HTML file: the templates filled in, for any browser and without a network.

Jinja2 escapes every value, so a topic's name or a key can hold anything. Charts are SVG within the
page. There are no scripts, and a policy in the file forbids the browser to load anything. Colours
follow the reader's choice of light or dark.

Not here: what a report says (`audit_page`, `profile_page`), and the geometry of charts (`charts`).
"""

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, *, title: str, subject: str, **values: object) -> str:
    """A whole page from a file of `templates/`.

    `subject` is what was looked at; it stands below the title, with the time of this call.
    """
    created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = _environment().get_template(template)
    return page.render(title=title, subject=subject, created=created, **values)


def size(number: float) -> str:
    """Bytes for people: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024:
            return f"{number:.1f}".removesuffix(".0") + f" {unit}"
        number /= 1024
    return f"{number:.1f}".removesuffix(".0") + " PiB"


def count(number: float) -> str:
    """A whole number with its thousands apart."""
    return f"{round(number):,}"


def share(part: float, whole: float) -> str:
    """A percentage, or a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tailrace.spark.jobs"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": count, "shown": _shown}
    return environment


def _shown(value: object) -> object:
    """A value as it stands in a table."""
    return "-" if value is None else count(value) if isinstance(value, int) else value


def _printable(value: object) -> object:
    """Control characters, which HTML may not hold, become visible."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in value)
