"""The admission webhook as parts of a process: the server, and the keeper of what sends reviews to it."""

from webhook.manager.manager import Manager
from webhook.registration.keeper import Keeper
from webhook.serving.cluster_objects import CachedObjects
from webhook.serving.metrics import AdmissionMetrics
from webhook.serving.server import ReviewServer, ServingOptions


def add_webhook(manager: Manager, options: ServingOptions, source: CachedObjects) -> ReviewServer:
    """Add the server to a process, which keeps its objects current, and its certificate as the files."""
    metrics, problem = AdmissionMetrics(manager.metrics.registry), manager.policies_problem
    told = metrics, manager.log, manager.supervisor
    server = ReviewServer(options, source, *told, policies_problem=problem)
    manager.add(server)
    return server


def add_keeper(manager: Manager, keeper: Keeper, webhook: ReviewServer) -> None:
    """Add what keeps the configurations that send reviews to this server, or looks at them."""
    webhook.source.on_namespace(webhook.options.namespace, keeper.wake)
    webhook.reloaded = keeper.wake
    webhook.metrics.configurations_in_force(lambda: keeper.in_force)
    manager.add(keeper)
