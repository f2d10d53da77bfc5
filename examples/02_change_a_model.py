"""Change a model that exists: what does it cost to spread each job over different nodes, or to free a rack?"""

from flowlex import generate, model_for

model = model_for(generate("gpu-testbed", seed=1, running=0), policy="FSP")
x = model.variables["x"]  # one variable for each task and GPU; its labels: task, gpu, job, node, rack
before = model.solve()
print(f"as it is: {before.objective:.2f} s of transfer, {before.certificate.claim}")

changes = {
    "each job on different nodes": model.with_constraint("spread", x.sum(by=["job", "node"]) <= 1),
    "at most three tasks in rack2": model.with_constraint("quiet", x.sel(rack="rack2").sum() <= 3),
}
for rule, changed in changes.items():
    after = changed.solve(start=before)  # begins with the earlier answer
    print(f"{rule}: {after.objective - before.objective:+.2f} s, {after.certificate.claim}")
