"""Two numbers that are one amount or one hedge: "5 hours 30 minutes", "5 feet and 7 inches", "18 y 20"."""

import re

_BLANK = r"[^\S\n]"
_WORD = r"[^\W\d_][^\s\d.,;:!?()\[\]{}|=/]*"
_LINK = r"(?:o|u|y|e|и|und|et|na|and|และ|এবং|ও|మరియు|और)"
#: What amounts of two units begin with. Words are few on purpose: "5 because 10", "5 in 30 minutes" are one amount.
_UNIT = r"""(?:
    (?:hour|minute|week|day|month|year|dollar|euro|pound|rupee|peso|gallon|quart|pint|cup|ton|mile|yard|meter|metre
    |kilometer|kilometre|kilogram|liter|litre|degree
    |Stunde|Tag|Woche|Monat|Jahr|Kilo|heure|jour|semaine|an|année|mètre|livre|pied
    |hora|día|semana|mes|año|minuto|dólar|metro|libra|pie)(?:s|es|n|en|e)?
    |(?:hrs?|h|mins?|wks?|d|yrs?|lbs?|gal|ft|yds?|mi|km|kg|m|cm|oz|Std|Min|Rs|ч|мин|руб)\.?
    |feet|foot|stone|mois|Fuß|Pfund|(?:час|недел|месяц|минут|доллар|рубл|метр|фунт|фут|градус)[а-я]*
    |день|дня|дней|год|года|лет|евро|saa|masaa|siku|wiki|miezi|miaka|dola|dakika|futi
    |ชั่วโมง|นาที|วัน|สัปดาห์|เดือน|ปี|ดอลลาร์|บาท|ฟุต|ঘণ্টা|ঘন্টা|মিনিট|দিন|সপ্তাহ|মাস|বছর|ডলার|টাকা|ফুট
    |(?:గంట|నిమిష|రోజు|వారా|నెల|సంవత్సరా|డాలర్|రూపాయ|అడుగు)\S*|घंट[ेा]|मिनट|दिन|सप्ताह|मही\S+|साल|वर्ष|डॉलर|रुप\S+|फ[ीु]ट
)"""
_TWO_AMOUNTS = re.compile(
    rf"""\s*,?\s*{_LINK}\s+ | {_BLANK}*(?:{_WORD}|{_UNIT}),?{_BLANK}+{_LINK}{_BLANK}+
    | {_BLANK}*{_UNIT},?{_BLANK}+ | {_BLANK}*,?{_BLANK}*na{_BLANK}+{_WORD}{_BLANK}+
    | {_BLANK}*(?:ชั่วโมง|นาที|วัน|เดือน|ปี|ดอลลาร์|บาท){_BLANK}*
    | {_BLANK}*(?:[\u3040-\u30ff\u4e00-\u9fff]{{1,2}}|个小时|個小時|个星期|フィート|ポンド|メートル)[又和零と]?""",
    re.VERBOSE | re.IGNORECASE,
)
_INVISIBLE = re.compile(r"\\[,;:! ]|[~$]")


def are_one(gap: str) -> bool:
    """Whether the text between two numbers makes them one amount, or two that are named together."""
    return _TWO_AMOUNTS.fullmatch(_INVISIBLE.sub(" ", gap)) is not None
