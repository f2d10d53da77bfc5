"""Any bytes give an instance or an InstanceError that names the file."""

import gzip
import json
import os
import pickle
import stat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowlex.instances import Instance, InstanceError, generate, json_schema, kinds, read_instance, write_instance
from flowlex.instances.dimacs import format_dimacs
from flowlex.instances.file_storage import read_bytes, write_atomically

GPU = generate("gpu-figure1").model_dump_json(indent=1).encode()
DIMACS = format_dimacs(generate("network-random", seed=2, nodes=6, arcs=9, unbounded=0.2)).encode()
NETWORK = generate("network-random", seed=2, nodes=6, arcs=9, unbounded=0.2).model_dump_json().encode()
QUIET = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def changed(**fields):
    return json.dumps({**json.loads(GPU), **fields}).encode()


BAD = {
    "empty": (b"", "x.json", "the file is empty"),
    "white space": (b" \n\t", "x.json", "holds only white space"),
    "only a byte-order mark": (b"\xef\xbb\xbf", "x.json", "holds only white space"),
    "truncated": (GPU[: len(GPU) // 2], "x.json", "is it cut off?"),
    "truncated in a word": (b'{"kind": "gpu-assignment", "version": tr', "x.json", "not JSON"),
    "not UTF-8": (GPU.replace(b"gpu-figure1", b"gpu-\xff"), "x.json", "not UTF-8 text (byte "),
    "UTF-16": (GPU.decode().encode("utf-16"), "x.json", "not UTF-8 text (byte 0)"),
    "not JSON": (b"hello", "x.json", "line 1, column 1: not JSON"),
    "not an object": (b"[1, 2]", "x.json", "an instance is a JSON object, this is an array"),
    "null": (b"null", "x.json", "this is null"),
    "a number": (b"3.5", "x.json", "this is a number"),
    "two documents": (GPU + GPU, "x.json", "not JSON (Extra data)"),
    "not gzip": (GPU, "x.json.gz", "the name ends in .gz but the content is not gzip"),
    "gzip cut off": (gzip.compress(GPU)[:-20], "x.json.gz", "damaged or truncated gzip data"),
    "gzip damaged": (gzip.compress(GPU)[:40] + b"\0\0\0\0" + gzip.compress(GPU)[44:], "x.json", "damaged or truncated"),
    "gzip of nothing": (gzip.compress(b""), "x.json.gz", "the gzip file holds nothing"),
    "no kind": (b"{}", "x.json", "kind: field is missing; one of: allocation, "),
    "unknown kind": (changed(kind="gpu"), "x.json", "kind: unknown kind 'gpu'; one of: allocation, "),
    "misspelt kind": (changed(kind="gpu-asignment"), "x.json", "did you mean 'gpu-assignment'?"),
    "kind of a wrong type": (changed(kind=["gpu-assignment"]), "x.json", "kind: unknown kind ['gpu-assignment']"),
    "version": (changed(version=2), "x.json", "version: version 2 is not supported"),
    "version as text": (changed(version="1"), "x.json", "version: version '1' is not supported"),
    "version as boolean": (changed(version=True), "x.json", "version: version True is not supported"),
    "huge version": (changed(version=10**4000), "x.json", "is not supported"),
    "unknown field": (changed(colour=1), "x.json", "colour: unknown field; remove it"),
    "misspelt field": (
        GPU.replace(b'"disk_mb_per_s"', b'"disk_mb_per_ss"'),
        "x.json",
        "disk_mb_per_ss: unknown field; did you mean 'disk_mb_per_s'?",
    ),
    "unprintable field": (changed(**{"a\x1b[31m": 1}), "x.json", r"'a\x1b[31m': unknown field"),
    "NaN": (changed(rack_mb_per_s=float("nan")), "x.json", "NaN is not a number that a file may hold"),
    "Infinity": (changed(rack_mb_per_s=float("-inf")), "x.json", "-Infinity is not a number that a file may hold"),
    "1e999": (GPU.replace(b"125.0", b"1e999"), "x.json", "rack_mb_per_s: must be a finite number"),
    "integer of 5000 digits": (GPU.replace(b"125.0", b"9" * 5000), "x.json", "not JSON this program can hold"),
    "field twice": (GPU[:-2] + b', "name": "again"}', "x.json", "the field 'name' is given twice"),
    "half a character": (changed(comment="\ud800"), "x.json", "holds half a character"),
    "deep nesting": (b"[" * 100_000, "x.json", "nested too deeply"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_refused_naming_it(tmp_path, case):
    data, name, reason = BAD[case]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InstanceError) as caught:
        read_instance(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 600
    str(caught.value).encode()


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InstanceError, match="cannot be read: No such file"):
        read_instance(tmp_path / "none.json")
    with pytest.raises(InstanceError, match="cannot be read: Is a directory"):
        read_instance(tmp_path)


def test_gzip_is_recognised_by_content(tmp_path):
    (tmp_path / "x.json").write_bytes(gzip.compress(GPU))
    assert read_instance(tmp_path / "x.json").name == "gpu-figure1"


def test_an_error_survives_another_process():
    error = InstanceError("why", place="where", path="file")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.reason, again.place, again.path) == (str(error), "why", "where", "file")


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "x.json"
    write_atomically(path, b"old")

    def fail(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in path.parent.iterdir()] == ["x.json"]


def test_written_files_have_ordinary_permissions(tmp_path):
    write_atomically(tmp_path / "x", b"")
    (tmp_path / "y").write_bytes(b"")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == stat.S_IMODE((tmp_path / "y").stat().st_mode)


def check(path, data):
    """Check that bytes give an instance that can be written and read again, or a printable InstanceError."""
    path.write_bytes(data)
    try:
        instance = read_instance(path)
    except InstanceError as error:
        assert str(error).encode().startswith(str(path).encode())
    else:
        assert isinstance(instance, Instance)
        assert instance.summary()
        write_instance(instance, path.with_name("again.json"))
        assert read_instance(path.with_name("again.json")) == instance


@QUIET
@given(data=st.binary(max_size=300) | st.text(max_size=300).map(str.encode), name=st.sampled_from(["x", "x.json.gz"]))
def test_random_bytes(tmp_path, data, name):
    check(tmp_path / name, data)


@st.composite
def mutations(draw, originals):
    """A valid file with up to four bytes or short runs of bytes replaced, cut out, or repeated."""
    data = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        chunks = (
            b"",
            b"0",
            b"-",
            b"9999999999",
            b"1e400",
            b"null",
            b'"',
            b"}",
            b"]",
            b",",
            b"\n",
            b" ",
            b"a ",
            b"n 1 1\n",
        )
        new = draw(st.sampled_from((*chunks, b"\xff", data[start:end] * 2)) | st.binary(max_size=4))
        data = data[:start] + new + data[end:]
    return data


@QUIET
@given(
    data=mutations([GPU, DIMACS, NETWORK]), pack=st.booleans(), place=st.integers(0, 10**6), byte=st.integers(0, 511)
)
def test_mutated_files(tmp_path, data, pack, place, byte):
    packed = bytearray(gzip.compress(data, mtime=0) if pack else data)
    if pack and byte < 256:
        packed[place % len(packed)] = byte
    check(tmp_path / ("x.gz" if pack else "x"), bytes(packed))


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})


@QUIET
@given(original=st.sampled_from([GPU, NETWORK]), data=st.data())
def test_documents_with_any_value_anywhere(tmp_path, original, data):
    place = document = json.loads(original)
    while True:
        key = data.draw(st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1))
        if not (isinstance(place[key], dict | list) and place[key]) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(VALUES)
    check(tmp_path / "x", json.dumps(document).encode())


def test_gzip_that_unfolds_to_more_than_the_cap(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b" " * (1 << 20)))
    assert len(read_bytes(tmp_path / "x.gz", most=1 << 20)) == 1 << 20
    with pytest.raises(InstanceError, match="holds only white space"):
        read_instance(tmp_path / "x.gz")
    (tmp_path / "x.gz").write_bytes(gzip.compress(b" " * ((1 << 20) + 1)))
    with pytest.raises(InstanceError, match=r"x\.gz: unfolds to more than 1 MB; unpack it first"):
        read_bytes(tmp_path / "x.gz", most=1 << 20)


@pytest.mark.parametrize("kind", kinds())
def test_the_schema_describes_every_field(kind):
    schema = json_schema(kind)
    parts = {kind: schema} | schema.get("$defs", {})
    general = {"kind", "version", "name", "comment", "change"}
    undescribed = [
        (name, field)
        for name, part in parts.items()
        for field, facts in part.get("properties", {}).items()
        if field not in general and not facts.get("description")
    ]
    assert undescribed == []
    assert "Parameters\n" not in str(schema)
