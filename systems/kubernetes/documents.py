"""Read objects as ``kubectl`` prints them, JSON or YAML, one by one; a JSON file is never in memory as a whole."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from flowlex.instances.file_storage import opened
from flowlex.instances.instance_base import InstanceError

COMMAND = "`kubectl get nodes,pods,pvc,pv,storageclass,csinode -A -o json` prints them"
_CHUNK = 1 << 20
#: Most characters of one object, and of a YAML file, which is read at once.
_LARGEST = 1 << 26
_MOST = 5_000_000
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODE = json.JSONDecoder().raw_decode


class _Text:
    """Text of a stream, read piece by piece."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-8-sig")()
        self.text, self.at, self.ended, self._bytes = "", 0, False, 0
        self._line, self._column = 1, 0

    def more(self) -> bool:
        """Read the next piece; return False at the end."""
        if self.ended:
            return False
        gone = self.text[: self.at]
        self._line += gone.count("\n")
        self._column = len(gone) - gone.rfind("\n") - 1 if "\n" in gone else self._column + len(gone)
        self.text, self.at = self.text[self.at :], 0
        if len(self.text) > _LARGEST:
            raise InstanceError(f"one object is longer than {_LARGEST >> 20} million characters", place=self._place(0))
        data = self._stream.read(max(_CHUNK, len(self.text)))
        try:
            self.text += self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise InstanceError(f"not UTF-8 text (byte {self._bytes + error.start}); {COMMAND}") from error
        self._bytes += len(data)
        self.ended = not data
        return True

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def value(self) -> Any:
        """Parse the JSON value at this position."""
        self.peek()
        while True:
            failed = None
            try:
                found, end = _DECODE(self.text, self.at)
            except json.JSONDecodeError as error:
                failed = error
            else:
                if end < len(self.text) or self.ended:
                    self.at = end
                    return found
            if not self.more() and failed is not None:
                raise self.damaged(failed.msg, failed.pos)

    def take(self, expected: str) -> str:
        """Consume one of the expected characters."""
        found = self.peek()
        if not found or found not in expected:
            raise self.damaged(f"Expecting {' or '.join(map(repr, expected))}", self.at)
        self.at += 1
        return found

    def damaged(self, what: str, at: int) -> InstanceError:
        """The error for text that is no JSON."""
        cut = " (cut off?)" if not self.text[at:].strip() or what.startswith("Unterminated") else ""
        reason = f"damaged JSON{cut}: {what}; write the objects again: {COMMAND}"
        return InstanceError(reason, place=self._place(at))

    def _place(self, at: int) -> str:
        before = self.text[:at]
        newest = before.rfind("\n")
        column = at - newest if newest >= 0 else self._column + at + 1
        return f"line {self._line + before.count(chr(10))} column {column}"


def _values(text: _Text, place: str, kind: str) -> Iterator[tuple[str, Any, str]]:
    """Yield place, object and kind of everything in the JSON value at this position; Lists are expanded."""
    first = text.peek()
    if first == "[":
        yield from _array(text, place, kind)
    elif first != "{":
        yield place, text.value(), kind
    else:
        found: dict[str, Any] = {}
        listed = False
        text.take("{")
        while text.peek() != "}":
            key = text.value()
            text.take(":")
            if key == "items" and text.peek() == "[":
                listed = True
                inner = str(found.get("kind") or "List").removesuffix("List")
                yield from _array(text, f"{place}.items" if place else "items", inner)
            else:
                found[str(key)] = text.value()
            if text.take(",}") == "}":
                break
        else:
            text.take("}")
        if not listed:
            yield place, found, kind


def _array(text: _Text, place: str, kind: str) -> Iterator[tuple[str, Any, str]]:
    text.take("[")
    number = 0
    while text.peek() != "]":
        item = text.value()  # at once: reading an object by its fields takes three times as long
        yield from _tree(f"{place}[{number}]", item, kind, set())
        number += 1
        if text.take(",]") == "]":
            return
    text.take("]")


def _tree(place: str, item: Any, kind: str, seen: set[int]) -> Iterator[tuple[str, Any, str]]:
    """Yield place, object and kind of everything in a document in memory; Lists are expanded, ``seen`` by id."""
    inner = item if isinstance(item, list) else item.get("items") if isinstance(item, dict) else None
    if not isinstance(inner, list):
        yield place, item, kind
        return
    if id(inner) in seen:
        raise InstanceError("its YAML has aliases (*name) of lists, which `kubectl` never prints; write them out")
    seen.add(id(inner))
    base = place
    if isinstance(item, dict):
        base, kind = f"{place}.items" if place else "items", str(item.get("kind") or "List").removesuffix("List")
    for number, each in enumerate(inner):
        yield from _tree(f"{base}[{number}]", each, kind, seen)


def _json(text: _Text) -> Iterator[tuple[str, Any, str]]:
    while text.peek():
        yield from _values(text, "", "")


def _yaml(text: _Text) -> Iterator[tuple[str, Any, str]]:
    while text.more():
        pass
    try:
        import yaml
    except ImportError:
        raise InstanceError("it is not JSON; write the objects with `-o json`, or install pyyaml") from None

    try:
        for number, document in enumerate(yaml.load_all(text.text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))):
            if document is not None:
                yield from _tree(f"document {number + 1}" if number else "", document, "", set())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1} column {mark.column + 1}"
        raise InstanceError(f"neither JSON nor YAML: {error.problem}; {COMMAND}", place=place) from error
    except yaml.YAMLError as error:
        raise InstanceError(f"neither JSON nor YAML ({' '.join(str(error).split())[:100]}); {COMMAND}") from error


def objects_of(path: str | Path) -> Iterator[tuple[str, Any, str]]:
    """Yield kind (empty if there is none), object and place of everything listed, including nested Lists.

    The path is a file, plain or gzip, or ``-`` for standard input.
    """
    listed, count = True, 0
    try:
        with opened(path) as stream:
            text = _Text(stream)
            if not text.peek():
                raise InstanceError(f"it is empty; {COMMAND}")
            for place, item, kind in _json(text) if text.peek() in "[{" else _yaml(text):
                found = _named(item, kind, place)
                listed = bool(found[0]) or bool(place)
                count += 1
                if count > _MOST:
                    raise InstanceError(f"it has more than {_MOST} objects; list fewer")
                if listed:
                    yield found
            if not listed:
                raise InstanceError(f"it is no List of objects; {COMMAND}")
    except InstanceError as error:
        raise error.at(path) from error.__cause__
    except (RecursionError, ValueError) as error:
        raise InstanceError(f"it is no List of objects ({type(error).__name__}); {COMMAND}", path=path) from error


def _named(item: Any, kind: str, place: str) -> tuple[str, Any, str]:
    own = item.get("kind") if isinstance(item, dict) else None
    kind = own if isinstance(own, str) and not own.endswith("List") else kind if own is None else ""
    meta = item.get("metadata") if isinstance(item, dict) else None
    name = meta.get("name") if isinstance(meta, dict) else None
    return kind, item, f"{place or 'the document'} ({kind or 'no kind'}{'' if name is None else f' {name}'})"
