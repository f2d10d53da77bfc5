"""Keep a schedule optimal while jobs come and machines go, and ask why a task waits."""

from flowlex import Continuity, FlowScheduler, Placement
from flowlex.instances.flow import FlowInstance, FlowJob, FlowTask, Machine

cluster = FlowInstance(name="two machines", machines=(Machine(name="m0", slots=1), Machine(name="m1", slots=1)))
scheduler = FlowScheduler(cluster, (Placement(), Continuity(base=4, rate=0)))

scheduler.submit(FlowJob(name="first", tasks=(FlowTask(name="a"), FlowTask(name="b"))))
print(scheduler.step(now_s=0.0))

scheduler.submit(FlowJob(name="second", tasks=(FlowTask(name="c"),)))
print(scheduler.step(now_s=1.0))
why = scheduler.explain("c")
print("c waits:", why)

scheduler.finish("a")
print(scheduler.step(now_s=2.0))
print("audit:", scheduler.audit().certificate.summary)
