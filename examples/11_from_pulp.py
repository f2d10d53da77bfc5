"""Take a PuLP problem as it is: solve it with a proof, change it, and give it back."""

import pulp

import flowlex as fx

m = pulp.LpProblem("lots", pulp.LpMaximize)
bread, cake = (m.add_variable(name, 0, None, "Integer") for name in ("bread", "cake"))
m += 2 * bread + 3 * cake
m += bread + 2 * cake <= 7, "hours"
m += bread <= 4, "oven"

p = fx.Problem.of(m)
answer = p.solve()
print(answer.objective, answer.certificate.summary)
few = p.with_constraint("few", p["x"].sel(column="cake").sum() <= 1)
print("at most one cake:", few.solve().objective)
print(p.to_pulp().sense == m.sense)
