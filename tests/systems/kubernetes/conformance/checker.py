"""The filters of the default scheduler, written from the Kubernetes documentation, on plain dicts.

Shares no code with the importer. `Scheduler.refusals` names the filters that refuse a pod on a node, given the bindings
so far; `judge` applies a List of objects one by one and returns those that the scheduler would have refused.
"""

import re
from collections import defaultdict

from tests.systems.kubernetes.conformance.stored_pods import HARD, Json, amounts, counted, requested, stored


def key_of(pod: Json) -> tuple[str, str]:
    return pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]


def expression(rule: Json, labels: Json) -> bool:
    has, value = rule["key"] in labels, labels.get(rule["key"])
    match rule["operator"]:
        case "In":
            return value in rule["values"]
        case "NotIn":
            return value not in rule["values"]
        case "Exists":
            return has
        case "DoesNotExist":
            return not has
        case "Gt" | "Lt" as sense:
            if not has or not re.fullmatch(r"-?\d+", value or "") or not -(2**63) <= int(value or "") < 2**63:
                return False
            return int(value) > int(rule["values"][0]) if sense == "Gt" else int(value) < int(rule["values"][0])
    raise AssertionError(rule)


def selected(selector: Json | None, labels: Json) -> bool:
    if selector is None:
        return False
    plain = [{"key": k, "operator": "In", "values": [v]} for k, v in selector.get("matchLabels", {}).items()]
    return all(expression(rule, labels) for rule in [*plain, *selector.get("matchExpressions", [])])


def possible(rule: Json) -> bool:
    """Whether every value of a node selector's rule may be that of a label; another rule matches nothing."""
    plain = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
    listed = rule["values"] if rule["operator"] in ("In", "NotIn") else []
    return all(len(value) <= 63 and plain.fullmatch(value) for value in listed)


def node_terms(terms: list[Json], node: Json) -> bool:
    name, labels = {"metadata.name": node["metadata"]["name"]}, node["metadata"].get("labels", {})
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(possible(rule) and expression(rule, labels) for rule in term.get("matchExpressions", []))
        and all(expression(rule, name) for rule in term.get("matchFields", []))
        for term in terms
    )


def tolerated(pod: Json, taint: Json) -> bool:
    for t in pod["spec"].get("tolerations", []):
        if t.get("effect") and t["effect"] != taint["effect"]:
            continue
        if t.get("operator") == "Exists" and t.get("key", "") in ("", taint["key"]):
            return True
        same = t.get("key") == taint["key"] and t.get("value", "") == taint.get("value", "")
        if same and t.get("operator", "Equal") == "Equal":
            return True
    return False


#: In-tree volumes: plug-in, the CSI driver that replaced it, and the field with the name of the disk.
IN_TREE = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID"),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName"),
}


class Scheduler:
    """A snapshot of a cluster; pods that have ended and pods on nodes that are not listed use nothing."""

    def __init__(self, items: list[Json]) -> None:
        self.of_kind: dict[str, list[Json]] = defaultdict(list)
        for item in items:
            self.of_kind[item["kind"]].append(item)
        self.nodes = {node["metadata"]["name"]: node for node in self.of_kind["Node"]}
        known = [node["status"].get("nodeInfo", {}).get("kubeletVersion", "v1.34") for node in self.nodes.values()]
        self.minor = max(int(version.split(".")[1]) for version in known)
        self.of_kind["Pod"] = [stored(pod, self.minor) for pod in self.of_kind["Pod"]]
        live = [p for p in self.of_kind["Pod"] if p.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        self.pods = {key_of(pod): pod for pod in live}
        self.on = {key: pod["spec"]["nodeName"] for key, pod in self.pods.items() if pod["spec"].get("nodeName")}
        self.on = {key: name for key, name in self.on.items() if name in self.nodes}

    # -- helpers
    def labels(self, node: str) -> Json:
        return dict(self.nodes[node]["metadata"].get("labels", {}))

    def there(self, node: str) -> list[Json]:
        return [self.pods[key] for key, name in self.on.items() if name == node]

    def means(self, term: Json, owner: Json, pod: Json) -> bool:
        """Whether an affinity term of one pod selects another."""
        spaces = set(term.get("namespaces", []))
        selector = term.get("namespaceSelector")
        if selector is None and not spaces:
            spaces = {key_of(owner)[0]}
        if selector is not None:
            every = {key_of(p)[0] for p in self.pods.values()}
            labels = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in self.of_kind["Namespace"]}
            spaces |= {space for space in every if selected(selector, labels.get(space, {}))}
        return key_of(pod)[0] in spaces and selected(self.merged(term, owner), pod["metadata"].get("labels", {}))

    @staticmethod
    def merged(rule: Json, owner: Json) -> Json | None:
        selector, own = rule.get("labelSelector"), owner["metadata"].get("labels", {})
        if selector is None:
            return None
        more = [
            {"key": key, "operator": operator, "values": [own[key]]}
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in rule.get(field, [])
            if key in own
        ]
        return {**selector, "matchExpressions": [*selector.get("matchExpressions", []), *more]}

    @staticmethod
    def terms(pod: Json, kind: str) -> list[Json]:
        return list(pod["spec"].get("affinity", {}).get(kind, {}).get(HARD, []))

    # -- filters: True lets the pod pass
    def NodeResourcesFit(self, pod: Json, node: str) -> bool:
        has = counted(amounts(self.nodes[node]["status"]["allocatable"]))
        used: dict[str, int] = defaultdict(int)
        for other in self.there(node):
            for name, much in requested(other).items():
                used[name] += much
        return all(not much or much <= has.get(name, 0) - used[name] for name, much in requested(pod).items())

    def NodeAffinity(self, pod: Json, node: str) -> bool:
        wanted, labels = pod["spec"].get("nodeSelector", {}), self.labels(node)
        required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(HARD)
        fits = required is None or node_terms(required["nodeSelectorTerms"], self.nodes[node])
        return fits and all(labels.get(key) == value for key, value in wanted.items())

    def TaintToleration(self, pod: Json, node: str) -> bool:
        taints = self.nodes[node].get("spec", {}).get("taints", [])
        return all(tolerated(pod, taint) for taint in taints if taint["effect"] != "PreferNoSchedule")

    def NodeUnschedulable(self, pod: Json, node: str) -> bool:
        key = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        return not self.nodes[node].get("spec", {}).get("unschedulable") or tolerated(pod, key)

    def NodeReady(self, pod: Json, node: str) -> bool:
        """The taint that the node controller sets on nodes that are not ready or do not report."""
        taints = {"True": None, "False": "not-ready", "Unknown": "unreachable"}
        states = [c["status"] for c in self.nodes[node]["status"].get("conditions", []) if c["type"] == "Ready"]
        found = [{"key": f"node.kubernetes.io/{taints[s]}", "effect": "NoSchedule"} for s in states if taints[s]]
        return all(tolerated(pod, taint) for taint in found)

    def NodePorts(self, pod: Json, node: str) -> bool:
        def ports(one: Json) -> list[tuple[str, int, str]]:
            return [
                (port.get("protocol", "TCP"), port["hostPort"], port.get("hostIP", "0.0.0.0"))
                for container in [*one["spec"]["containers"], *one["spec"].get("initContainers", [])]
                if container in one["spec"]["containers"] or container.get("restartPolicy") == "Always"
                for port in container.get("ports", [])
                if port.get("hostPort")
            ]

        taken = [port for other in self.there(node) for port in ports(other)]
        return not any(
            a[:2] == b[:2] and (a[2] == b[2] or "0.0.0.0" in (a[2], b[2])) for a in ports(pod) for b in taken
        )

    def VolumeBinding(self, pod: Json, node: str) -> bool:
        space = key_of(pod)[0]
        for volume in pod["spec"].get("volumes", []):
            name = volume.get("persistentVolumeClaim", {}).get("claimName")
            if "ephemeral" in volume:
                name = f"{key_of(pod)[1]}-{volume['name']}"
            if name is None or not self.of_kind["PersistentVolumeClaim"]:
                continue
            claims = [c for c in self.of_kind["PersistentVolumeClaim"] if key_of(c) == (space, name)]
            if not claims or not self.claim_is_whole(claims[0], pod if "ephemeral" in volume else None):
                return False
            bound = claims[0]["spec"].get("volumeName")
            first = [self.on[key] for key in self.on if not bound and (space, name) in self.claims(self.pods[key])]
            volumes = [v for v in self.of_kind["PersistentVolume"] if v["metadata"]["name"] == bound]
            classes = [
                c
                for c in self.of_kind["StorageClass"]
                if c["metadata"]["name"] == claims[0]["spec"].get("storageClassName")
            ]
            late = [c for c in classes if c.get("volumeBindingMode") == "WaitForFirstConsumer"]
            chosen = claims[0]["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node", node)
            if not bound and ({chosen, *first} != {node} or (self.of_kind["StorageClass"] and not late)):
                return False
            if bound and not volumes:
                return False
            if late and not bound and not self.makes(claims[0], late[0], node, pod):
                return False
            for each in volumes:
                required = each["spec"].get("nodeAffinity", {}).get("required")
                if required and not node_terms(required["nodeSelectorTerms"], self.nodes[node]):
                    return False
                if not self.zone_of_volume(each["metadata"].get("labels", {}), self.labels(node)):
                    return False
        return True

    def makes(self, claim: Json, made: Json, node: str, pod: Json) -> bool:
        """Whether an unbound claim can get a volume on a node: a listed one, beside the pod's others, or a new one."""
        taken: set[str] = set()
        for other in sorted(self.claims(pod).values(), key=lambda one: self.size(one)):
            if other["spec"].get("volumeName") or other["spec"].get("storageClassName") != made["metadata"]["name"]:
                continue
            free = [v for v in self.of_kind["PersistentVolume"] if self.could_take(other, v, node)]
            names = [v["metadata"]["name"] for v in sorted(free, key=lambda v: self.size(v))]
            chosen = next((name for name in names if name not in taken), None)
            taken |= {chosen} if chosen else set()
            if key_of(other) == key_of(claim):
                if chosen is not None:
                    return True
                break
        if made.get("provisioner") == "kubernetes.io/no-provisioner":
            return False
        terms = [
            {"matchExpressions": [{**e, "operator": "In"} for e in term["matchLabelExpressions"]]}
            for term in made.get("allowedTopologies", [])
        ]
        return (not terms or node_terms(terms, self.nodes[node])) and self.has_room(claim, made, node)

    @staticmethod
    def size(item: Json) -> int:
        spec = item["spec"]
        return amounts(spec.get("capacity") or spec.get("resources", {}).get("requests")).get("storage", 0)

    def could_take(self, claim: Json, volume: Json, node: str) -> bool:
        spec, wanted = volume["spec"], claim["spec"]
        required = spec.get("nodeAffinity", {}).get("required")
        return (
            not spec.get("claimRef")
            and volume.get("status", {}).get("phase", "Available") == "Available"
            and spec.get("storageClassName", "") == wanted.get("storageClassName", "")
            and set(wanted["accessModes"]) <= set(spec.get("accessModes", []))
            and self.size(volume) >= self.size(claim)
            and (not required or node_terms(required["nodeSelectorTerms"], self.nodes[node]))
        )

    def has_room(self, claim: Json, made: Json, node: str) -> bool:
        """Whether a driver that publishes its storage capacity has enough on a node."""
        tracked = [d for d in self.of_kind["CSIDriver"] if d["metadata"]["name"] == made.get("provisioner")]
        if not any(driver["spec"].get("storageCapacity") for driver in tracked):
            return True
        size = amounts(claim["spec"].get("resources", {}).get("requests")).get("storage", 0)
        rooms = [
            amounts({"most": room.get("maximumVolumeSize", room.get("capacity", "-1"))})["most"]
            for room in self.of_kind["CSIStorageCapacity"]
            if room["storageClassName"] == made["metadata"]["name"]
            and selected(room.get("nodeTopology"), self.labels(node))
        ]
        return not size or any(most >= size for most in rooms)

    @staticmethod
    def claim_is_whole(claim: Json, owner: Json | None) -> bool:
        """Whether a claim is usable: not being deleted, its volume exists, and it was made for no other pod."""
        meta, phase = claim["metadata"], claim.get("status", {}).get("phase")
        prebound = phase == "Pending" and claim["spec"].get("volumeName")
        if meta.get("deletionTimestamp") or phase == "Lost" or prebound:
            return False
        uids = [one["uid"] for one in meta.get("ownerReferences", []) if one.get("controller")]
        return owner is None or "uid" not in owner["metadata"] or owner["metadata"]["uid"] in uids

    def claims(self, pod: Json) -> dict[tuple[str, str], Json]:
        """Claims of a pod that are listed."""
        named = {
            (key_of(pod)[0], v.get("persistentVolumeClaim", {}).get("claimName"))
            for v in pod["spec"].get("volumes", [])
        }
        return {key_of(claim): claim for claim in self.of_kind["PersistentVolumeClaim"] if key_of(claim) in named}

    def VolumeRestrictions(self, pod: Json, node: str) -> bool:
        alone = {
            key for key, claim in self.claims(pod).items() if "ReadWriteOncePod" in claim["spec"].get("accessModes", [])
        }
        if any(alone & self.claims(self.pods[key]).keys() for key in self.on):
            return False
        others = [volume for other in self.there(node) for volume in other["spec"].get("volumes", [])]
        return not any(self.disks_meet(a, b) for a in pod["spec"].get("volumes", []) for b in others)

    @staticmethod
    def disks_meet(a: Json, b: Json) -> bool:
        """Whether two volumes name the same disk and not both are read-only (EBS: the same disk)."""
        same = {"gcePersistentDisk": ("pdName",), "iscsi": ("iqn",), "rbd": ("pool", "image")}
        if "rbd" in a and "rbd" in b and not {*a["rbd"]["monitors"]} & {*b["rbd"]["monitors"]}:
            return False
        for kind, parts in {**same, "awsElasticBlockStore": ("volumeID",)}.items():
            same_disk = kind in a and kind in b and all(a[kind].get(part) == b[kind].get(part) for part in parts)
            if same_disk and not (kind in same and a[kind].get("readOnly") and b[kind].get("readOnly")):
                return True
        return False

    def NodeVolumeLimits(self, pod: Json, node: str) -> bool:
        nodes = [item for item in self.of_kind["CSINode"] if item["metadata"]["name"] == node]
        notes = [item["metadata"].get("annotations", {}) for item in nodes]
        moved = {p for note in notes for p in note.get("storage.alpha.kubernetes.io/migrated-plugins", "").split(",")}
        made = {c["metadata"]["name"]: c.get("provisioner") for c in self.of_kind["StorageClass"]}
        known = {v["metadata"]["name"]: v["spec"] for v in self.of_kind["PersistentVolume"]}

        def of_spec(spec: Json) -> tuple[str, str] | None:
            if "csi" in spec:
                return spec["csi"]["driver"], spec["csi"].get("volumeHandle", str(id(spec)))
            for field, (plugin, driver, part) in IN_TREE.items():
                if field in spec and plugin in moved:
                    return driver, spec[field][part]
            return None

        def attached(one: Json) -> set[tuple[str, str]]:
            found = {of_spec(v) for v in one["spec"].get("volumes", []) if "csi" not in v}
            for key, c in self.claims(one).items():
                maker = made.get(c["spec"].get("storageClassName"))
                if c["spec"].get("volumeName"):
                    found.add(of_spec(known.get(c["spec"]["volumeName"], {})))
                elif maker in {plugin for plugin, _, _ in IN_TREE.values()}:
                    driver = next(driver for plugin, driver, _ in IN_TREE.values() if plugin == maker)
                    found.add((driver, "/".join(key)) if maker in moved else None)
                elif maker:
                    found.add((maker, "/".join(key)))
            return {each for each in found if each is not None}

        here = set().union(*(attached(other) for other in self.there(node)))
        for item in self.of_kind["VolumeAttachment"]:
            if item["spec"]["nodeName"] == node:
                held = of_spec(known.get(item["spec"]["source"]["persistentVolumeName"], {}))
                here |= {held} if held else set()
        for driver in (driver for item in nodes for driver in item["spec"]["drivers"]):
            mine, used = ({v for v in every if v[0] == driver["name"]} for every in (attached(pod), here))
            most = driver.get("allocatable", {}).get("count")
            if mine - used and most is not None and len(mine | used) > most:
                return False
        return True

    @staticmethod
    def zone_of_volume(volume: Json, node: Json) -> bool:
        """The filter VolumeZone: zones and regions that a volume is labelled with, older labels too."""
        old, new = "failure-domain.beta.kubernetes.io", "topology.kubernetes.io"
        if not any(f"{prefix}/{what}" in node for prefix in (old, new) for what in ("zone", "region")):
            return True
        for key, value in volume.items():
            if key.partition("/")[0] in (old, new) and key.partition("/")[2] in ("zone", "region"):
                where = node.get(key, node.get(key.replace(old, new)))
                if where not in value.split("__"):
                    return False
        return True

    def InterPodAffinity(self, pod: Json, node: str) -> bool:
        here = self.labels(node)
        running = [(self.pods[key], self.labels(name)) for key, name in self.on.items()]
        for other, there in running:
            for term in self.terms(other, "podAntiAffinity"):
                key = term["topologyKey"]
                if key in here and here[key] == there.get(key) and self.means(term, other, pod):
                    return False
            for term in self.terms(pod, "podAntiAffinity"):
                key = term["topologyKey"]
                if key in here and here[key] == there.get(key) and self.means(term, pod, other):
                    return False
        terms = self.terms(pod, "podAffinity")
        if any(term["topologyKey"] not in here for term in terms):
            return False
        partners = [there for other, there in running if all(self.means(term, pod, other) for term in terms)]
        known = [there for there in partners if any(term["topologyKey"] in there for term in terms)]
        met = all(any(there.get(t["topologyKey"]) == here[t["topologyKey"]] for there in partners) for t in terms)
        first = not known and all(self.means(term, pod, pod) for term in terms)
        return met or first

    def PodTopologySpread(self, pod: Json, node: str) -> bool:
        rules = pod["spec"].get("topologySpreadConstraints", [])
        rules = [rule for rule in rules if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]
        keys = [rule["topologyKey"] for rule in rules]
        for rule in rules:
            eligible = [
                name
                for name in self.nodes
                if all(key in self.labels(name) for key in keys)
                and (rule.get("nodeAffinityPolicy", "Honor") == "Ignore" or self.NodeAffinity(pod, name))
                and (rule.get("nodeTaintsPolicy", "Ignore") == "Ignore" or self.TaintToleration(pod, name))
            ]
            selector, count = self.merged(rule, pod), defaultdict(int)
            for name in eligible:
                count[self.labels(name)[rule["topologyKey"]]] += sum(
                    key_of(other)[0] == key_of(pod)[0]
                    and not other["metadata"].get("deletionTimestamp")
                    and selected(selector, other["metadata"].get("labels", {}))
                    for other in self.there(name)
                )
            least = min(count.values(), default=0) if len(count) >= rule.get("minDomains", 1) else 0
            domain = self.labels(node).get(rule["topologyKey"])
            own = selected(selector, pod["metadata"].get("labels", {}))
            if domain is None or count.get(domain, 0) + own - least > rule["maxSkew"]:
                return False
        return True

    FILTERS = (
        "NodeUnschedulable", "NodeReady", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
        "VolumeBinding", "VolumeRestrictions", "NodeVolumeLimits", "PodTopologySpread", "InterPodAffinity",
    )  # fmt: skip

    def refusals(self, pod: Json, node: str) -> list[str]:
        """Filters that refuse the pod; for pods that must not be placed, ``SchedulingGates`` and the like."""
        if pod["spec"].get("schedulingGates") or pod["metadata"].get("deletionTimestamp"):
            return ["SchedulingGates"]
        if (pod["spec"].get("schedulerName") or "default-scheduler") not in ("default-scheduler", "volcano"):
            return ["SchedulerName"]
        found = [name for name in self.FILTERS if not getattr(self, name)(pod, node)]
        kept, rank = self.on, pod["spec"].get("priority", 0)
        nominated = {  # nominated pods count as running on their node
            key: node
            for key, other in self.pods.items()
            if key not in kept and key != key_of(pod) and other["spec"].get("priority", 0) >= rank
            if other.get("status", {}).get("nominatedNodeName") == node
        }
        if nominated and not found:
            self.on = kept | nominated
            found = [name for name in self.FILTERS if not getattr(self, name)(pod, node)]
            self.on = kept
        return found

    def open_nodes(self, pod: Json) -> list[str]:
        """Nodes on which all filters now allow a pod."""
        return [name for name in self.nodes if not self.refusals(pod, name)]


def judge(items: list[Json], made: list[Json]) -> list[str]:
    """What the default scheduler would have refused of evictions and bindings, created in this order."""
    cluster, wrong = Scheduler(items), []
    for item in made:
        key = key_of(item)
        if item["kind"] == "Eviction":
            cluster.on.pop(key)
            cluster.pods.pop(key)
            continue
        pod, node = cluster.pods[key], item["target"]["name"]
        if key in cluster.on:
            wrong.append(f"{key} is bound already")
        wrong += [f"{'/'.join(key)} on {node}: {name}" for name in cluster.refusals(pod, node)]
        cluster.on[key] = node
    return wrong
