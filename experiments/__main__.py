"""Run every experiment and leave figures and tables under one folder."""

import argparse
from pathlib import Path

from experiments import accuracy, approximation, one_law


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer phases, rows and seeds: a check that it all runs")
    parser.add_argument("--output", type=Path, default=Path("build/reproduce"), help="folder for figures and tables")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for experiment in (approximation, one_law):
        for path in experiment.run(arguments.output, quick=arguments.quick):
            print(path, flush=True)
    print(accuracy.summary(accuracy.run(arguments.output / "accuracy.csv", quick=arguments.quick)))


if __name__ == "__main__":
    main()
