"""The page as HTML: a pure function of the model. Sections have ids, so that each can be replaced when it changes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from itertools import groupby

from webhook.page.ladder import picture
from webhook.page.markup import NONE, Html, anchor, instant, joined, number, plural, table, text
from webhook.page.model import DecisionShown, GangShown, Page, VictimShown

STEPS = ("decided", "nominated", "evicting", "waiting for room", "bound")
"""The steps of a plan, in their order."""
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT", re.ASCII)
_ENDINGS = {"bound": "good", "": "open"}


def document(page: Page) -> Html:
    """The whole page."""
    made = sections(page)
    navigation = joined(f'<li><a href="#{name}">{title}</a></li>' for name, (title, _) in _SECTIONS.items())
    body = joined(
        f'<section id="{name}" aria-labelledby="{name}-title" data-version="{version_of(made[name])}">{made[name]}'
        "</section>"
        for name in _SECTIONS
    )
    return Html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>giveway</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="page.css"><script src="page.js" defer></script></head><body>'
        '<a class="skip" href="#main">Skip to the content</a>'
        '<header><div class="bar"><h1>giveway</h1><p id="live" role="status">as of this request</p></div>'
        f'<div id="summary" data-version="{version_of(made["summary"])}">{made["summary"]}</div>'
        f'<nav aria-label="Sections"><ul>{navigation}</ul></nav></header>'
        f'<main id="main" tabindex="-1">{body}</main>'
        '<p id="news" class="hidden" aria-live="polite"></p>'
        "<footer>Times are UTC. Read only; the same as JSON: "
        '<a href="debug/queue">/debug/queue</a>, <a href="debug/plans">/debug/plans</a>.</footer>'
        "</body></html>"
    )


def sections(page: Page) -> dict[str, Html]:
    """The page's parts by their ids: the summary, and the sections with their titles."""
    who = page.leadership
    role = f'<span class="badge {text(who.role)}">{text(who.role)}</span> <span class="who">{text(who.identity)}</span>'
    command = f"<pre><code>{text(who.command)}</code></pre>" if who.command else ""
    notice = f'<div class="notice"><p>{text(who.notice)}</p>{command}</div>' if who.notice else ""
    tiles = (
        (page.waiting_total, "waiting"),
        (page.plans_total, "plans under way"),
        (page.evictions.total, "evictions in an hour"),
        (page.pods, "pods"),
        (page.nodes, "nodes"),
    )
    shown = joined(f"<div><dd>{number(count)}</dd><dt>{name}</dt></div>" for count, name in tiles)
    made = {"summary": Html(f'<p class="identity">{role}</p>{notice}<dl class="tiles">{shown}</dl>')}
    for name, (title, content) in _SECTIONS.items():
        made[name] = Html(f'<h2 id="{name}-title">{title}</h2>{content(page)}')
    return made


def headline(page: Page) -> str:
    """What there is to say in one sentence, for screen readers; plain text."""
    return (
        f"{plural(page.waiting_total, 'pod')} waiting, {plural(page.plans_total, 'plan')} under way,"
        f" {plural(page.evictions.total, 'eviction')} in the last hour"
    )


def version_of(markup: str) -> str:
    """What tells one state of a section from another."""
    return hashlib.blake2b(markup.encode(), digest_size=8).hexdigest()


def _nothing(said: str) -> Html:
    return Html(f'<p class="empty">{text(said)}</p>')


def _more(total: int, shown: int, what: str) -> Html:
    """How many are not shown; `what` is the word for one, or `one/many`."""
    singular, _, many = what.partition("/")
    return Html(f'<p class="more">and {plural(total - shown, singular, many)} more</p>' if total > shown else "")


def _ladder(page: Page) -> Html:
    ladder = page.ladder
    if not ladder.rungs and not ladder.bands:
        return _nothing("There is no PriorityClass yet, and no pod with a priority.")
    lead = '<p class="lead">From the highest down. A filled dot: giveway preempts for this class.</p>'
    return Html(f"{lead}{picture(ladder)}{_more(ladder.hidden, 0, 'class/classes')}")


def _queue(page: Page) -> Html:
    if not page.waiting:
        return _nothing("No pod waits for preemption.")
    rows = [
        [
            text(waiting.pod),
            number(waiting.priority),
            text(waiting.state),
            text(waiting.reason) if waiting.reason else NONE,
            number(waiting.attempts),
            instant(waiting.next_try),
        ]
        for waiting in page.waiting
    ]
    headings = ("pod", "priority", "state", "reason", "plans in vain", "next try")
    shown = table("Pods to preempt for, the next one first", headings, rows, numbers=(1, 4))
    return joined((shown, _more(page.waiting_total, len(page.waiting), "pod")))


def _plans(page: Page) -> Html:
    if not page.plans:
        return _nothing("No plan is under way.")
    cards: list[Html] = []
    for plan in page.plans:
        steps: list[str] = []
        for place, name in enumerate(STEPS):
            if place == plan.step:
                steps.append(f'<li class="now" aria-current="step">{name}</li>')
            else:
                state, said = ("done", "done") if place < plan.step else ("ahead", "not yet")
                steps.append(f'<li class="{state}">{name}<span class="hidden"> ({said})</span></li>')
        times = [
            f", begun {instant(plan.begun)}" if plan.begun is not None else "",
            f", until {instant(plan.until)}" if plan.until is not None else "",
            "" if plan.reserved else ", the scheduler keeps no nomination, so nothing is reserved",
        ]
        listed = Html(f'<ul class="victims" aria-label="Victims">{_victims(plan.victims)}</ul>')
        devices = Html("")
        for device in plan.devices:
            said = f"waits for {', '.join(device.held_by)} to free it" if device.held_by else "free, held for it"
            name = f'<span class="device">{text(device.device)}</span>'
            devices = Html(f'{devices}<li>{name} <span class="state">{text(said)}</span></li>')
        held = Html(f'<ul class="victims" aria-label="Devices">{devices}</ul>') if plan.devices else Html("")
        nobody = '<p class="quiet">Nobody has to go: pods that leave anyway make the room.</p>'
        whom = f'<span class="pod">{text(plan.preemptor)}</span> to <span class="node">{text(plan.node)}</span>'
        if plan.gang is not None:
            whom = f'Gang <span class="pod">{text(plan.gang.name)}</span>'
        card = Html(
            f'<article class="card"><h3>{whom}</h3>'
            f'<p class="quiet">priority {number(plan.priority)}, policy {text(plan.policy)}{joined(times)}</p>'
            f'{_members(plan.gang)}<ol class="steps" aria-label="Steps">{joined(steps)}</ol>'
            f"{listed if plan.victims else nobody}{_more(plan.more_victims, 0, 'victim')}"
            f"{held}{_more(plan.more_devices, 0, 'device')}</article>"
        )
        cards.append(card)
    return joined((*cards, _more(page.plans_total, len(page.plans), "plan")))


def _members(gang: GangShown | None) -> Html:
    """How many members a gang needs and has, and where each of them is or goes."""
    if gang is None:
        return Html("")
    members = joined(
        f'<li><span class="pod">{text(member.pod)}</span> <span class="arrow">to</span> <span class="node">'
        f'{text(member.node)}</span> <span class="state">{text(member.state)}</span></li>'
        for member in gang.members
    )
    return Html(
        f'<p class="gang">needs {plural(gang.minimum, "member")}: {number(gang.bound)} bound,'
        f" {number(gang.nominated)} nominated, {number(gang.missing)} missing</p>"
        f'<ul class="victims" aria-label="Members">{members}</ul>{_more(gang.more_members, 0, "member")}'
    )


def _victims(victims: Iterable[VictimShown]) -> Html:
    """The victims as items of a list, those that go as one group together in one."""
    shown: list[str] = []
    for group, together in groupby(victims, key=lambda victim: victim.group):
        items = joined(
            f'<li><span class="pod">{text(victim.pod)}</span> <span class="state">{text(victim.state)}</span></li>'
            for victim in together
        )
        shown.append(
            f'<li class="group">{text(group)}, as one:<ul class="victims">{items}</ul></li>' if group else items
        )
    return joined(shown)


def _decisions(page: Page) -> Html:
    if not page.decisions:
        return _nothing("No decision has been made yet.")
    cards: list[Html] = []
    for decision in page.decisions:
        name = anchor("decision", f"{decision.plan} {decision.preemptor}")
        victims = (
            plural(len(decision.victims) + decision.more_victims, "victim")
            if decision.victims
            else Html("nobody evicted")
        )
        times = "" if decision.attempt == 1 else f", attempt {number(decision.attempt)}"
        facts = [
            f"policy {text(decision.policy)}{times}",
            plural(decision.candidates, "candidate") if decision.candidates else "",
            f"{plural(decision.already_leaving, 'pod')} leaving anyway" if decision.already_leaving else "",
            f"decided in {decision.decision_ms:.1f} ms" if decision.decision_ms else "",
        ]
        card = Html(
            f'<details class="card" id="{name}"><summary id="{name}-summary">'
            f'<span class="when">{_clock(decision.at)}</span> <span class="pod">{text(decision.preemptor)}</span>'
            f' <span class="arrow">to</span> <span class="node">{text(decision.node)}</span>'
            f' <span class="quiet">· {victims}</span> <span class="ending {_ENDINGS.get(decision.ending, "over")}">'
            f"{text(decision.ending or 'under way')}</span></summary>"
            f'<p class="quiet">{", ".join(fact for fact in facts if fact)}</p>'
            f"{_why(decision)}{_leavers(decision)}</details>"
        )
        cards.append(card)
    return joined(cards)


def _clock(at: str) -> Html:
    """The time of an RFC 3339 instant; the date is in its `datetime`."""
    return Html(f'<time datetime="{text(at)}">{text(at[11:19] or at)}</time>')


def _why(decision: DecisionShown) -> Html:
    if decision.selected is None:
        return Html("")
    nodes = (decision.selected, *decision.alternatives)
    headings = list(dict.fromkeys(heading for row in nodes for heading in row.compared))
    rows = [[text(row.node), *(_value(row.compared.get(heading, "")) for heading in headings)] for row in nodes]
    rows[0][0] = Html(f"<strong>{rows[0][0]}</strong> (chosen)")
    caption = f"Why this node: {decision.how_compared}"
    because = f"<p>{text(decision.because)}.</p>" if decision.because else ""
    columns = range(1, len(headings) + 1)
    return Html(f"{table(caption, ['node', *headings], rows, numbers=columns)}{because}")


def _value(value: str) -> Html:
    """A value that nodes are compared by: a number in groups of three digits, an instant as its time, other text."""
    if not value:
        return NONE
    if _INTEGER.fullmatch(value):
        return number(int(value))
    return _clock(value) if _INSTANT.match(value) else text(value)


def _leavers(decision: DecisionShown) -> Html:
    if not decision.victims:
        return Html("")
    columns = {
        "pod": [text(victim.pod) for victim in decision.victims],
        "priority": [number(victim.priority) for victim in decision.victims],
        "owner": [text(victim.owner) if victim.owner else NONE for victim in decision.victims],
        "rule": [text(victim.rule) for victim in decision.victims],
        "why it may go": [
            text(victim.because + ("; its replacement could run nowhere else" if victim.last_resort else ""))
            for victim in decision.victims
        ],
    }
    if any(victim.node for victim in decision.victims):
        columns["node"] = [text(victim.node or decision.node) for victim in decision.victims]
    if any(victim.group for victim in decision.victims):
        columns["goes with all of"] = [text(victim.group) if victim.group else NONE for victim in decision.victims]
    shown = table("Victims", list(columns), list(zip(*columns.values(), strict=True)), numbers=(1,))
    return joined((shown, _more(decision.more_victims, 0, "victim")))


def _evictions(page: Page) -> Html:
    evictions = page.evictions
    if not evictions.owners:
        return _nothing("Nobody was evicted by giveway in the last hour, as far as this process has seen.")
    rows = [
        [text(row.owner), *map(number, row.quarters), number(sum(row.quarters)), instant(row.last)]
        for row in evictions.owners
    ]
    headings = (
        "owner",
        "60 to 45 min ago",
        "45 to 30 min ago",
        "30 to 15 min ago",
        "last 15 min",
        "in all",
        "the last one",
    )
    shown = table("Evictions by owner, most first", headings, rows, numbers=range(1, 6))
    return joined((shown, _more(evictions.more_owners, 0, "owner")))


def _policies(page: Page) -> Html:
    policies = page.policies
    problem = ""
    if policies.problem:
        problem = f'<div class="notice"><p>The files are not in use: {text(policies.problem, 2000)}</p></div>'
    loaded = f'<p class="lead">In force since {instant(policies.loaded)}.</p>' if policies.loaded is not None else ""
    if not policies.rows:
        return Html(f"{problem}{_nothing('No policy is in force: giveway preempts for nobody.')}")
    rows = [[text(row.name), text(row.kind), text(row.summary)] for row in policies.rows]
    shown = table("Policies in force", ("policy", "kind", "what it says"), rows)
    return Html(f"{problem}{loaded}{shown}{_more(policies.more, 0, 'policy/policies')}")


def _certificates(page: Page) -> Html:
    if not page.certificates:
        return Html(
            '<p class="empty">This process serves no certificate. The webhook\'s are shown by '
            "<code>giveway certs show</code> and by <code>/readyz?verbose</code> of its pods.</p>"
        )
    rows = [[text(certificate.subject), instant(certificate.expires)] for certificate in page.certificates]
    return table("Certificates that this process serves", ("certificate", "expires"), rows)


_SECTIONS = {
    "ladder": ("Priorities", _ladder),
    "queue": ("Queue", _queue),
    "plans": ("Plans under way", _plans),
    "decisions": ("Last decisions", _decisions),
    "evictions": ("Evictions in the last hour", _evictions),
    "policies": ("Policies", _policies),
    "certificates": ("Certificates", _certificates),
}
"""The sections by their ids, in their order: the title, and what makes the content."""
