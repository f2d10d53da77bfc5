"""Minimum-cost-flow instances and DIMACS files: round trip, the format's corners, every error with its line."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from flowlex.instances import InstanceError, NetworkInstance, generate, read_instance, write_instance
from flowlex.instances.dimacs import (
    MAX_NODES,
    format_dimacs,
    looks_like_dimacs,
    parse_dimacs,
)
from flowlex.instances.file_storage import read_bytes
from flowlex.instances.min_cost_flow import UNBOUNDED

TEXT = """c two sources, two sinks, a parallel arc, a self-loop, an isolated node
c
p min 5 6
n 1 4
n 2 1
n 3 -2
n 4 -3
a 1 3 0 4 2
a 1 3 1 4 -7
a 1 4 0 -1 3
a 2 4 0 1 0
a 4 3 0 2 1
a 3 3 0 2 5
"""


def test_reads_every_feature_of_the_format():
    network = parse_dimacs(TEXT, "small")
    assert network.name == "small"
    assert network.comment == "two sources, two sinks, a parallel arc, a self-loop, an isolated node\n"
    assert network.supply == (4, 1, -2, -3, 0)
    assert network.tail == (0, 0, 0, 1, 3, 2)
    assert network.head == (2, 2, 3, 3, 2, 2)
    assert network.lower == (0, 1, 0, 0, 0, 0)
    assert network.upper == (4, 4, None, 1, 2, 2)
    assert network.cost == (2, -7, 3, 0, 1, 5)
    assert network.arrays.upper.tolist() == [4, 4, UNBOUNDED, 1, 2, 2]
    assert network.arrays.cost.dtype == np.int64
    summary = network.summary()
    assert (summary["sources"], summary["sinks"], summary["supply"]) == (2, 2, 5)
    assert (summary["parallel arcs"], summary["self-loops"], summary["arcs without upper bound"]) == (1, 1, 1)


@pytest.mark.parametrize(
    "dressed",
    [
        TEXT.replace("\n", "\r\n"),
        "\ufeff" + TEXT,
        TEXT.replace("a ", "a\t"),
        TEXT.replace("a 1 4", "  a   1  4  "),
        "\n\n" + TEXT + "\n\n",
        TEXT.rstrip("\n"),
        TEXT.replace("c\n", "c\nc-------\n"),
        TEXT.replace(" 4 -7", " +4 -7"),
        "\n".join([*TEXT.splitlines()[:3], *reversed(TEXT.splitlines()[3:])]) + "\n",
    ],
)
def test_white_space_and_order_of_lines_do_not_matter(tmp_path, dressed):
    path = tmp_path / "any.name"
    path.write_bytes(dressed.encode())
    read, plain = read_instance(path), parse_dimacs(TEXT)
    assert sorted(zip(read.tail, read.head, read.lower, read.cost, strict=True)) == sorted(
        zip(plain.tail, plain.head, plain.lower, plain.cost, strict=True)
    )
    assert read.supply == plain.supply


@pytest.mark.parametrize("name", ["x.min", "x.json", "x", "x.min.gz"])
def test_recognised_whatever_the_file_is_called(tmp_path, name):
    write_instance(parse_dimacs(TEXT), tmp_path / name)
    assert read_instance(tmp_path / name).supply == (4, 1, -2, -3, 0)


def test_gzip_content_under_a_plain_name(tmp_path):
    (tmp_path / "x.min").write_bytes(gzip.compress(TEXT.encode()))
    assert read_instance(tmp_path / "x.min").name == "x"


def test_json_is_never_taken_for_dimacs(tmp_path):
    network = parse_dimacs(TEXT)
    (tmp_path / "x.min").write_text(network.model_dump_json())
    assert read_instance(tmp_path / "x.min") == network
    for text in ('{"c": 1}', "[1]", "null", '"p min 1 1"', "1", "", "  \n", "not n 1"):
        assert not looks_like_dimacs(text)


def test_node_names_survive_json(tmp_path):
    network = parse_dimacs(TEXT).model_copy(update={"node_names": ("s", "t", "u", "v", "w")})
    write_instance(network, tmp_path / "x.json.gz")
    assert read_instance(tmp_path / "x.json.gz") == network


def test_strange_file_names_become_names(tmp_path):
    for name in ("x" * 240 + ".min", "\udcff.min", ".min"):
        path = tmp_path / name
        path.write_text(TEXT)
        assert len(read_instance(path).name) in range(1, 201)


BAD = {
    "no problem line": ("c only\nc comments\n", "line 2", "no problem line"),
    "two problem lines": (TEXT + "p min 1 1\n", "line 14", "a second problem line; the first is line 3"),
    "another problem": (TEXT.replace("p min", "p max"), "line 3", "this is 'p max 5 6'"),
    "short problem line": (TEXT.replace("5 6", "5"), "line 3", "must be 'p min NODES ARCS'"),
    "no nodes": (TEXT.replace("5 6", "0 6"), "line 3", "0 nodes; there must be at least 1"),
    "too many nodes": (TEXT.replace("5 6", f"{MAX_NODES + 1} 6"), "line 3", "at most"),
    "negative arc count": (TEXT.replace("5 6", "5 -6"), "line 3", "must not be negative"),
    "arc first": ("a 1 2 0 1 1\n" + TEXT, "line 1", "an 'a' line before the problem line"),
    "unbalanced": (TEXT.replace("n 1 4", "n 1 5"), "line 3", "sum to 1; they must sum to 0"),
    "node twice": (TEXT.replace("n 2 1", "n 1 1"), "line 5", "a second n line for node 1; the first is line 4"),
    "node out of range": (TEXT.replace("n 2 1", "n 6 1"), "line 5", "node 6 does not exist (nodes are 1 to 5)"),
    "long node line": (TEXT.replace("n 2 1", "n 2 1 1"), "line 5", "must be 'n NODE SUPPLY'"),
    "tail out of range": (TEXT.replace("a 1 4", "a 6 4"), "line 10", "touches node 6, which does not exist"),
    "head out of range": (TEXT.replace("a 1 4", "a 1 0"), "line 10", "touches node 0, which does not exist"),
    "lower above upper": (TEXT.replace("0 1 0", "2 1 0"), "line 11", "lower bound 2 is above capacity 1"),
    "negative lower": (
        TEXT.replace("0 1 0", "-2 1 0"),
        "line 11",
        "bounds -2 and 1; only a capacity of -1 (none) may be negative",
    ),
    "too few arcs": (TEXT.replace("5 6", "5 7"), "line 13", "ends after 6 of the 7 arcs declared on line 3"),
    "too many arcs": (TEXT.replace("5 6", "5 4"), "line 12", "more arcs than the 4 declared on line 3"),
    "short arc": (TEXT.replace("a 2 4 0 1 0", "a 2 4 0 1"), "line 11", "must be 'a TAIL HEAD LOWER CAPACITY COST'"),
    "numbers slide": (
        TEXT.replace("a 2 4 0 1 0\na 4", "a 2 4 0 1\na 0 4"),
        "line 11",
        "must be 'a TAIL HEAD LOWER CAPACITY COST'",
    ),
    "fraction": (TEXT.replace("0 1 0", "0 1 0.5"), "line 11", "'0.5' is no integer of 64 bits"),
    "glued numbers": (TEXT.replace("a 2 4 0 1 0", "a 2 4 0 1-0 "), "line 11", "must be 'a TAIL"),
    "underscore": (TEXT.replace("0 1 0", "0 1 1_0"), "line 11", "'1_0' is no integer of 64 bits"),
    "foreign digits": (TEXT.replace("0 1 0", "0 1 ٣"), "line 11", "is no integer of 64 bits"),
    "beyond 64 bit": (TEXT.replace("0 1 0", f"0 1 {2**63}"), "line 11", "is no integer of 64 bits"),
    "unknown letter": (TEXT.replace("a 2", "x 2"), "line 11", "this one with 'x'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_refused_naming_the_line(tmp_path, case):
    text, place, reason = BAD[case]
    path = tmp_path / "bad.min"
    path.write_text(text)
    with pytest.raises(InstanceError) as caught:
        read_instance(path)
    assert caught.value.place == place
    assert reason in caught.value.reason
    assert str(caught.value).startswith(str(path))


def test_largest_integers_are_kept_exactly():
    top, bottom = 2**63 - 1, -(2**63)
    text = f"p min 2 2\na 1 2 0 {top} {top}\na 1 2 0 1 {bottom}\n"
    network = parse_dimacs(text)
    assert network.cost == (top, bottom)
    assert network.arrays.cost.tolist() == [top, bottom]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(["1", "-2", "30", "+4", "-", "", " ", "5-6", "1.5", str(2**62), "a", "\t"]), max_size=7
        )
    )
)
def test_the_quick_parser_reads_what_the_careful_one_reads(rows):
    text = f"p min 9 {len(rows)}\n" + "".join(f"a {' '.join(row)}\n" for row in rows)
    assert outcome(text) == outcome(text.replace("a ", "a\t", 1))  # a tab needs a closer look


def outcome(text):
    try:
        return parse_dimacs(text).model_dump()
    except InstanceError as error:
        return error.place


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(0, 60))
def test_random_networks_survive_dimacs_and_json(seed, nodes, arcs):
    network = generate("network-random", seed=seed, nodes=nodes, arcs=arcs, unbounded=0.2)
    numbered = network.model_copy(update={"first_node": 1})  # as in the file
    assert parse_dimacs(format_dimacs(network), network.name) == numbered
    assert NetworkInstance.model_validate_json(network.model_dump_json()) == network


def columns(**changes):
    plain = {"supply": (1, -1), "tail": (0,), "head": (1,), "lower": (0,), "upper": (1,), "cost": (3,)}
    return {**plain, **changes}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"supply": (1, -2)}, "the supplies sum to -1; they must sum to 0"),
        ({"supply": ()}, "the network has no nodes"),
        ({"tail": (2,)}, r"tail\[0\] is node 2, which does not exist \(nodes are 0 to 1\)"),
        ({"head": (-1,)}, "greater than or equal to 0"),
        ({"lower": (2,)}, "arc 0: lower 2 is above upper 1"),
        ({"lower": (-1,)}, "greater than or equal to 0"),
        ({"cost": (1, 2)}, "tail has 1 entries but cost has 2"),
        ({"cost": (2**63,)}, "less than or equal to 9223372036854775807"),
        ({"cost": (1.0,)}, "valid integer"),
        ({"cost": (True,)}, "valid integer"),
        ({"node_names": ("a",)}, "1 node names for 2 nodes"),
        ({"node_names": ("a", "a")}, "two nodes are named 'a'"),
    ],
)
def test_bad_columns_are_refused(changes, reason):
    with pytest.raises(ValidationError, match=reason):
        NetworkInstance(**columns(**changes))


def test_supplies_beyond_64_bits_in_sum_are_added_exactly():
    big = 2**63 - 1
    with pytest.raises(ValidationError, match=f"sum to {4 * big}"):
        NetworkInstance(**columns(supply=(big,) * 4))


def test_the_ending_of_a_name_says_the_format(tmp_path):
    network = parse_dimacs(TEXT)
    for name in ("x.min", "x.dimacs", "x.min.gz", "X.MIN"):
        write_instance(network, tmp_path / name)
        content = read_bytes(tmp_path / name)
        assert b"p min " in content and b"{" not in content
        assert read_instance(tmp_path / name).arrays.cost.tolist() == network.arrays.cost.tolist()
    write_instance(network, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["kind"] == "min-cost-flow"
    with pytest.raises(InstanceError, match=r"y\.min: a DIMACS file holds networks, this is kind 'gpu-assignment'"):
        write_instance(generate("gpu-figure1"), tmp_path / "y.min")
    assert not (tmp_path / "y.min").exists()


def test_a_mistyped_number_of_nodes_does_not_fill_the_memory():
    with pytest.raises(InstanceError, match="line 1: 9999999 nodes are declared, but the other lines can name 2"):
        parse_dimacs("p min 9999999 1\na 1 2 0 1 1\n")
    assert len(parse_dimacs("p min 90000 1\na 1 2 0 1 1\n").supply) == 90000
