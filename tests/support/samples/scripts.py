"""A word in each of 61 scripts and kinds of symbols."""

_TABLE = (
    "Größe λόγος слово բառ שלום سلام ܫܠܡܐ ދިވެހި ߒߞߏ शब्द শব্দ ਸ਼ਬਦ શબ્દ ଶବ୍ଦ சொல் పదం ಪದ വാക്ക് වචනය คำ ຄຳ ཚིག "
    "စကား სიტყვა 단어 ቃል ᏣᎳᎩ ᐃᓄᒃ ᚑᚌᚐᚋ ᚱᚢᚾ ᜊᜌ ពាក្យ ᠮᠣᠩᠭᠣᠯ ᤕᤠ ᥖᥭᥰ ᨅᨔ ᬩᬮᬶ ᮞᮥᮔ᮪ᮓ ᯅᯖᯂ᯲ ᰛᰩᰵ ᱥᱟᱱ ⰳⰾⰰ ⲙⲛⲧ ⵜⵉⴼ 词语 "
    "言葉かな 漢字 ㄅㄆㄇ ꆈꌠ ꓡꓲꓢꓴ ꕙꔤ ꚠꚡ ꦗꦮ ꨌꩌ 𐌲𐌿𐍄 𐎀𐎁 𐐔𐐯 𐒋𐒘 𒀀𒁀 𓀀𓀁 𝔸𝒷𝛼 ⠃⠗ ˈwɜːd ☃✓⏻ 𝄞 😀🎉 👩\u200d💻 🇩🇪 1️⃣ ❤️"  # noqa: RUF001
)
WORDS = _TABLE.split()
EMOJI = WORDS[-5:]
MISSING = "\u0378"
"""A character that no font has, because it is none of Unicode."""
