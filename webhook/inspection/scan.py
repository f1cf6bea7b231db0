"""One pass over a cluster that runs: which classes, templates and pods the policies would refuse.

Objects are read page by page and let go of as soon as they are judged. What is kept is a count for each rule, namespace
and owner, and of these at most `MOST_ROWS`, so memory does not grow with the cluster.
"""

from collections import Counter

import msgspec

from webhook.admission.context import POD_GROUPS, Objects
from webhook.inspection.checks.budgets import by_namespace, never_allows, preemptible_by
from webhook.inspection.judge import UNKNOWN, Existing, Judge, Judged, Said, maker_of, maker_of_template
from webhook.inspection.reading import Progress, in_reach, items_of
from webhook.kube import resources
from webhook.kube.client import Client
from webhook.kube.errors import ApiError, unless_absent
from webhook.kube.objects.cluster_scoped import Namespace, PriorityClass
from webhook.kube.objects.meta import Condition, ObjectMeta
from webhook.kube.objects.pod import Pod, PodDisruptionBudget
from webhook.kube.pods import TEMPLATE_HASH, controller_of
from webhook.kube.resources import Resource
from webhook.kube.selectors import Matcher
from webhook.policy.model.policies import Policies

MOST_ROWS = 20_000
"""Rows that are kept; what comes beyond is counted by rule alone."""
BUDGET_NEVER_ALLOWS = "builtin/budget-never-allows"
"""By this id a preemptible pod is told that a budget keeps it forever; admission does not look at budgets."""
_EXAMPLES = 3
_ENDED = ("Succeeded", "Failed")
_TEMPLATES = (
    resources.DEPLOYMENT,
    resources.STATEFUL_SET,
    resources.DAEMON_SET,
    resources.REPLICA_SET,
    resources.REPLICATION_CONTROLLER,
    resources.CRON_JOB,
    resources.JOB,
)
_WORKLOAD_KINDS = frozenset(resource.kind for resource in _TEMPLATES)


class Row(msgspec.Struct, rename="camel"):
    """What a rule says of the objects of one owner: how many there are, the reason for one, and some of their names."""

    rule: str
    verdict: str
    kind: str
    namespace: str
    owner: str
    message: str
    objects: int = 0
    examples: list[str] = []


class Report(msgspec.Struct, rename="camel"):
    """What a scan found.

    `judged` counts objects by kind; `passed_over` those that were not judged, by the reason. `problems` are objects
    that got no verdict, and kinds that could not be listed: with any of them the scan is not complete.
    """

    judged: dict[str, int] = {}
    passed_over: dict[str, int] = {}
    rows: list[Row] = []
    problems: list[str] = []
    more_problems: int = 0

    def count(self, verdict: str) -> int:
        """How many objects have this verdict; an object counts once for each rule."""
        return sum(row.objects for row in self.rows if row.verdict == verdict)


class _SpecHead(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _StatusHead(msgspec.Struct):
    phase: str = ""
    conditions: list[Condition] | None = None


class _Head(msgspec.Struct):
    """What a scan itself reads of an object, of whatever kind."""

    metadata: ObjectMeta
    spec: _SpecHead | None = None
    status: _StatusHead | None = None


_head = msgspec.json.Decoder(_Head)


async def scan(client: Client, policies: Policies, own: str, progress: Progress = lambda *_: None) -> Report:
    """Judge the whole cluster. `own` is giveway's namespace, which like other exempt ones is not judged.

    Raises ApiError if the classes, the namespaces or the pods cannot be listed.
    """
    work = _Scan(client, policies, own, progress)
    await work.learn()
    if policies.preemption:
        await work.read_budgets()
    for resource in (resources.PRIORITY_CLASS, *_TEMPLATES, resources.POD):
        await work.read(resource)
    return work.finish()


class _Scan:
    """The course of one scan."""

    def __init__(self, client: Client, policies: Policies, own: str, progress: Progress) -> None:
        self._client, self._policies, self._own, self._progress = client, policies, own, progress
        self._classes, self._namespaces = dict[str, PriorityClass](), dict[str, Namespace]()
        self._reach = frozenset[str]()
        self._judge = Judge(policies, Objects())
        self._preemptible = preemptible_by(policies.preemption, self._classes)
        self._closed: dict[str, list[tuple[str, Matcher]]] = {}
        """By namespace the budgets that never let a pod go, each with why and whom it covers."""
        self._asked: set[tuple[str, str]] = set()
        self._rows: dict[tuple[str, str, str, str, str], Row] = {}
        self._passed_over, self._judged_kinds = Counter[str](), Counter[str]()
        self._report = Report(passed_over=self._passed_over, judged=self._judged_kinds)

    async def learn(self) -> None:
        """List the classes and namespaces; those that have gone since the scan began stay known."""
        classes, _ = await self._client.list(resources.PRIORITY_CLASS.path(), PriorityClass)
        namespaces, _ = await self._client.list(resources.NAMESPACE.path(), Namespace)
        self._classes |= {priority_class.metadata.name: priority_class for priority_class in classes}
        self._namespaces |= {namespace.metadata.name: namespace for namespace in namespaces}
        self._reach = in_reach(self._namespaces.values(), self._own)
        self._judge = Judge(self._policies, Objects(self._classes.values(), self._namespaces.values()))

    async def read_budgets(self) -> None:
        """Note the budgets that never let a pod go."""
        asked = self._client.list(resources.POD_DISRUPTION_BUDGET.path(), PodDisruptionBudget)
        listed = await unless_absent(asked, 403)
        if listed is None:
            self._problem("poddisruptionbudgets: not looked at, no right to list them")
            return
        for namespace, rows in by_namespace(listed[0]).items():
            self._closed[namespace] = [
                (f"PodDisruptionBudget {budget.metadata.name} never lets it be evicted, because {why}", covers)
                for budget, covers in rows
                if (why := never_allows(budget))
            ]

    async def read(self, resource: Resource) -> None:
        """Judge every object of a kind."""
        try:
            async for raw in items_of(self._client, resource, msgspec.Raw, self._progress):
                await self._judge_one(resource, raw)
        except ApiError as error:
            if error.status != 403 or resource is resources.POD:
                raise
            self._problem(f"{resource.plural}: not scanned, no right to list them")

    def finish(self) -> Report:
        """The report, with the rows in order: what is refused first, and the most objects first."""
        order = {verdict: at for at, verdict in enumerate(("refused", "warned", "audited"))}
        self._report.rows = sorted(
            self._rows.values(),
            key=lambda row: (order.get(row.verdict, 9), row.rule, -row.objects, row.namespace, row.kind, row.owner),
        )
        return self._report

    async def _judge_one(self, resource: Resource, raw: msgspec.Raw) -> None:
        """Judge an object and count what the rules say of it, or note why it is not judged."""
        try:
            head = _head.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            self._problem(f"{resource.kind}: cannot be read: {error}")
            return
        if why_not := self._why_not(resource, head):
            self._passed_over[why_not] += 1
            return
        judged = await self._judged(resource, head, bytes(raw))
        namespace, name = head.metadata.namespace, head.metadata.name
        if namespace and namespace not in self._reach:
            self._passed_over[_EXEMPT if namespace in self._namespaces else _GONE] += 1
            return
        self._judged_kinds[resource.kind] += 1
        told, problem = list(judged.said), judged.problem
        try:
            told += self._kept_by_budgets(resource, head.metadata, raw)
        except msgspec.DecodeError as error:
            problem = problem or f"cannot be read: {error}"
        if problem:
            self._problem(f"{resource.kind} {f'{namespace}/' if namespace else ''}{name}: {problem}")
        owner = _owner(resource, head.metadata)
        for said in told:
            key = (said.rule, said.verdict, resource.kind, namespace, owner)
            if key not in self._rows and len(self._rows) >= MOST_ROWS:
                key = (said.rule, said.verdict, resource.kind, "", _OTHERS)
            row = self._rows.setdefault(key, Row(*key, said.message))
            row.objects += 1
            if len(row.examples) < _EXAMPLES:
                row.examples = [*row.examples, name]

    def _kept_by_budgets(self, resource: Resource, meta: ObjectMeta, raw: msgspec.Raw) -> list[Said]:
        """What is to be said of a preemptible pod that a budget never lets go. Raises msgspec.DecodeError."""
        closed = self._closed.get(meta.namespace, ()) if resource is resources.POD else ()
        covering = [said for said, covers in closed if covers(meta.labels or {})]
        if not covering or not self._preemptible(msgspec.json.decode(raw, type=Pod)):
            return []
        return [Said(BUDGET_NEVER_ALLOWS, "warned", said) for said in covering]

    async def _judged(self, resource: Resource, head: _Head, raw: bytes) -> Judged:
        """The verdict. Classes and namespaces that came since the scan began are read first; each is asked for once."""
        meta = head.metadata
        if resource is resources.PRIORITY_CLASS:
            maker = UNKNOWN
        elif resource is resources.POD:
            maker = maker_of(meta, (head.spec and head.spec.node_name) or "")
        else:
            maker = maker_of_template(resource.plural)
        while True:
            try:
                existing = Existing(raw, resource.plural, meta.namespace, meta.name)
                judged = self._judge.judge(existing, maker, self._asked)
            except (msgspec.DecodeError, RecursionError) as error:
                return Judged(problem=f"cannot be read: {error}")
            # A PodGroup decides about pods that are made, not about those that run
            unknown = {pair for pair in judged.unsure if pair[0] != POD_GROUPS} - self._asked
            if not unknown:
                return judged
            self._asked |= unknown
            await self.learn()

    def _why_not(self, resource: Resource, head: _Head) -> str:
        """Why an object is not judged; empty if it is."""
        meta, status = head.metadata, head.status or _StatusHead()
        if meta.deletion_timestamp:
            return "being deleted"
        if meta.namespace and meta.namespace in self._namespaces and meta.namespace not in self._reach:
            return _EXEMPT
        if resource is resources.POD:
            return "ended" if status.phase in _ENDED else ""
        if any(owner.controller and owner.kind in _WORKLOAD_KINDS for owner in meta.owner_references or ()):
            return "made from another template"
        over = {condition.type for condition in status.conditions or () if condition.status == "True"}
        return "ended" if resource is resources.JOB and over & {"Complete", "Failed"} else ""

    def _problem(self, text: str) -> None:
        if len(self._report.problems) < 20:
            self._report.problems = [*self._report.problems, text]
        else:
            self._report.more_problems += 1


_EXEMPT = "in a namespace that giveway is not asked about"
_GONE = "in a namespace that is gone"
_OTHERS = "further owners"
_NO_OWNER = "no controller"


def _owner(resource: Resource, meta: ObjectMeta) -> str:
    """The owner by which an object is counted: of a pod the workload that people wrote."""
    if resource is not resources.POD:
        return f"{resource.kind} {meta.name}"
    owner = controller_of(meta)
    if owner is None:
        return _NO_OWNER
    suffix = (meta.labels or {}).get(TEMPLATE_HASH)
    if owner.kind == "ReplicaSet" and suffix and owner.name.endswith(f"-{suffix}"):
        return f"Deployment {owner.name.removesuffix(f'-{suffix}')}"
    return f"{owner.kind} {owner.name}"
