"""The `flowlex` command: generate, show, solve (one file or thousands), export and plot instances."""

from __future__ import annotations


def main() -> None:
    """Run the command line (the entry point `flowlex`); a defect of the program exits with 70, not with a verdict."""
    import sys

    start_quickly()

    from flowlex.cli.app import app

    try:
        app()
    except Exception:
        import traceback

        traceback.print_exc()
        sys.exit(70)


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
