"""JSON and JSON Lines files: strict reading, appending, atomic writing. JSONL is the run directory's truth."""

import contextlib
import gzip
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines file in order.

    Lines end at "\\n" alone, since U+2028 and U+0085 are legal inside a JSON string. One leading byte order mark is
    accepted, blank lines are skipped, and a name that ends in `.gz` is read through gzip. A missing file, or a line
    that is no JSON object, raises ValueError with file:line.
    """
    for _, row in read_numbered_jsonl(path):
        yield row


def read_numbered_jsonl(path: str | Path, *, torn: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Like `read_jsonl`, each object with its 1-based line number (for the reader's own error messages).

    With ``torn``, a half-written last line is left out, as `drop_torn_tail` would cut it.
    """
    file = require_file(path, "JSON Lines file")
    # Binary iteration splits on b"\n" only, and lets a decoding error name its line.
    with open_rows(file) as lines:
        for number, line in enumerate(lines, start=1):
            body = line.removeprefix(_BOM) if number == 1 else line
            if torn and not body.endswith(b"\n") and not _is_row(body) and _is_begun(body):
                return
            if body.strip(_BLANK):
                yield number, _parse_line(body, f"{file}:{number}")


@contextlib.contextmanager
def open_rows(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, uncompressed where its name ends in `.gz`; damaged compression raises ValueError."""
    try:
        with file.open("rb") as lines:
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=lines)) if file.suffix == ".gz" else lines
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file}: not a whole gzip file ({error}): fetch it again, or drop the .gz") from error


def _parse_line(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where}: not UTF-8 ({error.reason} at byte {error.start}): save the file as UTF-8"
        ) from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: not JSON ({error.msg}, column {error.colno}): write one JSON object per line"
        ) from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of brackets inside one another.
        raise ValueError(f"{where}: cannot be read ({error}): mend or remove the line") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a JSON {type(row).__name__}, not an object: write rows as {{...}}, one per line")
    return row


def require_file(path: str | Path, what: str) -> Path:
    """``path`` if it is a readable regular file or pipe, else ValueError naming ``what`` was looked for."""
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{what} {file} is a directory: give the path of a file")
    if not file.exists():
        raise ValueError(f"{what} {file} does not exist: check the path (looked in {Path.cwd()})")
    return file


def dumps(value: Any, indent: int | None = None) -> str:
    """Strict JSON text, one line unless ``indent`` is given; NaN and infinities become null, for every reader."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate, legal as a JSON escape, has no UTF-8 form.
        return json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, indent=indent)
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def require_plain_name(path: str | Path) -> None:
    """ValueError for a name that ends in `.gz`, which readers would take through gzip and nothing here compresses."""
    if Path(path).suffix == ".gz":
        raise ValueError(
            f"{path}: rows are written uncompressed: leave .gz out of the name, and compress it afterwards"
        )


def append_jsonl(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows in one write; parents are made, and a last line that lacks its newline gets one first."""
    require_plain_name(path)
    lines = "".join(dumps(row) + "\n" for row in rows)
    if not lines:
        return
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab+") as out:
        if out.tell() > 0:
            out.seek(-1, os.SEEK_END)
            lines = lines if out.read(1) == b"\n" else "\n" + lines
        out.write(lines.encode("utf-8"))


def drop_torn_tail(path: str | Path) -> int:
    """Cut the half-written last line that a killed run can leave; returns the number of bytes cut.

    Only an unfinished line (no newline, no JSON object) is cut, and only behind rows: ValueError for a file that looks
    like something else. Call it before resuming; a missing file is fine.
    """
    file = Path(path)
    if not file.exists():
        return 0
    if not file.is_file():
        raise ValueError(f"{file} is no regular file, so a run could not go on from it: name a file")
    content = file.read_bytes()
    start = content.rfind(b"\n") + 1
    tail = content[start:]
    if not tail or _is_row(tail):
        return 0
    if not _is_begun(tail) or (start and not _is_row(content.partition(b"\n")[0])):
        raise ValueError(f"{file} does not hold JSON lines: it is not what a run left, so name another file")
    os.truncate(file, start)
    return len(tail)


def _is_begun(tail: bytes) -> bool:
    """Whether a kill may have left it: the beginning of a row or, on some file systems, zeros."""
    return tail.startswith(b'{"') or tail == b"{" or not tail.strip(b"\0")


def _is_row(line: bytes) -> bool:
    try:
        _parse_line(line.removeprefix(_BOM), "")
    except ValueError:
        return False
    return True


def write_json_atomic(path: str | Path, value: Any) -> None:
    """Write indented JSON so that readers see the old file or the whole new one, never a part."""
    write_text_atomic(Path(path), dumps(value, indent=2) + "\n")


def write_jsonl_atomic(path: str | Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write all rows so that readers see the old file or the whole new one, never a part."""
    write_text_atomic(Path(path), "".join(dumps(row) + "\n" for row in rows))


def write_text_atomic(path: Path, text: str) -> None:
    """Write a text so that readers see the old file or the whole new one, never a part."""
    require_plain_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same directory: os.replace is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        # mkstemp gives 0600; a result file should be as readable as any other file of the user.
        os.chmod(temporary, 0o666 & ~_umask())
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    finally:
        # Gone already where the replacement went well.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
