"""One line per check, the count at the end, and a page of all of them for a reader.

Invariant: a check passes only if nobody found a difference; what differs for a reason that was
looked into is told as `explained`, in words, and counts as passed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

DIFFERENCES_SHOWN = 6
"""Differences shown of one check, next to the count of all."""

_PREAMBLE = """It writes this page, and only when everything passes; `make compat-kafka` checks the
same. Kafka runs as it is released, on the same machine. A check compares the whole of what both
sides have: bytes, entries or records. What may differ, and why, stands in parentheses. Of checks
that differ in one word only, `…` stands for it, and the words follow."""


_COUNT = re.compile(r"^Checks: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One that passed, or that was left out."""

    section: str
    name: str
    explained: str
    is_left_out: bool = False
    """It was not run, and is not counted."""


@dataclass(slots=True, kw_only=True)
class Report:
    """The checks so far, passed and failed."""

    say: Callable[[str], None]
    checks: list[Check] = field(default_factory=list)
    """The checks that passed, and those that were left out."""
    failed: list[str] = field(default_factory=list)
    _section: str = ""

    @property
    def passed(self) -> int:
        """Number of checks that passed."""
        return sum(not each.is_left_out for each in self.checks)

    def section(self, name: str) -> None:
        """Begin a part: the checks that follow belong to it."""
        self._section = name
        self.say(name)

    def check(self, name: str, differences: Sequence[str], *, explained: str = "") -> None:
        """Tell how a check went: it passes if there are no differences."""
        if not differences:
            self.checks.append(Check(section=self._section, name=name, explained=explained))
            self.say(f"ok    {name}" + (f" ({explained})" if explained else ""))
            return
        self.failed.append(name)
        self.say(f"FAIL  {name}: {len(differences)} differences")
        for each in differences[:DIFFERENCES_SHOWN]:
            self.say(f"        {each}")

    def leave_out(self, name: str, reason: str) -> None:
        """Tell which check cannot be made, and why."""
        left = Check(section=self._section, name=name, explained=reason, is_left_out=True)
        self.checks.append(left)
        self.say(f"left out: {name} ({reason})")


def page(checks: Sequence[Check], *, date: str, versions: Mapping[str, str], kept: str = "") -> str:
    """The document of a run in which everything passed, as Markdown.

    Checks of a section that differ in one word only stand on one line. The run of a part gets the
    page of an earlier run as `kept`: its sections stay, but for those that have run again.
    """
    sections = dict(chain(_sections_of(kept), _sections(checks)))
    count = sum(int(each) for text in sections.values() for each in _COUNT.findall(text))
    lines = [
        "# Compatibility with Apache Kafka",
        "",
        f"On {date}, `python -m compat.run --write` passed {count} checks with",
        "",
        *(f"- {name} {version}" for name, version in versions.items()),
        "",
        _PREAMBLE,
        *(f"\n## {title}\n\n{text}" for title, text in sections.items()),
    ]
    return "\n".join(lines) + "\n"


def _sections(checks: Sequence[Check]) -> Iterator[tuple[str, str]]:
    """Each section with its text."""
    for section, members in groupby(checks, lambda each: each.section):
        found = list(members)
        passed = [each for each in found if not each.is_left_out]
        left = [f"- left out: {each.name} ({each.explained})" for each in found if each.is_left_out]
        yield section, "\n".join([f"Checks: {len(passed)}", "", *_folded(passed), *left])


def _sections_of(written: str) -> Iterator[tuple[str, str]]:
    """Each section of a page, with its text."""
    for each in written.split("\n## ")[1:]:
        title, _, text = each.partition("\n")
        yield title, text.strip("\n")


def _folded(checks: Iterable[Check]) -> Iterator[str]:
    """A line for each check, or for several that differ in one word."""
    folds: list[_Fold] = []
    for check in checks:
        words = re.split(r"([ ,:]+)", check.name)
        if not any(fold.take(words, check.explained) for fold in folds):
            folds.append(_Fold(words=words, explained=check.explained))
    for fold in folds:
        yield fold.line()


@dataclass(slots=True, kw_only=True)
class _Fold:
    """Names that are the same but for the word at one place."""

    words: list[str]
    explained: str
    place: int | None = None
    found: list[str] = field(default_factory=list)
    """The words at that place, when there are several."""

    def take(self, words: list[str], explained: str) -> bool:
        """Whether the name belongs here; if it does, it is noted."""
        if explained != self.explained or len(words) != len(self.words):
            return False
        pairs = zip(words, self.words, strict=True)
        places = [place for place, (one, other) in enumerate(pairs) if one != other]
        if len(places) != 1 or self.place not in {None, places[0]}:
            return False
        if self.place is None:
            self.place = places[0]
            self.found.append(self.words[self.place])
        self.found.append(words[self.place])
        return True

    def line(self) -> str:
        """Format the checks as an item of a list."""
        explained = f" ({self.explained})" if self.explained else ""
        if self.place is None:
            return f"- {''.join(self.words)}{explained}"
        words = [*self.words[: self.place], "…", *self.words[self.place + 1 :]]
        found = ", ".join(f"`{each}`" for each in self.found)
        return f"- {''.join(words)}{explained}: {found}"
