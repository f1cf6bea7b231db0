"""What acts on a cluster: controllers and kubelets, written once against informers, a client and a clock.

What they do next says `webhook.clusters.model`. The embedded cluster runs them on its API server, the simulation in
virtual time.
"""
