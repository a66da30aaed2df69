"""What redaction must leave alone: identifiers, numbers and code as tools and loggers write them."""

from __future__ import annotations

import base64
import hashlib
import random
import uuid

from .made import ALNUM, DIGITS, HEX, WORDS, chars

_CODE = """
def fetch(self, path: str, *, token: str | None = None, timeout: float = 30.0) -> Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    password = getpass.getpass("Password: ")
    secret = os.environ.get("API_SECRET")
    return self.session.get(self.base_url + path, headers=headers, timeout=timeout)
class Tokenizer(Base):
    pad_token = "<pad>"
    eos_token_id: int = 2
    def encode(self, text, max_tokens=512, key=lambda x: x.key): return self.vocab[text]
if user.password != hashed_password: raise AuthError(f"wrong password for {user.name!r}")
SELECT password_hash, token_count, secret_santa FROM users WHERE key = 'name' AND id = 4711;
const key = Object.keys(map).find((k) => map[k] === value); // primary key
parser.add_argument("--password", help="the password to use", required=True, default=None)
export PATH="$HOME/bin:$PATH" PASSWORD="$DB_PASSWORD" TOKEN="${TOKEN:-}" SECRET="$(cat /run/secrets/x)"
kubectl get secret db-credentials -o yaml ; git log --author=anna -p src/token.py ; mkdir -p build/x ; grep -u x
password: ${DB_PASSWORD}   api_key: <your-api-key>   token: null   secret: "***"   key: value
The password must have 12 characters. Your token has expired; the password is required, the secret is optional.
Please reset your password with the link. The key is under the mat, the token is invalid, password is incorrect.
Das Passwort ist falsch. Das Kennwort wurde geändert. Der Schlüssel liegt unter der Matte.
<input type="password" name="password" placeholder="Password" required> <label for="password">Password</label>
"""


def harmless(rng: random.Random, lines: int) -> list[str]:
    """Return lines of logs and code without a secret and without personal data."""
    return [_LINES[rng.randrange(len(_LINES))](rng) for _ in range(lines)]


def _sha(rng: random.Random) -> str:
    return hashlib.sha256(rng.randbytes(8)).hexdigest()


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _isbn(rng: random.Random) -> str:
    digits = "978" + chars(rng, DIGITS, 9)
    check = -sum(int(d) * (1, 3)[n % 2] for n, d in enumerate(digits)) % 10
    text = digits + str(check)
    return f"{text[:3]}-{text[3]}-{text[4:6]}-{text[6:12]}-{text[12]}" if rng.randrange(2) else text


def _version(rng: random.Random) -> str:
    return ".".join(str(rng.randint(0, 30)) for _ in range(4))


def _decoded(rng: random.Random) -> str:
    return base64.b64encode(" ".join(rng.choices(WORDS, k=9)).encode()).decode()


_LINES = (
    lambda r: f"commit {_sha(r)[:40]} merged into main at 2026-{r.randint(1, 12):02d}-{r.randint(1, 28):02d} 10:{r.randint(10, 59)}:31",
    lambda r: f"sha256:{_sha(r)}  dist/{r.choice(WORDS)}-{r.randint(0, 9)}.{r.randint(0, 40)}.{r.randint(0, 20)}.tar.gz",
    lambda r: f"request_id={_uuid(r)} trace_id={chars(r, HEX, 32)} span_id={chars(r, HEX, 16)} took {r.randint(1, 900)}ms status=200",
    lambda r: f'{{"order_id": "#W{chars(r, DIGITS, 7)}", "item": "{chars(r, DIGITS, 10)}", "price": {r.randint(1, 999)}.{r.randint(10, 99)}, "qty": {r.randint(1, 9)}}}',
    lambda r: f"order {chars(r, DIGITS, 3)}-{chars(r, DIGITS, 7)}-{chars(r, DIGITS, 7)} total $1,{r.randint(100, 999)}.{r.randint(10, 99)} shipped",
    lambda r: f"ISBN {_isbn(r)} in stock: {r.randint(0, 99)}",
    lambda r: f"Upgraded {r.choice(WORDS)} from {_version(r)} to {_version(r)}",
    lambda r: f"see section {_version(r)} of the manual, table {r.randint(1, 9)}.{r.randint(1, 20)}",
    lambda r: f'AssemblyVersion("{_version(r)}") Chrome/{r.randint(80, 140)}.0.{r.randint(1000, 6999)}.{r.randint(1, 250)} Safari/537.36',
    lambda r: f"{r.choice(WORDS)}=={_version(r)} {r.choice(WORDS)}>={_version(r)}",
    lambda r: f"call_{chars(r, ALNUM, 24)} toolu_01{chars(r, ALNUM, 22)} chatcmpl-{chars(r, ALNUM, 29)} resp_{chars(r, HEX, 48)}",
    lambda r: f"epoch {r.randint(1, 99)} step {r.randint(100, 99999)} loss {r.random():.4f} lr {r.random() / 1e4:.3e} tokens {r.randint(10**5, 10**9)} ts={1790850000 + r.randint(0, 10**6)}",
    lambda r: f"0x{chars(r, HEX, 12)} in {r.choice(WORDS)}_{r.choice(WORDS)} (/usr/lib/lib{r.choice(WORDS)}.so.{r.randint(1, 9)}+0x{chars(r, HEX, 4)})",
    lambda r: f'etag: "{chars(r, HEX, 32)}" content-length: {r.randint(100, 99999)} x-request-id: {_uuid(r)}',
    lambda r: f"{r.randint(1, 999)} passed, {r.randint(0, 9)} failed in {r.randint(1, 99)}.{r.randint(10, 99)}s ({r.randint(0, 100)}%)",
    lambda r: f"message: {_decoded(r)}",
    lambda r: f"10:{r.randint(10, 59)}:{r.randint(10, 59)}.{r.randint(100, 999)} INFO [{r.choice(WORDS)}-{r.randint(1, 9)}] {r.choice(WORDS)} at {r.choice(WORDS)}.{r.choice(WORDS)} line {r.randint(1, 999)}",
    lambda r: f"flight HAT{r.randint(100, 999)} {r.choice(('JFK', 'SFO', 'ORD'))} reservation {chars(r, 'ABCDEFGHJKLMNPQRSTUVWXYZ' + DIGITS, 6)} tracking 1Z{chars(r, 'ABCDEFGHJ' + DIGITS, 16)}",
    lambda r: f"00000{chars(r, HEX, 3)}0  {' '.join(chars(r, HEX, 2) for _ in range(16))}",
    lambda r: f"{r.randint(10**8, 10**9)} {r.randint(10**10, 10**11)} {r.randint(10**6, 10**7)} rows; id={r.randint(10**9, 10**10)} user_id={r.randint(10**9, 10**10)}",
    lambda r: f"#{chars(r, HEX, 6)} rgb({r.randint(0, 255)}, {r.randint(0, 255)}, {r.randint(0, 255)}) {r.randint(1, 9)}px {r.random():.6f},{-r.random() * 90:.6f}",
    lambda r: f"{chars(r, HEX, 40)} refs/heads/{r.choice(WORDS)} integrity sha512-{base64.b64encode(r.randbytes(64)).decode()}",
    lambda r: f"pad_token_id={r.randint(0, 9)}, max_tokens={r.randint(1, 4096)}, prompt_tokens: {r.randint(1, 4096)}, key: {r.choice(WORDS)}, keys={r.randint(1, 9)}",
    lambda r: r.choice(_CODE.strip().split("\n")),
)  # fmt: skip
