"""What can only be seen with all policies side by side: names, costs, ranges, defaults, classes, spellings."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, product

from webhook.policy.cel.cost import ORDINARY_ELEMENTS, ORDINARY_SIZE
from webhook.policy.cel.program import MOST_IN_ALL, compile_bool
from webhook.policy.evaluation.rules import BUILTIN
from webhook.policy.model.globs import WILDCARD, intersect, name_matcher
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.values import KNOWN_ANNOTATIONS
from webhook.policy.shapes.findings import Finding, Reader, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

Readers = Mapping[str, Reader]
_Clashes = Iterator[tuple[Severity, SourcePosition, str, *tuple[tuple[SourcePosition, str], ...]]]
"""What is wrong at a place, and the other places that have to do with it, with what is there."""

_ALMOST = 0.9
"""How alike two annotation keys are that probably mean the same."""


def check_together(policies: Policies, readers: Readers, known_classes: Collection[str] | None = None) -> None:
    """Note everything that is wrong between policies.

    If it is known which PriorityClasses there are, by name or glob,
    those that are not known are noted, too.
    """
    if known_classes is not None:
        _known(readers, known_classes)
    for check in (_names, _costs, _ranges, _defaults, _managed):
        for severity, source, message, *others in check(policies):
            related = [Finding(severity, at, there, readers[at.file].excerpt(at)) for at, there in others]
            readers[source.file].at(severity, source, message, tuple(related))
    _annotations(readers)


def _known(readers: Readers, known: Collection[str]) -> None:
    """Warn of classes that nobody has, often misspelt ones. A glob may mean classes that come later."""
    is_known = name_matcher(known)
    for reader in readers.values():
        for name, node in reader.classes:
            if WILDCARD not in name and not is_known(name):
                near = reader.nearest(name, known)
                text = f'PriorityClass "{name}" is not among the objects{near}; for one that something else makes, add'
                reader.warn(node, f"{text} --known-class {name}")


def _names(policies: Policies) -> _Clashes:
    """Names that are taken: by a built-in rule, or by a policy of the same kind."""
    for group in (policies.priority, policies.preemption):
        first: dict[str, SourcePosition] = {}
        for policy in group:
            if policy.name == BUILTIN:
                yield Severity.ERROR, policy.source, f'"{BUILTIN}" is the name of the built-in rules; choose another'
            if policy.name in first:
                text = f'two policies are named "{policy.name}"; give one of them another name'
                yield Severity.ERROR, policy.source, text, (first[policy.name], "the first one")
            first.setdefault(policy.name, policy.source)


def _costs(policies: Policies) -> _Clashes:
    """The rule with which the expressions of a policy could take too long on an ordinary object."""
    for policy in policies.priority:
        spent = sum(compile_bool(condition.expression).cost.ordinary for condition in policy.conditions)
        for rule in policy.rules:
            spent += sum(compile_bool(expression).cost.ordinary for expression in rule.declaration.expressions)
            if spent > MOST_IN_ALL:
                text = (
                    f"with rule {policy.name}/{rule.name} the expressions of this policy may take {spent / 1e6:.0f} ms"
                    f" on an object of {ORDINARY_SIZE // 1024} KiB whose lists have {ORDINARY_ELEMENTS} elements; at"
                    f" most {MOST_IN_ALL / 1e6:.0f} ms are allowed: use fewer expressions with loops, or split the"
                    " policy by what it matches"
                )
                yield Severity.ERROR, rule.source, text
                break


def _ranges(policies: Policies) -> _Clashes:
    """Each range that overlaps one before it, against the one that reaches furthest."""
    rules = [(policy, rule) for policy in policies.priority for rule in policy.rules]
    ranges = [(rule.declaration.range, f"{policy.name}/{rule.name}", rule.source) for policy, rule in rules]
    rows = [(*reserved, name, source) for reserved, name, source in ranges if reserved is not None]
    furthest = None
    for row in sorted(rows, key=lambda row: row[:2]):
        start, end, name, source = row
        if furthest is not None and start <= furthest[1]:
            other_start, other_end, other, other_source = furthest
            text = f"the range of {name} overlaps that of {other} in {start} to {min(end, other_end)}"
            instead = "a value can be reserved once, so end one of them before the other begins"
            there = f"{other} reserves {other_start} to {other_end}"
            yield Severity.ERROR, source, f"{text}; {instead}", (other_source, there)
        if furthest is None or end > furthest[1]:
            furthest = row


def _defaults(policies: Policies) -> _Clashes:
    """Defaults that a rule of the same policy refuses."""
    for policy in policies.priority:
        listing = [
            (rule, name_matcher(body.deny), name_matcher((WILDCARD,) if body.allow is None else body.allow))
            for rule in policy.rules
            if (body := rule.priority_classes) is not None
        ]
        for rule, (refusing, denied, allowed) in product(policy.rules, listing):
            default = rule.default_priority_class
            if default is not None and (denied(default) or not allowed(default)):
                text = (
                    f'the default "{default}" is refused by {policy.name}/{refusing.name}: pods that name no class are'
                    " denied; allow it there, or choose another default"
                )
                yield Severity.ERROR, rule.source, text, (refusing.source, "the rule that refuses it")


def _managed(policies: Policies) -> _Clashes:
    """Classes that two PreemptionPolicies manage, or may manage by their globs."""
    rows = [(policy, [(name, name_matcher((name,))) for name in _classes(policy)]) for policy in policies.preemption]
    for (policy, managed), (other, names) in combinations(rows, 2):
        for name, means in names:
            for rival, fits in managed:
                globs = WILDCARD in name and WILDCARD in rival
                if intersect(name, rival) if globs else means(rival) or fits(name):
                    sure = not globs or name == rival
                    may_be = f'"{name}" and "{rival}" may mean the same class'
                    text = f'"{name}" is managed by {policy.name} already' if sure else may_be
                    yield (
                        Severity.ERROR if sure else Severity.WARNING,
                        other.source,
                        f"PreemptionPolicy {other.name}: {text}; a class has one policy, so name it in one of them",
                        (policy.source, f'{policy.name} manages "{rival}"'),
                    )
                    break


def _classes(policy: PreemptionPolicy) -> list[str]:
    twins = policy.preemptors.twins
    return list(dict.fromkeys((*policy.preemptors.priority_classes, *twins, *twins.values())))


def _annotations(readers: Readers) -> None:
    """Warn of keys that nothing reads; a key that a PreemptionPolicy names is known, unless it looks misspelt."""
    named = [(reader, *row) for reader in readers.values() for row in reader.annotations]
    known = {*KNOWN_ANNOTATIONS, *(key for _, key, _, recognises in named if recognises)}
    for reader, key, node, recognises in named:
        almost = difflib.get_close_matches(key, KNOWN_ANNOTATIONS, n=1, cutoff=_ALMOST)
        if recognises and key not in KNOWN_ANNOTATIONS and almost:
            reader.warn(node, f'annotation "{key}" looks like a misspelling; did you mean "{almost[0]}"?')
        elif key not in known:
            near = reader.nearest(key, known)
            reader.warn(node, f'unknown annotation "{key}": no PreemptionPolicy reads it{near}')
