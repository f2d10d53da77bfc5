"""``flowlex show``: what is in an instance file, and how large its model is."""

from __future__ import annotations

from typing import Any

from flowlex.cli.console_output import cells, console, facts_table, rows_table
from flowlex.cli.options import InstanceFile, settings_of, with_options


@with_options(values=settings_of)
def show(file: InstanceFile, values: dict[str, Any]) -> None:
    """Print what an instance holds, the options of its model and the sizes of the formulation."""
    from flowlex.instances.files import read_instance
    from flowlex.models.model_base import ModelError
    from flowlex.models.registry import model_class, model_for, model_options

    instance = read_instance(file)
    out = console()
    facts: dict[str, Any] = {"file": file, "kind": instance.kind, "name": instance.name}
    if instance.comment:
        facts["comment"] = instance.comment
    out.print(facts_table("Instance", facts | instance.summary()))
    try:
        title = model_class(instance.kind).title
    except ModelError as error:
        if values:
            raise
        out.print(f"No model: {error}", markup=False)
        return
    model = model_for(instance, **values)
    options = {f"--set {name}=": getattr(model, name) for name in model_options(instance.kind)}
    method = {"method": model.method} if model.as_stated else {}
    out.print(facts_table(f"Model: {title}", {**model.sizes(), **method, **options}))
    for caption, columns in model.details():
        out.print(rows_table(**cells(caption, columns)))
