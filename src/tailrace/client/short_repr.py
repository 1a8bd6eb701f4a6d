"""`short_repr`: the text of an answer that people print: a topic has 50 partitions, and names none.

    __repr__ = short_repr     # in the body of a dataclass

Not here: what the answers mean; their fields have everything.
"""

from collections.abc import Collection
from dataclasses import is_dataclass
from typing import Final

from tailrace.values import fields

ITEMS_MAX: Final = 3
"""Most items of a field that are shown, and one if they have fields themselves; more are counted.
"""

CHARACTERS_MAX: Final = 60
"""Most characters of a text."""


def short_repr(answer: object) -> str:
    """The class and fields of a dataclass, with long texts cut and many items counted.

    Fields that have their default are left out.
    """
    shown = []
    for each in fields(answer):  # type: ignore[arg-type]
        value = getattr(answer, each.name)
        if value is not each.default and value != each.default:
            shown.append(f"{each.name}={_short(value)}")
    return f"{type(answer).__name__}({', '.join(shown)})"


def _short(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if len(value) <= CHARACTERS_MAX else f"{value[:CHARACTERS_MAX]!r}..."
    # Not a named tuple, which is one thing.
    if isinstance(value, Collection) and not hasattr(value, "_fields"):
        items_max = 1 if any(map(is_dataclass, value)) else ITEMS_MAX
        if len(value) > items_max:
            return f"<{len(value)} items>"
    return repr(value)
