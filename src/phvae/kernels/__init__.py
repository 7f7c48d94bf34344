"""Numbers only: log density, log survival and log cdf of phase-type laws, with gradients."""
