"""One module per table or figure of the paper; `python -m experiments` runs them all."""
