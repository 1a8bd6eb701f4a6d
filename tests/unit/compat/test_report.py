"""Tests of a run's report and of the page of all checks."""

from compat.report import Report, page


def test_a_difference_fails_a_check() -> None:
    """A check passes only if there is no difference; the first ones are shown."""
    said: list[str] = []
    report = Report(say=said.append)
    report.check("same", [])
    report.check("other", ["one", "two"])
    assert (report.passed, report.failed) == (1, ["other"])
    assert said == ["ok    same", "FAIL  other: 2 differences", "        one", "        two"]


def test_the_page_folds_checks_that_differ_in_one_word() -> None:
    """Checks of one section and one explanation that differ in a word stand on one line."""
    report = Report(say=lambda _: None)
    report.section("First")
    for name in ("a reads as left", "b reads as left", "a reads as right", "all is well"):
        report.check(name, [])
    report.check("c reads as left", [], explained="but for the time")
    report.section("Second")
    report.check("d reads as left", [])
    written = page(report.checks, date="2026-01-02", versions={"Java": "17"})
    assert "On 2026-01-02," in written
    assert "passed 6 checks" in written
    assert "\n- Java 17\n" in written
    assert written[written.index("## First") :] == (
        "## First\n\nChecks: 5\n\n"
        "- … reads as left: `a`, `b`\n"
        "- a reads as right\n"
        "- all is well\n"
        "- c reads as left (but for the time)\n"
        "\n## Second\n\nChecks: 1\n\n"
        "- d reads as left\n"
    )


def test_a_part_that_runs_again_leaves_the_other_sections() -> None:
    """The page of one part keeps the sections of the page before, and counts all checks."""
    report = Report(say=lambda _: None)
    for section, names in {
        "Nodes": ("a is one", "all is well"),
        "Clusters": ("three lead",),
    }.items():
        report.section(section)
        for name in names:
            report.check(name, [])
    whole = page(report.checks, date="2026-01-02", versions={"Java": "17"})
    later = Report(say=lambda _: None)
    later.section("Clusters")
    for name in ("three lead", "two lead"):
        later.check(name, [])
    merged = page(later.checks, date="2026-01-03", versions={"Java": "17"}, kept=whole)
    assert "On 2026-01-03," in merged
    assert "passed 4 checks" in merged
    assert merged[merged.index("## Nodes") :] == (
        "## Nodes\n\nChecks: 2\n\n- a is one\n- all is well\n"
        "\n## Clusters\n\nChecks: 2\n\n- … lead: `three`, `two`\n"
    )
    assert page(report.checks, date="2026-01-02", versions={"Java": "17"}, kept=merged) == whole


def test_what_is_left_out_is_on_the_page_and_not_counted() -> None:
    """A check that cannot be made has a line with the reason, and does not count as passed."""
    said: list[str] = []
    report = Report(say=said.append)
    report.section("First")
    report.check("all is well", [])
    report.leave_out("kerberos", "there is no KDC")
    assert (report.passed, said[-1]) == (1, "left out: kerberos (there is no KDC)")
    written = page(report.checks, date="2026-01-02", versions={})
    assert "passed 1 checks" in written
    assert written[written.index("## First") :] == (
        "## First\n\nChecks: 1\n\n- all is well\n- left out: kerberos (there is no KDC)\n"
    )
