"""Errors of jobs in the words of the command line."""

import pytest

from tailrace.cli.flags import in_flags


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("path, paths: give one; there are path, paths",
         "--data, --option paths: give one; there are --data, --option paths"),
        ("topic 'x' does not exist; there are: t, u", "--topic x does not exist; there are: t, u"),
        ("subscripe: no such option; did you mean subscribe?",
         "--option subscripe: no such option; did you mean --topic?"),
        ("[A.B] startingOffsets: not 9; failOnDataLoss=false reads on",
         "[A.B] --option startingOffsets: not 9; --option failOnDataLoss=false reads on"),
        ("producer_settings: bootstrap.servers: no port", "--to: no port"),
        ("producer_settings: acks: no use", "--target-option acks: no use"),
        ("value_schema: nothing", "--schema: nothing"),
        ("read from a broker with kafka.bootstrap.servers", "read from a broker with --bootstrap"),
    ],
)  # fmt: skip
def test_arguments_and_options_become_flags(sentence: str, expected: str) -> None:
    """A name becomes a flag at the beginning of a fault and within its sentence."""
    assert in_flags(sentence) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "/data/t-0/00000000000000000000.log, position 4: the stored CRC-32C is 1",
        "add --option onCorruption=skip to leave it out",
        "there is no path to it, and its columns are many",
    ],
)
def test_other_sentences_stay(sentence: str) -> None:
    """Paths, flags and plain words are no options."""
    assert in_flags(sentence) == sentence
