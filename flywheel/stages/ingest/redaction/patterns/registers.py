"""How registers call the numbers that they give people, and whether a text is one: python-stdnum has their rules."""

from __future__ import annotations

import tomllib
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path

_SHORT = 6  # letters of an abbreviation

# Registers whose numbers chance meets less than once in fifty times: two check digits, or a date and one.
STRICT = """
    ar.cbu ar.cuit az.voen be.bis be.nn be.eid br.cnpj br.cpf ca.bc_phn ch.ssn cn.ric de.idnr ec.ci ee.ik es.ccc
    fi.hetu fr.nif fr.nir gb.upn gh.tin gr.amka in_.gstin is_.kennitala it.codicefiscale it.iva kr.rrn lt.asmens
    mx.curp nl.onderwijsnummer no.fodselsnummer nz.bankaccount ro.cnp ru.inn se.personnummer si.emso tr.tckimlik
    uy.rut za.idnr
    """.split()  # noqa: SIM905 - a list of words reads as one


# Abbreviations of more than one thing (a primary key, a test case, continuous integration): a number must pass a check.
AMBIGUOUS = frozenset(
    """
    AFM BIS CC CCC CF CI CR CUI EDB EPIC IC IK INN KT MF MST NI NIC NID NIF NIK NIP NIT NN PAN PGN PHN PIB PIN PK
    PNF PNR PPS PVN RFC RIC RIF RRN RUC RUN RUT SIN SPI TC TIN TRN UNP UPN UTR VAT VID VKN VNR
    """.split()  # noqa: SIM905 - a list of words reads as one
) | {"id number", "virtual id"}


@cache
def registers() -> dict[str, tuple[str, ...]]:
    """Return by name the registers whose numbers it announces; abbreviations as written, other names in small letters."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    by_name: dict[str, tuple[str, ...]] = {}
    for register, names in table.items():
        for name in names.split(", "):
            key = name if is_short(name) else name.lower()
            by_name[key] = (*by_name.get(key, ()), register)
    return by_name


def is_short(name: str) -> bool:
    """Whether a name is an abbreviation, which counts in capitals only."""
    return len(name) <= _SHORT and " " not in name and name[:2].isupper()


@lru_cache(maxsize=1 << 12)
def is_given(register: str, number: str) -> bool:
    """Whether a register could have given a number."""
    try:
        return bool(import_module(f"stdnum.{register}").is_valid(number))
    except (KeyError, ValueError, IndexError, TypeError):  # a rule that fails on another kind of number
        return False
