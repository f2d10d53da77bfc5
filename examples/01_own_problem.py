"""State a problem of your own: who works which shift, at the least wages? Solved and proven in exact arithmetic."""

import pandas as pd

import flowlex as fx

wage = pd.Series({"Ann": 20, "Bob": 21, "Cleo": 19}, name="wage").rename_axis("worker")
demand = pd.Series({"Mon": 1, "Tue": 2, "Wed": 1, "Thu": 2}, name="demand").rename_axis("shift")

p = fx.Problem("shifts")
x = p.variables("x", worker=wage.index, shift=demand.index, binary=True)
p.constrain("cover", x.sum(by="shift") >= demand)  # one row for each shift, matched by label
p.constrain("rest", x.rolling(shift=3).sum() <= 2)  # at most two of three shifts in a row
p.minimize("wages", (x * wage).sum())  # then, among the cheapest plans:
p.minimize("thursdays_of_bob", x.sel(worker="Bob", shift="Thu").sum())

answer = p.solve()
print(answer.values("x").unstack("shift")[demand.index])
print("wages:", answer.objective)
print(answer.certificate.summary)
