"""What can only be seen with all policies side by side: names, costs, ranges, defaults, classes, spellings."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, product

from webhook.policy.cel.cost import ORDINARY_ELEMENTS, ORDINARY_SIZE
from webhook.policy.cel.program import MOST_IN_ALL, compile_bool
from webhook.policy.evaluation.rules import BUILTIN
from webhook.policy.model.globs import WILDCARD, intersect, name_matcher
from webhook.policy.model.policies import Policies
from webhook.policy.model.values import KNOWN_ANNOTATIONS
from webhook.policy.shapes.findings import Finding, Reader, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition

Readers = Mapping[str, Reader]
_Clashes = Iterator[tuple[Severity, SourcePosition, str, *tuple[tuple[SourcePosition, str], ...]]]
"""What is wrong at a place, and the other places that have to do with it, with what is there."""

_ONE_POLICY = "a class has one policy, so name it in one of them"
_ALMOST = 0.9
"""How alike two annotation keys are that probably mean the same."""
_TAKEN = f'"{BUILTIN}" is the name of the built-in rules; choose another'
_NO_DEFAULT = "pods that name no class are denied; allow it there, or choose another default"
_TOO_DEAR = (
    f"on an object of {ORDINARY_SIZE // 1024} KiB whose lists have {ORDINARY_ELEMENTS} elements; at most"
    f" {MOST_IN_ALL / 1e6:.0f} ms are allowed: use fewer expressions with loops, or split the policy by what it matches"
)


def check_together(policies: Policies, readers: Readers, known_classes: Collection[str] | None = None) -> None:
    """Note what is wrong between policies, and unknown classes if the known ones are given."""
    if known_classes is not None:
        _known(readers, known_classes)
    for check in (_names, _costs, _ranges, _defaults, _managed):
        for severity, source, message, *others in check(policies):
            related = [Finding(severity, at, there, readers[at.file].excerpt(at)) for at, there in others]
            readers[source.file].at(severity, source, message, tuple(related))
    _annotations(readers)


def _known(readers: Readers, known: Collection[str]) -> None:
    """Warn of classes that nobody has. A glob may mean classes that come later."""
    is_known = name_matcher(known)
    for reader in readers.values():
        for name, node in reader.classes:
            if WILDCARD not in name and not is_known(name):
                near = reader.nearest(name, known)
                text = f'PriorityClass "{name}" is not among the objects{near}'
                reader.warn(node, f"{text}; for one that something else makes, add --known-class {name}")


def _names(policies: Policies) -> _Clashes:
    """Names that are taken: by a built-in rule, or by a policy of the same kind."""
    for group in (policies.priority, policies.preemption):
        first: dict[str, SourcePosition] = {}
        for policy in group:
            if policy.name == BUILTIN:
                yield Severity.ERROR, policy.source, _TAKEN
            if policy.name in first:
                text = f'two policies are named "{policy.name}"; give one of them another name'
                yield Severity.ERROR, policy.source, text, (first[policy.name], "the first one")
            first.setdefault(policy.name, policy.source)


def _costs(policies: Policies) -> _Clashes:
    """The rule with which a policy could take too long on an ordinary object."""
    for policy in policies.priority:
        spent, conditions = 0.0, [condition.expression for condition in policy.conditions]
        for rule in policy.rules:
            for expression in (*conditions, *rule.declaration.expressions):
                spent += compile_bool(expression).cost.ordinary
            conditions = []
            if spent > MOST_IN_ALL:
                text = f"with rule {rule.id} the expressions of this policy may take {spent / 1e6:.0f} ms"
                yield Severity.ERROR, rule.source, f"{text} {_TOO_DEAR}"
                break


def _ranges(policies: Policies) -> _Clashes:
    """Each range that overlaps one before it, against the one that reaches furthest."""
    ranges = []
    for _, rule in policies.rules:
        if rule.declaration.range is not None:
            ranges.append((rule.declaration.range, rule.id, rule.source))
    ranges.sort(key=lambda row: row[0])
    furthest = ranges[:1]
    for (start, end), name, source in ranges[1:]:
        (other_start, other_end), other, other_source = furthest[0]
        if start <= other_end:
            text = f"the range of {name} overlaps that of {other} in {start} to {min(end, other_end)}"
            instead = "a value can be reserved once, so end one of them before the other begins"
            there = f"{other} reserves {other_start} to {other_end}"
            yield Severity.ERROR, source, f"{text}; {instead}", (other_source, there)
        if end > other_end:
            furthest = [((start, end), name, source)]


def _defaults(policies: Policies) -> _Clashes:
    """Defaults that a rule of the same policy refuses."""
    for policy in policies.priority:
        listing = []
        for rule in policy.rules:
            body = rule.priority_classes
            if body is not None:
                allowed = (WILDCARD,) if body.allow is None else body.allow
                listing.append((rule, name_matcher(body.deny), name_matcher(allowed)))
        for rule, (refusing, denies, allows) in product(policy.rules, listing):
            default = rule.default_priority_class
            if default is not None and (denies(default) or not allows(default)):
                text = f'the default "{default}" is refused by {refusing.id}: {_NO_DEFAULT}'
                yield Severity.ERROR, rule.source, text, (refusing.source, "the rule that refuses it")


def _managed(policies: Policies) -> _Clashes:
    """Classes that two PreemptionPolicies manage, or may manage by their globs."""
    rows = []
    for policy in policies.preemption:
        twins = policy.preemptors.twins
        names = dict.fromkeys((*policy.preemptors.priority_classes, *twins, *twins.values()))
        rows.append((policy, {name: name_matcher((name,)) for name in names}))
    for (policy, managed), (other, own) in combinations(rows, 2):
        for name, means in own.items():
            for rival, fits in managed.items():
                globs = WILDCARD in name and WILDCARD in rival
                if not (intersect(name, rival) if globs else means(rival) or fits(name)):
                    continue
                severity = Severity.ERROR
                text = f'"{name}" is managed by {policy.name} already'
                if globs and name != rival:
                    severity = Severity.WARNING
                    text = f'"{name}" and "{rival}" may mean the same class'
                there = policy.source, f'{policy.name} manages "{rival}"'
                yield severity, other.source, f"PreemptionPolicy {other.name}: {text}; {_ONE_POLICY}", there
                break


def _annotations(readers: Readers) -> None:
    """Warn of keys that nothing reads; those of a PreemptionPolicy are read, unless misspelt."""
    named = [(reader, *row) for reader in readers.values() for row in reader.annotations]
    known = {*KNOWN_ANNOTATIONS, *(key for _, key, _, recognises in named if recognises)}
    for reader, key, node, recognises in named:
        almost = difflib.get_close_matches(key, KNOWN_ANNOTATIONS, n=1, cutoff=_ALMOST)
        if recognises and key not in KNOWN_ANNOTATIONS and almost:
            reader.warn(node, f'annotation "{key}" looks like a misspelling; did you mean "{almost[0]}"?')
        elif key not in known:
            near = reader.nearest(key, known)
            reader.warn(node, f'unknown annotation "{key}": no PreemptionPolicy reads it{near}')
