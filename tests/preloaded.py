"""What the fork server of tests/processes.py imports: the commands that tests start, with all that they import."""

import gc
import importlib

for name in ("certs", "doctor", "install", "reconcile", "scan", "serve", "uninstall"):
    importlib.import_module(f"webhook.cli.{name}")
importlib.import_module("kubernetes.aio.config.kube_config")
gc.freeze()
