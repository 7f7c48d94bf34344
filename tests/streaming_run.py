"""A streamed fit as a process of its own, whose memory a test can measure.

``python streaming_run.py FOLDER BUFFER_BYTES EPOCHS`` fits the files of a folder that `make` has filled
and prints, as JSON, the peak of resident memory in bytes, after all imports and at the end. With EPOCHS 0 the rows are
surveyed and gone through once, without training.
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from phvae import PHVAE
from phvae.streaming import ParquetStream
from phvae.streaming.fitting import held_out_rows, rows_of
from phvae.streaming.survey import survey

GROUP = 2**20


def make(folder, n_rows, n_columns):
    """Pareto columns with a common factor, a row group at a time."""
    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(n_columns)])
    with pq.ParquetWriter(folder / "rows.parquet", schema, use_dictionary=False) as writer:
        for number, start in enumerate(range(0, n_rows, GROUP)):
            uniform = np.random.default_rng([7, number]).random((n_columns + 1, min(GROUP, n_rows - start)))
            excess = (1 - uniform) ** (-1 / 2.4) - 1
            writer.write_table(pa.table([row + excess[-1] for row in excess[:-1]], schema=schema), GROUP)


def peak():
    """Largest resident memory so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(folder, buffer_bytes, epochs):
    before = peak()
    stream = ParquetStream(folder, buffer_bytes=buffer_bytes)
    result = {"before": before}
    if epochs:
        model = PHVAE(n_phases=10, epochs=epochs, batch_size=4096, random_state=0).fit(stream)
        result |= {"elbo": model.history_[-1].elbo, "seconds": model.history_[-1].seconds}
    else:
        held_out = held_out_rows(stream.shape[0], 0.1, 0)
        found = survey(stream.row_groups, "auto", held_out)
        total = sum(
            batch.x.sum() for batch in rows_of(stream, found, held_out).epoch(0, seed=0, batch_size=4096, first=0)
        )
        result["sum"] = float(total)
    print(json.dumps(result | {"peak": peak()}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, *numbers = sys.argv[1:]
    main(Path(place), *map(int, numbers))
