"""When is each transfer of a job sent, so that nothing waits and as little bandwidth as possible is held?"""

from flowlex import generate, model_for

model = model_for(generate("jit-figure4"))
solution = model.solve()
print(solution.to_frame())
print("lateness, then the loads from the largest:", solution.stages)
print(solution.certificate.summary)
