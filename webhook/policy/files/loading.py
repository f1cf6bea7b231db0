"""Loading policies: where they come from, everything in them that is wrong, at once, and the policies that are right.

A source gives texts with names; whoever chooses a policy set need not know which it is. It is read at once, from the
disk or from what a watch has shown last. Policies as custom resources would be one more function here: each object a
text, named as `kubectl` names it.

All of a set is used once before it replaces another. What raises only in use is found then, with the place of the part
that does it, and not by the process that has taken the set into use.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.policy.evaluation.engine import Engine
from webhook.policy.evaluation.reads import reads_on_update
from webhook.policy.evaluation.request import CLASSES, GROUPS, PODS, PolicyRequest
from webhook.policy.evaluation.rules import excepted_text
from webhook.policy.files.consistency import check_together
from webhook.policy.files.schema import API_VERSION, DOCUMENTS, TEST_KIND
from webhook.policy.files.yamltree import LARGEST_FILE, LARGEST_SET, MOST_FILES, YamlError, documents
from webhook.policy.model.policies import Policies
from webhook.policy.model.preemption import PreemptionPolicy
from webhook.policy.model.priority import PriorityPolicy
from webhook.policy.reports import exceptions, next_end, rights_of
from webhook.policy.shapes.findings import INVALID, Finding, PolicyError, Reader, Severity
from webhook.policy.shapes.yaml_nodes import SourcePosition, YamlMap, YamlNode, YamlScalar, kind

Use = Callable[[Policies, float], object]
Uses = Iterable[Use]
INSTEAD = "leave it out, or give another value"
"""What would be right for whoever wrote what raises."""
_TEST = f"{TEST_KIND} documents lie in a sub-folder such as tests/, not beside the policies"
_TOO_LARGE = f"has {{}} bytes; a policy file has at most {LARGEST_FILE}: split it"
_EXAMPLE = {"metadata": {"name": "example", "namespace": "example"}, "spec": {}}
SUFFIXES = (".yaml", ".yml")
"""How the names of policy files end, and of those with their tests."""


class PolicyTexts(NamedTuple):
    """Policies as texts, each with the name by which findings call it, and what keeps others from being read."""

    texts: list[tuple[str, str]]
    findings: list[Finding]


class PolicySource(NamedTuple):
    """What gives policies as texts as they are now, with its name: it may block on a disk only, and raises nothing."""

    name: str
    read: Callable[[], PolicyTexts]


def texts_in(directory: Path) -> PolicyTexts:
    """The `*.yaml` and `*.yml` files of a directory in the order of names, or one file.

    They are regular, maybe through links as in a ConfigMap mount, whose `..data` their dot hides.
    """
    result = PolicyTexts([], [])
    try:
        entries = sorted(directory.iterdir()) if directory.is_dir() else ()
        files = [path for path in entries if path.suffix in SUFFIXES and path.name[0] != "." and not path.is_dir()]
        paths = files if directory.is_dir() else [directory]
    except OSError as error:
        return PolicyTexts([], [_about(directory, f"cannot be read: {error.strerror or error}")])
    if not paths:
        nothing = "holds no *.yaml file: only the built-in rules hold"
        result.findings.append(_about(directory, nothing, Severity.WARNING))
    for path in paths:
        text = _text(path)
        if isinstance(text, str):
            result.texts.append((str(path), text))
        else:
            result.findings.append(text)
    return result


def texts_of(name: str, data: Mapping[str, Any], binary: Iterable[str] = ()) -> PolicyTexts:
    """The policy files of a ConfigMap of this name, in the order of their keys.

    Whatever else is in the data is no policy file, also what no API server has checked yet.
    `binary` are the keys of `binaryData`, in which kubectl puts a file that is not UTF-8.
    """
    unread = "this is binaryData, in which a file is that is not UTF-8; save the file as UTF-8"
    rows = [(key, text) for key, text in sorted(data.items()) if key.endswith(SUFFIXES)]
    texts = [(f"{name}/{key}", text) for key, text in rows if isinstance(text, str)]
    findings = [_about(Path(name, key), unread) for key in binary if key.endswith(SUFFIXES)]
    return PolicyTexts(texts, findings)


def _about(path: Path, message: str, severity: Severity = Severity.ERROR) -> Finding:
    """A finding about a file as a whole."""
    return Finding(severity, SourcePosition(str(path)), message)


def _text(path: Path) -> str | Finding:
    """The text of a policy file, or why there is none."""
    if path.exists() and not path.is_file():
        return _about(path, "is no regular file")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            return _about(path, _TOO_LARGE.format(path.stat().st_size))
        return data.decode("utf-8-sig")
    except OSError as error:
        return _about(path, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        text = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return Finding(Severity.ERROR, SourcePosition(str(path), line, column), text)


class Loaded(msgspec.Struct, frozen=True):
    """The policies without errors, and what was found wrong anywhere."""

    policies: Policies
    findings: list[Finding]

    @property
    def errors(self) -> list[Finding]:
        """The findings that keep this set from being used."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def load_or_raise(directory: Path) -> Policies:
    """A directory's policies. Raises PolicyError with everything found on any error."""
    loaded = load_texts(*texts_in(directory))
    if loaded.errors:
        raise PolicyError(loaded.findings)
    return loaded.policies


def load_texts(
    texts: list[tuple[str, str]],
    findings: Iterable[Finding] = (),
    *,
    known_classes: Collection[str] | None = None,
    now: float | None = None,
    uses: Uses = (),
    seconds: float = math.inf,
) -> Loaded:
    """Read policy files as a source gives them, with what it found (`PolicyTexts`).

    With `known_classes`, names or globs, other PriorityClasses are found, too. `uses` is as in
    `use_once`. What is wrong in files, or keeps them from being read, is not raised but among the findings.

    All of it is used once, as of `now` (seconds since the epoch; the clock's
    time if None). No file is begun after so many `seconds` of this thread.
    """
    end = time.thread_time() + seconds
    readers: dict[str, Reader] = {}
    read: list[PriorityPolicy | PreemptionPolicy] = []
    size, unread = 0, list[Finding]()
    for name, text in texts:
        own = len(text.encode(errors="surrogatepass"))
        size += own + len(name)
        if time.thread_time() > end:
            wrong = f"is not read: the files before it took more than {seconds:g} s; make them smaller or fewer"
        elif own > LARGEST_FILE:
            wrong = _TOO_LARGE.format(own)
        elif size > LARGEST_SET:
            most = f"a set has at most {LARGEST_SET}, because it is kept in a ConfigMap"
            wrong = f"with this file the policies have {size} bytes; {most}: shorten comments, or take policies out"
        elif len(readers) >= MOST_FILES:
            wrong = f"a set has at most {MOST_FILES} policy files: join some"
        else:
            readers[name] = Reader(name, text)
            read += _policies(text, readers[name])
            continue
        unread.append(_about(Path(name), wrong))
        break
    policies = Policies(
        priority=tuple(policy for policy in read if isinstance(policy, PriorityPolicy)),
        preemption=tuple(policy for policy in read if isinstance(policy, PreemptionPolicy)),
    )
    check_together(policies, readers, known_classes)
    policies = use_once(policies, readers, time.time() if now is None else now, uses)
    told = [finding for reader in readers.values() for finding in reader.findings]
    return Loaded(policies, [*findings, *told, *unread])


def _policies(text: str, reader: Reader) -> Iterator[PriorityPolicy | PreemptionPolicy]:
    """The policies of one file that are right."""
    empty = True
    try:
        for root in documents(text):
            empty = empty and kind(root) == "nothing"
            errors = reader.errors
            try:
                policy = _document(root, reader)
            except Exception as error:  # noqa: BLE001 - its author reads it, and no server ends by it
                text = f"this policy cannot be read: {type(error).__name__}: {error}; {INSTEAD}"
                policy = reader.error(root, text)
            if policy is not INVALID and reader.errors == errors:
                yield policy
        if empty:
            reader.at(Severity.WARNING, SourcePosition(reader.path, 1, 1), "the file holds no policy")
    except YamlError as error:
        reader.at(Severity.ERROR, SourcePosition(reader.path, error.line, error.column), f"YAML: {error.message}")


def _document(root: YamlNode, reader: Reader) -> Any:
    """The policy of one document by the fields of its kind; INVALID for what is no policy."""
    if kind(root) == "nothing":
        return INVALID
    if not isinstance(root, YamlMap):
        text = f"expected a policy (a mapping with apiVersion, kind, metadata, spec), found {kind(root)}"
        return reader.error(root, text)
    name = next((value for key, value in root.pairs if isinstance(key, YamlScalar) and key.text == "kind"), None)
    if name is None:
        return reader.error(root, f'a policy needs "kind": {" or ".join(DOCUMENTS)} (apiVersion: {API_VERSION})')
    text = name.text if isinstance(name, YamlScalar) else ""
    if text in DOCUMENTS:
        return DOCUMENTS[text].read(root, reader)
    if text == TEST_KIND:
        return reader.error(name, _TEST)
    return reader.error(name, f'"{text[:80]}" is no kind of policy{reader.nearest(text, DOCUMENTS)}')


def use_once(policies: Policies, readers: dict[str, Reader], now: float, uses: Uses = ()) -> Policies:
    """The policies, if all of them can be used at `now`, in seconds since the epoch.

    `uses` is what is made of them elsewhere; each is called with the policies and `now`.
    Of others there are none: each part that raises is noted as an error at its place.
    """
    error = _failure(policies, now, uses)
    if error is None:
        return policies
    parts = list(_parts(policies))
    failures = [(source, _failure(part, now, uses)) for part, source in parts]
    for source, reason in [row for row in failures if row[1]] or [(parts[-1][1], error)]:
        text = f"this cannot be used: {type(reason).__name__}: {reason}; {INSTEAD}"
        readers[source.file].at(Severity.ERROR, source, text)
    return Policies()


def _parts(policies: Policies) -> Iterator[tuple[Policies, SourcePosition]]:
    """Exceptions, rules and PreemptionPolicies, each as a set with its place."""
    for policy, exception in policies.exceptions:
        alone = replace(policy, rules=(), exceptions=(exception,))
        yield Policies(priority=(alone,)), exception.source
    for policy, rule in policies.rules:
        alone = replace(policy, rules=(rule,), exceptions=())
        yield Policies(priority=(alone,)), rule.source
    for other in policies.preemption:
        yield Policies(preemption=(other,)), other.source


def _failure(policies: Policies, now: float, uses: Uses) -> Exception | None:
    """What using a set raises."""
    if policies == Policies():
        return None
    try:
        for use in (_use, *uses):
            use(policies, now)
    except Exception as error:  # noqa: BLE001 - whatever it is, the set is not taken into use
        return error
    return None


def _use(policies: Policies, now: float) -> None:
    engine = Engine(policies)
    for resource in (PODS, CLASSES, GROUPS):
        asked = PolicyRequest(operation="CREATE", resource=resource, object=_EXAMPLE, now=now)
        engine.judge(asked)
        engine.judge(replace(asked, operation="UPDATE", old_object=_EXAMPLE))
    reads_on_update(policies)
    rights_of(policies)
    exceptions(policies, now)
    next_end(policies, now)
    for _, exception in policies.exceptions:
        excepted_text("", exception, "")
    for other in policies.preemption:
        other.limits.at(now)
        rates = [rate.schedule for rate in other.limits.rates.values()]
        for schedule in filter(None, (other.schedule, other.protection.schedule, *rates)):
            # At `now`, and at the beginning and the end of the window next to it
            for at in filter(None, (now, schedule.begins(now), schedule.ends(now))):
                schedule.ends(at)
                schedule.when(at, now)
                schedule.next_window(at)
