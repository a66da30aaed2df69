"""Keys of services for the seventh and eighth sets, in their published forms, none of them in `vendors.py`.

{n32}: 32 letters and digits; h hex, d digits, U capitals and digits, l small letters and digits, w with _ and -; {uuid}.
"""

SERVICES = {
    "adafruit": "aio_{n28}", "airtable-pat": "pat{n14}.{h64}", "airbyte": "airbyte_{n40}", "aiven": "AVNS_{w19}", "aikido": "AIK_CI_{n64}",
    "alchemy": "alcht_{n30}", "anyscale": "aph0_{w43}", "apify": "apify_api_{n36}", "atlassian-cloud": "ATCTT3xFfGN0{w170}",
    "axiom": "xaat-{uuid}", "axiom-personal": "xapt-{uuid}", "baidu": "bce-v3/ALTAK-{n21}/{h40}", "beamer": "b_{w43}=",
    "bedrock-short": "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t{n200}", "bitbucket": "ATBB{n32}", "browserbase": "bb_live_{w27}",
    "calcom": "cal_live_{h32}", "cerebras": "csk-{l48}", "checkly": "cu_{h32}", "circleci-project": "CCIPRJ_{n22}_{h40}", "clerk": "sk_test_{n42}",
    "clickhouse-cloud": "4b1d{n38}", "cloudflare-user": "cfut_{n40}{h8}", "cloudflare-account": "cfat_{n40}{h8}", "cratesio": "cio{n32}",
    "defined": "dnkey-{w26}-{w52}", "deno": "ddp_{n36}", "deno-org": "ddo_{n36}", "deepseek": "sk-{h32}", "digitalocean-oauth": "doo_v1_{h64}",
    "digitalocean-refresh": "dor_v1_{h64}", "docker-org": "dckr_oat_{w32}", "doppler-service": "dp.st.prd.{n42}", "doppler-cli": "dp.ct.{n43}",
    "easypost-test": "EZTK{n54}", "e2b": "e2b_{h40}", "elastic-cloud": "essu_{n120}", "fal": "{uuid}:{h32}", "firecrawl": "fc-{h32}",
    "fireworks": "fw_{n24}", "flutterwave-live": "FLWSECK-{h32}-X", "flutterwave-public": "FLWPUBK_TEST-{h32}-X", "gitbook": "gb_api_{n40}",
    "github-oauth": "gho_{n36}", "github-user": "ghu_{n36}", "github-refresh": "ghr_{n76}", "gitlab-deploy": "gldt-{w20}", "gitlab-runner-new": "glrt-{w20}",
    "gitlab-trigger": "glptt-{h40}", "gitlab-build": "glcbt-64_{w20}", "gitlab-feed": "glft-{w20}", "gitlab-mail": "glimt-{w25}",
    "gitlab-agent": "glagent-{w50}", "gitlab-oauth": "gloas-{h64}", "gitlab-scim": "glsoat-{w20}", "gitlab-flag": "glffct-{w20}", "gitlab-routable": "glpat-{w27}.01.{l9}",
    "gocardless": "live_{w40}", "grafana-cloud": "glc_eyJ{n80}", "grafana-old": "eyJrIjoi{n70}", "harness-service": "sat.{w22}.{h24}.{n20}",
    "heroku-uuid": "HRKU-{uuid}", "helicone": "sk-helicone-{l7}-{l7}-{l7}-{l7}", "honeycomb-ingest": "hcaik_01{l56}", "hubspot": "pat-eu1-{uuid}",
    "huggingface-org": "api_org_{n34}", "inngest": "signkey-prod-{h64}", "intra42": "s-s4t2ud-{h64}", "intercom": "dG9rOj{n54}=",
    "jfrog-reference": "cmVmdGtu{n56}", "jina": "jina_{h32}{w28}", "jsr": "jsrp_{n36}", "langsmith-service": "lsv2_sk_{h32}_{h10}",
    "launchdarkly": "sdk-{uuid}", "launchdarkly-api": "api-{uuid}", "linear-oauth": "lin_oauth_{h64}", "llamacloud": "llx-{n48}", "lob": "live_{h35}",
    "logfire": "pylf_v1_eu_{n43}", "mailgun-public": "pubkey-{h32}", "mem0": "m0-{n40}", "mercadopago": "APP_USR-{d16}-{d6}-{h32}-{d9}", "midtrans": "Mid-server-{w24}",
    "modal": "as-{n22}", "mollie": "live_{n30}", "netbird": "nbp_{n36}", "netlify-build": "nfb_{n36}", "newrelic-insert": "NRII-{w32}", "newrelic-browser": "NRJS-{h19}",
    "ngrok": "2{n26}_{n21}", "notion-old": "secret_{n43}", "nuget-key": "oy2{l43}", "openai-service": "sk-svcacct-{w74}T3BlbkFJ{w74}", "openai-admin": "sk-admin-{w58}T3BlbkFJ{w58}",
    "openai-session": "sess-{n40}", "paddle": "pdl_live_apikey_01{l24}_{n22}_{n3}", "paypal": "access_token$production${l16}${h32}", "paystack": "sk_live_{h40}",
    "pinecone": "pcsk_{n6}_{n60}", "plaid-sandbox": "access-sandbox-{uuid}", "planetscale-password": "pscale_pw_{w43}", "planetscale-oauth": "pscale_oauth_{w43}",
    "polar": "polar_oat_{n43}", "portkey": "pk-live-{n32}", "posthog-project": "phc_{n43}", "prefect-service": "pnb_{n36}", "privateai": "pplx_{l32}",
    "pulumi-token": "pul-{h40}", "razorpay": "rzp_live_{n14}", "readwise": "rw_{n48}", "render": "rnd_{n32}", "retool": "retool_01{l24}", "rootly": "rootly_{h64}",
    "rubygems-key": "rubygems_{h48}", "runpod": "rpa_{U46}", "sanity": "sk{n178}", "scaleway": "SCW{U17}", "semgrep": "semgrep_{h64}", "sentry-org": "sntrys_eyJ{n90}_{w43}",
    "sendgrid-like": "SG.{w22}.{w43}", "settlemint": "sm_pat_{n16}", "shippo-test": "shippo_test_{h40}", "shopify-custom": "shpca_{h32}", "shopify-app": "shppa_{h32}",
    "shopify-shared": "shpss_{h32}", "slack-app": "xapp-1-A{U10}-{d13}-{h64}", "slack-refresh": "xoxe-1-{n146}", "slack-config": "xoxe.xoxp-1-{n163}", "slack-legacy": "xoxs-{d11}-{d11}-{d11}-{h10}",
    "slack-workflow": "https://hooks.slack.com/workflows/T{U8}/A{U8}/{d18}/{n24}", "snyk": "snyk_uat.{h8}.{w120}", "socket": "sktsec_{n48}_api", "sonar-project": "sqp_{h40}", "sonar-global": "sqa_{h40}",
    "square-secret": "sq0csp-{w43}", "statsig": "secret-{n42}", "stripe-restricted": "rk_live_{n99}", "stripe-test": "sk_test_{n99}", "stripe-org": "sk_org_live_{n60}",
    "supabase-new": "sb_secret_{w22}_{n8}", "tailscale-client": "tskey-client-{n16}-{n32}", "tavily": "tvly-dev-{n32}", "teams-hook": "https://acme.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/{h32}/{uuid}",
    "tencent": "AKID{n32}", "terraform-cloud": "{n14}.atlasv1.{w67}", "together": "tgp_v1_{w43}", "trigger": "tr_prod_{n20}", "turso": "eyJhbGciOiJFZERTQSJ9.{n60}.{w86}",
    "twilio-flex": "AC{h32}:{h32}", "typesense": "tsk_{n32}", "unkey": "unkey_{n22}", "upstash": "AX{n50}gAAA=", "valtown": "vtwn_{n30}", "vault-batch": "hvb.{w140}", "vault-recovery": "hvr.{w90}",
    "vault-old": "s.{n24}", "vercel-blob": "vercel_blob_rw_{n16}_{n32}", "vercel-gateway": "vck_{n56}", "vk": "vk1.a.{w200}", "voyage": "pa-{w43}", "wakatime": "waka_{uuid}", "wandb-new": "wandb_v1_{w77}",
    "xata": "xau_{n40}", "xendit": "xnd_production_{n48}", "yandex-oauth": "y0_{w55}", "yandex-iam": "t1.9eu{w180}.{w86}", "zapier-hook": "https://hooks.zapier.com/hooks/catch/{d7}/{l7}/", "zuplo": "zpka_{h32}_{h8}",
    "azure-ad": "{n3}7Q~{w34}", "azure-batch": "{n76}+ABa{n6}==", "azure-openai": "{n32}JQQJ99B{U5}AC{n31}", "discord-hook-old": "https://discordapp.com/api/webhooks/{d18}/{w68}",
    "facebook-page": "EAAM{n140}", "google-refresh": "1//0{w60}", "google-maps": "AIzaSy{w33}", "ibm": "ApiKey-{uuid}", "kubeconfig": "eyJhbGciOiJSUzI1NiIsImtpZCI6{n30}.eyJ{n120}.{w86}",
    "line-notify": "LN{n41}", "nvidia-ngc": "nvapi-{w60}", "ssh-pass": "-----BEGIN OPENSSH PRIVATE KEY-----\\n{n64}\\n{n64}\\n-----END OPENSSH PRIVATE KEY-----",
    "putty": "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n{n44}=\nPrivate-MAC: {h64}", "jwk": '"kty":"EC","crv":"P-256","d":"{w43}"',
}  # fmt: skip
BESIDE = (
    "{}", "I pasted {} into the form.", 'x = "{}"', "GET /v1/a?k={}&b=1", "[{}]", "out={} ok", "use `{}`", "1: {}", "({});", "<{}>",
)  # fmt: skip
