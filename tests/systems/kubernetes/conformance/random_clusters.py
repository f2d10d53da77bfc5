"""Small random clusters with every rule of the scheduler's filters, often several on one pod."""

import random
from typing import Any

Json = dict[str, Any]
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
APPS = ("web", "db", "job")
ZONES = ("a", "b", "c")


def make_node(rng: random.Random, k: int) -> Json:
    labels = {"kubernetes.io/hostname": f"n{k}", "disk": rng.choice(["ssd", "hdd"]), "size": str(rng.randint(1, 4))}
    if rng.random() < 0.9:
        labels["zone"] = rng.choice(ZONES)
    has = {"cpu": rng.choice(["2", "3500m", "4"]), "memory": rng.choice(["4Gi", "8Gi"]), "pods": rng.choice("3489")}
    if rng.random() < 0.3:
        has["x.io/fpga"] = rng.choice("12")
    if rng.random() < 0.3:
        has["nvidia.com/gpu"] = rng.choice("12")
    spec: Json = {}
    if rng.random() < 0.25:
        effect = rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
        spec["taints"] = [{"key": "team", "value": rng.choice("xy"), "effect": effect}]
    if rng.random() < 0.1:
        spec["unschedulable"] = True
    ready = "True" if rng.random() < 0.95 else "Unknown"
    status = {"allocatable": has, "conditions": [{"type": "Ready", "status": ready}]}
    return {"kind": "Node", "metadata": {"name": f"n{k}", "labels": labels}, "spec": spec, "status": status}


def selector(rng: random.Random) -> Json:
    if rng.random() < 0.7:
        return {"matchLabels": {"app": rng.choice(APPS)}}
    operator = rng.choice(["In", "NotIn", "Exists"])
    values = {} if operator == "Exists" else {"values": [rng.choice(APPS)]}
    return {"matchExpressions": [{"key": "app", "operator": operator, **values}]}


def pod_term(rng: random.Random) -> Json:
    term: Json = {"labelSelector": selector(rng), "topologyKey": rng.choice(["zone", "kubernetes.io/hostname"])}
    if rng.random() < 0.2:
        term["namespaces"] = rng.choice([["s"], ["s", "t"]])
    elif rng.random() < 0.1:
        term["namespaceSelector"] = {}
    return term


def node_term(rng: random.Random) -> Json:
    rules: list[Json] = [
        {"key": "disk", "operator": rng.choice(["In", "NotIn"]), "values": ["ssd"]},
        {"key": "size", "operator": rng.choice(["Gt", "Lt"]), "values": [str(rng.randint(1, 4))]},
        {"key": "zone", "operator": rng.choice(["Exists", "DoesNotExist"])},
        {"key": "zone", "operator": "In", "values": list(rng.sample(ZONES, 2))},
    ]
    if rng.random() < 0.15:
        return {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
    return {"matchExpressions": rng.sample(rules, rng.choice([1, 1, 2]))}


def spread(rng: random.Random) -> Json:
    rule: Json = {
        "maxSkew": rng.choice([1, 1, 2]),
        "topologyKey": rng.choice(["zone", "zone", "kubernetes.io/hostname"]),
        "whenUnsatisfiable": rng.choice(["DoNotSchedule"] * 4 + ["ScheduleAnyway"]),
        "labelSelector": selector(rng),
    }
    for field, values in (("nodeAffinityPolicy", ["Ignore", "Honor"]), ("nodeTaintsPolicy", ["Ignore", "Honor"])):
        if rng.random() < 0.3:
            rule[field] = rng.choice(values)
    if rng.random() < 0.2:
        rule["minDomains"] = rng.choice([2, 3, 4])
    if rng.random() < 0.2:
        rule["matchLabelKeys"] = ["hash"]
    return rule


def make_spec(rng: random.Random) -> Json:
    asked: Json = {"cpu": rng.choice(["0", "250m", "500m", "1", "1500m"]), "memory": rng.choice(["0", "512Mi", "1Gi"])}
    if rng.random() < 0.12:
        asked["x.io/fpga"] = "1"
    if rng.random() < 0.12:
        asked["nvidia.com/gpu"] = "1"
    main: Json = {"name": "main", "resources": {rng.choice(["requests", "limits"]): asked}}
    if rng.random() < 0.15:
        port = {"containerPort": 80, "hostPort": rng.choice([80, 443])}
        main["ports"] = [port | rng.choice([{}, {}, {"hostIP": "10.0.0.1"}, {"protocol": "UDP"}])]
    spec: Json = {"containers": [main]}
    if rng.random() < 0.1:
        always = {"restartPolicy": "Always"} if rng.random() < 0.5 else {}
        spec["initContainers"] = [{"name": "init", "resources": {"requests": {"cpu": "2"}}, **always}]
    if rng.random() < 0.25:
        value = {"value": rng.choice("xy")} if rng.random() < 0.7 else {"operator": "Exists"}
        spec["tolerations"] = [{"key": "team", **value}]
    if rng.random() < 0.15:
        spec["nodeSelector"] = {"disk": "ssd"}
    affinity: Json = {}
    if rng.random() < 0.2:
        affinity["nodeAffinity"] = {HARD: {"nodeSelectorTerms": [node_term(rng) for _ in range(rng.choice([1, 2]))]}}
    for kind, share in (("podAffinity", 0.15), ("podAntiAffinity", 0.25)):
        if rng.random() < share:
            affinity[kind] = {HARD: [pod_term(rng) for _ in range(rng.choice([1, 1, 2]))]}
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.3:
        rules = [spread(rng) for _ in range(rng.choice([1, 1, 2]))]
        spec["topologySpreadConstraints"] = list(
            {(r["topologyKey"], r["whenUnsatisfiable"]): r for r in rules}.values()
        )
    if rng.random() < 0.02:
        spec["schedulingGates"] = [{"name": "quota"}]
    return spec


def volumes(rng: random.Random, nodes: list[Json], pods: list[Json]) -> list[Json]:
    """Claims and volumes of a CSI driver, some in a zone, some of one pod; gives some pods one or two of them."""
    items: list[Json] = []
    for node in nodes:
        drivers = [{"name": "x.csi", **rng.choice([{}, {"allocatable": {"count": rng.choice([1, 2])}}])}]
        items.append({"kind": "CSINode", "metadata": {"name": node["metadata"]["name"]}, "spec": {"drivers": drivers}})
    for k in range(8):
        modes, space = [rng.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"])], "st"[k % 2]
        claim: Json = {"accessModes": modes, "volumeName": f"v{k}"}
        spec: Json = {"csi": {"driver": rng.choice(["x.csi", "y.csi"])}}
        if rng.random() < 0.3:
            zone = {"key": "zone", "operator": "In", "values": [rng.choice(ZONES)]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
        meta = {"name": f"c{k}", "namespace": space}
        items.append({"kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
        items.append({"kind": "PersistentVolume", "metadata": {"name": f"v{k}"}, "spec": spec})
    for pod in pods:
        if rng.random() < 0.4:
            names = rng.sample(range("st".index(pod["metadata"]["namespace"]), 8, 2), rng.choice([1, 1, 2]))
            named = [{"name": f"v{k}", "persistentVolumeClaim": {"claimName": f"c{k}"}} for k in names]
            pod["spec"] = {**pod["spec"], "volumes": named}
    return items


def disks_and_rooms(rng: random.Random, pods: list[Json], *, rooms: bool) -> None:
    """Give some pods a named disk, and with ``rooms`` some waiting pods a nominated node."""
    for pod in pods:
        if rng.random() < 0.3:
            kind, part = rng.choice(
                [("gcePersistentDisk", "pdName"), ("iscsi", "iqn"), ("awsElasticBlockStore", "volumeID")]
            )
            disk = {part: rng.choice("de"), **rng.choice([{}, {"readOnly": True}])}
            pod["spec"] = {**pod["spec"], "volumes": [{"name": "d", kind: disk}]}
        if rng.random() < 0.1 and rooms and pod["status"]["phase"] == "Pending":
            pod["status"]["nominatedNodeName"] = f"n{rng.randint(0, 3)}"


def random_cluster(seed: int) -> list[Json]:
    """Nodes and pods; pods of one template differ in their names."""
    rng = random.Random(seed)
    nodes = [make_node(rng, k) for k in range(rng.randint(2, 6))]
    pods: list[Json] = []
    for t in range(rng.randint(1, 5)):
        spec, space = make_spec(rng), rng.choice(["s", "s", "t"])
        labels = {"app": rng.choice(APPS), "hash": rng.choice("12")}
        for k in range(rng.randint(1, 5)):
            meta: Json = {"name": f"p{t}-{k}", "namespace": space, "labels": labels}
            runs = rng.random() < 0.35
            own = {**spec, "nodeName": f"n{rng.randint(0, len(nodes))}"} if runs else spec
            if runs:
                own = {name: value for name, value in own.items() if name != "schedulingGates"}
            if rng.random() < 0.05:
                meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            phase = rng.choice(["Running"] * 8 + ["Succeeded", "Failed"]) if runs else "Pending"
            own["priority"] = rng.choice([0, 0, 10]) if runs else rng.choice([0, 5])
            pods.append({"kind": "Pod", "metadata": meta, "spec": dict(own), "status": {"phase": phase}})
            spec = dict(spec)
    if seed % 3 == 1:
        disks_and_rooms(random.Random(f"disks {seed}"), pods, rooms=seed % 2 == 0)
    return nodes + pods + (volumes(random.Random(f"volumes {seed}"), nodes, pods) if seed % 3 == 2 else [])
