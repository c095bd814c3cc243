r"""Whether a number in a text is a part of something larger: ``\sqrt{25}``, ``2^{18}``, ``5x``, ``5:30``, ``5 to 7``.

Such a number is no answer: what stands around it is not worked out, so it must not be read without it.
"""

import re

#: Commands that set or join text; every other one in front of or behind a number belongs to an expression.
_LAYOUT = (
    r"(?:q?quad|text\w*|math\w+|mbox|begin|end|left|right|[bB]ig\w*|[lL]arge|LARGE|\w*style|bold\w*|bm|bf|underline"
    r"|f?box|boxed|\w*color|hline|item|implies|therefore|because|to|iff|\w*[rR]ightarrow|approx|label|tag|[hv]space"
    r"|\w*square|checkmark|circ|degree|hfill|newline|par|qed|rm|dots|ldots|cdots)(?![a-zA-Z])"
)
#: Letters that are units right behind a number; any other one is a factor.
_UNIT_LETTERS = "mghslLd"
_VARIABLE = "[b-zB-HJ-Z](?![a-zA-Z])"
_WORD_OPERATORS = r"(?:to|through|plus|minus|times|divided[ ]by|multiplied[ ]by)"
_AFTER = re.compile(
    rf"""(?:[ \t]|\\[,;:! ]|~)*(?:
        (?:[+×÷·⋅]|(?<![ ])[*/]|(?<=[ ])[*/](?=[ ]))[ ]?[\d(]
        | \+\s*[A-Za-z] | [×÷·⋅]\s*[A-Za-z(\\] | \^(?!\s*\{{?\s*\\circ) | √
        | \\(?!{_LAYOUT})[a-zA-Z]+
    )
    | [ ]?[-–][ ]?(?:[\d(]|{_VARIABLE}) | [ ]?—\d
    | /(?![{_UNIT_LETTERS}](?![a-zA-Z])){_VARIABLE}
    | (?![{_UNIT_LETTERS}](?![a-zA-Z\d]))[a-zA-Z](?![a-zA-Z]) | [a-zA-Z]+\d | [πθ]
    | !(?=\s*(?:[}}$]|\\[)\]])) | :\d | [ ]:[ ]\d | ['’_]\d
    | \s+{_WORD_OPERATORS}\s+[$€£¥]?-?\d
    | \s+(?:squared|cubed|factorial|halves|thirds
        |(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand)ths)(?![a-zA-Z])
    | \s+and\s+(?:an?|one|two|three)\s+(?:half|third|quarter)s?(?![a-zA-Z])
    """,
    re.VERBOSE,
)
_BEFORE = re.compile(
    rf"""(?:
        [\d)}}][ ]?[-–—+×÷·⋅^*/][ ]? | [a-zA-Z][ ]?[+×÷·⋅^][ ]? | [a-zA-Z][*/] | [a-zA-Z][ ][*/][ ]
        | (?<![^\W_]){_VARIABLE}[ ]?[-–][ ]? | (?<![^\W_])[a-zA-Z]-
        | \d\s+{_WORD_OPERATORS}\s+
        | \\(?!{_LAYOUT})[a-zA-Z]+(?:\[[^\[\]]*\]|\{{[^{{}}]*\}})*\s* | [√^]
    )[ ]?[({{\[|]*[ ]?$
    | \d(?::|[ ]:[ ]|['’_])$""",
    re.VERBOSE,
)
#: What is denied, or only a bound: "not 5", "more than 5", "> 5".
_DENIED = re.compile(
    r"(?:(?<![^\W\d_])(?:not|never|than|except|neither|nor|cannot be)|n['’]t(?: be)?)"
    r"(?:\s+(?:be|exactly|equal to|just|simply))?[\s*_$({\[\"'~]+$"
    r"|(?:[≠≤≥]|(?<![-=<>])[<>])[\s$({]*$",
    re.IGNORECASE,
)
#: A ">" that ends a tag or begins a quoted line is no sign.
_NO_SIGN = re.compile(r"(?:</?\w+[^<>\n]*|(?:^|\n)\s*)>\s*$")
_REACH = 60


def is_fragment(text: str, start: int, end: int) -> bool:
    """Whether the number at ``text[start:end]`` goes on, began earlier or is denied there."""
    before = text[max(start - _REACH, 0) : start]
    if _AFTER.match(text, end) or _BEFORE.search(before):
        return True
    return _DENIED.search(before) is not None and not _NO_SIGN.search(before)
