"""`giveway install` as a process, with a real webhook behind the Service: what it makes and what it says."""

import asyncio

import pytest
from click import ClickException
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests.cases import cases
from tests.inspection.command import giveway
from tests.manifests.at_work import CONFIGURATIONS
from tests.manifests.objects import BASE, NAMESPACE, POLICIES
from tests.workloads import eventually
from webhook.cli.install import _tell_policies
from webhook.cli.main import main
from webhook.installation.applier import ObjectApplier, UnfitClusterError
from webhook.installation.install import apply, look
from webhook.installation.kustomize import components, render
from webhook.kube import resources
from webhook.kube.errors import unless_absent

POLICY_MAP = resources.CONFIG_MAP.path(NAMESPACE, "giveway-policies")


def run(bare, name, *arguments):
    return giveway(name, "--kubeconfig", bare.cluster.kubeconfig, *arguments)


async def done(bare, name, *arguments):
    """What a command says that ends well."""
    result = await run(bare, name, *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def install(bare, *arguments):
    """What an installation says that is not waited for."""
    return done(bare, "install", "--wait=0", *arguments)


async def everything(admin):
    """Every object that the cluster lists, as kind, namespace and name, but for Events."""
    found = set()
    groups = await admin.get("/apis")
    versions = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups["groups"])]
    for root in versions:
        for row in (await admin.get(root))["resources"]:
            if "list" not in row["verbs"] or "/" in row["name"] or row["kind"] == "Event":
                continue
            items, _ = await admin.list(f"{root}/{row['name']}")
            found |= {(row["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items}
    return found


async def with_entries(bare, what, *policies):
    """Give both configurations an entry of this name, of which nobody answers, by these failure policies."""
    for phase, path, policy in zip(("mutate", "validate"), CONFIGURATIONS, policies or ("Ignore",) * 2, strict=True):
        entry = {"name": f"{what}.{phase}.giveway.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"]}
        entry |= {"clientConfig": {"url": "https://127.0.0.1:1/"}} | ({"failurePolicy": policy} if policy else {})
        await bare.admin.patch(path, {"webhooks": [entry]})


async def versions(bare):
    """The resourceVersion of everything that was applied, but for what has a status of its own."""
    cluster = ObjectApplier(bare.admin)
    keys = [key for key in await cluster.inventory() if key.kind not in ("Deployment", "PodDisruptionBudget")]
    return {key: (await cluster.get(key))["metadata"]["resourceVersion"] for key in keys}


@pytest.mark.usefixtures("as_found")
async def test_from_nothing_to_judging_and_back(bare):
    """It waits until the webhook has answered and says what to do next; uninstall leaves no object of any kind."""
    waiting = asyncio.create_task(run(bare, "install", "--component=scan"))
    deployment = resources.DEPLOYMENT.path(NAMESPACE, "giveway-webhook")
    await eventually(lambda: unless_absent(bare.admin.get(deployment)), 60)
    async with bare.serving():
        result = await asyncio.wait_for(waiting, 60)
        assert result.exit_code == 0, result.stderr
        assert "Deployment giveway-system/giveway-webhook created" in result.stdout
        assert "What to do next:\n  giveway doctor" in result.stdout
        assert "waiting: " in result.stderr
        applied, entries = await versions(bare), await bare.webhooks()
        again = await install(bare, "--component=scan")
        assert f"{len(render(BASE, components(('scan',)))) - 1} unchanged" in again
        assert await versions(bare) == applied
        # The webhook's own entries and their trust are not the installation's to change
        text = await install(bare, "--image=registry.example.com/giveway:0.2.0")
        assert "CronJob giveway-system/giveway-scan removed" in text
        assert ("CronJob", NAMESPACE, "giveway-scan") not in await everything(bare.admin)
        assert await bare.webhooks() == entries
        removed = await done(bare, "uninstall", "--yes")
        assert await bare.can_make_pods()
    assert removed.startswith("MutatingWebhookConfiguration giveway deleted\n")


async def test_in_another_namespace(bare, as_found):
    """All of it is there, no object names the usual namespace, and uninstall finds it there."""
    text = await install(bare, "--system-namespace=policy", "--component=scan")
    assert "Deployment policy/giveway-webhook created" in text
    found = await bare.admin.get(resources.DEPLOYMENT.path("policy", "giveway-webhook"))
    assert "--system-namespace=policy" in found["spec"]["template"]["spec"]["containers"][0]["args"]
    assert not [one for one in await everything(bare.admin) - as_found if NAMESPACE in one]
    await done(bare, "uninstall", "--yes", "--system-namespace=policy")


@pytest.mark.usefixtures("as_found")
async def test_it_takes_over_what_kubectl_applied(bare):
    """An installation by `kubectl apply -k` is brought to this version, and removed like one of its own."""
    await bare.kubectl("apply", "-k", str(BASE))
    text = await install(bare, "--image=registry.example.com/giveway:0.2.0")
    assert "Deployment giveway-system/giveway-webhook changed" in text
    found = await bare.admin.get(resources.DEPLOYMENT.path(NAMESPACE, "giveway-webhook"))
    images = {one["image"] for one in found["spec"]["template"]["spec"]["containers"]}
    assert images == {"registry.example.com/giveway:0.2.0"}
    await done(bare, "uninstall", "--yes")


async def test_policies_are_whose_who_changed_them(bare, tmp_path):
    """Another installation keeps the policies that are there, unless it is given files."""
    await install(bare)
    await bare.admin.patch(POLICY_MAP, {"data": {"priorities.yaml": "# mine\n"}})
    assert "ConfigMap giveway-system/giveway-policies kept as it is" in await install(bare)
    assert (await bare.admin.get(POLICY_MAP))["data"]["priorities.yaml"] == "# mine\n"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bands.yaml").write_text((POLICIES / "priorities.yaml").read_text())
    await install(bare, "--policies", tmp_path / "own")
    assert set((await bare.admin.get(POLICY_MAP))["data"]) >= {"bands.yaml"}
    (tmp_path / "own" / "bands.yaml").write_text("kind: Nonsense\n")
    result = await run(bare, "install", "--policies", tmp_path / "own")
    assert result.exit_code == 1
    assert "bands.yaml:1" in result.stderr


async def test_it_says_what_is_missing(bare):
    """No server comes up: the pods' own words and whether the API server reaches them; nobody is refused."""
    result = await run(bare, "install", "--wait=1")
    assert result.exit_code == 1
    assert "no pod is refused that was not before; still missing:" in result.stderr
    assert "  - no webhook server has been ready yet" in result.stderr
    assert await bare.can_make_pods()
    held = {"name": "webhook", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    status = {"containerStatuses": [held], "conditions": [{"type": "Ready", "status": "False"}]}
    pods, _ = await bare.admin.list(resources.POD.path(NAMESPACE), labelSelector="app.kubernetes.io/component=webhook")
    for each in pods:
        path = resources.POD.path(NAMESPACE, each["metadata"]["name"], "status")
        await bare.admin.patch(path, {"status": status})
    await with_entries(bare, "probe")

    async def told():
        texts = " ".join((await look(ObjectApplier(bare.admin), render(BASE))).waiting)
        return "ImagePullBackOff: no such image" in texts and "TCP port 9443 of its pods is closed" in texts

    await eventually(told)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["--component=cert-manager", "--component=prometheus"],
            "install cert-manager first, or leave the component out and install the Prometheus operator",
            id="kinds",
        ),
        *(
            pytest.param([f"--mode={mode}"], "use --mode webhook, which needs no admission policies", id=mode)
            for mode in ("native", "backstop")
        ),
    ],
)
@pytest.mark.usefixtures("as_found")
async def test_a_kind_that_the_cluster_does_not_have(bare, arguments, message):
    """It is said before anything is applied, with what brings it or what works without; the embedded one has few."""
    result = await run(bare, "install", *arguments)
    assert (result.exit_code, message in result.stderr) == (1, True)


@pytest.mark.usefixtures("as_found")
async def test_a_cluster_that_is_too_old(bare, monkeypatch):
    """An API server without what giveway needs gets nothing."""
    monkeypatch.setattr("webhook.installation.applier.OLDEST", 99)
    with pytest.raises(UnfitClusterError, match=r"needs Kubernetes 1\.99 or newer\. Nothing was applied"):
        await apply(ObjectApplier(bare.admin), render(BASE), lambda _: None)


async def test_a_right_that_is_missing(bare):
    """One sentence, no stack trace."""
    kubeconfig = bare.cluster.write_kubeconfig("viewer", bare.cluster.add_user("viewer"))
    for name in ("install", "uninstall"):
        result = await giveway(name, "--kubeconfig", kubeconfig, *["--yes"] * (name == "uninstall"))
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: a right is missing: ")
        assert len(result.stderr.splitlines()) == 1


async def test_a_webhook_outside_the_cluster(bare, as_found):
    """No pods, Service or budget of the webhook; the command says how to start it, and uninstall takes the rest.

    The reconciler runs in the cluster if an image is named that nodes can pull, and else beside the webhook.
    """
    text = await install(bare, "--url=https://10.0.0.1:9443", "--image=registry.example.com/giveway:0.1.0")
    assert "giveway serve --entries keep --url https://10.0.0.1:9443" in text
    names = {(kind, name) for kind, _, name in await everything(bare.admin) - as_found}
    assert not {("Deployment", "giveway-webhook"), ("Service", "giveway-webhook")} & names
    assert {("Deployment", "giveway-reconciler"), ("ServiceAccount", "giveway-webhook")} <= names
    text = await install(bare, "--url=https://10.0.0.1:9443")
    assert "giveway run --entries keep --url https://10.0.0.1:9443" in text
    assert "Deployment giveway-system/giveway-reconciler removed" in text
    await with_entries(bare, "pods")
    assert "giveway run" not in await install(bare, "--url=https://10.0.0.1:9443")
    await done(bare, "uninstall", "--yes")


async def test_a_webhook_that_runs_already_is_not_to_be_started(bare):
    """One that comes up while the command waits, and one that the API server does not reach yet."""
    outside = ("install", "--url=https://10.0.0.1:9443")
    await install(bare, *outside[1:])
    waiting = asyncio.create_task(run(bare, *outside, "--wait=2"))
    await with_entries(bare, "probe")
    for result in (await waiting, await run(bare, *outside, "--wait=1")):
        assert "  - the API server has not reached the webhook yet" in result.stderr
        assert "Now start it" not in result.stdout


@pytest.mark.parametrize(
    ("kept", "given", "says"),
    cases(
        ("in-force", "the-same", POLICIES, ""),
        ("others", "others", None, "In force are the policies of the directory"),
        ("given", "others", POLICIES, "are not in force: the webhook outside the cluster goes on"),
    ),
)
async def test_which_policies_a_webhook_outside_the_cluster_has(bare, capsys, kept, given, says):
    """It reads a directory of its own, so what was applied may not be in force: then that is said."""
    await install(bare, "--url=https://10.0.0.1:9443")
    applied = (await bare.admin.get(POLICY_MAP))["data"]
    data = applied if kept == "the-same" else {"p.yaml": (POLICIES / "priorities.yaml").read_text()}
    in_force_path = resources.CONFIG_MAP.path(NAMESPACE)
    await bare.admin.create(in_force_path, {"metadata": {"name": "giveway-policies-in-force"}, "data": data})
    if kept == "others" and given:
        with pytest.raises(ClickException, match=says):
            await _tell_policies(bare.admin, given, outside=True)
    else:
        await _tell_policies(bare.admin, given, outside=True)
        assert says in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            ([f"--url={url}"], f"'{url}' is not of the form https://HOST:PORT")
            for url in ("http://h:1", "https://", "https://:9443", "https://a b:1", "https://h:99999")
        ),
        *(([f"--url={url}"], f"'{url}' is not of the form") for url in ("https://u:p@h", "https://h?x", "https://h#x")),
        (["--mode=native", "--url=https://10.0.0.1:9443"], "--mode native has none"),
        (["--mode=backstop", "--component=priority-plugin-off"], "refuse every pod"),
    ],
)
def test_what_no_installation_can_have_is_said_before_any_cluster_is_asked(arguments, message):
    """The API server would refuse such an address later, when somebody else looks."""
    result = CliRunner().invoke(main, ["install", *arguments])
    assert (result.exit_code, message in result.stderr) == (2, True)


@pytest.mark.parametrize("file", ["below/teams.yaml", "notes.txt"])
def test_a_directory_without_policies_that_can_be_applied(tmp_path, file):
    """It would leave the cluster with no policies, or with less than the directory seems to hold."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((POLICIES / "priorities.yaml").read_text())
    result = CliRunner().invoke(main, ["install", "--dry-run", "--policies", str(tmp_path)])
    assert (result.exit_code, "holds no *.yaml file" in result.stderr) == (1, True)


async def test_dry_runs_write_nothing(bare):
    """Install prints YAML that can be applied; uninstall what it would delete, the configurations first."""
    before = await everything(bare.admin)
    objects = list(YAML(typ="safe", pure=True).load_all(await done(bare, "install", "--dry-run", "--component=scan")))
    assert {obj["kind"] for obj in objects} >= {"Deployment", "CronJob", "ConfigMap"}
    assert await everything(bare.admin) == before
    await install(bare)
    there = await everything(bare.admin)
    text = (await done(bare, "uninstall", "--dry-run")).splitlines()
    assert text[0] == "MutatingWebhookConfiguration giveway would be deleted"
    assert text[-1] == "Namespace giveway-system would be deleted"
    assert await everything(bare.admin) == there


async def test_it_waits_for_every_deployment(bare):
    """Done means that both Deployments have their new pods, and that the API server asks."""
    await install(bare)
    async with bare.serving():
        await eventually(bare.in_force, 20)

        async def done():
            return (await look(ObjectApplier(bare.admin), render(BASE))).done

        await eventually(done, 20)
        path = resources.DEPLOYMENT.path(NAMESPACE, "giveway-reconciler")
        await bare.admin.patch(path, {"spec": {"replicas": 3, "template": {"spec": {"nodeSelector": {"a": "b"}}}}})
        status = await look(ObjectApplier(bare.admin), render(BASE))
        assert status.started
        assert status.waiting[0].startswith("giveway-reconciler: ")
