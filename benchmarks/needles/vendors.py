"""Keys in the published forms of services, bare in a text."""

from __future__ import annotations

import base64
import json
import random
import re
import string

from .made import ALNUM, DIGITS, HEX, Family, Made, chars

_UPPER = string.ascii_uppercase + DIGITS
_LOWER = string.ascii_lowercase + DIGITS
_CLASSES = {
    "h": HEX,
    "n": ALNUM,
    "d": DIGITS,
    "U": _UPPER,
    "l": _LOWER,
    "w": ALNUM + "_-",
    "B": string.ascii_uppercase + "234567",
    "H": HEX.upper(),
}
_PART = re.compile(r"\{([a-zA-Z])(\d+)\}")

# {n32}: 32 letters and digits; h hex, d digits, U capitals and digits, l small letters and digits, w with _ and -.
_FORMS = {
    "openai": "sk-{n20}T3BlbkFJ{n20}", "openai-project": "sk-proj-{w74}T3BlbkFJ{n74}", "anthropic": "sk-ant-api03-{w93}AA",
    "openrouter": "sk-or-v1-{h64}", "groq": "gsk_{n52}", "xai": "xai-{n80}", "perplexity": "pplx-{n48}", "replicate": "r8_{n37}",
    "huggingface": "hf_{n34}", "nvidia": "nvapi-{w64}", "aws-key-id": "AKIA{B16}", "aws-temporary-id": "ASIA{B16}",
    "aws-session": "IQoJb3JpZ2luX2Vj{n400}", "aws-session-old": "FwoGZXIvYXdzE{n300}", "google": "AIza{w35}", "google-oauth": "ya29.{w120}",
    "google-secret": "GOCSPX-{w28}", "azure-secret": "{n3}8Q~{n34}", "azure-devops": "{n75}AZDO{n5}", "github": "ghp_{n36}", "github-server": "ghs_{n36}",
    "github-fine": "github_pat_{n22}_{n59}", "gitlab": "glpat-{w20}", "gitlab-runner": "GR1348941{w20}", "slack-bot": "xoxb-{d12}-{d12}-{n24}",
    "slack-user": "xoxp-{d11}-{d11}-{d12}-{h32}", "slack-hook": "https://hooks.slack.com/services/T{U8}/B{U10}/{n24}",
    "discord-hook": "https://discord.com/api/webhooks/{d18}/{w68}", "discord-bot": "M{n23}.{n6}.{w38}", "stripe": "sk_live_{n24}", "stripe-hook": "whsec_{n32}",
    "twilio": "SK{h32}", "sendgrid": "SG.{w22}.{w43}", "mailgun": "key-{h32}", "mailchimp": "{h32}-us14", "shopify": "shpat_{h32}", "square": "sq0atp-{w22}",
    "brevo": "xkeysib-{h64}-{n16}", "npm": "npm_{n36}", "pypi": "pypi-AgEIcHlwaS5vcmc{w120}", "docker": "dckr_pat_{w27}", "digitalocean": "dop_v1_{h64}",
    "databricks": "dapi{h32}", "doppler": "dp.pt.{n43}", "vault": "hvs.{w90}", "grafana": "glsa_{n32}_{h8}", "linear": "lin_api_{n40}", "notion": "ntn_{d11}{n35}",
    "figma": "figd_{w40}", "atlassian": "ATATT3xFfGF0{w180}", "supabase": "sbp_{h40}", "planetscale": "pscale_tkn_{w43}", "newrelic": "NRAK-{U27}",
    "postman": "PMAK-{h24}-{h34}", "sentry": "sntryu_{h64}", "telegram": "{d10}:AA{w33}", "langsmith": "lsv2_pt_{h32}_{h10}", "1password": "A3-{U6}-{U11}-{U5}-{U5}-{U5}",
    "adobe": "p8e-{l32}", "alibaba": "LTAI{n20}", "artifactory": "AKCp{n69}", "bedrock": "ABSK{n130}=", "cloudflare": "v1.0-{h24}-{h146}", "clojars": "CLOJARS_{l60}",
    "dropbox": "sl.{w135}", "duffel": "duffel_live_{w43}", "dynatrace": "dt0c01.{U24}.{U64}", "easypost": "EZAK{n54}", "facebook": "EAAC{n120}",
    "flutterwave": "FLWSECK_TEST-{h32}-X", "fly": "fo1_{w43}", "frameio": "fio-u-{w64}", "harness": "pat.{w22}.{h24}.{n20}", "heroku": "HRKU-AA{w58}", "infracost": "ico-{n32}",
    "maxmind": "{n6}_{n29}_mmk", "octopus": "API-{U26}", "openshift": "sha256~{w43}", "plaid": "access-production-{h8}-{h4}-{h4}-{h4}-{h12}", "prefect": "pnu_{n36}",
    "readme": "rdme_{l70}", "scalingo": "tk-us-{w48}", "shippo": "shippo_live_{h40}", "sonar": "squ_{h40}", "sourcegraph": "sgp_{h40}", "square-new": "EAAA{w60}",
    "typeform": "tfp_{w59}", "yandex": "AQVN{w36}", "mapbox": "sk.eyJ{n80}.{w22}", "age": "AGE-SECRET-KEY-1{U58}", "tailscale": "tskey-auth-{n16}-{n32}",
    "confluent": "cflt{n60}", "buildkite": "bkua_{h40}", "circleci": "CCIPAT_{n22}_{h40}", "netlify": "nfp_{n36}", "vercel": "vcp_{n56}", "cohere-like": "co_{n40}",
    "neon": "napi_{l64}", "resend": "re_{n8}_{n24}", "posthog": "phx_{n43}", "elevenlabs": "sk_{h48}", "langfuse": "sk-lf-{h8}-{h4}-{h4}-{h4}-{h12}", "asana": "2/{d16}/{d16}:{h32}",
    "contentful": "CFPAT-{w43}", "rapid": "{n10}msh{n15}p1{n6}jsn{n12}", "okta": "00{w40}",
}  # fmt: skip
_BESIDE = ("{}", "I used {} yesterday.", "see '{}' in the file", "out: {}\ndone", "({})", "x={}&y=1")
_NEEDS_WORD = {"cohere-like", "okta", "rapid", "confluent"}  # no service marks these; they are known by their place


def _form(form: str) -> object:
    def make(rng: random.Random) -> Made:
        needle = _PART.sub(lambda m: chars(rng, _CLASSES[m[1]], int(m[2])), form)
        return Made(rng.choice(_BESIDE).format(needle), (needle,))

    return make


def _jwt(rng: random.Random) -> Made:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": chars(rng, DIGITS, 8), "exp": 1790850000}]
    head, body = (base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts)
    needle = f"{head}.{body}.{chars(rng, ALNUM + '-_', 43)}"
    return Made(rng.choice(_BESIDE).format(needle), (needle,))


def _pem(rng: random.Random) -> Made:
    name = rng.choice(("RSA ", "", "EC ", "OPENSSH ", "ENCRYPTED "))
    lines = [chars(rng, ALNUM + "+/", 64) for _ in range(rng.randint(3, 9))]
    text = f"-----BEGIN {name}PRIVATE KEY-----\n" + "\n".join(lines) + f"\n-----END {name}PRIVATE KEY-----"
    return Made(f"cat id\n{text}\n$", tuple(lines))


def _azure_devops_old(rng: random.Random) -> Made:
    needle = chars(rng, string.ascii_lowercase + "234567", 52)
    return Made(f"git clone https://dev.azure.com/x; az devops login PAT {needle}", (needle,))


def _ethereum(rng: random.Random) -> Made:
    needle = "0x" + chars(rng, HEX, 64)
    return Made(f"{rng.choice(('eth private key', 'wallet key:', 'PRIVATE_KEY='))} {needle}", (needle,))


VENDORS: tuple[Family, ...] = (
    *(Family(name, "vendor", _form(form)) for name, form in _FORMS.items() if name not in _NEEDS_WORD),  # type: ignore[arg-type]
    Family("jwt", "vendor", _jwt),
    Family("pem", "vendor", _pem),
    Family("azure-devops-old", "vendor", _azure_devops_old),
    Family("ethereum", "vendor", _ethereum),
)
