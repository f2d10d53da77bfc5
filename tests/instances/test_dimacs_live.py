"""Rounds of incremental DIMACS: every kind of line, and every bad one named by its number."""

from __future__ import annotations

import pytest

from flowlex.instances import InstanceError
from flowlex.instances.dimacs_live import AddArc, ChangeArc, NewNode, RemoveNode, SetNode, rounds

START = ["p min 3 1", "n 1 2 1", "n 3 -2", "a 1 3 0 -1 4"]


def read(*lines: str):
    return list(rounds(line.encode() for line in lines))


def test_every_kind_of_line_is_read():
    log = ["\ufeffc first", *START, "c EOI", "x 1 3 0 5 4 0 7", "x 1 3 0 5 4", "d 1 9 2 1", "c between", "a 0 3 0 1 2"]
    log += ["a 1 0 1 2 -3 1", "r 2", "c EOI", "c EOS", "what comes later is not read"]
    first, second = read(*log)
    assert (first.number, first.nodes, first.line) == (1, 3, 6)
    assert first.changes == [SetNode(3, 1, 2, 1), SetNode(4, 3, -2, None), AddArc(5, 1, 3, 0, None, 4)]
    arcs = (AddArc(11, 0, 3, 0, 1, 2), AddArc(12, 1, 0, 1, 2, -3))
    assert second.nodes is None and second.changes == [
        ChangeArc(7, 1, 3, 0, 5, 4, 7),
        ChangeArc(8, 1, 3, 0, 5, 4, None),
        NewNode(9, 1, 1, arcs),
        RemoveNode(13, 2),
    ]


def test_a_plain_file_is_one_round_and_what_follows_the_last_end_is_a_round():
    assert [len(each.changes) for each in read(*START)] == [3]
    assert [len(each.changes) for each in read(*START, "c EOI", "c EOI", "r 2")] == [3, 0, 1]


def test_a_round_is_given_as_soon_as_its_end_is_read():
    def endless():
        yield from (line.encode() for line in (*START, "c EOI"))
        raise AssertionError("read on before the first round was taken")

    assert next(rounds(endless())).line == 5


BAD = [
    (["n 1 2"], "line 1: before it there must be a problem line 'p min NODES ARCS'"),
    ([], "line 1: the stream ends without a problem line 'p min NODES ARCS'"),
    (["c only", "c EOI"], "line 2: a round ends before the problem line 'p min NODES ARCS'"),
    (["p max 3 1"], "line 1: must be 'p min NODES ARCS', this is 'p max 3 1'"),
    (["p min 3 -1"], "line 1: numbers of nodes and arcs must not be negative"),
    ([*START, "p min 3 1"], "line 5: a second problem line; a stream is one network that changes"),
    ([*START, "y 1 2"], "line 5: a line starts with c, p, n, a, x, d or r, this one with 'y'"),
    ([*START, "a 1 2 0 1"], "line 5: must be 'a TAIL HEAD LOWER CAPACITY COST [TYPE]', this is 'a 1 2 0 1'"),
    ([*START, "x 1 2 0 1 1 1 1 1"], "line 5: must be 'x TAIL HEAD LOWER CAPACITY COST [TYPE [OLD]]'"),
    ([*START, "r 1.5"], "line 5: '1.5' is no integer of 64 bits"),
    ([*START, "n 1 9223372036854775808"], "line 5: '9223372036854775808' is no integer of 64 bits"),
    ([*START, "n 0 1"], "line 5: nodes are numbered from 1, this is 0"),
    ([*START, "n 1 1 4"], "line 5: type 4; a node is 0 other, 1 task, 2 place or 3 sink"),
    ([*START, "a 1 2 3 2 1"], "line 5: lower bound 3 is above capacity 2"),
    ([*START, "a 1 2 0 -2 1"], "line 5: bounds 0 and -2; only a capacity of -1 (none) may be negative"),
    ([*START, "d 1 0 -1"], "line 5: -1 arcs; the number must not be negative"),
    ([*START, "d 1 0 1", "a 1 2 0 1 1"], "line 6: one end must be 0, the new node of line 5"),
    ([*START, "d 1 0 1", "r 2"], "line 6: 1 arcs of the new node of line 5 must come first"),
    ([*START, "d 1 0 2", "a 0 2 0 1 1", "c EOI"], "line 7: 1 arcs of the new node of line 5 are missing"),
    ([*START, "d 1 0 2", "a 0 2 0 1 1"], "line 6: 1 arcs of the new node of line 5 are missing"),
    ([*START, "c " + "x" * 2000], "line 5: it has more than 1000 bytes"),
]


@pytest.mark.parametrize(("log", "message"), BAD, ids=[message[:60] for _, message in BAD])
def test_a_bad_line_is_named(log, message):
    with pytest.raises(InstanceError) as refused:
        read(*log)
    assert str(refused.value).startswith(message)
