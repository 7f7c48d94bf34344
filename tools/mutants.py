"""Change one thing in a module, run the tests that know it, and see whether they notice.

    python -m tools.mutants --share 0.05 --seed 0 kernels distributions risk metrics modelfile persistence

Of every module a number of small changes is drawn (a comparison, a sign, an operation, a constant, a condition), each
is put in place of the module in a process of its own, and its tests run until one fails. Changes that none notices have
survived: either a test is missing, or the change means nothing, which the column `remark` is there to say. One CSV row
a change; a run that was stopped goes on.
"""

import argparse
import ast
import copy
import csv
import importlib.abc
import importlib.util
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "phvae"
FIELDS = ("module", "line", "change", "outcome", "seconds", "test", "remark")
# Compiled functions of the modules as they are: a change compiles those again that hold something of its module.
COMPILED = ROOT / "build" / "compiled"

# Tests of each part, the quickest to notice first; the longest prefix of a module's path counts.
TESTS: dict[str, Sequence[str]] = {
    "kernels": ("series_phase_type", "kernels", "general_kernel", "distribution_contract"),
    "kernels/backends": ("launched", "kernels", "series_phase_type", "risk_sums"),
    "kernels/cpu_heads": ("heads", "decoders"),
    "kernels/cpu_signed_sums": ("signed_sums",),
    "kernels/cpu_squaring": ("kernels", "general_kernel"),
    "kernels/cpu_sums": ("risk_sums", "kernels"),
    "kernels/elimination": ("general_kernel", "phase_type", "canonical"),
    "kernels/general": ("general_kernel", "phase_type", "closure"),
    "kernels/heads": ("heads", "decoders"),
    "kernels/latent": ("latent",),
    "kernels/cpu_latent": ("latent",),
    "kernels/lane_functions": ("heads", "decoders"),
    "kernels/squaring": ("general_kernel", "kernels"),
    "kernels/sums": ("risk_sums", "signed_sums"),
    "kernels/uniformization": ("kernels", "phase_type"),
    "distributions": ("distribution_contract", "tailed_contract"),
    "distributions/ascent": ("fitting",),
    "distributions/canonical": ("canonical", "exchange"),
    "distributions/checks": ("phase_type", "series_phase_type", "bad_input", "distribution_contract"),
    "distributions/classical": ("classical", "distribution_contract"),
    "distributions/closure": ("closure",),
    "distributions/composable": ("closure", "phase_type"),
    "distributions/entropy": ("entropy", "distribution_contract"),
    "distributions/exchange": ("exchange",),
    "distributions/explain": ("explain",),
    "distributions/fitting": ("fitting",),
    "distributions/generalised_pareto": ("generalised_pareto", "risk_splice", "distribution_contract"),
    "distributions/intervals": ("intervals", "observation"),
    "distributions/located": ("located", "distribution_contract", "tailed_contract"),
    "distributions/phase_type": ("phase_type", "closure", "distribution_contract"),
    "distributions/quantiles": ("quantiles", "distribution_contract"),
    "distributions/simulation": ("sampling", "phase_type"),
    "distributions/tails": ("intervals", "observation", "distribution_contract", "tailed_contract"),
    "distributions/time_transformed": ("tailed_contract", "power_tails", "distribution_contract"),
    "distributions/two_sided": ("two_sided", "distribution_contract", "signed_answers", "signed_tails", "signed_cells"),
    "distributions/zero_atom": ("zero_atom", "distribution_contract", "signed_cells"),
    "risk": ("risk_answers", "risk_joint", "risk_conditional", "risk_sums", "signed_answers", "signed_sums"),
    "risk/aggregate": ("risk_aggregate",),
    "risk/certificate": ("risk_certificate", "report_cells"),
    "risk/chain_sum": ("risk_sums", "signed_sums"),
    "risk/compound": ("risk_aggregate",),
    "risk/conditional": ("risk_conditional",),
    "risk/conditions": ("risk_conditional",),
    "risk/decided": ("report_cells", "risk_certificate"),
    "risk/distortions": ("risk_distortions",),
    "risk/drawn_sum": ("risk_sums", "signed_sums"),
    "risk/exceedances": ("risk_certificate", "report", "report_cells"),
    "risk/frequency": ("risk_aggregate",),
    "risk/intervals": ("risk_bootstrap",),
    "risk/joint": ("risk_joint", "signed_answers"),
    "risk/latent": ("risk_answers", "risk_conditional", "outskirts", "risk_sums"),
    "risk/layers": ("risk_answers", "risk_aggregate"),
    "risk/moved": ("risk_conditional", "risk_sums", "covariates"),
    "risk/processes": ("risk_bootstrap",),
    "risk/ray": ("risk_joint", "risk_conditional"),
    "risk/record": ("risk_record", "risk_splice", "risk_certificate", "modelfile"),
    "risk/refit": ("risk_bootstrap",),
    "risk/resampling": ("risk_bootstrap",),
    "risk/seen": ("product_limit", "report_cells"),
    "risk/severity": ("risk_aggregate",),
    "risk/signed_sum": ("signed_sums",),
    "risk/splice": ("risk_splice",),
    "risk/sum_source": ("risk_sums", "signed_sums"),
    "risk/sums": ("risk_sums", "signed_sums"),
    "risk/totals": ("risk_aggregate", "signed_sums"),
    "risk/trust": ("risk_splice", "risk_certificate"),
    "risk/turned": ("signed_answers",),
    "risk/two_drawn_tails": ("signed_sums",),
    "risk/two_tails": ("signed_answers",),
    "risk/verdict": ("risk_certificate", "report"),
    "metrics": ("metrics",),
    "modelfile": ("modelfile",),
    "persistence": ("modelfile", "signed_fit", "history", "cluster"),
}
# What most tests import.
WARM = (
    "flint", "hypothesis", "jinja2", "matplotlib.figure", "narwhals", "numba.extending", "pandas", "polars",
    "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet", "pytest", "rich.console", "safetensors.torch",
    "scipy.integrate", "scipy.optimize", "scipy.stats", "sklearn.base", "sklearn.utils.validation", "torch", "typer",
)  # fmt: skip
# Of a GPU, and lines that only say what a module has.
LEFT_OUT = ("kernels/gpu", "__init__")

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


class Change(ast.NodeTransformer):
    """Visits the places of a module that can be changed, and changes the one with a number."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted, self.count, self.line, self.said = wanted, 0, 0, ""

    def _change(self, node: ast.AST, changed: ast.AST) -> ast.AST:
        here, self.count = self.count, self.count + 1
        if here != self.wanted:
            return node
        self.line = getattr(node, "lineno", 0)
        self.said = f"{ast.unparse(node)}  ->  {ast.unparse(changed)}"
        return ast.copy_location(changed, node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        # annotations are not run, and decorators are not ours
        node.body = [self.visit(part) for part in node.body]
        node.args.defaults = [self.visit(part) for part in node.args.defaults]
        node.args.kw_defaults = [part and self.visit(part) for part in node.args.kw_defaults]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node  # what an error says

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        changed = copy.deepcopy(node)
        changed.ops[0] = COMPARISONS[type(node.ops[0])]()
        return self._change(node, changed)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        text = any(isinstance(getattr(side, "value", None), str) for side in (node.left, node.right))
        if text or type(node.op) not in OPERATIONS:
            return node
        changed = copy.deepcopy(node)
        changed.op = OPERATIONS[type(node.op)]()
        return self._change(node, changed)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return self._change(node, changed)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._change(node, node.operand) if isinstance(node.op, ast.USub | ast.Not | ast.Invert) else node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Name | ast.Call | ast.Attribute):
            return node
        test = self._change(node.test, ast.UnaryOp(ast.Not(), node.test))
        assert isinstance(test, ast.expr)
        node.test = test
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            return self._change(node, ast.Constant(not node.value))
        if isinstance(node.value, int):
            return self._change(node, ast.Constant(node.value + 1))
        if isinstance(node.value, float):
            return self._change(node, ast.Constant(2 * node.value if node.value else 1.0))
        return node


def changed(path: Path, number: int) -> tuple[ast.AST, Change]:
    """The module with the change of this number."""
    change = Change(number)
    return ast.fix_missing_locations(change.visit(ast.parse(path.read_text(encoding="utf-8")))), change


class Stand(SourceFileLoader, importlib.abc.MetaPathFinder):
    """Gives a module from a tree, under the name and path of the one it stands for."""

    def __init__(self, name: str, path: Path, tree: ast.AST | None) -> None:
        super().__init__(name, str(path))
        self.tree = tree

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType | None:
        tree: Any = self.tree or ast.parse(Path(self.path).read_text(encoding="utf-8"))
        return compile(tree, self.path, "exec")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def tests_of(path: Path) -> list[str]:
    """The module's own examples and its tests, those that notice first to the front."""
    part = path.relative_to(PACKAGE).with_suffix("").as_posix()
    prefix = max((known for known in TESTS if f"{part}/".startswith(f"{known}/")), key=len)
    return [str(path), *(str(ROOT / "tests" / f"test_{name}.py") for name in TESTS[prefix])]


class Clock:
    """Says which test has begun, and ends the process when one takes too long."""

    def __init__(self, began: Path, limit: int) -> None:
        self.began, self.limit = began, limit

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.began.write_text(nodeid, encoding="utf-8")
        signal.alarm(self.limit)


def run(path: Path, tree: ast.AST | None, tests: Sequence[str], limit: int) -> tuple[str, float, str]:
    """Whether tests notice the tree in the place of a module, the seconds that took, and the last test that began."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        began = Path(scratch, "began")
        began.touch()
        child = os.fork()
        if not child:
            os.setpgrp()
            with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
                os._exit(_in_child(path, tree, tests, Path(scratch), Clock(began, limit)))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests have started
        outcome = {0: "survived", -signal.SIGALRM: "too long"}.get(code, "noticed")
        return outcome, time.monotonic() - start, began.read_text(encoding="utf-8")


def _in_child(path: Path, tree: ast.AST | None, tests: Sequence[str], scratch: Path, clock: Clock) -> int:
    import pytest

    sys.meta_path.insert(0, Stand(name_of(path), path, tree))
    if tree is not None and (stale := compiled_from(path)):
        cache = scratch / "compiled"
        shutil.copytree(COMPILED, cache, ignore=shutil.ignore_patterns(*(f"{name}.*.nb?" for name in stale)))
        _compile_into(cache)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-m", "not soak and not gpu"]
    return int(pytest.main([*options, *tests], plugins=[clock]))


def _compile_into(cache: Path) -> None:
    import numba

    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = str(cache)


def compiled_from(path: Path) -> set[str]:
    """Names of the modules whose compiled functions hold something of this one: itself, and what imports from it."""
    beside = {file.stem: file.read_text(encoding="utf-8") for file in path.parent.glob("*.py")}
    if not any("import numba" in text or "from numba" in text for text in beside.values()):
        return set()
    found: set[str] = set()
    reached = {path.stem}
    while reached:
        found |= reached
        package = name_of(path.parent / "x")[:-2]
        reached = {
            stem
            for stem, text in beside.items()
            if stem not in found and any(f"from {package}.{name} import" in text for name in found)
        }
    return found


def modules(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        place = PACKAGE / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
            if not any(part in path.relative_to(PACKAGE).as_posix() for part in LEFT_OUT):
                yield path


def drawn(names: Sequence[str], share: float, seed: int) -> list[tuple[Path, int]]:
    """Places to change, of every module its share (rounded at random), in an order that is fair wherever it stops."""
    places = []
    for path in modules(names):
        everything = Change()
        everything.visit(ast.parse(path.read_text(encoding="utf-8")))
        chance = random.Random(f"{seed} {path.relative_to(PACKAGE).as_posix()}")
        many = min(int(share * everything.count + chance.random()), everything.count)
        places += [(path, number) for number in chance.sample(range(everything.count), many)]
    random.Random(seed).shuffle(places)
    return places


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("modules", nargs="+", help="folders or modules below src/phvae")
    parser.add_argument("--share", type=float, default=0.05, help="share of the possible changes to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=240, help="seconds after which one test goes on for ever")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "mutants.csv")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    _warm()
    for folder in (arguments.output.parent, COMPILED):
        folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = []
    if arguments.output.exists():
        with arguments.output.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    done = {(row["module"], row["line"], row["change"]) for row in rows}
    with arguments.output.open("a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=FIELDS)
        if not rows:
            table.writeheader()
        for path, number in drawn(arguments.modules, arguments.share, arguments.seed):
            tree, change = changed(path, number)
            name = path.relative_to(PACKAGE).as_posix()
            key = (name, str(change.line), change.said)
            if key in done:
                continue
            outcome, seconds, test = run(path, tree, tests_of(path), arguments.limit)
            row = dict(
                zip(FIELDS, (*key, outcome, f"{seconds:.1f}", test if outcome != "survived" else "", ""), strict=True)
            )
            table.writerow(row)
            file.flush()
            rows.append(row)
            print(f"{outcome:9s} {seconds:6.1f} s  {name}:{change.line}  {change.said}  by {test}", flush=True)
    _confirm(sorted({row["test"] for row in rows} - {""}), arguments.limit)
    survived = sum(row["outcome"] == "survived" for row in rows)
    print(f"{survived} of {len(rows)} changes survived: {survived / max(1, len(rows)):.1%}")


def _confirm(tests: Sequence[str], limit: int) -> None:
    """A test that fails without a change has noticed nothing."""
    outcome, _, last = run(PACKAGE / "__init__.py", None, tests, limit) if tests else ("survived", 0.0, "")
    if outcome != "survived":
        raise SystemExit(f"{last} fails without a change; take its rows from the table and run again")


def _warm() -> None:
    """Import once what every test imports."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _compile_into(COMPILED)
    for name in WARM:
        importlib.import_module(name)


if __name__ == "__main__":
    main()
