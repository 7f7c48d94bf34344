"""Run experiments, and leave result rows, tables and figures under one folder; a run that was stopped goes on.

Rows are appended to rows-<budget>.csv as fits finish, the first seed of everything first. Tables and the page of all
results are made from the rows alone, so that ``--report rows.csv`` makes them again on any machine. Files of data are
looked for in the folder named by PHVAE_DATA.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from experiments import accuracy, figures, models, one_law, results, rows, runner
from experiments.frame import BUDGETS, FULL, QUICK, Budget
from experiments.results import TABLES
from experiments.rows import Row


def one_law_page(folder: Path, budget: Budget) -> list[Path]:
    return one_law.run(folder, quick=budget.quick)


def accuracy_page(folder: Path, budget: Budget) -> list[Path]:
    path = folder / "accuracy.md"
    path.write_text(accuracy.summary(accuracy.run(folder / f"accuracy-{budget.name}.csv", quick=budget.quick)))
    return [path]


FIGURES = [f"figure-{name}" for name in figures.FIGURES]
OTHERS: dict[str, Callable[[Path, Budget], list[Path]]] = {"one_law": one_law_page, "accuracy": accuracy_page}
GROUPS = {"all": [*TABLES, *FIGURES, *OTHERS], "tables": list(TABLES), "figures": FIGURES}


def main(argv: Sequence[str] | None = None, *, prog: str = "python -m experiments") -> None:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    help_names = f"any of {', '.join([*GROUPS, *TABLES, *FIGURES, *OTHERS])}; all by default"
    parser.add_argument("names", nargs="*", metavar="NAME", help=help_names)
    parser.add_argument("--quick", action="store_true", help="few rows, epochs and seeds: a check that it all runs")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce"), help="folder for rows and pages")
    parser.add_argument("--page", type=Path, help="page of all results; results-<budget>.md in the folder by default")
    parser.add_argument("--seeds", type=int, help="seeds of every table, where the budget's own are not enough")
    parser.add_argument("--processes", type=int, help="processes to use; one per core by default")
    parser.add_argument(
        "--with",
        dest="own",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="Python file whose list MODELS joins the tables of all models; may be given again",
    )
    parser.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="MODEL",
        help="throw the rows of this model away and do them anew; may be given again",
    )
    parser.add_argument("--report", type=Path, help="make the tables and the page from these rows, and run nothing")
    arguments = parser.parse_args(argv)
    for name in arguments.names:
        if name not in [*GROUPS, *GROUPS["all"]]:
            parser.error(f"no experiment {name!r}; there are {', '.join([*GROUPS, *GROUPS['all']])}")
    for name in ("seeds", "processes"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            parser.error(f"--{name} {value}; give at least 1")
    try:
        for path in arguments.own:
            models.include(path)
    except ValueError as error:
        parser.error(str(error))
    names = list(dict.fromkeys(n for name in arguments.names or ["all"] for n in GROUPS.get(name, [name])))
    chosen = [name for name in TABLES if name in names]
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    budget = QUICK if arguments.quick else FULL
    if arguments.seeds:
        budget = replace(budget, seeds=arguments.seeds, few_seeds=arguments.seeds)
    if arguments.report is not None:
        if not arguments.report.exists():
            parser.error(f"--report {arguments.report}: there is no such file; give result rows of an earlier run")
        found = rows.load(arguments.report)
        budgets = [budget for budget in BUDGETS.values() if any(row.budget == budget.name for row in found)]
        for budget in budgets:
            write(chosen, found, budget, folder, arguments.page)
        return
    known = {job.model for name in chosen for job in import_module(f"experiments.{name}").jobs(budget)}
    for model in arguments.again:
        if model not in known:
            parser.error(f"--again {model!r}: no experiment chosen has it; there are {', '.join(sorted(known))}")
    found = runner.run(
        chosen,
        budget,
        folder / f"rows-{budget.name}.csv",
        processes=arguments.processes,
        own=arguments.own,
        again=arguments.again,
    )
    wanted = [name.removeprefix("figure-") for name in names if name in FIGURES]
    for path in figures.run(folder, budget, found, wanted):
        print(path, flush=True)
    write(chosen, found, budget, folder, arguments.page)
    for name in names:
        if name in OTHERS:
            for path in OTHERS[name](folder, budget):
                print(path, flush=True)


def write(names: Sequence[str], found: list[Row], budget: Budget, folder: Path, page: Path | None) -> None:
    """A file per experiment that has rows, and one page of everything that has."""
    own = [row for row in found if row.budget == budget.name]
    for name in names:
        mine = [row for row in own if row.experiment == name]
        if mine:
            path = folder / f"{name}-{budget.name}.md"
            path.write_text(results.section(name, mine, budget) + "\n", encoding="utf-8")
            print(path, flush=True)
    if names:
        print(results.write(own, budget, page or folder / f"results-{budget.name}.md", folder), flush=True)


if __name__ == "__main__":
    main()
