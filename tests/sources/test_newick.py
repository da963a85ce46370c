"""Trees as text, and alignments from files."""

import gzip

import numpy as np
import pytest

import latensor as lt
from latensor.datasets import make_tree
from latensor.exceptions import InvalidInputError
from latensor.sources import read_alignment
from latensor.sources.newick import format_newick, parse_newick


@pytest.mark.parametrize("root", ["hidden", "midpoint", "3"])
def test_a_tree_survives_its_text(root):
    for seed in range(10):
        tree = make_tree(1, 9, random_state=seed).tree
        again = parse_newick(format_newick(tree, root=root))[0]
        assert lt.robinson_foulds(tree, again) == 0
        assert np.abs(tree.distances()[:9, :9] - again.distances()[:9, :9]).max() < 1e-4


def test_names_quotes_comments_inner_observed_nodes_and_many_neighbours():
    text = "(('a b':1,c:2[a comment])'it''s':0.5,d,(e,f,g));"
    tree, names = parse_newick(text)
    assert names == ["it's", "a b", "c", "d", "e", "f", "g"]
    assert tree.n_hidden == 2
    assert format_newick(tree, names).startswith("(")
    assert parse_newick(format_newick(tree, names))[1] == sorted(names, key=names.index)
    assert parse_newick("(a:1,(b:1,c:1)0.9:2);")[0].n_hidden == 1


@pytest.mark.parametrize(
    "text, names, message",
    [
        ("(a,b,c)", None, "must end in"),
        ("(a,b;", None, "opens more"),
        ("(a,b));", None, "closes more"),
        ("a,b;", None, "comma outside"),
        ("(a,b:x,c);", None, "length 'x'"),
        ("(a,b,a);", None, "twice"),
        ("(a,b,c);", ["a", "b"], "has a leaf 'c'"),
        ("(a,b,c);", ["a", "b", "z"], "lacks 'z'"),
    ],
)
def test_bad_text(text, names, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_newick(text, names)


def test_alignments(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(">one first\nAC GT\nN-\n>two\nacgu\nTT\n>three\nACGTTA\n")
    found = read_alignment(path)
    assert found.names == ["one", "two", "three"]
    assert found.alphabet == "ACGT"
    expected = [[0, 1, 2, 3, -1, -1], [0, 1, 2, 3, 3, 3], [0, 1, 2, 3, 3, 0]]
    assert np.array_equal(found.X.T, expected)
    packed = tmp_path / "a.fasta.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert np.array_equal(read_alignment(packed).X, found.X)
    path.write_text(">a\nMKV\n>b\nMRV\n")
    assert read_alignment(path).X.max() < 20
    path.write_text(">a\n0110\n>b\n1010\n")
    assert read_alignment(path).alphabet == "01"


@pytest.mark.parametrize(
    "content, message",
    [
        (">a\nACGT\n>b\nACG\n", "unequal length.*a: 4, b: 3"),
        ("ACGT\n", "begins with '>name'"),
        ("", "holds no sequences"),
        (">a\nAC1T\n>b\nACGT\n", "'1' at site 2 of 'a'"),
        (">a\nAC\n>a\nAC\n", "twice"),
    ],
)
def test_bad_alignments(tmp_path, content, message):
    path = tmp_path / "a.fasta"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=message):
        read_alignment(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_alignment(tmp_path / "none")
