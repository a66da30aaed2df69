r"""Secrets with a known mark or the name of a secret: keys of services, passwords, tokens, cookies, private keys.

The marks are those that the services publish for secret scanning. A value with a secret's name needs less evidence: a
password has anything other than letters; any other secret has 12 characters, letters and digits, and 3 bits of entropy
a character (detect-secrets requires 3.0 of hex, gitleaks 3.5 after a name).
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from functools import lru_cache

from flywheel.stages.ingest.patterns.kinds import GIVEN, Find, Kind, entropy, whole

_NAMES = (
    r"(?:api|access|secret|private|signing|encryption|account|master|auth)[_-]?key|client[_-]?secret|secret"
    r"|[a-z_-]{0,40}token|passw(?:or)?d|pwd|passphrase|passcode|credentials?"
)
_START = r"(?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z]))"  # of a word, also in camelCase
_FIELD = re.compile(rf"(?:.{{0,64}}{_START})?(?i:{_NAMES}|authorization|(?:set-)?cookies?)\Z", re.DOTALL)
_PASSWORD = re.compile(r"(?i)(?:.*[^a-z])?(?:passw|pwd)|.*(?:Passw|Pwd)", re.DOTALL)
_COOKIE = re.compile(r"(?i)(?:set-)?cookies?\Z")

# By service: OpenAI and those that copy it, Groq, xAI, Perplexity, Replicate, Hugging Face, NVIDIA, Tavily, LangSmith,
# Fireworks, Pinecone, E2B; AWS; Google; Azure; GitHub; GitLab; Slack; Stripe; Twilio; SendGrid; Shopify; Square; Brevo;
# npm, PyPI, Docker; DigitalOcean, Databricks, Doppler, Vault, Grafana, Linear, Notion, Figma, Atlassian, Supabase,
# PlanetScale, New Relic, Postman, Sentry, Telegram, Discord (webhooks); age; JWT and JWE.
_MARKS = r"""
    sk-[A-Za-z0-9_-]{16,} | gsk_[A-Za-z0-9]{20,} | xai-[A-Za-z0-9]{20,} | pplx-[A-Za-z0-9]{20,} | r8_[A-Za-z0-9]{30,}
  | hf_[A-Za-z0-9]{30,} | nvapi-[A-Za-z0-9_-]{20,} | tvly-[A-Za-z0-9_-]{20,} | lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}
  | fw_[A-Za-z0-9]{20,} | pcsk_[A-Za-z0-9_]{20,} | e2b_[A-Za-z0-9]{30,}
  | A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}
  | AIza[0-9A-Za-z_-]{35} | ya29\.[A-Za-z0-9_-]{20,} | GOCSPX-[A-Za-z0-9_-]{20,} | 1//0[A-Za-z0-9_-]{30,}
  | [A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}
  | gh[oprsu]_[A-Za-z0-9]{20,}
  | github_pat_[A-Za-z0-9_]{20,} | gl(?:pat|dt|rt|ptt|cbt|soat|ft|imt|agent)-[A-Za-z0-9_-]{20,}
  | xox[a-z]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{20,}
  | hooks\.slack\.com/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{16,}
  | discord(?:app)?\.com/api/webhooks/[0-9]{15,}/[A-Za-z0-9_-]{40,}
  | [srp]k_(?:live|test)_[A-Za-z0-9]{16,} | whsec_[A-Za-z0-9+/]{20,} | SK[0-9a-f]{32}
  | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
  | shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32} | sq0[a-z]{3}-[A-Za-z0-9_-]{22,} | xkeysib-[A-Za-z0-9-]{40,}
  | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{40,} | dckr_[a-z]{3}_[A-Za-z0-9_-]{20,}
  | do[opr]_v1_[0-9a-f]{40,} | dapi[0-9a-f]{32} | dp\.[a-z]{2,6}\.[A-Za-z0-9]{40,} | hv[sbr]\.[A-Za-z0-9_-]{24,}
  | gl(?:c|sa)_[A-Za-z0-9_+/=]{30,} | lin_(?:api|oauth)_[A-Za-z0-9]{32,} | ntn_[A-Za-z0-9]{40,}
  | figd_[A-Za-z0-9_-]{30,}
  | ATATT3[A-Za-z0-9_=-]{40,} | sb[ps]_[A-Za-z0-9_]{36,} | pscale_[a-z]+_[A-Za-z0-9_.-]{32,} | NRAK-[A-Z0-9]{27}
  | PMAK-[A-Za-z0-9-]{40,} | sntry[su]_[A-Za-z0-9+/=_]{40,} | [0-9]{8,10}:AA[A-Za-z0-9_-]{33}
  | AGE-SECRET-KEY-1[A-Z0-9]{50,}
  | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}
"""
_MARKED = rf"""
  -----BEGIN\ [A-Z ]{{0,30}}PRIVATE\ KEY(?:\ BLOCK)?-----.*?(?:-----END\ [A-Z ]{{0,30}}PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
| (?<![A-Za-z0-9])(?:{_MARKS})
| (?i:bearer)\ +(?P<bearer>[A-Za-z0-9._~+/=-]{{16,}})
| (?i:basic)\ (?P<basic>[A-Za-z0-9+/]{{8,}}={{0,2}})
| ://[^/\s:@<>"\\]{{0,64}}:(?P<login>[^/\s:@<>"\\]{{3,128}})(?=@)
| [?&;](?i:sig|(?:x-[a-z]{{2,6}}-)?signature)=(?P<signed>[A-Za-z0-9%._~+/-]{{16,}})
"""
_NAMED = rf"""
  (?<![A-Za-z0-9])(?i:(?:set-)?cookie)["'\\]{{0,4}}\ {{0,3}}[:=]\s{{0,3}}["'\\\[]{{0,4}}
  (?P<cookie>[^\s"'\\;=,]{{1,64}}=[^\s"'\\;]{{8,4096}}(?:;[^;\r\n"'\\]{{0,4096}})*)
| {_START}(?i:{_NAMES})["'\\]{{0,4}}\ {{0,3}}[:=]\s{{0,3}}["'\\]{{0,4}}
  (?P<value>[^\s"'\\,;<>&(){{}}\[\]]{{6,512}})
"""
_MARKS_TRIGGER = (
    r"sk-|[srp]k_(?:live|test)_|gh[oprsu]_|github_pat_|gl(?:pat|[dr]t|ptt|cbt|soat|ft|imt|agent)-"
    r"|A(?:KIA|SIA|BIA|CCA)[0-9A-Z]|xox[a-z]-|AIza|hf_|npm_"
    r"|pypi-|SG\.|eyJ|-----BEGIN|://[^/:@<>\"]*:[^/:@<>\"]*@|gsk_|xai-|pplx-|r8_|nvapi-|tvly-|lsv2_"
    r"|fw_|pcsk_|e2b_|ya29\."
    r"|GOCSPX-|1//0|[0-9]Q~|xapp-|hooks\.slack|/api/webhooks/|whsec_|SK[0-9a-f]{6}"
    r"|shp[a-z]{2}_|sq0[a-z]{3}-|xkeysib-|dckr_|do[opr]_v1_|dapi[0-9a-f]|dp\.[a-z]{2,6}\.|hv[sbr]\.|gl(?:c|sa)_|lin_"
    r"|ntn_|figd_|ATATT3|sb[ps]_|pscale_|NRAK-|PMAK-|sntry[su]_|[0-9]{8}:AA|AGE-SECRET|(?i:bearer) "
    r"|(?i:basic) [A-Za-z0-9+/]{8}"
    r"|[?&;](?i:sig|signature|x-[a-z]{2,6}-signature)="
)
_NAMES_TRIGGER = (
    r"(?i:key|secret|token|passw(?:or)?d|pwd|pass(?:phrase|code)|credentials?|authorization|cookies?)"
    r"[\"'\\]{0,8} {0,3}[:=]"
)
_PARTS = ("bearer", "basic", "login", "signed")
_PASSWORD_LENGTH, _SECRET_LENGTH, _COOKIE_LENGTH = 6, 12, 8
_SECRET_BITS = 3.0
# What code writes instead of the secret: a path, a variable, a member.
_ELSEWHERE = re.compile(r"(?:~|\.{0,2})/[\w./-]*|[$%]\{?[A-Za-z_]\w*[}%]?|[A-Za-z_]+(?:\.[A-Za-z_]+)+")


def is_secret_field(name: str, value: str) -> bool:
    """Whether a field's value is a secret by the field's name."""
    return _names_secret(name) and not GIVEN.search(value) and _fits(name, value)


@lru_cache(maxsize=1 << 12)
def _names_secret(name: str) -> bool:
    return _FIELD.match(name) is not None


def _fits(name: str, value: str) -> bool:
    """Whether a value with a secret's name is one: a password other than a plain word, or a random string."""
    word = value.rstrip(".!?:")
    if _ELSEWHERE.fullmatch(word) or _FIELD.match(word):
        return False
    digits, letters = sum(c.isdigit() for c in word), sum(c.isalpha() for c in word)
    if _COOKIE.match(name):
        return len(word) >= _COOKIE_LENGTH and "=" in word
    if _PASSWORD.match(name):
        return len(word) >= _PASSWORD_LENGTH and letters < len(word)
    return len(word) >= _SECRET_LENGTH and bool(digits and letters) and entropy(word) >= _SECRET_BITS


def _marked(match: re.Match[str], _name: str) -> Find | None:
    for part in _PARTS:
        if match[part] is not None:
            find = Find(match[part], *match.span(part))
            return find if part != "basic" or _is_login(match[part]) else None
    hyphenated_word = match[0].startswith("sk-") and not any(c.isdigit() for c in match[0])
    return None if hyphenated_word else whole(match, match[0])


def _named(match: re.Match[str], _name: str) -> Find | None:
    """Return the value after a name, unless code calls a function there."""
    if match["cookie"] is not None:
        return Find(match["cookie"], *match.span("cookie"))
    name = match[0][: match.start("value") - match.start()].rstrip("\"'\\ \t\r\n:=")
    called = match.string[match.end() : match.end() + 1] == "("
    return Find(match["value"], *match.span("value")) if not called and _fits(name, match["value"]) else None


def _is_login(text: str) -> bool:
    """Whether base64 holds `user:password` (RFC 7617)."""
    try:
        return ":" in b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False


MARKED = Kind("secret", _MARKS_TRIGGER, _MARKED, _marked, words=True)
NAMED = Kind("secret", _NAMES_TRIGGER, _NAMED, _named, words=True)
