"""Tables of the kinds people use: frames in memory (`phvae.tables.frames`), and files, read and written in pieces.

Files are in modules of their own, `phvae.tables.read` and `phvae.tables.write`, so that a model needs none of them.
"""

from phvae.tables.frames import KINDS, DataError, Table, from_matrix, is_frame, rows_as_given, to_matrix

__all__ = ["KINDS", "DataError", "Table", "from_matrix", "is_frame", "rows_as_given", "to_matrix"]
