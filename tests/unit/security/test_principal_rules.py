"""Rules that make principals from names of certificates, as Kafka reads and applies them."""

import pytest

from tailrace.security.principal_rules import PrincipalRules

SEVERAL = (
    "RULE:^CN=(.*?),OU=Staff.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^cn=(.*?),dc=(.*?)$/$1@$2/U,RULE:^.*[Cc][Nn]=([a-z]*).*$/$1/U,DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=Staff,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,C=US", "duke@sme"),
        ("cn=duke,dc=com", "DUKE@COM"),
        ("cN=duke,OU=JavaSoft", "DUKE"),
        ("OU=JavaSoft,C=US", "OU=JavaSoft,C=US"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_counts(subject: str, name: str) -> None:
    """Groups, upper and lower case, and DEFAULT for the rest."""
    assert PrincipalRules(SEVERAL).name_of(subject) == name


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("RULE:CN=(.*)/$1/", "xCN=Bob", None),
        ("", "CN=Bob", None),
        (" , ,DEFAULT,, ", "CN=Bob", "CN=Bob"),
        # Java replaces each match: after the whole name the empty rest matches once more.
        ("RULE:.*/x/", "CN=Bob", "xx"),
        ("RULE:CN=([^,]*),?/$1/", "CN=Bob", "Bob"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tk\, Adam,OU=IT", r"Tk\, Adam"),
        (r"RULE:(.)(.*)/$2$1$0$3\$\//", "ab", "baab$3$/"),
        ("RULE:(.)(.*)/$12-$01/", "ab", "a2-a"),
        ("RULE:(a)|(b)/<$1$2>/", "b", "<b>"),
        ("RULE:CN=(.*)/$1/,DEFAULT", "CN=a\nb", "CN=a\nb"),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=x", "x"),
    ],
)
def test_rules_are_read_as_kafka_reads_them(rules: str, subject: str, name: str | None) -> None:
    """Empty rules, escapes, references beyond the groups, and names that no rule is for."""
    assert PrincipalRules(rules).name_of(subject) == name


@pytest.mark.parametrize(
    "rules",
    [
        "default", "DEFAUL", "DEFAULT/L", "RULE:CN=(.*?),OU=x.*/$1", "rule:^CN=(.*?)$/$1/",
        "RULE:^CN=(.*?)$/$1/L/U", "RULE:^CN=(.*?)$/L", "RULE:^CN=(.*?)$/LU", "RULE:(/$1/",
        "RULE:(?=a)a/x/", "RULE:a/$1/", "RULE:(a)/$x/", "DEFAULT DEFAULT",
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(rules: str) -> None:
    """Also patterns that RE2 does not have, and references to groups that cannot be."""
    with pytest.raises(ValueError, match=r"RULE|RE2|replacement"):
        PrincipalRules(rules)
