"""The tool that changes one thing at a time: what it changes, and that it changes that alone."""

import ast
import importlib
import sys

import pytest

from tools import mutants

TEXT = '''\
"""Two things."""
LIMIT: int = 3


def inside(x: float, *, open_end: bool = True) -> bool:
    """Whether x is there."""
    if x < LIMIT and not open_end:
        return True
    if callable(x):
        raise ValueError(f"{1 + 1} is " + "not a number")
    return -x ** 2 >= 0.5
'''
# in the order of the visits: an operand before what holds it
SAID = [
    "3  ->  4",
    "x < LIMIT  ->  x <= LIMIT",
    "not open_end  ->  open_end",
    "x < LIMIT and (not open_end)  ->  x < LIMIT or not open_end",
    "True  ->  False",
    "callable(x)  ->  not callable(x)",
    "2  ->  3",
    "x ** 2  ->  x * 2",
    "-x ** 2  ->  x ** 2",
    "0.5  ->  1.0",
    "-x ** 2 >= 0.5  ->  -x ** 2 > 0.5",
    "True  ->  False",
]


@pytest.fixture
def module(tmp_path, monkeypatch):
    path = tmp_path / "tiny_module.py"
    path.write_text(TEXT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop("tiny_module", None)


def test_every_place_is_changed_once_and_nothing_else(module):
    plain = ast.unparse(ast.parse(TEXT)).splitlines()
    said = []
    for number in range(len(SAID)):
        tree, change = mutants.changed(module, number)
        assert change.count == len(SAID)  # the places are the same whichever is changed
        said.append(change.said)
        differing = [pair for pair in zip(plain, ast.unparse(tree).splitlines(), strict=True) if pair[0] != pair[1]]
        assert len(differing) == 1, change.said
    assert sorted(said) == sorted(SAID)
    nothing, change = mutants.changed(module, len(SAID))
    assert (ast.unparse(nothing).splitlines(), change.said) == (plain, "")


def test_a_changed_module_stands_for_the_one_on_disk_until_it_is_taken_away(module, monkeypatch):
    (number,) = (n for n in range(len(SAID)) if mutants.changed(module, n)[1].said.startswith("x < LIMIT  ->"))
    tree, change = mutants.changed(module, number)
    assert change.line == 7
    stand = mutants.Stand("tiny_module", module, tree)
    for finders, expected in (([stand, *sys.meta_path], True), (sys.meta_path, False), ([stand], True)):
        monkeypatch.setattr(sys, "meta_path", finders)
        sys.modules.pop("tiny_module", None)
        tiny = importlib.import_module("tiny_module")
        assert (tiny.inside(3, open_end=False), tiny.__file__) == (expected, str(module))
        monkeypatch.undo()
        monkeypatch.syspath_prepend(module.parent)


def test_the_places_drawn_are_the_same_again_and_as_many_as_the_share_says():
    names = ["distributions", "risk", "modelfile"]
    places = mutants.drawn(names, 0.1, 0)
    assert places == mutants.drawn(names, 0.1, 0) != mutants.drawn(names, 0.1, 1)
    assert len(set(places)) == len(places)
    modules = list(mutants.modules(names))
    every = mutants.drawn(names, 1.0, 0)
    # each module's share is rounded up or down
    assert abs(len(places) - 0.1 * len(every)) < len(modules)
    assert {path for path, _ in every} <= set(modules)


def test_every_module_has_tests_that_exist_and_every_entry_of_the_table_has_a_module():
    parts = {path.relative_to(mutants.PACKAGE).with_suffix("").as_posix() for path in mutants.PACKAGE.rglob("*.py")}
    folders = {part.rsplit("/", 1)[0] for part in parts}
    assert set(mutants.TESTS) <= parts | folders
    for tests in mutants.TESTS.values():
        for name in tests:
            assert (mutants.ROOT / "tests" / f"test_{name}.py").exists(), name


def test_what_is_compiled_from_a_module_is_compiled_again_with_it():
    kernels = mutants.PACKAGE / "kernels"
    assert {"lanes", "cpu", "cpu_heads", "lane_functions"} <= mutants.compiled_from(kernels / "lanes.py")
    assert mutants.compiled_from(kernels / "cpu_squaring.py") == {"cpu_squaring"}
    assert not mutants.compiled_from(mutants.PACKAGE / "risk" / "law.py")
