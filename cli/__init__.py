"""The `flowlex` command: generate, show, solve (one file or thousands), export and plot instances."""

from __future__ import annotations

from typing import NoReturn


def main() -> None:
    """Run the command line (the entry point `flowlex`); a defect of the program exits with 70, not with a verdict."""
    start_quickly()

    from flowlex.cli.app import app

    code: object = 70
    try:
        app()
    except SystemExit as end:
        code = end.code
    except Exception:
        import traceback

        traceback.print_exc()
    _end(code)


def _end(code: object) -> NoReturn:
    """End the process, without taking apart what thousands of imports made if nothing else waits for that.

    It is a tenth of the time of a short command.
    """
    import atexit
    import os
    import sys
    import threading

    if threading.active_count() > 1 or not (code is None or isinstance(code, int)):
        sys.exit(code)  # type: ignore[arg-type]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # the reader of a pipe has ended; Python says so in its own way
        sys.exit(code)
    os._exit(code or 0)


def start_quickly() -> None:
    """Settings of a process of ours that save up to half of the time of a short command; call it before imports.

    Imports make hundreds of thousands of objects, none of them garbage. Pydantic looks for plugins in the metadata of
    all installed packages. The threads of linear algebra start at once and wait busily, while no model uses them.
    """
    import gc
    import os

    gc.set_threshold(100_000, 20, 20)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
