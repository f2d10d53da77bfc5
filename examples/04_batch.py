"""Solve a folder of files, one of them broken, and read the table; `--resume` goes on after a killed run."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

import flowlex as fx
from flowlex.instances import write_instance

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    for seed in (1, 2):
        write_instance(fx.generate("flow-random", seed=seed), folder / f"night{seed}.json")
    (folder / "broken.json").write_text('{"kind": "flow-scheduling"}')
    command = [sys.executable, "-m", "flowlex", "solve", folder, "--time-limit", "60", "-o", folder / "out"]
    done = subprocess.run(command, capture_output=True)
    print("exit code:", done.returncode, "(0: all solved, 1: some not)")
    table = pd.read_json(folder / "out" / "results.jsonl", lines=True)
    print(table[["name", "status", "objective", "message"]].to_string(index=False, max_colwidth=50))
