"""Pod placement read again from the data fields of an instance: where a pod may run, and which pods must go on.

Nothing here comes from the properties and functions of `flowlex.instances.pods` that models use. A wrong rule there is
refused by the certificates, which read theirs here.
"""

from __future__ import annotations

from flowlex.instances.pods import Pod, PodInstance, PodNode


def wants_gpu(pod: Pod) -> bool:
    """Whether a pod asks for memory of a card, in GB or as a share."""
    return max(pod.gpu_memory_gb, pod.gpu_share) > 0


def fits_wishes(pod: Pod, node: PodNode) -> bool:
    """Whether a node has the labels and card model that a pod asks for, and no taint that it does not tolerate."""
    if pod.card_models and node.card_model not in pod.card_models:
        return False
    if any(taint not in pod.tolerations for taint in node.taints):
        return False
    return all(key in node.labels and node.labels[key] == value for key, value in pod.node_labels.items())


def must_run(instance: PodInstance) -> set[str]:
    """Names of pods that no placement may leave out: running ones without a price of stopping, and their gangs."""
    kept = {pod.name: pod.gang for pod in instance.pods if pod.node is not None and pod.preempt_cost is None}
    gangs = set(kept.values()) - {None}
    return {pod.name for pod in instance.pods if pod.name in kept or pod.gang in gangs}


def repacked(instance: PodInstance) -> list[str]:
    """Names of running GPU pods that use some of their node's cards, where the file does not say which."""
    cards = {node.name: node.cards for node in instance.nodes}
    return [
        pod.name
        for pod in instance.pods
        if pod.node is not None and wants_gpu(pod) and pod.node_cards is None and pod.gpu_cards < cards[pod.node]
    ]
