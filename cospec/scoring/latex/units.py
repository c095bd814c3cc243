"""Units behind a number: dropped, because a gold answer has them or not by chance, unless two of them contradict."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        name: names.split()[0]
        for names in (
            "mm millimeter millimetre",
            "cm centimeter centimetre",
            "m meter metre",
            "km kilometer kilometre",
            "in inch inche",
            "ft foot feet",
            "yd yard",
            "mi mile",
            "mg milligram",
            "g gram",
            "kg kilogram",
            "lb pound",
            "oz ounce",
            "s sec second",
            "min minute",
            "h hr hour",
            "day",
            "week",
            "month",
            "year",
            "dollar usd",
            "cent",
            "degree deg",
            "radian rad",
            "l liter litre",
            "ml milliliter millilitre",
            "mph",
            "kph",
        )
        for name in names.split()
    }
)
_POWER = r"(?:\^\{?-?\d\}?)?"
_POWERS = re.compile(r"\^\{?-?\d\}?")
_ROMAN = rf"\\text\{{[^{{}}]*\}}{_POWER}"
#: At the end: text commands, joined by nothing, a slash or a dot, or one fraction of two.
_ROMAN_UNIT = re.compile(rf"(?:\s*(?:/|\\cdot)?\s*{_ROMAN})+$|\s*\\frac\{{\s*{_ROMAN}\s*\}}\{{\s*{_ROMAN}\s*\}}$")
#: Plain words at the end, as models write them outside LaTeX.
_PLAIN_UNIT = re.compile(rf"(?<=[\d.}})%\s])\s*([A-Za-z][A-Za-z .'/-]*?\.?){_POWER}$")
_LEADING_UNIT = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<name>\\text\{\s*(?:Rs|USD|EUR|US)\.?\s*\}|(?:Rs|USD|EUR|US)\.?(?=\s*\d)|[€£¥₹])\s*",
    re.IGNORECASE,
)
_SCALES: Mapping[str, str] = MappingProxyType(
    {
        "hundred": "10^{2}",
        "thousand": "10^{3}",
        "million": "10^{6}",
        "billion": "10^{9}",
        "trillion": "10^{12}",
        "dozen": "12",
    }
)
_SCALE = re.compile(
    rf"(?<=[\d.}}])\s*(?P<text>\\text\{{\s*)?(?P<name>{'|'.join(_SCALES)})s?(?![a-zA-Z])(?(text)\s*(?P<end>\}})?)",
    re.IGNORECASE,
)
#: Words or digits that make a second answer, a condition or an expression of what stands behind a number.
_MORE_WORDS = (
    "or|and|not|but|maybe|possibly|perhaps|alternatively|otherwise|either|oder|ou|else|versus|vs|if|unless|except",
    "is|isn|are|aren|was|were|be|plus|minus|times|over|divided|by|to|power|squared|cubed|factorial|choose|mod|modulo",
    "half|halves|third|thirds|fourths|fifths|sixths|sevenths|eighths|ninths|tenths|hundredths|thousandths|quarters?",
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty",
    "added|subtracted|multiplied|doubled|tripled|halved|root",
    r"wrong|incorrect|false|negative|more|less|fewer|greater|least|most|hundreds?|thousands?|\w+illions?|dozens?|zero",
)
#: Participles are operations: "5 increased", "5 dividing".
_NO_NOUN = re.compile(r"[a-z]{2,}(?:ed|ing)")
#: Units that are no plural in -s and no name above.
_MORE_UNITS = frozenset(
    ("people", "men", "women", "children", "mice", "geese", "fish", "sheep", "deer", "unit", "am", "pm", "base", "the")
).union(("st", "nd", "rd", "th", "rpm", "kwh", "hz", "cup", "pint", "quart", "gallon", "acre", "ton", "person", "each"))
_SAYS_MORE = re.compile(rf"(?i)(?<![a-z])(?:{'|'.join(_MORE_WORDS)})(?![a-z])|(?<![a-z])\d")
_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])[^\\]*°")
_LETTERS = re.compile(r"[A-Za-z]")
_CONSTANT_COMMANDS = re.compile(r"\\(?:frac|sqrt|pi|times|cdot|div)(?![a-zA-Z])")
#: Only behind a blank: "5 m" is five metres, "5m" may be five times m.
_SINGLE_LETTERS = frozenset("m s g h l L N J V W A K C F")
_PERCENT = re.compile(
    r"\s*(?:%|\\text\{\s*(?:%|per\s?cent(?:age)?(?: points)?)\s*\}|(?<![A-Za-z])(?:per\s?cent|pct)\.?)$", re.IGNORECASE
)


def split_percent(text: str) -> tuple[str, bool]:
    """``text`` without a per cent sign or word at its end, and whether there was one."""
    core = _PERCENT.sub("", text)
    return core.strip(), core != text


def with_powers(text: str) -> str:
    """``text`` with powers of ten in place of "million" and the like behind a number."""
    return _SCALE.sub(_power, text)


def _power(found: re.Match[str]) -> str:
    rest = r"\text{" if found["text"] and not found["end"] else ""
    return rf" \cdot {_SCALES[found['name'].lower()]} {rest}"


def split_unit(text: str) -> tuple[str, str | None]:
    """``text`` without its unit, and the unit under one name (None if there is none, or none this module knows)."""
    leading = _LEADING_UNIT.match(text)
    if leading is not None:
        core, _ = split_unit(leading["sign"] + text[leading.end() :])
        return core, _canonical(leading["name"])
    core = text.rstrip("€£¥₹ ")
    if _ANGLE_FUNCTION.search(core):
        return core, None
    if core.endswith("°"):
        return core.rstrip("° "), "degree"
    core = re.sub(r"°\s*(?=\\text|[CF]$)", " ", core)
    for found in (_ROMAN_UNIT.search(core), _plain_unit(core)):
        if (
            found is not None
            and found.start() > 0
            and _is_unit(_POWERS.sub("", found[0]), is_one=core[: found.start()].strip() == "1")
        ):
            return core[: found.start()].strip(), _canonical(found[0])
    return core, None


def _is_unit(unit: str, *, is_one: bool) -> bool:
    """Whether the words behind a number are a noun and nothing that changes the number.

    A noun is a name above or a plural; any word behind 1.
    """
    words = re.findall(r"[A-Za-z]+", re.sub(r"\\(?:text|frac|cdot)|(?<=[apAP])\.(?=[mM])", "", unit))
    if _SAYS_MORE.search(unit) or any(_NO_NOUN.fullmatch(word.lower()) for word in words):
        return False
    return is_one or not words or any(map(_is_noun, words))


def _is_noun(word: str) -> bool:
    if len(word) == 1:
        return word in _SINGLE_LETTERS
    lower = word.lower()
    return lower.endswith("s") or lower in _MORE_UNITS or lower in _NAMES


def _plain_unit(core: str) -> re.Match[str] | None:
    found = _PLAIN_UNIT.search(core)
    # Letters in front of it make it more likely a product of variables.
    if found is None or _LETTERS.search(_CONSTANT_COMMANDS.sub("", core[: found.start()])):
        return None
    words = re.findall(r"[A-Za-z]+", found[1])
    spaced = core[: found.start(1)].endswith(" ")
    if len(words) == 1 and len(words[0]) == 1:
        return found if spaced and words[0] in _SINGLE_LETTERS else None
    if len(words) == 1 and (len(words[0]) == 2 or not spaced):
        return found if _singular(words[0].lower()) in _NAMES else None
    return found


def _canonical(unit: str) -> str | None:
    words = list(_words(unit))
    power = re.search(r"\^\{?(-?\d)\}?$", unit)
    exponent = power[1] if power else {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}.get(words[0] if words else "")
    names = [_NAMES[word] for word in words if word in _NAMES]
    if len(names) != 1 or "per" in words or "/" in unit or "frac" in unit:
        return None
    return f"{names[0]}^{exponent}" if exponent else names[0]


def _words(unit: str) -> Iterator[str]:
    for word in re.findall(r"[A-Za-z]+", unit.replace(r"\text", "")):
        # Upper case single letters are other units: N, J, C.
        yield word if len(word) == 1 else _singular(word.lower())


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 2 and word.endswith("s") else word
