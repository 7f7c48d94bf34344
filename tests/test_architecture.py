"""The house rules that a machine can check: who imports whom, and that nothing is ever unpickled."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import phvae

SOURCE = Path(phvae.__file__).parent

# A module imports from its own line or from lines above it when it is imported. Names in a folder count as the folder.
ORDER = [
    {"phvae"},
    {"defaults", "files", "tables", "modelfile", "history", "progress", "interrupt", "distributed", "threads"},
    {"kernels"},
    {"distributions"},
    {"weights", "layout"},
    {"observation"},
    {"supports"},
    {"start", "networks", "preprocessing", "settings", "covariates"},
    {"observed"},
    {"cell_units", "observed_start"},
    {"decoders", "encoders", "priors"},
    {"signed_decoders", "transformed_decoders"},
    {"signed_cells", "signed_start", "transformed_start"},
    {"truncation"},
    {"vae", "checkpoint"},
    {"batches"},
    {"outskirts"},
    {"objective"},
    {"launched", "adam"},
    {"training"},
    {"assembly", "fitted"},
    {"risk", "persistence", "tail_index", "observing"},
    {"blocks", "streaming", "in_memory", "inspection"},
    {"cluster", "conditioning", "each_row"},
    {"imputation"},
    {"scoring"},
    {"estimator"},
    {"baselines"},
    {"datasets", "metrics", "plots"},
    {"report"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
LINE = {name: line for line, names in enumerate(ORDER) for name in names}


def modules():
    return sorted(SOURCE.rglob("*.py"))


def room(path):
    """The line of the house a file belongs to."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return "phvae" if parts == ("__init__",) else parts[0]


def imported_rooms(path):
    """Rooms imported at the top of a file; imports within functions and for type checkers are put off on purpose."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *rest = name.split(".")
            if package == "phvae":
                yield rest[0] if rest and rest[0] in LINE else "phvae"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_upwards(path):
    here = room(path)
    assert here in LINE, f"{here} has no place in the order of the house"
    for other in imported_rooms(path):
        if other != here:
            assert LINE[other] < LINE[here] or {here, other} <= ORDER[LINE[here]], f"{here} imports {other}"


def test_no_module_takes_part_in_a_circle():
    graph = {}
    for path in modules():
        graph.setdefault(room(path), set()).update(set(imported_rooms(path)) - {room(path)})
    while graph:
        leaves = [name for name, needs in graph.items() if not needs & set(graph)]
        assert leaves, f"these import each other: {graph}"
        for name in leaves:
            del graph[name]


FORBIDDEN = re.compile(
    r"\b(c?pickle|dill|joblib|shelve|marshal)\b|(?<!safetensors\.)\btorch\.(load|save|jit)\b|np\.load|pickle="
)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_ever_unpickled(path):
    assert [line for line in path.read_text().splitlines() if FORBIDDEN.search(line)] == []


def test_importing_the_package_or_its_defaults_loads_nothing_heavy():
    script = (
        "import sys, phvae, phvae.defaults; print(*{'torch', 'numba', 'numpy', 'sklearn', 'pandas'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"


def test_the_estimator_is_exported():
    assert phvae.PHVAE.__module__ == "phvae.estimator"
    assert "PHVAE" in dir(phvae)
