"""Judge a solution file from two files alone, without any solver; then change one figure in it."""

import json
import tempfile
from pathlib import Path

import flowlex as fx

instance = fx.generate("gpu-figure4")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "round.solution.json")
    fx.solve(instance).save(path)
    print("as written:", fx.verify(path, instance).summary)

    document = json.loads(path.read_text())
    document["objective"] -= 1  # a better figure than is true
    path.write_text(json.dumps(document))
    refused = fx.verify(path, instance)
    print("one second less:", refused.summary)
    print(*[f"  {check.name}: {check.detail}" for check in refused.checks if not check.ok], sep="\n")
