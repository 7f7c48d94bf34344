"""Change one thing in a module, run the tests that know it, and see whether they notice.

    python -m tools.mutants --share 0.05 --seed 0 kernels distributions risk metrics modelfile

Of every module a number of small changes is drawn (a comparison, a sign, an operation, a constant, a condition), each
is put in place of the module in a process of its own, and its tests run until one fails. Changes that none notices are
listed: either a test is missing, or the change means nothing. One CSV row a change; a run that was stopped goes on.
"""

import argparse
import ast
import copy
import csv
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "phvae"
FIELDS = ("module", "line", "change", "outcome", "seconds")
# A test run this many times as long as that of the module unchanged, and a minute, goes on for ever.
PATIENCE, GRACE = 6.0, 60.0

# Tests of each part, the quickest to notice first; the longest prefix of a module's path counts.
TESTS: dict[str, Sequence[str]] = {
    "kernels": ("kernels", "general_kernel", "series_phase_type", "distribution_contract"),
    "kernels/cpu_squaring": ("kernels", "general_kernel"),
    "kernels/cpu_sums": ("risk_sums", "kernels"),
    "kernels/sums": ("risk_sums", "kernels"),
    "kernels/general": ("general_kernel", "phase_type", "closure"),
    "kernels/cpu_heads": ("heads", "decoders"),
    "kernels/heads": ("heads", "decoders"),
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
    "distributions/time_transformed": ("tailed_contract", "power_tails", "distribution_contract"),
    "distributions/two_sided": ("two_sided", "distribution_contract", "signed_answers"),
    "distributions/zero_atom": ("zero_atom", "distribution_contract"),
    "risk": ("risk_answers", "risk_conditional", "risk_joint", "signed_answers"),
    "risk/aggregate": ("risk_aggregate",),
    "risk/certificate": ("risk_certificate",),
    "risk/chain_sum": ("risk_sums",),
    "risk/compound": ("risk_aggregate",),
    "risk/conditional": ("risk_conditional",),
    "risk/conditions": ("risk_conditional",),
    "risk/distortions": ("risk_distortions",),
    "risk/drawn_sum": ("risk_sums",),
    "risk/exceedances": ("risk_certificate", "report"),
    "risk/frequency": ("risk_aggregate",),
    "risk/intervals": ("risk_bootstrap",),
    "risk/joint": ("risk_joint", "signed_answers"),
    "risk/layers": ("risk_answers", "risk_aggregate"),
    "risk/moved": ("risk_conditional", "covariates"),
    "risk/processes": ("risk_bootstrap",),
    "risk/ray": ("risk_joint", "risk_conditional"),
    "risk/record": ("risk_certificate", "risk_splice", "modelfile"),
    "risk/refit": ("risk_bootstrap",),
    "risk/resampling": ("risk_bootstrap",),
    "risk/severity": ("risk_aggregate",),
    "risk/splice": ("risk_splice",),
    "risk/sum_source": ("risk_sums",),
    "risk/sums": ("risk_sums",),
    "risk/totals": ("risk_aggregate",),
    "risk/trust": ("risk_certificate", "risk_splice"),
    "risk/turned": ("signed_answers",),
    "risk/two_tails": ("signed_answers",),
    "risk/verdict": ("risk_certificate", "report"),
    "metrics": ("metrics",),
    "modelfile": ("modelfile",),
}
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
    part = path.relative_to(PACKAGE).with_suffix("").as_posix()
    prefix = max((known for known in TESTS if part.startswith(known)), key=len)
    return [str(path), *(str(ROOT / "tests" / f"test_{name}.py") for name in TESTS[prefix])]


def run(path: Path, tree: ast.AST | None, limit: float) -> tuple[str, float]:
    """Whether the tests of a module notice the tree in its place, and the seconds that took."""
    began = time.monotonic()
    child = os.fork()
    if not child:
        os.setpgrp()
        with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
            os._exit(_in_child(path, tree))
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() - began > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "too long", time.monotonic() - began
        time.sleep(0.05)
    passed = os.waitstatus_to_exitcode(ended[1]) == 0
    return "survived" if passed else "noticed", time.monotonic() - began


def _in_child(path: Path, tree: ast.AST | None) -> int:
    import pytest

    sys.meta_path.insert(0, Stand(name_of(path), path, tree))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-m", "not soak and not gpu"]
    with tempfile.TemporaryDirectory() as cache:
        if tree is not None and "kernels" in path.parts:
            os.environ["NUMBA_CACHE_DIR"] = cache  # what was compiled from the module unchanged is not for this one
        return int(pytest.main([*options, *tests_of(path)]))


def modules(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        place = PACKAGE / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
            if not any(part in path.relative_to(PACKAGE).as_posix() for part in LEFT_OUT):
                yield path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("modules", nargs="+", help="folders or modules below src/phvae")
    parser.add_argument("--share", type=float, default=0.05, help="share of the possible changes to draw, at least one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "mutants.csv")
    arguments = parser.parse_args()
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    _warm()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = []
    if arguments.output.exists():
        with arguments.output.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    done = {(row["module"], row["line"], row["change"]) for row in rows}
    with arguments.output.open("a", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, fieldnames=FIELDS)
        if not rows:
            table.writeheader()
        for path in modules(arguments.modules):
            everything = Change()
            everything.visit(ast.parse(path.read_text(encoding="utf-8")))
            if not everything.count:
                continue
            name = path.relative_to(PACKAGE).as_posix()
            draw = random.Random(f"{arguments.seed} {name}").sample
            usual = 0.0
            for number in sorted(draw(range(everything.count), max(1, round(arguments.share * everything.count)))):
                tree, change = changed(path, number)
                key = (name, str(change.line), change.said)
                if key in done:
                    continue
                if not usual:
                    outcome, usual = run(path, None, 3600)
                    if outcome != "survived":
                        raise SystemExit(f"{name}: its tests fail as it is")
                outcome, seconds = run(path, tree, PATIENCE * usual + GRACE)
                row = dict(zip(FIELDS, (*key, outcome, f"{seconds:.1f}"), strict=True))
                table.writerow(row)
                file.flush()
                rows.append(row)
                print(f"{outcome:9s} {name}:{change.line}  {change.said}", flush=True)
    survived = sum(row["outcome"] == "survived" for row in rows)
    print(f"{survived} of {len(rows)} changes survived: {survived / max(1, len(rows)):.1%}")


def _warm() -> None:
    """Import once what every test imports."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in ("pandas", "polars", "pyarrow", "pytest", "hypothesis", "flint", "scipy.stats", "sklearn", "torch"):
        importlib.import_module(name)


if __name__ == "__main__":
    main()
