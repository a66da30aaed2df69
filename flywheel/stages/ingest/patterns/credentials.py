r"""Secrets with a known mark: keys of services, private keys, tokens that are sent as they are, hashes of passwords.

The marks are those that the services publish for secret scanning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flywheel.stages.ingest.patterns.entropy import is_key_part, is_typed
from flywheel.stages.ingest.patterns.hints import KEYED, MARKS
from flywheel.stages.ingest.patterns.kinds import Find, Kind, Scan, whole
from flywheel.stages.ingest.patterns.structure import basic_password

# By service: OpenAI and those that copy it, Groq, xAI, Perplexity, Replicate, Hugging Face, NVIDIA, Tavily, LangSmith,
# Fireworks, Pinecone, E2B; AWS; Google; Azure; GitHub; GitLab; Slack; Stripe; Twilio; SendGrid; Shopify; Square; Brevo;
# npm, PyPI, Docker; DigitalOcean, Databricks, Doppler, Vault, Grafana, Linear, Notion, Figma, Atlassian, Supabase,
# PlanetScale, New Relic, Postman, Sentry, Telegram, Discord; age; JWT and JWE. Then: sessions of AWS, Bedrock, Azure
# storage and DevOps, Mailgun, Mailchimp, 1Password, Adobe, Airtable, Alibaba, Artifactory, Asana, Buildkite, CircleCI,
# Cloudflare, Clojars, Contentful, Dropbox, Duffel, Dynatrace, EasyPost, Facebook, Flutterwave, Fly, Frame.io, Harness,
# Heroku, Infracost, MaxMind, Meta, Neon, Netlify, Octopus, OpenShift, Plaid, PostHog, Prefect, Pulumi, ReadMe, Resend,
# RubyGems, Scalingo, SettleMint, Shippo, Sonar, Sourcegraph, Tailscale, Terraform, Typeform, Vercel, Yandex, Mapbox,
# webhooks of Teams; crypt and bcrypt.
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
  | IQoJb3JpZ2lu[A-Za-z0-9+/=_%-]{60,} | (?:FwoGZXIvYXdz|FQoGZXIvYXdz|AQoDYXdz|AQoEXAMPLE)[A-Za-z0-9+/=_%-]{60,}
  | ABSK[A-Za-z0-9+/]{60,}={0,2} | bedrock-api-key-[A-Za-z0-9+/=]{20,}
  | [A-Za-z0-9]{70,80}AZDO[A-Za-z0-9]{4,8} | [A-Za-z0-9+/]{40,52}(?:\+ASt|\+AMC|\+ARm|APIM|ACDb)[A-Za-z0-9+/]{5,8}={0,2}
  | (?:pub)?key-[0-9a-f]{32} | [0-9a-f]{32}-us[0-9]{1,2} | [0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![0-9a-f-])
  | A3-[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}(?:-[A-Z0-9]{5})? | ops_eyJ[A-Za-z0-9+/=_-]{60,}
  | p8e-[A-Za-z0-9]{32} | pat[A-Za-z0-9]{14}\.[0-9a-f]{64} | LTAI[A-Za-z0-9]{12,24} | AKCp[A-Za-z0-9]{60,} | cmVmd[A-Za-z0-9]{59}
  | [12]/[0-9]{15,17}(?:/[0-9]{15,17})?:[0-9a-f]{32} | bkua_[0-9a-f]{40} | CCIPAT_[A-Za-z0-9_]{40,} | CFPAT-[A-Za-z0-9_-]{40,}
  | v1\.0-[0-9a-f]{24}-[0-9a-f]{100,} | CLOJARS_[A-Za-z0-9]{50,} | sl\.[A-Za-z0-9_-]{100,} | duffel_(?:test|live)_[A-Za-z0-9_=-]{40,}
  | dt0[a-z][0-9]{2}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64} | EZ[AT]K[A-Za-z0-9]{54} | EAA[A-Za-z0-9]{80,} | EAAA[A-Za-z0-9_-]{22,}
  | FLW(?:SEC|PUB)K(?:_TEST)?-[A-Za-z0-9]{12,}(?:-X)? | f[om][12][ar]?_[A-Za-z0-9+/=_-]{40,} | fio-u-[A-Za-z0-9_=-]{60,}
  | [ps]at\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20} | HRKU-[A-Za-z0-9_-]{36,} | ico-[A-Za-z0-9]{32}
  | [A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk | napi_[a-z0-9]{60,} | nf[pcu]_[A-Za-z0-9]{36,} | API-[A-Z0-9]{26,} | sha256~[A-Za-z0-9_-]{43}
  | access-(?:sandbox|development|production)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} | ph[xcas]_[A-Za-z0-9]{40,} | pn[ub]_[A-Za-z0-9]{36}
  | pul-[0-9a-f]{40} | rdme_[a-z0-9]{70} | re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,} | rubygems_[0-9a-f]{48} | tk-us-[A-Za-z0-9_-]{48}
  | sm_[aps]at_[A-Za-z0-9]{16} | shippo_(?:live|test)_[0-9a-f]{40} | sq[aup]_[0-9a-f]{40} | sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}
  | tskey-[a-z]{2,12}-[A-Za-z0-9-]{20,} | [A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,} | tfp_[A-Za-z0-9_.=-]{40,} | vc[aipkr]_[A-Za-z0-9]{50,}
  | AQVN[A-Za-z0-9_-]{35,38} | t1\.[A-Za-z0-9_-]+={0,2}\.[A-Za-z0-9_-]{86} | [sp]k\.eyJ[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{20,}
  | sk_[0-9a-f]{48} | GR1348941[A-Za-z0-9_-]{20,} | gl(?:ffct|oas)-[A-Za-z0-9_-]{20,} | api_org_[A-Za-z]{34} | key_[0-9a-f]{32} | sntrys_[A-Za-z0-9+/=_-]{60,}
  | [MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,40} | [0-9]{15,16}\|[A-Za-z0-9_-]{27,40} | NR(?:JS|II)-[A-Za-z0-9-]{19,32}
  | [A-Za-z0-9-]{1,60}\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{60,}
  | outlook\.office\.com/webhook/[A-Za-z0-9@/-]{60,} | AAAA[A-Za-z0-9_-]{7}:APA91b[A-Za-z0-9_-]{100,} | dckr_oat_[A-Za-z0-9_-]{20,} | jina_[A-Za-z0-9]{40,}
  | csk-[a-z0-9]{40,} | retool_[a-z0-9]{20,} | CCIP(?:AT|RJ)_[A-Za-z0-9_]{40,} | api-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} | fc-[0-9a-f]{32} | cu_[0-9a-f]{32} | rootly_[0-9a-f]{64} | semgrep_[0-9a-f]{64} | waka_[0-9a-f-]{36} | xaat-[0-9a-f-]{36}
  | zpka_[0-9a-z_]{32,} | sess-[A-Za-z0-9]{40} | cf[aku]t_[A-Za-z0-9]{40,} | ATBB[A-Za-z0-9]{28,} | AVNS_[A-Za-z0-9_-]{16,} | rpa_[A-Z0-9]{40,}
  | AC[0-9a-f]{32}:[0-9a-f]{32} | hooks\.slack\.com/(?:workflows|triggers)/T[A-Z0-9]+/[A-Za-z0-9/]{20,} | hooks\.zapier\.com/hooks/catch/[0-9]+/[A-Za-z0-9]+
  | hc[ai][a-z]?k_[a-z0-9]{50,} | y[0-3]_[A-Za-z0-9_-]{50,} | vk1\.a\.[A-Za-z0-9_-]{80,}
  | (?:[A-Za-z][A-Za-z0-9]{1,11}[_-]){0,2}(?:[a-z]{0,8}key|[a-z]{0,3}sk|rk|pat|tok(?:en)?|secret|live|production|sdk|oauth)[_-](?:[A-Za-z0-9]{2,6}[_-]){0,2}(?P<tail>[A-Za-z0-9_-]{20,})
  | (?:[a-z]{2,8}_(?:test|prod|sandbox|dev)_|a[ks]-)(?P<tail2>[A-Za-z0-9]{20,})
  | dataset-[A-Za-z0-9]{24} | dvc_(?:server|mobile|client)_[A-Za-z0-9_]{32,} | GOOG[0-9][A-Z][A-Z0-9]{20,57} | [sp]k-lf-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}
  | os_v2_(?:app|org)_[a-z0-9]{50,} | KEY01[A-F0-9A-Z]{30}_[A-Za-z0-9]{22} | 1000\.[0-9a-f]{32}\.[0-9a-f]{32} | nango_sec_[0-9a-f]{36} | depot_[a-z]+_[0-9a-f]{48}
  | aio_[A-Za-z0-9]{28} | xa[ap]t-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} | s-s4t2[a-z]{2}-[0-9a-f]{64}
  | APP_USR-[0-9]{12,}-[0-9]{6}-[0-9a-f]{32}-[0-9]{6,} | oy2[a-z0-9]{43} | access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[0-9a-f]{32}
  | pplx_[A-Za-z0-9]{32,} | rzp_(?:live|test)_[A-Za-z0-9]{14} | SCW[A-Z0-9]{17} | ApiKey-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12} | sb_(?:secret|publishable)_[A-Za-z0-9_-]{22,}
  | (?P<typed>[a-z][a-z0-9]{1,9}(?:_[a-z]{2,9}){0,2}_)(?P<tail3>[A-Za-z0-9]{28,})(?![A-Za-z0-9_-])
  | xprv[A-Za-z0-9]{100,}
  | xox[abpe]\.xox[bp]-[0-9]-[A-Z0-9]{100,} | SharedAccessKey=[A-Za-z0-9+/]{40,}={0,2} | AccountKey=[A-Za-z0-9+/]{40,}={0,2}
"""
_MARK = re.compile(rf"(?<![A-Za-z0-9])(?:{_MARKS})", re.VERBOSE)
_RUN = re.compile(r"[^\s\"'<>\\`]{14,}")
_DIGIT = re.compile(r"[0-9]|A(?:KIA|SIA|BIA|CCA)[A-Z]{16}(?![A-Za-z])")  # only those of AWS may have no digit
_SENT = r"""
  -----BEGIN\ [A-Z ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----.*?(?:-----END\ [A-Z ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
| PuTTY-User-Key-File-[0-9].{0,8192}?Private-MAC:\ ?[0-9a-f]{40,}
| (?i:bearer)\ +(?:-a\ +)?(?P<bearer>[A-Za-z0-9._~+/=-]{16,})
| (?i:basic)\ (?P<basic>[A-Za-z0-9+/]{8,}={0,2})
| \$(?:1|2[abxy]?|5|6|7|y|apr1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-[a-z0-9]+)?)\$[A-Za-z0-9./=,$+-]{20,}
| [?&;](?i:sig|appid|code|(?:x-[a-z]{2,6}-)?signature)=(?P<signed>[A-Za-z0-9%._~+/-]{16,})
"""
_SENT_TRIGGER = (
    r"-----BEGIN|PuTTY-User|(?i:bearer) |(?i:basic) [A-Za-z0-9+/]{8}|[?&;](?i:sig|appid|code|signature|x-[a-z]{2,6}-signature)="
    r"|\$(?:[1567y]|2[abxy]?|apr1|argon[a-z0-9]*|scrypt|pbkdf2[a-z0-9-]*)\$"
)
_MARKS_TRIGGER = (
    r"sk-|[srp]k_(?:live|test)_|gh[oprsu]_|github_pat_|gl(?:pat|[dr]t|ptt|cbt|soat|ft|imt|agent|ffct|oas)-"
    r"|A(?:KIA|SIA|BIA|CCA)[0-9A-Z]|xox[a-z][-.]|AIza|hf_|npm_|pypi-|SG\.|eyJ|gsk_|xai-|pplx-|r8_|nvapi-|tvly-|lsv2_"
    r"|fw_|pcsk_|e2b_|ya29\.|GOCSPX-|1//0[A-Za-z0-9_-]{9}|[0-9]Q~|xapp-|hooks\.slack|/api/webhooks/|whsec_|SK[0-9a-f]{3}"
    r"|shp[a-z]{2}_|sq0[a-z]{3}-|xkeysib-|dckr_|do[opr]_v1_|dapi[0-9a-f]|dp\.[a-z]|hv[sbr]\.|gl(?:c|sa)_|lin_[ao]"
    r"|ntn_|figd_|ATATT3|sb[ps]_|pscale_|NRAK-|PMAK-|sntry[su]_|[0-9]:AA|AGE-SECRET"
    r"|IQoJb3|F[wQ]oGZX|AQoDYX|ABSK|bedrock-api|AZDO|\+A(?:St|MC|Rm)|APIM|ACDb|key-[0-9a-f]{3}|[0-9a-f]{8}-us[0-9]"
    r"|A3-[A-Z0-9]{6}-|ops_eyJ|p8e-|pat[A-Za-z0-9]{14}\.|LTAI|AKCp|cmVmd"
    r"|bkua_|CCIPAT|CFPAT|v1\.0-|CLOJARS|sl\.[A-Za-z0-9]{3}|duffel_|dt0[a-z]"
    r"|EZ[AT]K|EAA[A-Za-z0-9]{9}|FLW|f[om][12][ar]?_|fio-u|[ps]at\.[A-Za-z0-9_-]{22}\.|HRKU|ico-|_mmk|napi_|nf[pcu]_|API-[A-Z0-9]{3}|sha256~|access-[sdp]|ph[xcas]_"
    r"|pn[ub]_|pul-|rdme_|re_[A-Za-z0-9]{8}_|rubygems_|tk-us-|sm_[aps]at_|shippo_|sq[aup]_|sgp_|tskey-|\.atlasv1|tfp_|vc[aipkr]_"
    r"|AQVN|t1\.|sk_[0-9a-f]{3}|GR134|api_org|key_[0-9a-f]{3}|NR(?:JS|II)|office\.com|APA91b|jina_|SharedAccess|AccountKey"
    r"|dataset-[A-Za-z0-9]{4}|dvc_|GOOG[0-9]|[sp]k-lf|os_v2_|KEY01|1000\.[0-9a-f]|nango_|depot_|aio_|xa[ap]t-|s-s4t2|APP_USR|[^a-z]a[ks]-[A-Za-z0-9]{6}|oy2[a-z0-9]{6}"
    r"|access_token\$|pplx|rzp_|SCW|ApiKey-|sb_|xprv"
    rf"|{KEYED}|csk-|retool_|api-[0-9a-f]{{4}}|CCIPRJ|fc-[0-9a-f]{{3}}|cu_[0-9a-f]{{3}}|rootly_|semgrep_|waka_|xaat-|zpka_|sess-|cf[aku]t_|ATBB|AVNS_|rpa_|AC[0-9a-f]{{3}}|hooks|hc[ai][a-z]?k_|y[0-3]_|vk1"
)
# Of keys that have no mark but their parts.
_PARTED = (
    r"\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{9}|[0-9a-f]-[0-9a-f]{8}-[0-9a-f]{8}[^0-9a-f-]|[0-9]{9}\||[0-9]{9}:[0-9a-f]{9}"
)
_WORDLIKE = ("sk-", "sl.", "pat", "API-", "ico-", "re_")
_BEFORE_KEYS = ("SharedAccessKey=", "AccountKey=")
_PARTS = ("bearer", "basic", "signed")


def _marked(text: str, _name: str) -> Iterator[Find]:
    """Yield keys, looked for in runs of characters that are long enough for one."""
    for run in _RUN.finditer(text):
        if _DIGIT.search(text, run.start(), run.end()):
            for match in _MARK.finditer(text, run.start(), run.end()):
                yield from _key(match)


def _key(match: re.Match[str]) -> Iterator[Find]:
    text = match[0]
    tail = match["tail"] or match["tail2"]
    if (tail and not is_key_part(tail)) or (match["tail3"] and not is_typed(match["typed"], match["tail3"])):
        return
    named = next((name for name in _BEFORE_KEYS if text.startswith(name)), "")
    hyphenated_word = text.startswith(_WORDLIKE) and not any(c.isdigit() for c in text)
    if not hyphenated_word:
        yield Find(text[len(named) :], match.start() + len(named), match.end())


def _sent(match: re.Match[str], _name: str) -> Find | None:
    for part in _PARTS:
        if match[part] is not None:
            find = Find(match[part], *match.span(part))
            if part != "basic":
                return find
            password = basic_password(match[part])
            return find._replace(value=password) if password else None
    return whole(match, match[0])


MARKED = Scan("secret", _MARKS_TRIGGER, _marked, hint=MARKS)
PARTED = Scan("secret", _PARTED, _marked)
SENT = Kind("secret", _SENT_TRIGGER, _SENT, _sent, hint=MARKS)
