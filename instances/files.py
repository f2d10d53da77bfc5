"""Reading and writing instance files: any bytes give an instance or a clear error."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flowlex.instances.extensions import instance_class, kinds
from flowlex.instances.file_storage import location, read_text, write_atomically
from flowlex.instances.input_errors import InstanceError, place_in, plain_reason, shortened
from flowlex.instances.instance_base import Instance
from flowlex.instances.registered_systems import registered

#: Escapes of surrogates, which can put characters into a string that UTF-8 cannot encode.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


#: Messages in terms of JSON for pydantic errors that name Python types.
@dataclass(frozen=True)
class TextFormat:
    """A format of instance files that is not JSON."""

    sniff: Callable[[str], bool]  # returns whether a text is in this format; the name of the file does not matter
    parse: Callable[[str, str], Instance]  # parses a text, given an instance name; raises only `InstanceError`
    endings: tuple[str, ...] = ()  # endings of the names of files that are written in this format, such as ``.min``
    # formats an instance; raises `InstanceError` for a kind that the format cannot hold. None for a read-only format.
    write: Callable[[Instance], str] | None = None


_TEXT_FORMATS: list[TextFormat] = []
#: Modules that register our own formats.
_FORMATS = ("flowlex.instances.dimacs", "flowlex.instances.problem")
_OBJECT = re.compile(r"\s*\{")


def register_text_format(text_format: TextFormat) -> None:
    """Register a format for `read_instance` and `write_instance`."""
    _TEXT_FORMATS.append(text_format)


def _text_formats(*, json: bool) -> Sequence[TextFormat]:
    """Return the formats; for a text that is not JSON, import the modules of our own formats first."""
    if not json:
        for module in (*_FORMATS, *registered("TEXT_FORMATS").values()):
            importlib.import_module(module)
    return _TEXT_FORMATS


def read_instance(path: str | Path) -> Instance:
    """Read an instance file: our JSON, a model (MPS, LP) or a registered text format (DIMACS, ...), plain or gzip.

    Parameters
    ----------
    path
        A local file or a URL. The format and gzip are recognised from the content.

    Raises
    ------
    InstanceError
        The file is wrong; the error names file, place and reason. The content of a file raises no other exception.
    """
    path = location(path)
    try:
        text = read_text(path)
        if (ending := path.name.lower().removesuffix(".gz").rpartition(".")[2]) in ("lp", "mps"):
            problem: Any = instance_class("problem")
            return _of_file(problem(name=_stem(path), format=ending, text=text), path)
        for text_format in _text_formats(json=_OBJECT.match(text) is not None):
            if text_format.sniff(text):
                return _of_file(text_format.parse(text, _stem(path)), path)
        return _of_file(instance_from_document(_parse_json(text)), path)
    except InstanceError as error:
        raise error.at(path) from error.__cause__


def _of_file(instance: Instance, path: Path) -> Instance:
    """The instance; one of a problem, whose content is read later, knows its file."""
    if "_file" in type(instance).__private_attributes__:
        instance._file = str(path)  # type: ignore[attr-defined]
    return instance


def read_json(path: str | Path) -> Any:
    """Read any JSON file of ours, plain or gzip: every number finite, no field given twice."""
    try:
        return _parse_json(read_text(path))
    except InstanceError as error:
        raise error.at(path) from error.__cause__


def instance_from_document(document: Any) -> Instance:
    """Turn a parsed JSON document into the instance kind it declares, or raise `InstanceError`."""
    if not isinstance(document, dict):
        raise InstanceError(f"an instance is a JSON object, this is {_json_type(document)}")
    kind = document.get("kind")
    if kind is None:
        raise InstanceError(f"field is missing; one of: {', '.join(kinds())}", place="kind")
    cls = instance_class(kind)
    version = document.get("version", 1)
    if version != 1 or isinstance(version, bool):
        raise InstanceError(
            f"version {shortened(repr(version))} is not supported by this flowlex (it reads version 1)", place="version"
        )
    try:
        return cls.model_validate(document)
    except ValidationError as error:
        raise _from_validation(error, cls) from error
    except (OverflowError, RecursionError) as error:
        raise InstanceError(f"a value is out of range ({error})") from error


def instance_bytes(instance: Instance, path: str | Path) -> bytes:
    """Return the content of an instance's file with this name; equal instances give equal bytes.

    The format is JSON or that of the name's ending (``.min`` and ``.dimacs``: DIMACS); a final ``.gz`` is ignored.
    """
    name = Path(path).name.lower().removesuffix(".gz")
    for text_format in _text_formats(json=name.endswith(".json")):
        if text_format.write is not None and name.endswith(text_format.endings):
            try:
                return text_format.write(instance).encode()
            except InstanceError as error:
                raise error.at(path) from error.__cause__
    left_out = {"changes"} if instance.changes is None else None
    return (instance.model_dump_json(indent=1, exclude=left_out) + "\n").encode()


def write_instance(instance: Instance, path: str | Path) -> None:
    """Write an instance file atomically; the name determines the format (see `instance_bytes`) and ``.gz``.

    Parameters
    ----------
    instance
        What to write.
    path
        A local file; an existing file is replaced, missing folders are created.

    Raises
    ------
    InstanceError
        The format cannot hold this kind of instance.
    OSError
        The file cannot be written.
    """
    write_atomically(path, instance_bytes(instance, path))


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of an instance kind, made from the class that validates it.

    Parameters
    ----------
    kind
        Name of the kind, such as ``gpu-assignment``.

    Raises
    ------
    InstanceError
        There is no such kind; the message lists those that exist.
    """
    schema = instance_class(kind).model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _parse_json(text: str) -> Any:
    if not text.strip():
        raise InstanceError("the file holds only white space")
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except UnicodeEncodeError as error:
        raise InstanceError(r"a text holds half a character (a lone \ud800 to \udfff); remove it") from error
    except json.JSONDecodeError as error:
        hint = "; is it cut off?" if error.pos >= len(text.rstrip()) - 1 else ""
        place = f"line {error.lineno}, column {error.colno}"
        raise InstanceError(f"not JSON ({error.msg}){hint}", place=place) from error
    except RecursionError as error:
        raise InstanceError("not an instance: nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        if isinstance(error, InstanceError):
            raise
        raise InstanceError(f"not JSON this program can hold ({error})") from error


def _refuse_constant(word: str) -> Any:
    raise InstanceError(f"{word} is not a number that a file may hold; every number must be finite")


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InstanceError(f"the field {twice!r} is given twice in one object")
    return document


def _from_validation(error: ValidationError, cls: type[Instance]) -> InstanceError:
    problems = sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    first = problems[0]
    reason = plain_reason(first)
    if first["type"] == "extra_forbidden":
        meant = _nearest(first["loc"], problems, cls)
        reason = f"unknown field; did you mean {meant!r}?" if meant else "unknown field; remove it"
        problems = [each for each in problems if each["loc"] != (*first["loc"][:-1], meant)]
    if len(problems) > 1:
        reason += f" (and {len(problems) - 1} more)"
    return InstanceError(reason, place=place_in(first["loc"]))


def _nearest(location: Sequence[int | str], problems: Sequence[Any], cls: type[Instance]) -> str | None:
    """Return the field that an unknown one most likely means: a missing one of the same object, else any other."""
    name, beside = str(location[-1]), tuple(location[:-1])
    lacking = [str(each["loc"][-1]) for each in problems if each["type"] == "missing" and each["loc"][:-1] == beside]
    schema = cls.model_json_schema()
    known = {field for part in (schema, *schema.get("$defs", {}).values()) for field in part.get("properties", ())}
    known.discard(name)
    close = get_close_matches(name, lacking, 1, 0.6) or get_close_matches(name, sorted(known), 1, 0.7)
    return close[0] if close else None


def _json_type(document: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(document), "a number")


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rsplit(".", 1)[0] or path.name


def read(source: str | Path | Mapping[str, Any] | Instance) -> Instance:
    """Read an instance from a file, tables, a parsed document or an instance.

    Parameters
    ----------
    source
        Path or URL of a file (JSON, DIMACS, coflow trace; .gz too); tables as pandas frames by name, with the ``kind``
        beside them (`Instance.from_frames`); a parsed document; or an instance, which is returned as it is.

    Raises
    ------
    InstanceError
        The source holds no instance; names the file or table, the place and the reason.

    Examples
    --------
    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"name": ["a", "b"], "configuration": [2, 1]})
    >>> blocks = pd.DataFrame({"name": ["log"], "items": [6], "holders": [["a", "b"]]})
    >>> read({"kind": "load-partition", "nodes": nodes, "blocks": blocks}).kind
    'load-partition'
    """
    if isinstance(source, Instance):
        return source
    if isinstance(source, str | Path):
        return read_instance(source)
    if not isinstance(source, Mapping):
        remedy = "give a path"
        if hasattr(source, "columns"):
            remedy = "give {'kind': 'gpu-assignment', 'nodes': frame, ...}"
        elif hasattr(source, "solve"):
            remedy = "a model or program has its own solve()"
        elif hasattr(source, "number_of_edges"):
            remedy = "give {'kind': 'min-cost-flow', 'supply': ..., 'tail': ..., 'head': ..., ...}"
        raise InstanceError(f"expected a path, tables by name or an instance, got {type(source).__name__}; {remedy}")
    tables = {name: value for name, value in source.items() if hasattr(value, "columns")}
    if not tables:
        return instance_from_document(dict(source))
    fields = {name: value for name, value in source.items() if name not in tables}
    kind = fields.pop("kind", None)
    if kind is None:
        raise InstanceError(f"tables need their kind beside them; one of: {', '.join(kinds())}", place="kind")
    return instance_class(kind).from_frames(**tables, **fields)
