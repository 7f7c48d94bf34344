"""Run experiments and leave rows, tables and figures under one folder."""

import argparse
from importlib import import_module
from pathlib import Path

from experiments import runner
from experiments.frame import FULL, QUICK

TABLES = ("table1", "table2", "dependence")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(TABLES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few rows, epochs and seeds: a check that it all runs")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce"), help="folder for rows and tables")
    parser.add_argument("--processes", type=int, help="processes to use; one per core by default")
    arguments = parser.parse_args()
    names = arguments.names or list(TABLES)
    budget = QUICK if arguments.quick else FULL
    rows = runner.run(names, budget, arguments.output / f"rows-{budget.name}.csv", processes=arguments.processes)
    for name in names:
        page = arguments.output / f"{name}-{budget.name}.md"
        page.write_text(import_module(f"experiments.{name}").report([r for r in rows if r.experiment == name]) + "\n")
        print(page)


if __name__ == "__main__":
    main()
