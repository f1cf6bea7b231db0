"""A cluster in a thread of its own, for tests that block: kubectl and the synchronous official client."""

import asyncio
import threading
from contextlib import contextmanager

from webhook.clusters.embedded.embedded_cluster import EmbeddedCluster


@contextmanager
def running(**options):
    """Run an EmbeddedCluster until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(timeout=30)

    cluster = EmbeddedCluster(**options)
    run(cluster.start())
    try:
        yield cluster
    finally:
        run(cluster.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()
