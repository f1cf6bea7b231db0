"""Alerts and dashboard: expressions name metrics that the two processes export, and each alert fires when it should."""

import json
import re
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.manifests.at_work import RECONCILER, WEBHOOK, with_base
from tests.manifests.objects import COMPONENTS, ROOT, documents
from tests.manifests.promql import grouped, selectors
from tests.manifests.rendering import containers, find, rendered
from tests.tools import needed
from webhook.component_base.probes import ProcessMetrics
from webhook.manager.policy_chooser import PolicyMetrics
from webhook.policy.model.policies import Policies
from webhook.reconciler.reporting import ReconcilerMetrics
from webhook.serving.metrics import AdmissionMetrics

COMPONENT = COMPONENTS / "prometheus"
[RULES] = documents(COMPONENT / "rules.yaml")
DASHBOARD = json.loads((COMPONENT / "giveway.json").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["spec"]["groups"] for rule in group["rules"]}
QUERIES = [pytest.param(rule["expr"], id=name) for name, rule in ALERTS.items()] + [
    pytest.param(target["expr"], id=f"{panel['title']}/{target['refId']}")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
ELSEWHERE = {
    "up": set(),
    "apiserver_admission_webhook_rejection_count": {"error_type", "name", "operation", "rejection_code", "type"},
    "apiserver_admission_webhook_fail_open_count": {"name", "type"},
}
"""Metrics of Prometheus and of the API server (Kubernetes Metrics Reference on kubernetes.io), with their labels."""
OF_THE_TARGET = {"job", "namespace", "pod"}
"""Labels that a scrape adds."""
SOURCES = "\n".join(path.read_text() for path in (ROOT / "webhook").rglob("*.py"))
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}


def sample_names(families):
    """The names under which families have samples, also those that have none yet."""
    return {family.name + suffix for family in families for suffix in SUFFIXES.get(family.type, [""])}


def exported(*own):
    """The families of all metrics that a process has with its `own`, each with the labels of its collector."""
    registry = ProcessMetrics().registry
    PolicyMetrics(registry, Policies)
    for made in (each(registry) for each in own):
        if isinstance(made, AdmissionMetrics):
            made.configurations_in_force(lambda: True)
    for collector in registry._collector_to_names:
        for family in collector.collect():
            yield family, set(getattr(collector, "_labelnames", None) or getattr(family, "_labelnames", ()))


LABELS = ELSEWHERE | {
    name: labels | ({"le"} if name.endswith("_bucket") else set())
    for family, labels in exported(AdmissionMetrics, ReconcilerMetrics)
    for name in sample_names([family])
}


@pytest.mark.parametrize("query", QUERIES)
def test_every_label_exists(query):
    """A query selects and groups by labels that the metric has, and by values that the code writes."""
    known = set()
    for name, matchers in selectors(query):
        assert name in LABELS, name
        labels = LABELS[name] | OF_THE_TARGET
        known |= labels
        for label, operator, value in matchers:
            assert label in labels, f"{name} has no label {label}"
            assert operator != "=" or name in ELSEWHERE or f'"{value}"' in SOURCES, f"nothing writes {label}={value}"
    assert known
    assert grouped(query) <= known


async def test_every_metric_is_exported(tmp_path):
    """Whatever a query names, one of the two processes shows on /metrics when it runs as in the manifests."""
    shown = set()
    async with (
        with_base(tmp_path, deployments=False) as installed,
        installed.serving(),
        installed.reconciling(),
    ):
        for account in (WEBHOOK, RECONCILER):
            page = await installed.shown("metrics", account)
            shown |= sample_names(text_string_to_metric_families(page))
    named = {name for query in QUERIES for name, _ in selectors(query.values[0])}
    assert named - shown == ELSEWHERE.keys()


def test_the_selectors_are_read_rightly():
    """What these tests take out of an expression, on one that has everything."""
    query = 'histogram_quantile(0.9, sum by (le, x) (rate(a_bucket{b="c", d=~"e{1}"}[5m]))) > 2 * f and on (pod) g{}'
    assert grouped(query) == {"le", "x", "pod"}
    assert [name for name, _ in selectors('sum(rate(a{b="c"}[5m])) or vector(0)')] == ["a"]
    assert list(selectors('a{b="c",d!~"e"} == 1')) == [("a", [("b", "=", "c"), ("d", "!~", "e")])]


def test_both_processes_are_scraped():
    """The ServiceMonitor selects one Service for each Deployment, at the port that says the metrics, ready or not."""
    objects = rendered("prometheus")
    monitor = find(objects, "ServiceMonitor", "giveway")["spec"]
    [expression] = monitor["selector"]["matchExpressions"]
    [endpoint] = monitor["endpoints"]
    assert endpoint["honorLabels"], "namespace of a metric would be renamed exported_namespace, and queries miss it"
    services = [
        obj
        for obj in objects.values()
        if obj["kind"] == "Service" and obj["metadata"]["labels"].get(expression["key"]) in expression["values"]
    ]
    scraped = []
    for service in services:
        assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert service["spec"]["publishNotReadyAddresses"] is True
        [port] = service["spec"]["ports"]
        assert port["name"] == endpoint["port"]
        [name] = [
            name
            for (_, kind, _, name), obj in objects.items()
            if kind == "Deployment"
            and service["spec"]["selector"].items() <= obj["spec"]["template"]["metadata"]["labels"].items()
        ]
        named = [port for container in containers(name).values() for port in container.get("ports", ())]
        assert {each["name"]: each["containerPort"] for each in named}[port["targetPort"]] == port["port"]
        scraped.append(name)
    assert sorted(scraped) == ["giveway-reconciler", "giveway-webhook"]
    jobs = {
        value
        for query in QUERIES
        for _, rows in selectors(query.values[0])
        for label, op, value in rows
        if (label, op) == ("job", "=")
    }
    assert jobs <= {service["metadata"]["name"] for service in services}


def test_the_dashboard_is_found_and_whole():
    """The ConfigMap has the label that Grafana's sidecar looks for; panels have their own ids and do not overlap."""
    config_map = find(rendered("prometheus"), "ConfigMap", "giveway-dashboard")
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config_map["data"]["giveway.json"]) == DASHBOARD
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_every_alert_has_a_section_that_its_runbook_url_leads_to():
    """docs/operations.md says of each alert what it means and what to do; each has a severity and a line."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    texts = {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in section.split("\n### ")[1:]}
    assert list(texts) == list(ALERTS)
    assert all(texts.values())
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in {"critical", "warning"}, name
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, name
        assert rule["annotations"]["runbook_url"] == f"https://giveway.dev/docs/operations#{name.lower()}"


@pytest.mark.parametrize(("page", "own"), [("webhook", AdmissionMetrics), ("reconciler", ReconcilerMetrics)])
def test_every_metric_is_in_the_table_of_its_process(page, own):
    """What a process exports is in the table "Metrics" of its page under its name in Prometheus, and nothing else."""
    totals = {"counter": "_total"}
    known = {family.name + totals.get(family.type, "") for family, _ in exported(own)}
    table = (ROOT / "docs" / f"{page}.md").read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(giveway_\w+)`", row.split("|")[1])} == {
        name for name in known if name.startswith("giveway_")
    }


REJECTIONS = 'apiserver_admission_webhook_rejection_count{name="%s", error_type="%s"}'
HEALTHY = {
    'up{job="giveway-webhook-metrics", pod="w1"}': "1x180",
    'giveway_leader{pod="r1"}': "1x180",
    'giveway_leader{pod="r2"}': "0x180",
    'giveway_webhook_configurations_in_force{pod="w1"}': "1x180",
    'giveway_policies_current{pod="w1"}': "1x180",
    'giveway_policy_removals_held{pod="w1"}': "0x180",
    'giveway_certificate_expiry_timestamp_seconds{pod="w1"}': "9000000x180",
    'giveway_certificate_expiry_timestamp_seconds{pod="r1"}': "0x180",
    'giveway_cache_age_seconds{pod="w1", resource="namespaces"}': "400x180",
    'giveway_admission_reviews_total{phase="mutate", resource="pods", verdict="allowed"}': "0+60x180",
    'giveway_admission_reviews_total{phase="mutate", resource="pods", verdict="error"}': "0x180",
    'giveway_admission_duration_seconds_bucket{phase="mutate", le="0.01"}': "0+60x180",
    'giveway_admission_duration_seconds_bucket{phase="mutate", le="2.5"}': "0+60x180",
    'giveway_admission_duration_seconds_bucket{phase="mutate", le="+Inf"}': "0+60x180",
    'giveway_preemption_plans_total{ending="bound"}': "0+6x180",
    'giveway_preemption_plans_total{ending="timed-out"}': "0+1x180",
    'giveway_nominations_cleared_total{scheduler="default-scheduler"}': "0x180",
    'giveway_events_dropped_total{reason="Preempted"}': "0x180",
    'giveway_task_failures_total{pod="w1", task="policies"}': "1x180",
    'giveway_log_lines_dropped_total{pod="w1"}': "7x180",
    REJECTIONS % ("pods.validate.giveway.dev", "no_error"): "0+9x180",
    REJECTIONS % ("other.example.com", "calling_webhook_error"): "0+9x180",
    'apiserver_admission_webhook_fail_open_count{name="workloads.validate.giveway.dev"}': "3x180",
}
"""Series of a cluster on which all is well, for three hours at one a minute, in promtool's notation."""
UNWELL = {
    "GivewayWebhookDown": {'up{job="giveway-webhook-metrics", pod="w1"}': "1x100 0x80"},
    "GivewayWebhookUnreachable": {
        REJECTIONS % ("pods.mutate.giveway.dev", "calling_webhook_error"): "0x100 0+1x80",
    },
    "GivewayPassedOver": {
        'apiserver_admission_webhook_fail_open_count{name="workloads.validate.giveway.dev"}': "0x100 0+1x80"
    },
    "GivewayNotInForce": {'giveway_webhook_configurations_in_force{pod="w2"}': "0x180"},
    "GivewayReviewsFail": {
        'giveway_admission_reviews_total{phase="mutate", resource="pods", verdict="error"}': "0x100 0+1x80"
    },
    "GivewayReviewsSlow": {
        'giveway_admission_duration_seconds_bucket{phase="mutate", le="0.01"}': "0+50x180",
    },
    "GivewayCertificateExpires": {'giveway_certificate_expiry_timestamp_seconds{pod="w1"}': "1000000x180"},
    "GivewayCertificateExpired": {'giveway_certificate_expiry_timestamp_seconds{pod="w1"}': "5000x180"},
    "GivewayNoLeader": {'giveway_leader{pod="r1"}': "1x100 0x80"},
    "GivewayPlansTimeOut": {'giveway_preemption_plans_total{ending="timed-out"}': "0+3x180"},
    "GivewayNominationsCleared": {
        'giveway_nominations_cleared_total{scheduler="default-scheduler"}': "0+1x180",
    },
    "GivewayEventsDropped": {'giveway_events_dropped_total{reason="Preempted"}': "0+1x180"},
    "GivewayPoliciesBroken": {'giveway_policies_current{pod="r2"}': "0x180"},
    "GivewayPolicyRemovalsHeld": {
        'giveway_policy_removals_held{pod="w1"}': "2x180",
        'giveway_policies_current{pod="w1"}': "0x180",
    },
    "GivewayCacheStale": {'giveway_cache_age_seconds{pod="w1", resource="namespaces"}': "0+60x180"},
    "GivewayTasksFail": {'giveway_task_failures_total{pod="w1", task="policies"}': "0+1x180"},
    "GivewayLogLinesDropped": {'giveway_log_lines_dropped_total{pod="w1"}': "0+1x180"},
}
"""By alert, what differs from that when it should fire, and it alone."""


@pytest.fixture
def passes(tmp_path):
    """Assert that promtool takes the rules, and finds in these cases what they expect; JSON is YAML."""
    program = needed("promtool")

    def run(cases):
        (tmp_path / "rules.yml").write_text(json.dumps({"groups": RULES["spec"]["groups"]}))
        tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
        (tmp_path / "tests.yml").write_text(json.dumps(tests))
        command = [program, "test", "rules", "tests.yml"]
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert result.returncode == 0, result.stdout + result.stderr

    return run


def test_each_alert_fires_when_it_should(passes):
    """On a well cluster none fires, and what is wrong for a while fires its own alert and no other."""
    assert UNWELL.keys() == ALERTS.keys()

    firing = 'sum by (alertname) (ALERTS{alertstate="firing"}) > 0'
    cases = [case("well", HEALTHY, firing)]
    for name, changes in UNWELL.items():
        cases.append(case(name, {**HEALTHY, **changes}, firing, {"labels": f'{{alertname="{name}"}}', "value": 1}))
    passes(cases)


def case(name, given, expression, *expected):
    """A test for promtool: what an expression says of these series after nearly three hours."""
    series = [{"series": one, "values": values} for one, values in given.items()]
    query = {"expr": expression, "eval_time": "175m", "exp_samples": list(expected)}
    return {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": [query]}


JUST_INSTALLED = {
    'up{job="giveway-webhook-metrics", pod="w1"}': "_ _ 0 1x177",
    'giveway_leader{pod="r1"}': "_ _ 0 1x177",
    'giveway_webhook_configurations_in_force{pod="w1"}': "_ _ 0 0 1x176",
    'giveway_policies_current{pod="w1"}': "_ _ 0 0 1x176",
    'giveway_policies_current{pod="r1"}': "_ _ 0 0 1x176",
    'giveway_certificate_expiry_timestamp_seconds{pod="w1"}': "_ _ 7776000x178",
    'giveway_cache_age_seconds{pod="w1", resource="namespaces"}': "_ _ 0+60x10 0+60x10 0x156",
    'giveway_admission_duration_seconds_bucket{phase="mutate", le="0.01"}': "_ _ 0x178",
    'giveway_admission_duration_seconds_bucket{phase="mutate", le="+Inf"}': "_ _ 0x178",
    'giveway_task_failures_total{pod="w1", task="registration"}': "_ _ 0 1 2x176",
}
"""The first hours on a cluster at rest: nothing is scraped at first, and nothing is asked later."""
QUIET = {
    "just installed": JUST_INSTALLED,
    "one plan of two timed out": {
        **HEALTHY,
        'giveway_preemption_plans_total{ending="bound"}': "0x90 1x90",
        'giveway_preemption_plans_total{ending="timed-out"}': "0x90 1x90",
    },
    "a rollout": {**HEALTHY, 'up{job="giveway-webhook-metrics", pod="w1"}': "1x90 0x3 1x90"},
    "another leader": {**HEALTHY, 'giveway_leader{pod="r1"}': "1x90 0x2 1x90"},
}
"""What happens where nothing is wrong."""


def test_no_alert_fires_for_nothing(passes):
    """At no moment of the hours after an installation, nor in a rollout or a change of the leader; others are found."""
    fired = 'count_over_time(ALERTS{alertstate="firing"}[3h])'
    passes([case(name, given, fired) for name, given in QUIET.items()])
    name, changes = next(iter(UNWELL.items()))
    with pytest.raises(AssertionError, match=name):
        passes([case(name, {**HEALTHY, **changes}, fired)])
