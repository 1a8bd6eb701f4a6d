r"""`topic_regex`: the expression of `subscribePattern`, in the syntax of Java, for names of topics.

Spark's connector compiles the option with `java.util.regex`, without the spaces around it, and
takes each topic in whose name it finds a match, wherever that is: `lai` selects `plain`. Python's
syntax looks the same and is not: there `[a-z&&[^e]]` is no intersection, `\p{Lower}` and `\Q` do
not exist, and `{,3}` is a repetition.

So the expression is read here by Java's rules and written down in Python's. Names of topics have
letters, digits and `.`, `_`, `-` only, so a class of characters becomes the list of those that it
has, and a letter under `(?i)` becomes a class of two. What Java refuses is refused, and so is what
cannot be written down with the same meaning; nothing is guessed.
"""

import re
import string
from collections.abc import Callable
from typing import Final

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""Characters that names of topics have."""

REPEATS_MAX: Final = 1000

_LOWER: Final = frozenset(string.ascii_lowercase)
_UPPER: Final = frozenset(string.ascii_uppercase)
_DIGITS: Final = frozenset(string.digits)
_LETTERS: Final = _LOWER | _UPPER
_NOTHING: Final[frozenset[str]] = frozenset()
_CLASSES: Final = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "s": _NOTHING,
    "h": _NOTHING,
    "v": _NOTHING,
}
"""By the letter after a backslash; its capital is the opposite."""

_PROPERTIES: Final = {
    "Lower": _LOWER, "Upper": _UPPER, "Alpha": _LETTERS, "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS, "Punct": frozenset("._-"), "Graph": ALPHABET, "Print": ALPHABET,
    "ASCII": ALPHABET, "Blank": _NOTHING, "Cntrl": _NOTHING, "Space": _NOTHING,
    "XDigit": frozenset(string.hexdigits),
    "L": _LETTERS, "Ll": _LOWER, "Lu": _UPPER, "N": _DIGITS, "Nd": _DIGITS,
    "IsAlphabetic": _LETTERS, "IsLetter": _LETTERS, "IsDigit": _DIGITS,
    "IsL": _LETTERS, "IsLl": _LOWER, "IsLu": _UPPER, "IsN": _DIGITS, "IsNd": _DIGITS,
}  # fmt: skip
_CASES: Final = frozenset({"Lower", "Upper", "Ll", "Lu", "IsLl", "IsLu"})
"""Properties that mean something else under `(?i)`, and in other versions of Java."""

_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_GROUP_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_REPEATS: Final = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_FLAGS: Final = re.compile(r"([a-zA-Z]*)(-[a-zA-Z]*)?([:)])")


class TopicPatternError(ValueError):
    """An expression that Java refuses, or that is not supported here."""


def topic_regex(text: str) -> Callable[[str], object]:
    """A function that finds the expression in the name of a topic; false where it does not.

    Raises:
        TopicPatternError: it is empty, Java refuses it, or Python has nothing with its meaning.

    Example:
        >>> bool(topic_regex("lai")("plain"))
        True
    """
    # Java's `String.trim`, by which Spark's connector takes off what is at most a space.
    trimmed = text.strip("".join(map(chr, range(33))))
    if not trimmed:
        raise TopicPatternError("it is empty")
    reader = _Reader(trimmed)
    try:
        translated = reader.alternatives()
        if not reader.is_at_end:
            raise TopicPatternError("there is a ) without its (")
        # Found anywhere in the name, as `Matcher.find`.
        return re.compile(translated).search
    # Look-behinds of variable width, very large numbers, and groups nested by the thousand.
    except (re.error, OverflowError, RecursionError) as error:
        raise TopicPatternError(f"it cannot be used: {error}") from error


class _Reader:
    """Reads an expression from left to right; each part is returned in Python's syntax."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = 0
        self._names: set[str] = set()
        self._ignores_case = False
        """Whether the flag i counts where the reader is."""

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._text)

    def alternatives(self) -> str:
        """Everything up to the end of the group, or of the text; flags in it end with it."""
        written: list[str] = []
        ignored_case = self._ignores_case
        while not self.is_at_end and not self._is_next(")"):
            if self._takes("|"):
                written.append("|")
            # Java repeats anchors, Python refuses to.
            elif self._takes("^") or self._takes("$"):
                written.append(self._text[self._at - 1])
                self._refuse_repeats("a repetition of ^ or $")
            elif self._takes_flags():
                self._refuse_repeats("a repetition of flags")
            else:
                written += (self._atom(), self._repeats())
        # Flags end with their group in Java, and in Python's syntax they may only begin it: so the
        # reader applies them itself.
        self._ignores_case = ignored_case
        return "".join(written)

    def _atom(self) -> str:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return _class_of(self._members())
            case "\\":
                return self._escaped()
            case ".":
                return "."
            case "*" | "+" | "?":
                raise TopicPatternError(f"there is nothing that {character} could repeat")
            case "{":
                raise TopicPatternError("{ begins a repetition; write \\{ for the character")
            case _:
                return self._literal(character)

    def _group(self) -> str:
        opening, ignored_case = "(", self._ignores_case
        if self._takes("?"):
            for kind in (":", "=", "!", ">", "<=", "<!"):
                if self._takes(kind):
                    opening = f"(?{kind}"
                    break
            else:
                if self._takes("<"):
                    opening = f"(?P<{self._name()}>"
                else:
                    self._read_flags()
                    opening = "(?:"
        if opening == "(" or opening.startswith("(?P"):
            # Only capturing groups have numbers.
            self._groups += 1
        inner = self.alternatives()
        self._ignores_case = ignored_case
        if not self._takes(")"):
            raise TopicPatternError("there is a ( without its )")
        if opening[2:3] in set("=!<"):
            self._refuse_repeats("a repetition of a look-around")
        return f"{opening}{inner})"

    def _name(self) -> str:
        found = _GROUP_NAME.match(self._text, self._at)
        if found is None or self._text[found.end() : found.end() + 1] != ">":
            raise TopicPatternError("the name of a group has letters and digits, and ends with >")
        self._at = found.end() + 1
        if found[0] in self._names:
            raise TopicPatternError(f"two groups are named {found[0]}")
        self._names.add(found[0])
        return found[0]

    def _takes_flags(self) -> bool:
        """Whether flags for the rest of the group follow, its other alternatives included."""
        found = _FLAGS.match(self._text, self._at + 2)
        if not self._is_next("(?") or found is None or found[3] != ")":
            return False
        self._at += 2
        self._read_flags()
        return True

    def _read_flags(self) -> None:
        found = _FLAGS.match(self._text, self._at)
        named = "" if found is None else found[1] + (found[2] or "")
        if found is None or not set(named) <= set("imsd-"):
            raise TopicPatternError("after (? only i, m, s and d are supported as flags")
        self._at = found.end()
        # The other three change nothing in a text without line feeds.
        if "i" in found[1]:
            self._ignores_case = True
        if "i" in (found[2] or ""):
            self._ignores_case = False

    def _repeats(self) -> str:
        written = ""
        if self._is_next("{"):
            found = _REPEATS.match(self._text, self._at)
            if found is None:
                raise TopicPatternError("a repetition is {n}, {n,} or {n,m}")
            self._at = found.end()
            low, high = int(found[1]), int(found[3] or found[1])
            if max(low, high) > REPEATS_MAX or high < low:
                raise TopicPatternError(
                    f"the repetition {found[0]} is above {REPEATS_MAX}, or ends below its start"
                )
            written = found[0]
        elif not self.is_at_end and self._text[self._at] in "*+?":
            written = self._next()
        if written and (self._takes("?") or self._takes("+")):
            # Reluctant and possessive forms have the same signs in both languages (Python 3.11).
            written += self._text[self._at - 1]
        if written:
            self._refuse_repeats("a repetition of a repetition")
        return written

    def _refuse_repeats(self, what: str) -> None:
        if not self.is_at_end and self._text[self._at] in "*+?{":
            raise TopicPatternError(f"{what} is not supported; put what is repeated into (?:…)")

    def _escaped(self) -> str:
        """An escape outside of a class, after its backslash."""
        character = self._peek()
        if character == "Q":
            return self._quoted()
        if character in set("bBAzZ"):
            self._at += 1
            if self._is_next("{"):
                raise TopicPatternError(f"\\{character}{{ is not supported")
            self._refuse_repeats(f"a repetition of \\{character}")
            # A topic has no line feed at its end, the only difference between the two in Java.
            return "\\Z" if character in "zZ" else f"\\{character}"
        if character.isdecimal() and character != "0":
            self._at += 1
            if int(character) > self._groups or self._peek().isdecimal():
                raise TopicPatternError(f"\\{character} refers to a group that is not before it")
            return f"(?i:\\{character})" if self._ignores_case else f"\\{character}"
        if character == "k":
            raise TopicPatternError("\\k is not supported; refer to the group by its number")
        return _class_of(self._member_escape())

    def _quoted(self) -> str:
        self._at += 1
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at : end if end >= 0 else len(self._text)]
        self._at = end + 2 if end >= 0 else len(self._text)
        if not quoted:
            raise TopicPatternError("\\Q\\E with nothing between is not supported")
        # A repetition counts for the last character only.
        return "".join(self._literal(each) for each in quoted)

    def _members(self) -> frozenset[str]:
        """The characters of a class, after its bracket; the class is read to its end."""
        is_opposite = self._takes("^")
        found = self._union()
        while self._takes("&&"):
            # An intersection: Java's classes are sets, which Python's are not, so they are computed
            # here.
            found &= self._union()
        if not self._takes("]"):
            raise TopicPatternError("there is a [ without its ]")
        return ALPHABET - found if is_opposite else found

    def _union(self) -> frozenset[str]:
        found, kinds = _NOTHING, []
        while not self.is_at_end and not self._is_next("]") and not self._is_next("&&"):
            if self._is_next("&"):
                raise TopicPatternError("& in a class is not supported; no topic has it")
            kinds.append(self._is_next("["))
            found |= self._member()
        if not kinds:
            raise TopicPatternError("a class without characters is not supported; write \\] for ]")
        if self._is_next("&&") and kinds[0] and not all(kinds):
            # Java takes what follows the inner class together with what follows the &&.
            raise TopicPatternError(
                "characters between a class within a class and && are not supported; put them first"
            )
        return found

    def _member(self) -> frozenset[str]:
        """One character, range, escape, or class within a class."""
        if self._takes("["):
            return self._members()
        if self._is_next("\\") and not self._is_character_escape():
            self._at += 1
            return self._member_escape()
        first = self._character()
        # A minus before a bracket is a character.
        if not self._is_next("-") or self._text[self._at + 1 : self._at + 2] in {"]", "["}:
            return self._both_cases({first})
        self._at += 1
        if self._is_next("\\") and not self._is_character_escape():
            raise TopicPatternError("a range in a class ends with a character")
        last = self._character()
        if last < first:
            raise TopicPatternError(f"the range {first}-{last} in a class ends below its start")
        inside = {each for each in ALPHABET if first <= each <= last}
        return self._both_cases(inside)

    def _is_character_escape(self) -> bool:
        """Whether the escape that follows is a character, which may begin or end a range."""
        return not self._text[self._at + 1 : self._at + 2].isalnum()

    def _character(self) -> str:
        character = self._next()
        return self._next() if character == "\\" else character

    def _member_escape(self) -> frozenset[str]:
        """The characters of an escape, after its backslash, inside and outside of a class."""
        character = self._next()
        if character.lower() in _CLASSES:
            inside = _CLASSES[character.lower()]
            return inside if character.islower() else ALPHABET - inside
        if character in {"p", "P"}:
            inside = self._property()
            return inside if character == "p" else ALPHABET - inside
        if character in _CONTROLS:
            return _NOTHING
        if character.isalnum():
            raise TopicPatternError(f"\\{character} is not supported here")
        return frozenset(character) & ALPHABET

    def _property(self) -> frozenset[str]:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            name, self._at = self._text[self._at : end], end + 1
            if end < 0:
                raise TopicPatternError("there is a \\p{ without its }")
        if name not in _PROPERTIES or (self._ignores_case and name in _CASES):
            raise TopicPatternError(f"\\p{{{name}}} is not supported here")
        return _PROPERTIES[name]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _is_next(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _takes(self, text: str) -> bool:
        """Whether this text follows, which then is read."""
        if not self._is_next(text):
            return False
        self._at += len(text)
        return True

    def _next(self) -> str:
        if self.is_at_end:
            raise TopicPatternError("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _both_cases(self, characters: set[str]) -> frozenset[str]:
        if self._ignores_case:
            characters = {case for each in characters for case in (each.lower(), each.upper())}
        return frozenset(characters) & ALPHABET

    def _literal(self, character: str) -> str:
        if self._ignores_case and character in _LETTERS:
            # Both cases as a class: Python's flag would also match letters beyond ASCII.
            return f"[{character.lower()}{character.upper()}]"
        return re.escape(character)


def _class_of(characters: frozenset[str]) -> str:
    if not characters:
        # A class without characters is no expression of Python; this matches nothing either.
        return "(?:(?!))"
    return "[" + "".join(map(re.escape, sorted(characters))) + "]"
