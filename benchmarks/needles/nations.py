"""Numbers of people for the seventh and eighth sets: identities, taxes, banks, cards and telephones, country by country."""

from __future__ import annotations

import random
from collections.abc import Callable

from .made import DIGITS, Family, Made, chars, luhn

Number = Callable[[random.Random], str]


def _d(rng: random.Random, count: int, first: str = "123456789") -> str:
    return rng.choice(first) + "".join(rng.choices(DIGITS, k=count - 1))


def _weighted(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(d) * w for d, w in zip(digits, weights, strict=True))


def _born(rng: random.Random) -> str:
    return f"{rng.randint(50, 99)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}"


def _until(make: Callable[[random.Random], str | None]) -> Number:
    def number(rng: random.Random) -> str:
        while (made := make(rng)) is None:
            pass
        return made

    return number


def _verhoeff(rng: random.Random) -> str:
    turn = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4]
    permuted = [list(range(10))]
    for _ in range(7):
        permuted.append([turn[n] for n in permuted[-1]])

    def times(a: int, b: int) -> int:
        if a < 5:
            return (a + b) % 5 + 5 * (b >= 5) if b < 5 else (a + b - 5) % 5 + 5
        return (a - b) % 5 + 5 if b < 5 else (a - b) % 5

    digits, check = _d(rng, 11, "23456789"), 0
    for n, digit in enumerate(reversed(digits), 1):
        check = times(check, permuted[n % 8][int(digit)])
    full = digits + str([0, 4, 3, 2, 1, 5, 6, 7, 8, 9][check])
    return f"{full[:4]} {full[4:8]} {full[8:]}"


def _cpf(rng: random.Random) -> str:
    digits = _d(rng, 9)
    for _ in range(2):
        total = _weighted(digits, tuple(range(len(digits) + 1, 1, -1)))
        digits += str(total * 10 % 11 % 10)
    return f"{digits[:3]}.{digits[3:6]}.{digits[6:9]}-{digits[9:]}" if rng.randrange(2) else digits


def _cnpj(rng: random.Random) -> str:
    digits = _d(rng, 8) + "0001"
    for weights in ((5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2), (6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)):
        rest = _weighted(digits, weights) % 11
        digits += str(0 if rest < 2 else 11 - rest)
    return f"{digits[:2]}.{digits[2:5]}.{digits[5:8]}/{digits[8:12]}-{digits[12:]}"


def _dni(rng: random.Random) -> str:
    digits = _d(rng, 8)
    return digits + rng.choice(("", "-")) + "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23]


def _nie(rng: random.Random) -> str:
    first, digits = rng.choice("XYZ"), _d(rng, 7)
    return first + digits + "TRWAGMYFPDXBNJZSQVHLCKE"[int(str("XYZ".index(first)) + digits) % 23]


def _codice(rng: random.Random) -> str:
    letters = chars(rng, "BCDFGLMNPRSTVZ", 6)
    text = f"{letters}{rng.randint(50, 99)}{rng.choice('ABCDEHLMPRST')}{rng.randint(1, 28):02d}{rng.choice('ABCDEFGHL')}{_d(rng, 3)}"
    odd = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
    places = [int(c) if c.isdigit() else ord(c) - 65 for c in text]
    total = sum(place if n % 2 else odd[place] for n, place in enumerate(places))
    return text + chr(65 + total % 26)


def _nir(rng: random.Random) -> str:
    digits = (
        f"{rng.randint(1, 2)}{rng.randint(50, 99)}{rng.randint(1, 12):02d}{rng.randint(10, 89)}{_d(rng, 3)}{_d(rng, 3)}"
    )
    key = f"{97 - int(digits) % 97:02d}"
    gap = rng.choice(("", " "))
    return gap.join((digits[0], digits[1:3], digits[3:5], digits[5:7], digits[7:10], digits[10:], key))


def _steuer(rng: random.Random) -> str:
    order = rng.sample(DIGITS, 10)
    order[rng.randrange(1, 10)] = order[0]
    if order[0] == "0":
        return _steuer(rng)
    product = 10
    for digit in order:
        total = (int(digit) + product) % 10 or 10
        product = total * 2 % 11
    full = "".join(order) + str((11 - product) % 10)
    return rng.choice((full, f"{full[:2]} {full[2:5]} {full[5:8]} {full[8:]}"))


def _bsn(rng: random.Random) -> str | None:
    digits = _d(rng, 8)
    check = _weighted(digits, (9, 8, 7, 6, 5, 4, 3, 2)) % 11
    return None if check == 10 else digits + str(check)


def _rijks(rng: random.Random) -> str:
    digits = _born(rng) + _d(rng, 3)
    full = digits + f"{97 - int(digits) % 97:02d}"
    return rng.choice((full, f"{full[:2]}.{full[2:4]}.{full[4:6]}-{full[6:9]}.{full[9:]}"))


def _pesel(rng: random.Random) -> str:
    digits = _born(rng) + _d(rng, 4)
    return digits + str(-_weighted(digits, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3)) % 10)


def _personnummer(rng: random.Random) -> str:
    full = luhn(_born(rng) + _d(rng, 3))
    return rng.choice(("", "19")) + full[:6] + "-" + full[6:]


def _fodsel(rng: random.Random) -> str | None:
    digits = f"{rng.randint(1, 28):02d}{rng.randint(1, 12):02d}{rng.randint(50, 99)}{_d(rng, 3)}"
    one = -_weighted(digits, (3, 7, 6, 1, 8, 9, 4, 5, 2)) % 11
    if one == 10:
        return None
    two = -_weighted(digits + str(one), (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return None if two == 10 else f"{digits}{one}{two}"


def _hetu(rng: random.Random) -> str:
    date, number = (
        f"{rng.randint(1, 28):02d}{rng.randint(1, 12):02d}{rng.randint(50, 99)}",
        f"{rng.randint(2, 899):03d}",
    )
    return f"{date}-{number}" + "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(date + number) % 31]


def _ahv(rng: random.Random) -> str:
    digits = "756" + _d(rng, 9)
    check = -sum(int(d) * (1, 3)[n % 2] for n, d in enumerate(digits)) % 10
    return f"{digits[:3]}.{digits[3:7]}.{digits[7:11]}.{digits[11]}{check}"


def _resident(rng: random.Random) -> str:
    digits = f"1101{_d(rng, 2)}19{_born(rng)}{_d(rng, 3)}"
    total = _weighted(digits, (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2))
    return digits + "10X98765432"[total % 11]


def _rrn(rng: random.Random) -> str:
    digits = _born(rng) + rng.choice("12") + _d(rng, 5)
    full = digits + str((11 - _weighted(digits, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)) % 11) % 10)
    return f"{full[:6]}-{full[6:]}"


def _rut(rng: random.Random) -> str:
    digits = _d(rng, 8)
    check = "0123456789K0"[(11 - _weighted(digits, (3, 2, 7, 6, 5, 4, 3, 2)) % 11) % 11]
    return f"{digits[:2]}.{digits[2:5]}.{digits[5:]}-{check}"


def _tfn(rng: random.Random) -> str | None:
    digits = _d(rng, 8)
    fits = [c for c in DIGITS if _weighted(digits + c, (1, 4, 3, 7, 5, 8, 6, 9, 10)) % 11 == 0]
    return f"{digits[:3]} {digits[3:6]} {digits[6:]}{fits[0]}" if fits else None


def _nhs(rng: random.Random) -> str | None:
    digits = _d(rng, 9)
    check = (11 - _weighted(digits, (10, 9, 8, 7, 6, 5, 4, 3, 2)) % 11) % 11
    return None if check == 10 else f"{digits[:3]} {digits[3:6]} {digits[6:]}{check}"


def _sin(rng: random.Random) -> str:
    full = luhn(_d(rng, 8))
    return f"{full[:3]}{(gap := rng.choice((' ', '-')))}{full[3:6]}{gap}{full[6:]}"


def _nino(rng: random.Random) -> str:
    digits = _d(rng, 6)
    letters = rng.choice("ABCEGHJKLMNPRSTWXYZ") + rng.choice("ABCEGHJKLMNPRSTWXYZ")
    letters = "AB" if letters in {"GB", "NK", "TN", "ZZ"} else letters
    return rng.choice((f"{letters}{digits}C", f"{letters} {digits[:2]} {digits[2:4]} {digits[4:]} C"))


def _nric(rng: random.Random) -> str:
    digits = _d(rng, 7)
    return "S" + digits + "JZIHGFEDCBA"[_weighted(digits, (2, 7, 6, 5, 4, 3, 2)) % 11]


def _tckn(rng: random.Random) -> str:
    digits = _d(rng, 9)
    ten = (7 * sum(map(int, digits[::2])) - sum(map(int, digits[1::2]))) % 10
    return f"{digits}{ten}{(sum(map(int, digits)) + ten) % 10}"


def _snils(rng: random.Random) -> str:
    digits = _d(rng, 9)
    check = _weighted(digits, (9, 8, 7, 6, 5, 4, 3, 2, 1)) % 101 % 100
    return f"{digits[:3]}-{digits[3:6]}-{digits[6:]} {check:02d}"


def _mod_11_10(rng: random.Random) -> str:
    digits, rest = _d(rng, 10), 10
    for digit in digits:
        rest = ((rest + int(digit)) % 10 or 10) * 2 % 11
    return digits + str((11 - rest) % 10)


def _iban(form: str) -> Number:
    def number(rng: random.Random) -> str:
        country, body = form[:2], "".join(_d(rng, 1) if c == "d" else rng.choice("ABCDEFGHKLMN") for c in form[2:])
        value = int("".join(str(int(c, 36)) for c in body + country + "00"))
        full = f"{country}{98 - value % 97:02d}{body}"
        return rng.choice((full, " ".join(full[n : n + 4] for n in range(0, len(full), 4))))

    return number


def _card(first: str, length: int, *groups: int) -> Number:
    def number(rng: random.Random) -> str:
        full = luhn(first + chars(rng, DIGITS, length - 1 - len(first)))
        if not groups or rng.randrange(2):
            return full
        starts = [sum(groups[:n]) for n in range(len(groups))]
        return " ".join(full[start : start + size] for start, size in zip(starts, groups, strict=True))

    return number


def form(*forms: str) -> Number:
    """Return a maker of numbers: # is a digit, % a digit from 2 to 9, @ a capital."""

    def number(rng: random.Random) -> str:
        swap = {"#": DIGITS, "%": DIGITS[2:], "@": "ABCDEFGHJKLMNPRSTWXYZ"}
        return "".join(rng.choice(swap.get(c, c)) for c in rng.choice(forms))

    return number


_NUMBERS: dict[str, tuple[Number, tuple[str, ...]]] = {
    "aadhaar": (_verhoeff, ("Aadhaar {}", "my aadhaar number is {}")),
    "cpf": (_cpf, ("CPF: {}", "meu CPF é {}", "cliente {} (CPF)")),
    "cnpj": (_cnpj, ("CNPJ {}", "empresa com CNPJ {}")),
    "dni": (_dni, ("DNI {}", "mi DNI es {}", "documento: {}")),
    "nie": (_nie, ("NIE: {}", "con NIE {}")),
    "codice-fiscale": (_codice, ("codice fiscale {}", "C.F. {}", "CF: {}")),
    "partita-iva": (lambda r: luhn(_d(r, 10)), ("partita IVA {}", "P.IVA: {}")),
    "nir": (_nir, ("numéro de sécurité sociale {}", "NIR : {}", "n° sécu {}")),
    "steuer-id": (_steuer, ("Steuer-ID {}", "Meine Steueridentifikationsnummer ist {}", "IdNr. {}", "tax id {}")),
    "sozialversicherung": (form("65######@###"), ("Sozialversicherungsnummer {}", "SV-Nummer: {}", "Rentenversicherungsnummer {}")),
    "steuernummer": (form("##/###/#####", "###/####/####"), ("Steuernummer {}", "St.-Nr.: {}")),
    "ausweis": (form("L%%@%%@%%#"), ("Personalausweis {}", "Ausweisnummer: {}", "Perso-Nr. {}")),
    "bsn": (_until(_bsn), ("BSN {}", "burgerservicenummer: {}")),
    "rijksregister": (_rijks, ("rijksregisternummer {}", "numéro national {}", "NISS: {}")),
    "nif-pt": (form("2########"), ("NIF {}", "contribuinte nº {}")),
    "pesel": (_pesel, ("PESEL {}", "numer PESEL: {}")),
    "nip": (form("%##-###-##-##"), ("NIP {}", "NIP: {}")),
    "personnummer": (_personnummer, ("personnummer {}", "mitt personnummer är {}")),
    "fodselsnummer": (_until(_fodsel), ("fødselsnummer {}", "fnr: {}")),
    "cpr": (form("0#0%7#-####"), ("CPR {}", "CPR-nummer: {}")),
    "hetu": (_hetu, ("henkilötunnus {}", "HETU: {}")),
    "ahv": (_ahv, ("AHV {}", "AHV-Nr. {}", "numéro AVS {}")),
    "svnr": (form("%###0#0#7#"), ("Sozialversicherungsnummer {}", "SVNR: {}")),
    "rodne": (form("8#0#0#/####"), ("rodné číslo {}", "RČ: {}")),
    "oib": (_mod_11_10, ("OIB {}", "OIB: {}")),
    "tckn": (_tckn, ("TC kimlik no {}", "TCKN: {}")),
    "snils": (_snils, ("СНИЛС {}", "SNILS: {}")),
    "inn": (form("77##########"), ("ИНН {}", "INN: {}")),
    "resident-cn": (_resident, ("身份证号 {}", "ID card {}", "身份证: {}")),
    "my-number": (form("%### #### ####"), ("マイナンバー {}", "My Number: {}", "個人番号 {}")),
    "rrn": (_rrn, ("주민등록번호 {}", "RRN: {}", "주민번호: {}")),
    "curp": (form("@E@@8#0#0%HDF@@@0#", "@O@@7#1001MJC@@@0#"), ("CURP {}", "mi CURP es {}")),
    "rfc": (form("@E@@8#0#0%@#%"), ("RFC {}", "RFC: {}")),
    "cuit": (form("20-2#######-#", "27-3#######-#"), ("CUIT {}", "CUIL: {}")),
    "rut": (_rut, ("RUT {}", "RUT: {}")),
    "cedula": (form("1.0##.###.###", "%#######"), ("cédula {}", "C.C. {}")),
    "tfn": (_until(_tfn), ("TFN {}", "tax file number {}", "my TFN is {}")),
    "medicare-au": (form("2%%# #####%# 1"), ("Medicare number {}", "Medicare card {}")),
    "ird": (form("%#-###-###", "1##-###-###"), ("IRD number {}", "IRD: {}")),
    "sin": (_sin, ("SIN {}", "my social insurance number is {}", "NAS : {}")),
    "nino": (_nino, ("National Insurance number {}", "NINO: {}", "NI number {}")),
    "utr": (form("%#########"), ("UTR {}", "unique taxpayer reference {}")),
    "nhs": (_until(_nhs), ("NHS number {}", "NHS no: {}")),
    "ein": (form("%#-#######"), ("EIN {}", "employer identification number {}", "Tax ID: {}")),
    "itin": (form("9##-7#-####"), ("ITIN {}", "ITIN: {}")),
    "mbi": (form("1@%0-@%0-@@%%"), ("Medicare ID {}", "MBI: {}")),
    "za-id": (lambda r: luhn(f"{_born(r)}{_d(r, 4)}08"), ("ID number {}", "South African ID {}")),
    "nric": (_nric, ("NRIC {}", "IC: {}")),
    "hkid": (form("@######(#)"), ("HKID {}", "HKID no. {}")),
    "mykad": (form("8#0#0#-14-####"), ("MyKad {}", "NRIC no. {}")),
    "thai": (form("1-####-#####-##-#"), ("เลขประจำตัวประชาชน {}", "Thai ID {}")),
    "emirates": (form("784-19##-#######-#"), ("Emirates ID {}", "EID: {}")),
    "il-id": (form("3########"), ("Teudat Zehut {}", "Israeli ID {}")),
    "epic": (form("@@@#######"), ("voter id {}", "EPIC no: {}")),
    "gstin": (form("27@@@@@####@1Z#"), ("GSTIN {}", "GST number: {}")),
    "ifsc": (form("50##########"), ("A/C no {}", "bank account: {}")),
    "sort-code": (form("%#-##-##"), ("sort code {}", "Sort Code: {}")),
    "passport-uk": (form("5########"), ("passport number {}", "my passport no is {}")),
    "passport-fr": (form("1#@@#####"), ("passeport n° {}", "numéro de passeport : {}")),
    "passport-es": (form("@@@######"), ("pasaporte {}", "número de pasaporte: {}")),
    "licence-uk": (form("@@@@@8%0%%%@@9@@"), ("driving licence {}", "licence number: {}")),
    "licence-fr": (form("1#########%%"), ("permis de conduire {}", "n° de permis : {}")),
    "plate-imei": (lambda r: luhn("35" + _d(r, 12)), ("IMEI {}", "IMEI: {}")),
    "vin": (form("WVWZZZ1KZ@W######", "1HGCM82633A######"), ("VIN {}", "chassis number {}")),
    "iban-at": (_iban("ATdddddddddddddddd"), ("IBAN {}", "{}")),
    "iban-be": (_iban("BEdddddddddddd"), ("IBAN: {}", "überweise an {}")),
    "iban-pt": (_iban("PTddddddddddddddddddddd"), ("{}", "IBAN {}")),
    "iban-ie": (_iban("IEaaaadddddddddddddd"), ("{}", "iban={}")),
    "iban-tr": (_iban("TRdddddddddddddddddddddd"), ("{}", "hesap {}")),
    "iban-mt": (_iban("MTaaaaddddddddddddddddddddddd"), ("{}", "to {} please")),
    "card-amex": (_card("37", 15, 4, 6, 5), ("{}", "Amex {}")),
    "card-diners": (_card("36", 14, 4, 6, 4), ("card {}", "Diners {}")),
    "card-discover": (_card("6011", 16, 4, 4, 4, 4), ("{}", "Discover card {}")),
    "card-jcb": (_card("3528", 16, 4, 4, 4, 4), ("{}", "JCB {}")),
    "card-unionpay": (_card("622126", 19, 6, 13), ("UnionPay {}", "银行卡 {}")),
    "card-maestro": (_card("6759", 16, 4, 4, 4, 4), ("Maestro {}", "carte {}")),
    "card-mir": (_card("2200", 16, 4, 4, 4, 4), ("{}", "карта {}")),
    "card-master-2": (_card("2221", 16, 4, 4, 4, 4), ("{}", "Mastercard {}")),
    "phone-it": (form("3%# ### ####", "+39 3%# #######", "06 %### ####"), ("telefono {}", "cell. {}", "chiamami al {}")),
    "phone-nl": (form("06-########", "06 ## ## ## ##", "+31 6 ########", "020-#######"), ("tel. {}", "mobiel {}", "bel me op {}")),
    "phone-be": (form("0470 ## ## ##", "+32 470 ## ## ##", "02 ### ## ##"), ("gsm {}", "tél. {}", "telefoon {}")),
    "phone-ch": (form("079 %## ## ##", "+41 79 %## ## ##", "044 %## ## ##"), ("Natel {}", "Tel. {}", "téléphone {}")),
    "phone-at": (form("0664 #######", "+43 664 #######", "01 %######"), ("Handy {}", "Telefonnummer: {}")),
    "phone-pl": (form("5## ### ###", "+48 5## ### ###", "22 %## ## ##"), ("telefon {}", "tel. kom. {}", "numer telefonu: {}")),
    "phone-pt": (form("91# ### ###", "+351 91# ### ###", "21 %## ## ##"), ("telemóvel {}", "contacto: {}")),
    "phone-se": (form("070-### ## ##", "+46 70 ### ## ##", "08-%## ### ##"), ("telefon {}", "mobil: {}", "ring mig på {}")),
    "phone-no": (form("9## ## ###", "+47 9## ## ###"), ("telefon {}", "mobil {}")),
    "phone-dk": (form("2# ## ## ##", "+45 2# ## ## ##"), ("telefon {}", "mobil: {}")),
    "phone-fi": (form("040 ### ####", "+358 40 ### ####"), ("puhelin {}", "puh. {}")),
    "phone-ie": (form("087 ### ####", "+353 87 ### ####"), ("phone {}", "ring me on {}")),
    "phone-au": (form("04## ### ###", "+61 4## ### ###", "(02) 9### ####"), ("mobile {}", "call {}")),
    "phone-nz": (form("021 ### ####", "+64 21 ### ####"), ("mobile {}", "txt me on {}")),
    "phone-ca": (form("(416) %##-####", "514-%##-####", "+1 604 %## ####"), ("phone {}", "tél. {}")),
    "phone-mx": (form("55 %### ####", "+52 55 %### ####", "044 55 %### ####"), ("celular {}", "mi número es {}")),
    "phone-ar": (form("11 %###-####", "+54 9 11 %###-####"), ("celular {}", "llamame al {}")),
    "phone-cl": (form("9 %### ####", "+56 9 %### ####"), ("teléfono {}", "fono: {}")),
    "phone-co": (form("310 ### ####", "+57 310 ### ####"), ("celular {}", "cel: {}")),
    "phone-kr": (form("010-%###-####", "+82 10-%###-####"), ("전화 {}", "휴대폰: {}", "phone {}")),
    "phone-tr": (form("0532 ### ## ##", "+90 532 ### ## ##"), ("telefon {}", "cep: {}")),
    "phone-ru": (form("8 (916) ###-##-##", "+7 916 ###-##-##", "8916#######"), ("телефон {}", "тел. {}", "мобильный: {}")),
    "phone-ua": (form("067 ### ## ##", "+380 67 ### ## ##"), ("телефон {}", "моб. {}")),
    "phone-il": (form("054-###-####", "+972 54-###-####"), ("phone {}", "נייד {}")),
    "phone-ae": (form("050 ### ####", "+971 50 ### ####"), ("mobile {}", "هاتف {}")),
    "phone-sg": (form("9### ####", "+65 9### ####"), ("phone {}", "HP: {}")),
    "phone-hk": (form("9### ####", "+852 9### ####"), ("phone {}", "電話 {}")),
    "phone-za": (form("082 ### ####", "+27 82 ### ####"), ("cell {}", "phone: {}")),
    "phone-ng": (form("0803 ### ####", "+234 803 ### ####"), ("phone {}", "call me on {}")),
    "phone-ext": (form("415-%##-#### ext. 12", "(415) %##-#### x204"), ("phone {}", "reach me at {}")),
    "fax": (form("030 %####### ", "+49 30 %#######"), ("Fax {}", "Telefax: {}")),
    "signature": (form("+1 (415) %##-####", "+44 7911 ######"), ("Anna Smith\nHead of Sales\n{}", "M: {}", "T {} | E")),
}  # fmt: skip
_FIELDS = ("{}", "{}", "customer note: {}", "{}, thanks!", "10:14:22 INFO form {}", '"{}"', "- {}\n- paid")


def _family(name: str) -> Family:
    number, texts = _NUMBERS[name]

    def make(rng: random.Random) -> Made:
        needle = number(rng).strip()
        return Made(rng.choice(_FIELDS).replace("{}", rng.choice(texts).replace("{}", needle)), (needle,))

    return Family(name, "personal", make)


NATIONS: tuple[Family, ...] = tuple(_family(name) for name in _NUMBERS)
