"""The command line. Heavy imports happen inside the commands, so that help answers at once."""

from phvae.cli import at, checkout, demo, evaluate, fit, impute, info, report, risk, sample
from phvae.cli.app import app, main, run

__all__ = ["app", "main", "run"]

# In the order in which help lists them.
for module in (fit, sample, at, evaluate, impute, risk, report, info, demo, checkout):
    module.register(app)
