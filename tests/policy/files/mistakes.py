"""How tests tell that a mistake is found: severity, place and words."""


def check(findings, severity, place, words):
    """Exactly one finding of that severity at that place of the spec, whose line shows what is meant."""
    found = [one for one in findings if one.severity is severity]
    assert len(found) == 1, "\n".join(map(str, findings))
    (one,) = found
    assert words in one.message
    line, _, caret = one.excerpt.partition("\n")
    assert line[caret.index("^") :].startswith(place), one.excerpt
