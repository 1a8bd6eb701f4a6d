"""Expressions of `subscribePattern` select what Spark's connector selects, or are refused.

`compat/topic_patterns.py` asks the connector for the same topics, and Java for many expressions.
"""

import pytest

from tailrace.spark.options.topic_pattern import TopicPatternError, topic_regex

TOPICS = (
    "A-b", "Orders", "a.b", "a_b", "e", "fee", "off", "orders.v1", "plain", "t", "tx", "txx", "x1",
)  # fmt: skip

SELECTED = {
    "tx": ("tx", "txx"),
    "^tx$": ("tx",),
    "lai": ("plain",),
    "tx  ": ("tx", "txx"),
    "\n t$": ("t",),
    "[a-z&&[^e]]+": (
        "A-b", "Orders", "a.b", "a_b", "fee", "off", "orders.v1", "plain", "t", "tx", "txx", "x1",
    ),
    "^[a-z&&[^e]]+$": ("off", "plain", "t", "tx", "txx"),
    "^[^a-z&&[^A-Z]]": ("A-b", "Orders"),
    "^[e[fo]]+$": ("e", "fee", "off"),
    "[a-f&&[^c-f[a]]]": ("A-b", "a.b", "a_b"),
    "^\\p{Upper}": ("A-b", "Orders"),
    "\\P{Alnum}": ("A-b", "a.b", "a_b", "orders.v1"),
    "\\Qa.b\\E": ("a.b",),
    "a.b": ("a.b", "a_b"),
    "a\\.b": ("a.b",),
    "(?i)a.B": ("A-b", "a.b", "a_b"),
    "(?i:o)R": (),
    "(?i:o)r": ("Orders", "orders.v1"),
    "x|(?i)ORDERS$|T": ("Orders", "t", "tx", "txx", "x1"),
    "(?<c>f)\\1|(.)\\2$": ("fee", "off", "txx"),
    "^(?!t)(?=.*x)": ("x1",),
    "(?<=t)x\\z": ("tx",),
    "x{2}": ("txx",),
    "^t++$": ("t",),
    "[\\w&&[^\\d]]\\d\\b": ("orders.v1", "x1"),
    "a\\Sb|\\s": ("a.b", "a_b"),
    "-": ("A-b",),
}  # fmt: skip
"""Topics by expression, as Spark's connector 4.2.0 on Java 17 selects them."""

REFUSED = {
    "": "it is empty",
    "  ": "it is empty",
    "a)": "without its (",
    "a(b": "without its )",
    "[a": "without its ]",
    "*a": "nothing that * could repeat",
    "a{,3}": "a repetition is {n}, {n,} or {n,m}",
    "{a}": "write \\{ for the character",
    "a**": "put what is repeated into",
    "(?P<n>a)": "only i, m, s and d are supported as flags",
    "(?x)a b": "only i, m, s and d are supported as flags",
    "(?#note)a": "only i, m, s and d are supported as flags",
    "(?<a_b>c)": "the name of a group has letters and digits",
    "[]a]": "write \\] for ]",
    "[a&b]": "& in a class is not supported",
    "[z-a]": "ends below its start",
    "\\1(a)": "a group that is not before it",
    "\\p{Nope}": "\\p{Nope} is not supported",
    "\\y": "\\y is not supported",
    "\\R": "\\R is not supported",
    "a\\": "ends too early",
    "(?<=a+)b": "look-behind requires fixed-width",
    "a{1001}": "is above 1000",
    "(" * 5000: "recursion",
}
"""Words of the advice, by expressions that Java refuses or that would mean something else here."""


@pytest.mark.parametrize(("expression", "topics"), SELECTED.items())
def test_an_expression_selects_what_the_connector_selects(
    expression: str, topics: tuple[str, ...]
) -> None:
    """It is found anywhere in the name, has Java's meaning, and spaces around it do not count."""
    found = topic_regex(expression)
    assert tuple(each for each in TOPICS if found(each)) == topics


@pytest.mark.parametrize(("expression", "reason"), REFUSED.items())
def test_what_cannot_mean_the_same_is_refused(expression: str, reason: str) -> None:
    """With a sentence that says what it is."""
    with pytest.raises(TopicPatternError) as caught:
        topic_regex(expression)
    assert reason in str(caught.value)
