"""What an API server needs to show giveway a client certificate, as files: docs/install.md says where they go."""

import os
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from certs.authority import make_authority, make_client, pem

ADMISSION = "/etc/kubernetes/admission"
"""Where the files lie on the control plane, as they name each other."""
_CONFIGURATION = f"""\
# kube-apiserver --admission-control-config-file={ADMISSION}/admission.yaml
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: &webhooks
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: {ADMISSION}/webhooks.kubeconfig
- name: ValidatingAdmissionWebhook
  configuration: *webhooks
"""
_KUBECONFIG = f"""\
apiVersion: v1
kind: Config
users:
- name: NAME
  user:
    client-certificate: {ADMISSION}/giveway.crt
    client-key: {ADMISSION}/giveway.key
"""


def write_client_files(directory: Path, host: str, now: datetime, lifetime: timedelta) -> list[Path]:
    """Write a new authority's certificate, a client certificate and what leads an API server to it; the files.

    The authority's key is not kept: it signs this one certificate, so nobody else gets one. `host`
    is as API servers look it up: `SERVICE.NAMESPACE.svc` or the host of a URL, with a port if that
    is not 443. Raises FileExistsError for files from before.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority = make_authority(now, lifetime)
    client = make_client(authority, "kube-apiserver", now, lifetime)
    files = {
        "ca.crt": pem(authority.certificate),
        "giveway.crt": pem(client.certificate),
        "giveway.key": client.key_pem(),
        "webhooks.kubeconfig": _KUBECONFIG.replace("NAME", host).encode(),
        "admission.yaml": _CONFIGURATION.encode(),
    }
    existing = [name for name in files if (directory / name).exists()]
    if existing:
        raise FileExistsError(f"{directory} holds {', '.join(existing)} already; name a new directory")
    for name, content in files.items():
        with open(directory / name, "xb", opener=partial(os.open, mode=0o600)) as file:
            file.write(content)
    return [directory / name for name in files]
