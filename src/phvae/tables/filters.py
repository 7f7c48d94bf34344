"""Which rows to read, said as ``loss > 10 and kind != "x"``: a small language of its own, nothing is evaluated.

Its grammar::

    condition   = conjunction {"or" conjunction}
    conjunction = negation {"and" negation}
    negation    = "not" negation | "(" condition ")" | comparison
    comparison  = value (("==" | "!=" | "<" | "<=" | ">" | ">=") value)+
                | column "is" ["not"] "missing"
                | column ["not"] "in" "(" constant {"," constant} ")"
    value       = column | constant
    constant    = a number | text in single or double quotes
    column      = a name | any name in `backticks`

A comparison with a missing cell is neither true nor false, and only rows for which the condition is true are read.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["RowFilter", "conditions", "parse"]

Mask = Callable[[pa.RecordBatch], Any]

MOST_CHARACTERS = 2000
DEEPEST = 50

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
EXAMPLES = {"where": "loss > 10 and kind != 'x'", "given": "loss > 10 and 1 < days <= 7"}
# A comparison as it reads with its sides exchanged.
TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
WORDS = ("and", "or", "not", "is", "in", "missing")
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])|-(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
      | (?P<text>"[^"]*"|'[^']*')
      | (?P<quoted>`[^`]+`)
      | (?P<sign>==|!=|<=|>=|<|>|\(|\)|,)
      | (?P<name>[^\W\d]\w*)
    )""",
    re.VERBOSE,
)


class RowFilter(NamedTuple):
    """A condition on rows: the columns it looks at, and the rows of a batch for which it is true."""

    names: tuple[str, ...]
    mask: Mask


def parse(text: str, columns: Collection[str]) -> RowFilter:
    """Understand a condition on rows.

    Args:
        text: The condition.
        columns: Names of the columns there are.

    >>> chosen = parse('loss > 10 and kind != "x"', ["loss", "kind"])
    >>> batch = pa.RecordBatch.from_pydict({"loss": [5, 20, 30, None], "kind": ["a", "x", "b", "b"]})
    >>> chosen.names, chosen.mask(batch).to_pylist()
    (('loss', 'kind'), [False, False, True, False])
    """
    parser = _Parser(text, columns)
    mask = parser.condition(0)
    parser.end()
    return RowFilter(tuple(parser.used), lambda batch: pc.fill_null(mask(batch), False))


def conditions(text: str, columns: Collection[str]) -> dict[str, tuple[Any, ...]]:
    """Conditions on columns as `phvae.PHVAE.sample` takes them, from the same language.

    Each holds a column above a number, below one, or above one and up to another; ``and`` joins them.

    Args:
        text: The conditions.
        columns: Names of the columns there are.

    >>> conditions("loss > 50 and 1 < days <= 7", ["loss", "days"])
    {'loss': ('>', 50.0), 'days': ('between', 1.0, 7.0)}
    """
    parser = _Parser(text, columns, "given")
    found = parser.ranges()
    parser.end()
    return found


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class _Value(NamedTuple):
    """A column, whose `name` is given, or a constant."""

    name: str | None
    constant: Any = None

    def of(self, batch: pa.RecordBatch) -> Any:
        return self.constant if self.name is None else known(batch.column(batch.schema.get_field_index(self.name)))


class _Parser:
    """Recursive descent, one method for each line of the grammar."""

    def __init__(self, text: str, columns: Collection[str], option: str = "where") -> None:
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"{option} has {len(text)} characters; a condition may have {MOST_CHARACTERS}")
        self.text, self.columns, self.option = text, columns, option
        self.used: dict[str, None] = {}
        self.tokens, self.position = self._split(), 0

    def condition(self, depth: int) -> Mask:
        mask = self._conjunction(depth)
        while self._take("or"):
            mask = _both(pc.or_kleene, mask, self._conjunction(depth))
        return mask

    def ranges(self) -> dict[str, tuple[Any, ...]]:
        """Columns and the range that each of them lies in."""
        ends: dict[str, dict[str, float]] = {}
        while True:
            for name, sign, end in self._links():
                own = ends.setdefault(name, {})
                if sign in own:
                    raise ValueError(
                        f"{self.option} = {self._brief()} says {sign} of column {name!r} twice; say it once"
                    )
                own[sign] = end
            if not self._take("and"):
                return {name: self._range(name, own) for name, own in ends.items()}

    def _range(self, name: str, ends: dict[str, float]) -> tuple[Any, ...]:
        if set(ends) == {">", "<="}:
            return ("between", ends[">"], ends["<="])
        if len(ends) == 1 and (sign := next(iter(ends))) in (">", "<"):
            return (sign, ends[sign])
        raise ValueError(
            f"{self.option} = {self._brief()} has {' and '.join(ends)} of column {name!r}; give {name} > a, "
            f"{name} < b, or a < {name} <= b"
        )

    def _links(self) -> list[tuple[str, str, float]]:
        """Each comparison of a chain of them as a column, a sign and a number."""
        left, found = self._value(), []
        while self._next.kind == "sign" and self._next.text in TURNED:
            sign = self._next.text
            self.position += 1
            right = self._value()
            named, other = (left, right) if left.name is not None else (right, left)
            if named.name is None or other.name is not None or not isinstance(other.constant, float):
                raise ValueError(f"{self.option} = {self._brief()}: compare a column with a number")
            found.append((named.name, sign if named is left else TURNED[sign], other.constant))
            left = right
        if not found:
            raise self._error("a comparison such as < or >")
        return found

    def end(self) -> None:
        if self._next.kind != "end":
            raise self._error("'and', 'or' or the end")

    def _conjunction(self, depth: int) -> Mask:
        mask = self._negation(depth)
        while self._take("and"):
            mask = _both(pc.and_kleene, mask, self._negation(depth))
        return mask

    def _negation(self, depth: int) -> Mask:
        if depth > DEEPEST:
            raise ValueError(
                f"{self.option} = {self._brief()} is nested deeper than {DEEPEST}; write it with fewer parentheses"
            )
        if self._take("not"):
            inner = self._negation(depth + 1)
            return lambda batch: pc.invert(inner(batch))
        if self._take("("):
            inner = self.condition(depth + 1)
            self._require(")")
            return inner
        return self._comparison()

    def _comparison(self) -> Mask:
        left = self._value()
        if left.name is not None and self._next.text in ("is", "in", "not"):
            return self._membership(left)
        sign, mask = self._next, None
        while sign.text in COMPARISONS and sign.kind == "sign":
            self.position += 1
            right = self._value()
            if left.name is None and right.name is None:
                raise ValueError(f"{self.option} = {self._brief()} compares two constants; one side must be a column")
            link = _compare(sign.text, left, right)
            mask = link if mask is None else _both(pc.and_kleene, mask, link)
            left, sign = right, self._next
        if mask is None:
            raise self._error("a comparison such as == or <")
        return mask

    def _membership(self, value: _Value) -> Mask:
        if self._take("is"):
            negated = self._take("not")
            self._require("missing")
            return lambda batch: (pc.is_valid if negated else pc.is_null)(value.of(batch))
        negated = self._take("not")
        self._require("in")
        self._require("(")
        masks = [_compare("==", value, self._constant())]
        while self._take(","):
            masks.append(_compare("==", value, self._constant()))
        self._require(")")
        mask = masks[0]
        for other in masks[1:]:
            mask = _both(pc.or_kleene, mask, other)
        return (lambda batch: pc.invert(mask(batch))) if negated else mask

    def _value(self) -> _Value:
        token = self._next
        if token.kind == "quoted" or (token.kind == "name" and token.text not in WORDS):
            name = token.text.strip("`")
            if name not in self.columns:
                raise ValueError(
                    f"{self.option} = {self._brief()}: there is no column {name!r}; there are "
                    f"{', '.join(self.columns)} (text stands in quotes)"
                )
            self.position += 1
            self.used[name] = None
            return _Value(name)
        return self._constant("a column, a number or text in quotes")

    def _constant(self, wanted: str = "a number or text in quotes") -> _Value:
        token = self._next
        if token.kind not in ("number", "text"):
            raise self._error(wanted)
        self.position += 1
        return _Value(None, float(token.text) if token.kind == "number" else token.text[1:-1])

    @property
    def _next(self) -> _Token:
        return self.tokens[self.position]

    def _take(self, text: str) -> bool:
        found = self._next.text == text and self._next.kind in ("name", "sign")
        self.position += found
        return found

    def _require(self, text: str) -> None:
        if not self._take(text):
            raise self._error(repr(text))

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        end = len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                start = position + len(self.text[position:]) - len(self.text[position:].lstrip())
                hint = "; equality is ==" if self.text[start] == "=" else ""
                raise ValueError(
                    f"{self.option} = {self._brief()} is not understood from {self.text[start : start + 10]!r} on "
                    f"(character {start + 1}){hint}; write it like {EXAMPLES[self.option]}"
                )
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            position = match.end()
        return [*tokens, _Token("end", "", end)]

    def _error(self, wanted: str) -> ValueError:
        token = self._next
        found = "its end" if token.kind == "end" else f"{token.text!r} (character {token.start + 1})"
        return ValueError(f"{self.option} = {self._brief()} has {found} where it needs {wanted}")

    def _brief(self) -> str:
        return repr(self.text if len(self.text) <= 80 else f"{self.text[:77]}...")


def known(column: Any) -> Any:
    """The column with NaN as what it means, a missing cell."""
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def _both(operation: Callable[[Any, Any], Any], left: Mask, right: Mask) -> Mask:
    return lambda batch: operation(left(batch), right(batch))


def _compare(sign: str, left: _Value, right: _Value) -> Mask:
    def mask(batch: pa.RecordBatch) -> Any:
        sides = [left.of(batch), right.of(batch)]
        for place, (value, other) in enumerate([(left, sides[1]), (right, sides[0])]):
            if value.name is None:
                sides[place] = _like(value.constant, other.type, (right if place == 0 else left).name, sign)
        try:
            return COMPARISONS[sign](*sides)
        except pa.ArrowNotImplementedError:
            types = " and ".join(
                f"column {value.name!r} ({side.type})" for value, side in zip((left, right), sides, strict=True)
            )
            raise ValueError(f"where: {types} cannot be compared") from None

    return mask


def _like(constant: Any, kind: Any, name: str | None, sign: str) -> Any:
    """The constant as a value of a column's type."""
    types = pa.types
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if isinstance(constant, float):
        if numeric:
            return pa.scalar(constant)
        raise ValueError(
            f"where: column {name!r} holds {kind}, not numbers; compare it with text in quotes, "
            f"as in `{name}` {sign} '{constant:g}'"
        )
    if numeric:
        raise ValueError(f"where: column {name!r} holds numbers and {constant!r} is text; leave the quotes out")
    try:
        return pa.scalar(constant).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(
            f"where: column {name!r} holds {kind} and {constant!r} is none; write it like 2024-12-31"
        ) from None
