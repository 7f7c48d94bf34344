"""Fits to tables larger than memory: Parquet files, read row group by row group in every epoch."""

from phvae.streaming.fitting import ParquetStream

__all__ = ["ParquetStream"]
