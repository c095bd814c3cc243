"""Numbers in running text, read exactly, with the digits and separators of the text's language.

A number may have two readings where writers differ: "5 %" is 5 or 0.05, "2 million" is 2,000,000 or a count of
millions, and in a language with a decimal comma "2,125" may still be an English thousands comma. Everything else has
one reading.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from types import MappingProxyType

#: Languages with a decimal comma, and a point or a blank between thousands. All others use them as English does.
DECIMAL_COMMA = frozenset({"de", "es", "fr", "ru"})
#: Languages that may group digits as 12,34,567.
INDIAN_GROUPS = frozenset({"bn", "te", "hi"})
LANGUAGES = frozenset({"bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh", "hi"})

_MAX_DIGITS = 400
_MAX_EXPONENT = 300
_POWER_OF = re.compile(r"[a-zA-Z][ ]?\^\{?$")
_SPACE = "\u00a0"  # Every blank that is not allowed to break a line, after `plain`.
_SCALES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(["dozen", "dozens"], 12),
        **dict.fromkeys(["hundred", "百"], 100),
        **dict.fromkeys(["k", "千"], 1000),
        **dict.fromkeys(["thousand", "tausend", "mil", "mille", "тысяч", "тысячи", "тысяча"], 10**3),
        **dict.fromkeys(["万", "萬"], 10**4),
        **dict.fromkeys(["lakh", "লাখ", "లక్ష", "లక్షల"], 10**5),
        **dict.fromkeys(
            ["million", "millions", "millionen", "millones", "millón", "миллион", "миллиона", "миллионов"], 10**6
        ),
        **dict.fromkeys(["億", "亿"], 10**8),
        **dict.fromkeys(
            ["billion", "billions", "milliarden", "milliards", "миллиард", "миллиарда", "миллиардов"], 10**9
        ),
        **dict.fromkeys(["trillion", "trillions"], 10**12),
    }
)
#: Nobody counts in these: "5k" is never 5.
_NEVER_COUNTED = frozenset({"hundred", "百", "k", "千"})
_CHARACTERS: Mapping[int, str] = MappingProxyType(
    {
        **{ord(dash): "-" for dash in "−﹣－‑‐–"},
        **{ord(blank): _SPACE for blank in "\u202f\u2009\u2007"},
        **{ord(wide): narrow for wide, narrow in zip("，．％：／＋＝（）＄", ",.%:/+=()$", strict=True)},
        ord("٫"): ".",
        ord("٬"): ",",
    }
)
_LATEX: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # A sign in front of a fraction belongs to it, and so does one below the line.
        (r"\\text\s*\{\s*-\s*\}", "-"),
        (r"\\([dtc]?)frac\s*\{\s*-\s*([\d.,]+)\s*\}\s*\{\s*-\s*([\d.,]+)\s*\}", r"\\\1frac{\2}{\3}"),
        (r"\\([dtc]?)frac\s*\{\s*([\d.,]+)\s*\}\s*\{\s*-\s*([\d.,]+)\s*\}", r"\\\1frac{-\2}{\3}"),
        (r"(?<![\w)\]}])-\s*\\[dtc]?frac\s*\{\s*([\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}", r"-\1/\2"),
        (r"(?<![\w)\]}])- (?=\d+/\d)", "-"),
        (r"(?<=\{)\s*-\s+(?=\d)", "-"),
        (r"(?<=\d) (?:minus|минус) (?=\d)", "-"),
        (r"(?<![^\W_])(?i:negative|minus|минус) (?=[$€£]?\d)", "-"),
        (r"(?:零下|负|負)\s*(?=\d)", "-"),
        (r"\\[dtc]?frac\s*\{\s*(-?[\d.,]+)\s*\}\s*\{\s*(-?[\d.,]+)\s*\}", r" \1/\2"),
        (r"(?<=\d)(?:\{,\}|,\\!|\\,|\\ )(?=\d{3})", ","),
        (r"\\(?:text\w*|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r" \1 "),
        (r"\\(?:times|cdot)(?![a-zA-Z])", "×"),
        (r"\\([$%])", r"\1"),
        (r"\*\*|__", ""),
        (r"(?<=\d)['’_](?=\d{3}(?!\d))", _SPACE),
    )
)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in a text: its place, and the values it may have, the likelier first."""

    start: int
    end: int
    values: tuple[Fraction, ...]


def plain(text: str) -> str:
    """``text`` with ASCII digits and signs, simple LaTeX fractions as ``a/b``, and no bold marks."""
    text = "".join(map(_ascii_digit, text.translate(_CHARACTERS)))
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return text


@lru_cache(maxsize=1024)
def _ascii_digit(character: str) -> str:
    if character < "\x7f":
        return character
    value = unicodedata.decimal(character, None)
    if value is not None:
        return str(value)
    if unicodedata.category(character) == "Cf":
        return ""  # Invisible: it must not cut a number in two.
    compatible = unicodedata.normalize("NFKC", character)
    if "⁄" in compatible:
        return f" {compatible.replace('⁄', '/')}"
    return f"^{compatible}" if unicodedata.decomposition(character).startswith("<super>") else character


def amounts(text: str, lang: str = "en") -> list[Amount]:
    """All numbers of a `plain` text, in order, but powers of names (cm^2) and those with over 400 digits."""
    matches = _pattern(lang).finditer(text)
    found = (
        _amount(match, lang)
        for match in matches
        if not _POWER_OF.search(text, max(match.start() - 4, 0), match.start())
    )
    return [amount for amount in found if amount is not None]


@cache
def _pattern(lang: str) -> re.Pattern[str]:
    blanks = rf"\d{{1,3}}(?:{_SPACE}\d{{3}})+"
    english = r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?"
    if lang in DECIMAL_COMMA:
        groups = rf"(?:\d{{1,3}}(?:\.\d{{3}})+|{blanks}|\d{{1,3}}(?:[ ]\d{{3}})+)(?!\d)(?:,\d+)?"
        number, inside = rf"{groups}|{english}|\d+(?:[.,]\d+)?", "[.,]"
    else:
        indian = r"\d{1,2}(?:,\d{2})+,\d{3}(?!\d)(?:\.\d+)?|" if lang in INDIAN_GROUPS else ""
        number, inside = rf"{english}|{indian}{blanks}(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?", r"\."
    scales = "|".join(sorted(_SCALES, key=len, reverse=True))
    return re.compile(
        rf"""(?P<sign>(?<![^\W_])(?<![)\]%.])-|(?<=[=:][ ])-[ ]|(?<=\bis[ ])-[ ])?
        (?:(?:US|R)?[$€£¥₹฿৳]\s?|(?<![^\W_])Rs\.?\s?)?(?P<minus>(?<=[$€£¥₹])-)?
        (?:(?<!\d)(?<!\d{inside})(?P<number>{number})(?!\d|{inside}\d)|(?<![\d.])(?P<part>\.\d+))
        (?:\s?/\s?(?P<below>\d+(?:\.\d+)?)(?![\d/])|[ ](?:[ ]|and[ ])?(?P<top>\d+)/(?P<bottom>\d+)(?![\d/]))?
        (?:\s?[x×*]\s?10\^\{{?(?P<power>-?\d+)\}}?|[eE](?P<exponent>[+-]?\d+)(?!\w))?
        (?:\s?(?P<percent>%|per\s?cent\b)|[ ]?(?P<scale>{scales})(?![a-zа-яё]))?""",
        re.VERBOSE | re.ASCII | re.IGNORECASE,
    )


def _amount(found: re.Match[str], lang: str) -> Amount | None:
    exponent = int((found["power"] or found["exponent"] or "0")[:5])
    number = found["number"] or found["part"]
    longest = max(len(digits or "") for digits in (number, *found.group("below", "top", "bottom")))
    if longest > _MAX_DIGITS or abs(exponent) > _MAX_EXPONENT:
        return None
    if not all(int(found[name].replace(".", "")) for name in ("below", "bottom") if found[name]):
        return None
    factor = Fraction(-1 if found["sign"] or found["minus"] else 1) * Fraction(10) ** exponent
    factor /= Fraction(found["below"] or 1)
    added = Fraction(int(found["top"]), int(found["bottom"])) if found["top"] else Fraction(0)
    values = [(value + added) * factor for value in _readings(number, lang)]
    if found["percent"]:
        values += [value / 100 for value in values]
    if found["scale"]:
        scale = found["scale"].lower()
        values = [value * _SCALES[scale] for value in values] + values * (scale not in _NEVER_COUNTED)
    return Amount(*found.span(), tuple(dict.fromkeys(values)))


def _readings(number: str, lang: str) -> list[Fraction]:
    bare = number.replace(_SPACE, "").replace(" ", "")
    without_commas = bare.replace(",", "")
    if lang not in DECIMAL_COMMA:
        return [Fraction(without_commas)]
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", bare):
        english = Fraction(without_commas)
        return [Fraction(bare.replace(",", ".")), english] if re.fullmatch(r"\d+,\d+", bare) else [english]
    if "," not in bare and not re.fullmatch(r"\d{1,3}(?:\.\d{3})+", bare):
        return [Fraction(bare)]
    return [Fraction(bare.replace(".", "").replace(",", "."))]
