"""Where a file of data is: at a path, in the folder named by PHVAE_DATA, or downloaded once."""

import csv
import gzip
import io
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["VARIABLE", "DataNotFound", "find", "read_rows"]

# The environment variable that names a folder of data files.
VARIABLE = "PHVAE_DATA"


class DataNotFound(ValueError):  # noqa: N818 - a sentence about files, not a fault of the program
    """No file of a data set was found; the message says what would help."""


def find(
    name: str,
    path: str | os.PathLike[str] | None,
    *,
    files: Sequence[str],
    url: str | None = None,
    sha256: str | None = None,
    advice: str = "",
) -> Path:
    """The file of a data set.

    Args:
        name: What the data set is called in messages.
        path: A file the user names; it is taken as it is.
        files: Names to look for in the folder named by ``PHVAE_DATA``, the first that exists is taken.
        url: Public copy to download once into the user's cache where no file is found.
        sha256: Checksum of the public copy, where its bytes are known.
        advice: How to come by the file where there is no public copy.
    """
    if path is not None:
        if not Path(path).is_file():
            raise DataNotFound(f"{name}: path={str(path)!r} is no file; name the file itself, or leave path out")
        return Path(path)
    folder = os.environ.get(VARIABLE)
    for file in files if folder else ():
        if (found := Path(folder or "") / file).is_file():
            return found
    place = f"the folder {VARIABLE}={folder!r} has none of {', '.join(files)}" if folder else f"{VARIABLE} is not set"
    if url is None:
        raise DataNotFound(f"{name}: {place} and no public copy can be downloaded; {advice}")
    return _download(name, url, sha256, place, files[0])


def _download(name: str, url: str, sha256: str | None, place: str, file: str) -> Path:
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    try:
        known = None if sha256 is None else f"sha256:{sha256}"
        return Path(pooch.retrieve(url, known_hash=known, fname=file, path=pooch.os_cache("phvae")))
    except (RequestException, OSError) as error:
        raise DataNotFound(
            f"{name}: {place} and {url} cannot be reached ({type(error).__name__}); connect once, give path=, or put "
            f"{file} into a folder named by {VARIABLE}"
        ) from None
    except ValueError as error:
        raise DataNotFound(
            f"{name}: the copy at {url} has changed (its checksum differs), so it was not used; give path= to a file "
            f"you trust"
        ) from error


def read_rows(path: Path, *, name: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a text table, comma or tab separated, gzipped or not; a file of bare numbers has header []."""
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError):
        raise ValueError(f"{name}: {path} is no text table; give a CSV file, gzipped or not") from None
    first = text.partition("\n")[0]
    rows = list(csv.reader(io.StringIO(text), delimiter="\t" if "\t" in first else ","))
    rows = [[cell.strip() for cell in row] for row in rows if row]
    if not rows:
        raise ValueError(f"{name}: {path} is empty; give a CSV file with a row per observation")
    if any(_is_number(cell) for cell in rows[0][1:]) or (len(rows[0]) == 1 and _is_number(rows[0][0])):
        return [], rows
    return [cell.lower() for cell in rows[0]], rows[1:]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
