"""Running kubectl in a test: one namespace, one cluster, the output as people see it."""

import json
import os
import re
import shutil
import subprocess
import time

KUBECTL = shutil.which("kubectl")

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: nginx, resources: {requests: {cpu: 100m}}}
"""


def pod(name, **spec):
    container = {"name": "c", "image": "nginx"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [container], **spec},
        }
    )


class Kubectl:
    """Runs kubectl in one namespace of one cluster."""

    def __init__(self, cluster, namespace, home):
        self.cluster = cluster
        self.namespace = namespace
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)}

    def start(self, *arguments):
        command = [KUBECTL, "--namespace", self.namespace, *arguments]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *arguments, stdin="", code=0):
        process = self.start(*arguments)
        output, _ = process.communicate(stdin, timeout=30)
        assert process.returncode == code, output
        return output

    def json(self, *arguments):
        command = [KUBECTL, "--namespace", self.namespace, *arguments, "-o", "json"]
        return json.loads(
            subprocess.run(command, env=self.environment, capture_output=True, timeout=30, check=True).stdout
        )

    def eventually(self, expected, *arguments):
        """Repeat a command until its output contains a text."""
        deadline = time.monotonic() + 10
        while expected not in (output := self(*arguments)):
            assert time.monotonic() < deadline, output
            time.sleep(0.05)
        return output


def rows(output):
    """The words of each line below the headings."""
    return [line.split() for line in output.splitlines()[1:]]


def in_namespace_of(test, cluster, home):
    """Kubectl in a new namespace named after the test."""
    name = re.sub("[^a-z0-9]+", "-", test.lower()).strip("-")[:50].strip("-")
    runner = Kubectl(cluster, name, home)
    runner("create", "namespace", name)
    return runner
