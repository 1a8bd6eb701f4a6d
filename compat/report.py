"""One line per check, and the count at the end.

Invariant: a check passes only if nobody found a difference; what differs for a reason that was
looked into is told as `explained`, in words, and counts as passed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

DIFFERENCES_SHOWN = 6
"""Of one check; the count of all of them stands beside."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What has been checked so far."""

    say: Callable[[str], None]
    passed: int = 0
    failed: list[str] = field(default_factory=list)

    def check(self, name: str, differences: Sequence[str], *, explained: str = "") -> None:
        """Tell how a check went: it passes if there are no differences."""
        if not differences:
            self.passed += 1
            self.say(f"ok    {name}" + (f" ({explained})" if explained else ""))
            return
        self.failed.append(name)
        self.say(f"FAIL  {name}: {len(differences)} differences")
        for each in differences[:DIFFERENCES_SHOWN]:
            self.say(f"        {each}")
