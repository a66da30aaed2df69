"""Numbers that a word announces: phones as countries write them, passports, licences, tax and bank numbers.

Digits alone may be anything; next to "phone", 手机 or "passport no." they are what it names. The word is the field's
name or is shortly before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from flywheel.stages.ingest.redaction.patterns.hints import START, START_OF_SHORT, WORDS
from flywheel.stages.ingest.redaction.patterns.kinds import Find, Scan, digits_of, lowered
from flywheel.stages.ingest.redaction.patterns.personal import IBAN_LENGTH

_PHONE_WORDS = (
    r"phone|telephone|telefon|teléfono|telefono|téléphone|telefone|\btel\b|\btél\b|mobile|mobil\b|móv[ei]l"
    r"|mov[ei]l|\bhandy|rufnummer|durchwahl|festnetz"
    r"|celular|\bcell(?:ulare|phone|ulaire)?\b|\bmob\b|\bkom\.|chiama\w{1,4}|lig(?:ar?|ue) para|dzwoni\w{0,4}|wa\.me|\bfax\b|whatsapp|\bsms\b|msisdn|portable|電話|携帯|手机|电话|手機|電話番号|फ़ोन|फोन|मोबाइल|전화"
    r"|휴대폰|тел\b|телефон|telefoon|الجوال|جوال|هاتف|موبايل|連絡先|연락처"
    r"|call(?:ed)? (?:me|us|him|her|them|back)|ring (?:me|us)|text me|reach(?:ed)?(?: me| us)?|erreichbar"
    r"|ruf\w* (?:mich|uns|sie)|contact(?: number| me| no)?"
    r"|ring mig|bel me|ll[aá]mame|appelez|joignable|rückruf|meine nummer|natel|mobiel|τηλέφωνο|κινητό|telefax|erreich\w{1,6}|\bhp\b"
    r"|\bmy number|number is|numéro|número (?:de|es)|nummer ist|dial\b|landline|callback|hotline"
)
_TRIGGER_PHONES = (
    rf"(?i:phone|telef|teléf|téléph|mobil|móv[ei]l|mov[ei]l|handy|rufnummer|durchwahl|celular"
    rf"|{START}(?:(?:t[eé]l|cell|mob)[^a-z]|fax)|cellula|cellphone|chiama|liga? para|ligue para|ligar para|dzwoni|kom\.|wa\.me|whatsapp|sms|msisdn|portable"
    r"|call (?:me|us|him|her|them|back)|ring (?:me|us)|reach|erreichbar|ruf |contact|number is|my number"
    r"|landline|dial |hotline|callback|ring mig|bel me|llámame|llamame|appelez|joignable|rückruf|meine nummer|natel|mobiel|τηλέφ|κινητ|telefax|mi número"
    rf"|erreich|{START}hp[^a-z])[^0-9]{{0,24}}[0-9]"
    r"|(?:電話|携帯|手机|电话|手機|फ़ोन|फोन|मोबाइल|전화|휴대폰|тел|جوال|هاتف|موبايل|連絡先|연락처)[^0-9]{0,12}[0-9]"
)
_PHONE = re.compile(
    r"(?:(?<![0-9A-Za-zÀ-ɏ_.+#$€£/=-])|(?<=wa\.me/)|(?<=[a-zA-Z_]=))(?:\+|\(\+?)?[0-9](?:[ .()/-]{0,3}[0-9]){6,14}(?![0-9A-Za-zÀ-ɏ_/]|[.:-][0-9])"
)
_NO_PHONE = re.compile(  # dates, years from and to
    r"(?:19|20)[0-9]{2} ?[-/] ?(?:19|20)[0-9]{2}|(?:19|20)[0-9]{2}[-/.][0-9]{2}[-/.][0-9]{2}|[0-9]{2}[-/.][0-9]{2}[-/.](?:19|20)[0-9]{2}(?:[ T].*)?"
    r"|[0-9]+\.[0-9]+|(?:19|20)[0-9]{2}[-/][0-9]{2}[-/][0-9]{2}.*"
)
_PHONE_NAMED = re.compile(rf"(?i){_PHONE_WORDS}|(?<![a-z])(?:tel|cell|fax|mobile)(?![a-z])|(?:tel|cell|mob)_")
_PHONE_SAID = re.compile(rf"(?i){_PHONE_WORDS}")
_PHONE_BEFORE = re.compile(
    rf"(?i)(?:{_PHONE_WORDS})(?P<between>[^0-9]{{0,32}}(?:[0-9][0-9 ().+/-]{{6,20}}[^0-9]{{1,16}})?)\Z"
)
_OTHER_BEFORE = re.compile(
    r"(?i)(?:order|invoice|ticket|tracking|isbn|account|item|product|case|ref(?:erence)?|serial|model|zip"
    r"|id)\W{0,3}(?:no\.?|number|nr\.?|#|id)?\W{0,4}\Z"
)
_WEAK_BEFORE = re.compile(r"(?i)(?<![a-z])hp\W{0,3}\Z")
_LEAST, _MOST = 7, 15
_DAY = re.compile(r"(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:[0-2][0-9]|3[01])")
_DATE = re.compile(r"(?<![0-9])(?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])-(?:[0-2][0-9]|3[01])(?![0-9])")
_LONGEST_ID, _MIXED = 22, 11
_PASSPORT = 8  # characters of the longer ones


@dataclass(frozen=True)
class _Number:
    """What a word announces: the words, the shape of the number, a check of its letters and digits."""

    kind: str
    words: str
    shape: str
    check: Callable[[str], bool] = bool
    parts: tuple[str, ...] = ()  # of the words, in small letters: where none is, the words are not


def _has_digits(least: int) -> Callable[[str], bool]:
    return lambda text: sum(c.isdigit() for c in text) >= least


def _is_number(text: str) -> bool:
    """Whether letters and digits are a number: six digits, four where letters are among many."""
    return sum(c.isdigit() for c in text) >= (6 if len(text) < _MIXED or text.isalpha() else 4)


def _is_plate(text: str) -> bool:
    """Whether a vehicle may bear it: one to four digits in a row and one to three letters, nothing long."""
    runs = re.findall("[0-9]+|[^0-9]+", text)
    return 1 < len(runs) < 5 and len(text) in range(4, 11) and any(c.isdigit() for c in text)  # noqa: PLR2004


def _is_passport(text: str) -> bool:
    """Whether letters and digits may be a passport's: two digits, one where all places are filled (Germany)."""
    return sum(c.isdigit() for c in text) > (len(text) < _PASSPORT)


def _aba(text: str) -> bool:
    """Routing numbers (ABA): prefix of a district, weights 3, 7, 1."""
    prefix = int(text[:2])
    district = prefix <= 12 or 21 <= prefix <= 32 or 61 <= prefix <= 72 or prefix == 80  # noqa: PLR2004
    return district and sum(int(d) * w for d, w in zip(text, (3, 7, 1) * 3, strict=True)) % 10 == 0


_BANKING = frozenset(
    (
        *IBAN_LENGTH,
        *[
            "US",
            "CA",
            "AU",
            "NZ",
            "JP",
            "CN",
            "HK",
            "SG",
            "IN",
            "KR",
            "TW",
            "TH",
            "MY",
            "PH",
            "ID",
            "VN",
            "MX",
            "AR",
            "CL",
            "CO",
            "PE",
            "ZA",
            "NG",
            "KE",
            "MA",
        ],
    )
)


# What countries call the number of a person, a taxpayer or an insured: the words in any case, short ones as written.
_LONG_NAMES = (
    r"steuernummer|st\.-?nr|steuer-?id\w*|versicherungsnummer|sv-?nummer|sv-?nr|rentenversicherung\w*"
    r"|personalausweis\w*|ausweisn\w*|perso-nr|personnummer"
    r"|fødselsnummer|cpr-nummer|henkilötunnus|hetu\b|rodné číslo|rijksregister\w*|num[ée]ro national"
    r"|num[ée]ro avs|contribuinte|contribuyente|kimlik no"
    r"|снилс|инн\b|паспорт|身份证号?|主民登録|個人番号|マイナンバー|my number|주민등록번호|주민번호|c[ée]dula|tax file number"
    r"|ird number|social insurance number|national insurance number"
    r"|unique taxpayer reference|taxpayer (?:id|reference)|employer identification number|emirates id"
    r"|teudat zehut|(?:ian|ican|yan|ani|aqi|aeli|thai|orean|nese|british|irish|spanish|polish|turkish|danish|swedish) id\b|voter id|epic no|gst(?:in)? ?(?:number|no)?\b"
    r"|رقم الهوية|الرقم القومي|الرقم الوطني|căn cước(?: công dân)?|नागरिकता|নম্বর|tal-identità|bank verification number"
    r"|provider identifier|ghana card|kra pin|id number|identity (?:card|number)|mykad|เลขประจำตัวประชาชน|medicare (?:id|card"
    r"|number)|passeport|pasaporte|permis|partita iva|p\.\s?iva|codice fiscale"
    r"|documento|imei[12]?\b|vin\b|chassis number|tax[ _-]?(?:id|number|no)\b|nhs (?:number|no)"
    r"|burgerservicenummer|numer pesel|licen[cs]e n(?:umber|o)|insurance number"
)
# What such names are made of, where the name itself is not known: of whom or for what, then "number".
_NUMBER = r"(?:number|nummer|no|nr|num|id|ids|código|codigo|code|kodas|kood|n[oº°]|n[uú]mero?|num[ée]ro|nomor|szám|číslo|broj|номер|番号|號|号|번호)"
_ROOTS = (
    r"(?:identi\w{0,12}|ident|assurance|medical|patient|utente|matricule|rijbewijs|conduc\w{2,6}|habilita\w{2,6}|assicura\w{0,8}|verzeker\w{0,6}|provider|beneficiary|foreigner|alien|patente|licenza|guida|arzt|kranken\w{0,20}|등록|면허|여권|cidad\w{0,6}|ciudadan\w{0,4}|citizen\w{0,4}|cittadin\w{0,4}|national|nacional|nazionale|personal|personnel|persona"
    r"|segur\w{0,6}|securit\w|sécurité|social\w?|sociale|insurance|versichert?\w{0,16}|member|policy ?holder|medicaid|health|elector"
    r"|voter|resident|residence|tax\w{0,5}|fiscal\w{0,2}|driv\w{1,4}|licen[cs]e|licencia|führerschein|kennzeichen|carte|cartão|carta|tarjeta|osob\w{1,5}|asmens|isiku\w{0,6}"
    r"|dow[oó]d\w{0,2}|mati[cč]n\w|numeric|паспорт|серия|在留カード|身分證|身份)"
)
_MADE_NAMES = (
    rf"{_ROOTS}(?: (?:de|del|do|da|du|des|der|di|della|van|card|la|el|of|i|e|и|record|osobist\w|(?:(?:d|dell|l)['\u2019])?{_ROOTS})){{0,3}}[ _-]?{_NUMBER}(?![a-zà-ÿ])|{_NUMBER} (?:(?:de|del|da|do|di|della|dell['\u2019]|d['\u2019]|of|la|el|van) ?){{0,2}}{_ROOTS}(?:[ -][a-zà-ÿ]{{3,14}}(?=[ :]))?"
    r"|clave (?:de )?elector|cart(?:ão|a) d[ei'] ?cidad\w+|dow[oó]d(?:u| osobist\w)?|my social\b|isikukood|asmens kodas|在留カード(?:番号)?|паспорт(?: серия)?(?: и номер)?"
    r"|cod numeric personal|medicaid(?: id)?|seguro social|seguridad social|r\.č\.|sofi-?nummer|personnr|\bcpr\b|\bmy IC\b|fahrgestell\w*|bastidor|telaio|ת\\{0,2}[\"״]ז|บัตรประชาชน"
)
# Documents that are called by their name alone.
_DOCUMENTS = (
    r"personalausweis|ausweis(?:nummer|-nr)?|gesundheitskarte|rijbewijs|patente(?: di guida)?|permis(?: de conduire)?|cart[ae](?: nationale)? d['\u2019 ]identit[éàa]|carte vitale|tessera(?: sanitaria)?"
    r"|tarjeta (?:sanitaria|de residencia)|cartão de cidadão|carteira de (?:motorista|identidade|trabalho|habilitação)|prawo jazdy|dow[oó]d osobisty|körkort|førerkort|kørekort|ajokortti|matricule(?: national)?"
    r"|(?:dvla|driving|driver'?s?)[ _-]?licen[cs]e|health plan|medical record|身分證|身份證|身份证"
)
_SHORT_NAMES = (
    r"CNPJ|CPF|DNI|NIE|NIF|CIF|RUT|CUIT|CUIL|CURP|C\.C\.|AHV|AVS|SVNR|SV-Nr|CPR|HETU|RČ|OIB|TCKN|SNILS|INN"
    r"|UTR|NINO|EIN|ITIN|TIN|MBI|SIN|NAS|TFN|ABN|IRD|NRIC"
    r"|NSS|NUSS|PIS|PASEP|CNH|CNP|ЕГН|EGN|JMBG|UAN|UMID|NIN|BVN|A/C"
    r"|CNIC|KTP|CCCD|SIRET|ΑΦΜ|LANR|RVNR|NPI|ЕМБГ|ИИН|ЖСН|TNIN|NIMC|HKID|EID|KVNR|CNS|CIP|PESEL|NIP|REGON|BSN|NISS|INSZ|NIR|IdNr\.?|PPSN?|GSTIN|UTR|EPIC|IMEI|VIN|MRN|OHIP|TAJ|CNI|SNS|RG|T\.C\.|CF|C\.F\.|fnr"
)
_LETTERS_AND_DIGITS = (
    r"(?-i:(?=[A-Z]{0,6}[ ./-]?[A-Z]{0,4}[0-9])[0-9A-Z]{1,6}(?:[ ./-]{0,2}[0-9A-Z]{1,6}){1,8}(?:\([0-9A-Z]\))?)"
)
_NUMBERS = (
    _Number(
        "national_id",
        rf"(?:{_MADE_NAMES}|{_LONG_NAMES})|(?-i:(?<![A-Za-z0-9])(?:{_SHORT_NAMES})(?![A-Za-z0-9]))",
        _LETTERS_AND_DIGITS,
        lambda text: _is_number(text) and len(text) <= _LONGEST_ID and not (_DAY.match(text) or _DATE.search(text)),
    ),
    _Number(
        "national_id",
        r"kennzeichen|nummernschild|vehicle registration(?: number)?|licen[cs]e plate|number plate|plate number|plaque|immatriculation|kenteken|rejestracyj\w{1,3}|matr[íi]cula|targa\b|plaka\b",
        r"(?-i:[A-ZÄÖÜ0-9]{1,4}(?:[ -]?[A-Z0-9]{1,4}){1,4})",
        _is_plate,
        ("kennzeichen", "schild", "vehicle reg", "plate", "plaque", "matr", "targa", "plaka", "kenteken", "rejestr"),
    ),
    _Number(
        "national_id",
        _DOCUMENTS,
        _LETTERS_AND_DIGITS,
        lambda text: (
            _is_passport(text) and len(text) in range(7, 21) and not (_DAY.fullmatch(text) or _DATE.search(text))
        ),
    ),
    _Number("national_id", r"medicaid|member id", r"[A-Z]{0,3}[0-9]{5,12}[A-Z]?", bool, ("medicaid", "member id")),
    _Number("national_id", r"\brfc\b", r"[A-Z]{3,4}[0-9]{6}[A-Z0-9]{3}", bool, ("rfc",)),
    _Number(
        "national_id",
        r"(?:passport|reisepass|passnummer|pass-nr|passeport|pasaporte|passaporto|passaporte|护照|パスポート|여권|paspoort|travel document)(?: (?!exp)[a-zà-ÿ]{4,12}(?=[ :]))?",
        r"[A-Z]{0,3}[ -]?[0-9A-Z]{5,9}",
        _is_passport,
        (
            "passp",
            "reisep",
            "passn",
            "pass-",
            "passe",
            "pasap",
            "passap",
            "护照",
            "パスポート",
            "여권",
            "paspo",
            "travel doc",
        ),
    ),
    _Number(
        "national_id",
        r"driver'?s?[ _-]?licen[cs]e|driving[ _-]?licen[cs]e|licen[cs]e[ _-]?(?:no|number|#)"
        r"|\bdl(?:[ _-]?(?:no|number|#))|permis de conduire"
        r"|licencia de conducir|drivers?_?licen[cs]e",
        r"[A-Z]{0,5}[ -]?[0-9](?:[ -]?[0-9A-Z]){4,17}",
        _has_digits(5),
        ("licen", "dl", "hrerschein", "permis"),
    ),
    _Number(
        "national_id",
        r"führerschein\w*|fuehrerschein\w*",
        r"[A-Z0-9]{1,5}[ -]?[0-9](?:[ -]?[0-9A-Z]){4,17}|[A-Z0-9]{11}",
        _has_digits(3),
        ("hrerschein",),
    ),
    _Number(
        "national_id",
        r"\bpan\b|permanent account|income tax",
        r"[A-Z]{3}[PCHFATBLJG][A-Z][ -]?[0-9]{4}[ -]?[A-Z]",
        bool,
        ("pan", "permanent", "income"),
    ),
    _Number(
        "national_id",
        r"\bitin\b|\bein\b|employer id\w*|medicare|\bmbi\b|\bnhs\b|health card|insurance (?:id|no|number)"
        r"|social insurance|\bsin\b|\btfn\b|tax file|curp",
        r"[0-9A-Z]{2,5}(?:[ -]?[0-9A-Z]){4,14}",
        _has_digits(6),
        (
            "itin",
            "ein",
            "employer",
            "medicare",
            "mbi",
            "nhs",
            "health",
            "insurance",
            "sin",
            "tfn",
            "tax",
            "curp",
            "rfc",
        ),
    ),
    _Number(
        "account",
        r"\brib\b|relevé d['\u2019]identité bancaire",
        r"[0-9]{5}[ -]?[0-9]{5}[ -]?[0-9A-Z]{11}[ -]?[0-9]{2}",
        bool,
        ("rib", "identité bancaire"),
    ),
    _Number(
        "account",
        r"routing|\baba\b|\brtn\b|transit (?:no|number)",
        r"[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]",
        _aba,
        ("routing", "aba", "rtn", "transit"),
    ),
    _Number(
        "account",
        r"bank[ _-]?(?:account|acct)|account[ _-]?(?:number|no)\b(?=[^\n]{0,60}(?:routing|bank|sort code|iban"
        r"|bic|swift))|kontonummer|konto-?nr|\bkto\b|(?:numer|nr) (?:konta|rachunku)(?: bankowego)?|rachunek|conta (?:corrente|poupança)|계좌번호|口座番号|खाता संख्या|\bacc(?:oun)?t? ?(?:no|#)(?=[^\n]{0,60}(?:bank|[0-9]{2}-[0-9]{2}-[0-9]{2}|aba))|\ba/c(?= [0-9])|\bacct\.? (?:no|number|nr)\b|checking account|savings account|sort[ _-]?code|\ba/c no|\bclabe\b(?: interbancaria)?"
        r"|(?:routing|sort code|transit|bank|branch|swift|bic|ifsc)\b[^\n]{0,48}\bacc(?:oun)?t(?: (?:no|number)\b)?|account[ _-]?(?:no|number)\b(?=[^\n]{0,40}\bifsc\b)",
        r"[0-9](?:[ -]?[0-9]){4,25}",
        _has_digits(6),
        (
            "bank",
            "acc",
            "konto",
            "konta",
            "kto",
            "sort",
            "a/c",
            "clabe",
            "acct",
            "rachun",
            "conta",
            "계좌",
            "口座",
            "खाता",
        ),
    ),
    _Number(
        "account",
        r"\bbic\b|\bswift\b(?:[ /_-]?(?:bic|code))?",
        r"(?-i:[A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?)",
        lambda text: text[4:6] in _BANKING,
        ("bic", "swift"),
    ),
    _Number(
        "mac",
        r"\bmac\b(?:[ _-]?addr(?:ess)?)?|hwaddr|bssid|hardware address",
        r"[0-9a-fA-F]{12}",
        lambda text: len(set(text)) > 1 and not text.isalpha(),
        ("mac", "hwaddr", "bssid", "hardware"),
    ),
    _Number(
        "secret",
        r"(?:private|wallet|secret|eth(?:ereum)?|signing)[ _-]?(?:private[ _-]?)?key|priv(?:ate)?[ _-]?key(?:ToAccount|s)?|\baccounts[\"']?\s?[:=]\s?\[",
        r"(?:0x)?[0-9a-fA-F]{64}",
        bool,
        ("key", "accounts"),
    ),
    _Number(
        "secret",
        r"\bpat\b|azure|dev\.azure\.com|visualstudio|devops|personal access token|system_accesstoken",
        r"[a-z2-7]{52}",
        bool,
        ("pat", "azure", "visualstudio", "devops", "personal access", "system_access"),
    ),
)
_GAP = (
    r"(?P<gap>[\"'`)\]\\s]{0,3}(?:[ _-]?(?:no|nr|num|number|card|id|code|nummer|number is|account"
    r"|#))?\.?(?:[^0-9A-Za-z\n]|\b(?:is|ist|lautet|no|number|nr|nummer|card|id|for|the|my|of|key|und|and"
    r"|value|token|transit|PAT|login|numéro|número|n°|de|es|é|è|är|er|to|jest)\b|n?\.?[º°]|\\[nrt\"]){0,12}?)"
)
_EDGE = r"(?:(?<![^\W_])(?=[^\W_])|(?<=[^\W_])(?![^\W_]))"  # of a word; `_` parts words
_CAPITAL = re.compile(r"\\.|[^\W\d_a-z]")  # or an escape, which stays


def _small(words: str) -> str:
    """Return an expression for words in any case as one for texts in small letters."""
    return _CAPITAL.sub(lambda match: match[0] if match[0][0] == "\\" else match[0].lower(), words)


# Where the words may begin, in small letters: Python's engine passes over what does not begin with the first letter of
# one, which it cannot in an expression for any case. Only there the expression for words and number is tried.
_PATTERNS = tuple(
    (
        number,
        re.compile(_small(number.words.replace(r"\b", _EDGE))),
        re.compile(
            rf"(?:(?i:{number.words.replace(chr(92) + 'b', _EDGE)}))(?i:{_GAP})(?<![0-9A-Za-z])(?P<value>{number.shape})(?![0-9A-Za-z]|[.-][0-9])"
        ),
    )
    for number in _NUMBERS
)
_NAMED = tuple(
    (number, re.compile(f"(?i:{number.words.replace(chr(92) + 'b', '')})"), re.compile(number.shape))
    for number in _NUMBERS
)
_FAR = 48
_AS_WRITTEN = str.maketrans("\u0130\u0131\u017f", "iis")  # letters that an expression for any case takes for i and s


def phones(text: str, name: str) -> Iterator[Find]:
    """Yield phone numbers in any national form, where a word or the field's name shows that it is one."""
    named = bool(name and _PHONE_NAMED.search(name))
    if not named and not _PHONE_SAID.search(text):
        return
    for match in _PHONE.finditer(text):
        digits = digits_of(match[0])
        if not _LEAST <= len(digits) <= _MOST or _NO_PHONE.fullmatch(match[0]):
            continue
        before = text[max(0, match.start() - _FAR) : match.start()]
        if _WEAK_BEFORE.search(before) and not (match[0][0] in "+0" and len(digits) > _PASSPORT):
            continue  # a printer's model, a horse's power
        said = _PHONE_BEFORE.search(before)
        if before.endswith("=") and not (said and said["between"] == "="):
            continue  # the value of another name
        if named or (said and not _OTHER_BEFORE.search(before)):
            yield Find(digits, match.start(), match.end())


def numbers(kind: str, text: str, name: str) -> Iterator[Find]:
    """Yield what words announce, of one kind."""
    small = lowered(text).translate(_AS_WRITTEN)
    for number, words, pattern in _PATTERNS:
        if number.kind != kind or (number.parts and not any(part in small for part in number.parts)):
            continue
        for match in _announced(text, small, words, pattern):
            normal = _normal(number, match["value"])
            if number.check(normal):
                yield Find(normal, *match.span("value"))
    if name:
        for number, named, shape in _NAMED:
            if (
                number.kind == kind
                and named.search(name)
                and shape.fullmatch(text.strip())
                and number.check(_normal(number, text))
            ):
                start = text.index(text.strip())
                yield Find(_normal(number, text), start, start + len(text.strip()))


def _announced(text: str, small: str, words: re.Pattern[str], pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield what `pattern.finditer` would: matches from left to right, none overlapping."""
    place = words.search(small)
    while place is not None:
        match = pattern.match(text, place.start())
        if match:
            yield match
        place = words.search(small, match.end() if match else place.start() + 1)


def _normal(number: _Number, text: str) -> str:
    return (
        text.lower().removeprefix("0x")
        if number.kind in ("secret", "mac")
        else "".join(c for c in text.upper() if c.isalnum())
    )


_LONG_TRIGGER = _LONG_NAMES.replace(r"\b", "").replace(r"\w*", "").replace(r"\s", " ")
_MADE_TRIGGER = (
    r"ident|assurance|assicura|verzeker|provider|beneficiary|foreigner|alien|patente|licenza|arzt|kranken|등록|면허|여권|cidad|ciudad|citizen|cittad|nacional|national|nazional|person|segur|securit|social|insur|versicher|member|holder|medicaid|elector|voter"
    r"|resident|fiscal|kennzeich|nummernschild|[ _-]plate|plate number|plaka|plaque|targa|kenteken|rejestr|immatric|tessera|patient|medical|utente|rijbewijs|conduc|habilita|ausweis|gesundheitsk|permis|tarjeta|carteira|vitale|prawo jazdy|körkort|førerkort|kørekort|ajokort|health plan|dvla|driv|身份證|personnr|cpr|my ic |fahrgestell|bastidor|telaio|ת.{1,4}ז |บัตรประชาชน|matr[ií]cula|isiku|asmens|dow[oó]d|matičn|numeric|паспорт|在留|身分|身份|osob|r\.č|sofi-?nummer"
)
_TRIGGER_IDS = (
    r"(?i:passport|reisepass|passnummer|pass-nr|passeport|pasaporte|passap|paspoort|travel doc|vehicle reg|licen[cs]e|hrerschein"
    r"|permis de|licencia"
    rf"|{START}(?:dl|pan|itin|ein|mbi|nhs|sin|tfn|rfc)[^a-z]|permanent account|income tax|medicare"
    rf"|health card|insurance|tax file|curp)"
    r"[^\n]{0,32}[0-9]|护照|パスポート|여권"
    rf"|(?:(?i:{_LONG_TRIGGER}|{_MADE_TRIGGER})|(?i:{START_OF_SHORT})(?:{_SHORT_NAMES})[^A-Za-z0-9])[^\n]{{0,24}}[0-9]"
)
PHONED = Scan("phone", _TRIGGER_PHONES, phones, hint=WORDS, numbers=_PHONE_NAMED.pattern)
ANNOUNCED = Scan("national_id", _TRIGGER_IDS, partial(numbers, "national_id"), hint=WORDS)
ACCOUNT = Scan(
    "account",
    rf"(?i:routing|{START_OF_SHORT}(?:aba|rtn|rib)[^a-z0-9]|transit n|kontonummer|konto-?nr|kto[^a-z]|account|a/c |acc no|konta|rachun|conta |계좌|口座|खाता|clabe|acct"
    rf"|sort.?code).{{0,40}}[0-9]{{2}}|{START_OF_SHORT}(?i:bic|swift)[^a-z].{{0,16}}[A-Z]{{6}}[A-Z0-9]{{2}}",
    partial(numbers, "account"),
    hint=WORDS,
)
HARDWARE = Scan(
    "mac",
    rf"(?i:{START_OF_SHORT}mac[^a-z0-9]|mac[_ -]?addr|hwaddr|bssid|hardware addr).{{0,16}}[0-9a-fA-F]{{12}}",
    partial(numbers, "mac"),
    hint=WORDS,
)
KEYED = Scan(
    "secret",
    r"(?i:private|wallet|secret|eth|sign|priv|accounts)[a-z]{0,12}.{0,24}[0-9a-fA-F]{64}|[a-z2-7]{52}",
    partial(numbers, "secret"),
    hint=WORDS,
)
