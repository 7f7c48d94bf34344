"""Models to compare with, all with one face: `Baseline.fit` and `Baseline.sample` on plain arrays."""
