"""The answers as Markdown, for a comment under a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.simulation.report.compare import differences, ending
from webhook.simulation.report.sections import MOST, Section, figures, sections
from webhook.simulation.report.summary import Summary

_MOST_SENTENCES = 20


def markdown(summaries: Sequence[Summary]) -> str:
    """One run, or two with the difference first."""
    lines = ["### giveway simulate", ""]
    if len(summaries) == 2:
        sentences = differences(*summaries)
        lines += [f"- {_text(sentence)}" for sentence in sentences[:_MOST_SENTENCES]]
        if len(sentences) > _MOST_SENTENCES:
            lines.append(f"- and {len(sentences) - _MOST_SENTENCES} more differences")
        lines.append("")
    lines += _table(figures(summaries))
    several = len(summaries) > 1
    for summary in summaries:
        lines += ["", f"<details><summary>{_text(summary.name)}: who</summary>"] if several else []
        for section in filter(lambda section: section.brief, sections(summary)):
            lines += ["", f"#### {section.title}", "", *_table(section)]
            if len(section.rows) > MOST:
                lines += ["", f"and {len(section.rows) - MOST} more"]
        lines += ["", ending(summary), *(["", "</details>"] if several else [])]
    return "\n".join(lines) + "\n"


def _table(section: Section) -> list[str]:
    """The heads, and the first rows."""
    head, *rows = (f"| {' | '.join(map(_text, row))} |" for row in (section.heads, *section.rows[:MOST]))
    return [head, f"|{'---|' * len(section.heads)}", *rows]


def _text(value: str) -> str:
    """A text from the cluster, without what Markdown or HTML would make something of."""
    plain = " ".join(value.split())
    for character, instead in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "&#124;"),
        ("`", "&#96;"),
        ("@", "&#64;"),
    ):
        plain = plain.replace(character, instead)
    for character in "[]*_":
        plain = plain.replace(character, f"\\{character}")
    return plain
