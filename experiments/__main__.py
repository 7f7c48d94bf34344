"""Run experiments, and leave result rows, tables and figures under one folder; a run that was stopped goes on.

Rows are appended to rows-<budget>.csv as fits finish. The page of a table is made from the rows alone, so that
``--report rows.csv`` makes it again on any machine. Files of data are looked for in the folder named by PHVAE_DATA.
"""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from experiments import accuracy, figures, one_law, rows, runner
from experiments.frame import BUDGETS, FULL, QUICK, Budget
from experiments.rows import Row

TABLES = ("table1", "table2", "dependence", "ablation", "timing", "limitations")


def one_law_page(folder: Path, budget: Budget) -> list[Path]:
    return one_law.run(folder, quick=budget.quick)


def accuracy_page(folder: Path, budget: Budget) -> list[Path]:
    path = folder / "accuracy.md"
    path.write_text(accuracy.summary(accuracy.run(folder / f"accuracy-{budget.name}.csv", quick=budget.quick)))
    return [path]


OTHERS: dict[str, Callable[[Path, Budget], list[Path]]] = {
    "figures": figures.run,
    "one_law": one_law_page,
    "accuracy": accuracy_page,
}


def main() -> None:
    every = [*TABLES, *OTHERS]
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(every)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few rows, epochs and seeds: a check that it all runs")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce"), help="folder for rows and pages")
    parser.add_argument("--processes", type=int, help="processes to use; one per core by default")
    parser.add_argument("--report", type=Path, help="make the pages from these rows, and run nothing")
    arguments = parser.parse_args()
    names = arguments.names or every
    for name in names:
        if name not in every:
            parser.error(f"no experiment {name!r}; there are {', '.join(every)}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    budget = QUICK if arguments.quick else FULL
    chosen = [name for name in names if name in TABLES]
    if arguments.report is not None:
        found = rows.load(arguments.report)
        for budget in BUDGETS.values():
            write(chosen, [row for row in found if row.budget == budget.name], budget, arguments.output)
        return
    found = runner.run(chosen, budget, arguments.output / f"rows-{budget.name}.csv", processes=arguments.processes)
    write(chosen, found, budget, arguments.output)
    for name in names:
        if name in OTHERS:
            for path in OTHERS[name](arguments.output, budget):
                print(path, flush=True)


def write(names: Sequence[str], found: list[Row], budget: Budget, folder: Path) -> None:
    """A page per experiment that has rows."""
    for name in names:
        own = [row for row in found if row.experiment == name]
        if not own:
            continue
        hours = sum(row.value for row in own if row.metric == rows.LAST) / 3600
        jobs = len({row.job for row in own})
        head = f"Budget: {budget.name}. {jobs:,} fits and searches, {hours:.2f} processor hours.\n\n"
        if budget.quick:
            head += "Models are hardly trained here: these numbers say that everything runs, and nothing else.\n\n"
        page = folder / f"{name}-{budget.name}.md"
        page.write_text(head + import_module(f"experiments.{name}").report(own) + "\n", encoding="utf-8")
        print(page, flush=True)


if __name__ == "__main__":
    main()
