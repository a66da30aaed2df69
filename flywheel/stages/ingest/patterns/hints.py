"""What all payloads are searched for first: digits, the marks of services' keys, words that announce something.

polars does it, in one pass for all kinds that share a hint; only where it finds something the kinds' triggers are
looked for. Its engine makes an automaton at each call, state by state as a text needs them: an expression with many
words costs more than the search. Words that need no surroundings are therefore parts, which Aho and Corasick's
algorithm finds in a third of the time, and expressions have what is left.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hint:
    """What the pieces of payloads are searched for: parts, in small letters, and an expression."""

    parts: tuple[str, ...] = ()
    pattern: str = ""


# What is before a word in JSON: no letter, or the letter of an escape, as where a word begins a line.
START = r"(?:[^a-z]|\\[bfnrt])"
START_OF_SHORT = r"(?:[^a-z0-9]|\\[bfnrt])"

# Words that announce, in small letters: parts of names, and whole words. A login is followed by a user, then a
# password.
PARTS = {
    "password": r"passw|passphrase|passcode|passkey|storepass|keypass|kennwort|contraseñ|contrasen|mots? de passe"
    r"|senha|wachtwoord"
    r"|hasł|haslo|lösenord|парол|密码|密碼|パスワード|비밀번호|securestring|decrypt|encrypt|unprotect|tacacs|snmp",
    "login": r"credential|zugangsdaten|anmeld|getconnection|createuser|database\(",
    "key": r"secret|token|(?:api|access|private|auth)[ _-]?key|jwt|hmac|bearer|authoriz|clave|schlüssel"
    r"|schluessel|freischalt|lizenz",
}
WHOLE = {
    "password": r"pw|pass|psk|mdp|rp|kdf|crypt|xauth|radius|community|wlan|wi-?fi",
    "login": r"log[ _-]?[io]n|sign[ _-]?in|auth|authenticate|creds|connect|create_user",
    "key": r"key|pat|clé",
}
FLAGS = "[kpPwNaAX]|pw|pass"
NEAR = (
    rf"(?i:{'|'.join(PARTS.values())}|{START_OF_SHORT}(?:{'|'.join(WHOLE.values())})[^a-z0-9])".replace(
        "token", "token[^s_]"
    )
    + "| -(?:[kPwNAX]|pw)[ =]"
)

DIGITS = Hint(pattern=r"[0-9](?:[ .()/:-]{0,3}[0-9]){5}")
KEYED = r"(?:key|sk|rk|pat|tok|token|secret|live|production|sdk|oauth|test|prod|sandbox|dev)[_-][A-Za-z_-]*[0-9]"
MARKS = Hint(
    pattern=(
        r"sk[-_]|k_live_|k_test_|gh[oprsu]_|github_pat|gl[a-z]+-|A[KSBC][IC]A|xox|AIza|hf_|npm_|pypi-|SG\.|eyJ"
        r"|gsk_|xai-|pplx-|r8_|nvapi|tvly|lsv2|fw_|pcsk|e2b_"
        r"|ya29|GOCSPX|1//0|Q~|xapp|hooks\.slack|/webhooks/|whsec_|SK[0-9a-f]|shp[a-z]+_|sq0|xkeysib|dckr|_v1_"
        r"|dapi|dp\.|hv[sbr]\.|glc_|glsa_|lin_|ntn_|figd_"
        r"|ATATT|sb[ps]_|pscale|NRAK|PMAK|sntry|:AA|AGE-S|IQoJ|F[wQ]oG|AQoD|ABSK|bedrock|AZDO|\+A[SMR]|APIM"
        r"|ACDb|key[-_][0-9a-f]|-us[0-9]|[0-9a-f]-[0-9a-f]{8}-"
        r"|A3-|ops_|p8e-|pat[A-Z0-9.]|pat[a-z]*[A-Z0-9]|LTAI|AKCp|cmVm|[0-9]:[0-9a-f]|bkua|CCIP|CFPAT|v1\.0"
        r"|CLOJ|sl\.|duffel|dt0|EZ[AT]K|EAA|FLW|f[om][12]|fio-|sat\."
        r"|HRKU|ico-|_mmk|napi_|nf[pcu]_|API-|sha256~|access-|ph[xcas]_|pn[ub]_|pul-|rdme|re_|rubyg|tk-us|sm_"
        r"|shippo|sq[aup]_|sgp_|tskey|atlasv1|tfp_|vc[aipkr]_"
        r"|AQVN|t1\.|GR134|api_org|\.[A-Za-z0-9_-]{6,7}\.|[0-9]\||NR[JI]|office\.com|APA91|jina_|SharedA"
        r"|AccountK|-----B|(?i:bearer|basic) |[?&;](?i:sig|x-|appid|code)|\$[1-7yaps]"
        rf"|{KEYED}|csk-|retool_|api-[0-9a-f]|fc-|cu_|rootly_|semgrep_|waka_|xaat-|zpka_|sess-|cf[aku]t_|ATBB"
        rf"|AVNS_|rpa_|AC[0-9a-f][0-9a-f]|hooks\.|hc[ai]|y[0-3]_|vk1|PuTTY"
    )
)

_PARTS = (
    # passwords and keys, in the languages of users
    "@ passw assw passphrase passcode passkey storepass keypass kennwort contrase senha wachtwoord hasł"
    " haslo lösenord парол 密码 密碼 パスワード 비밀번호 securestring decrypt encrypt unprotect tacacs snmp pwd pswd"
    " psk mdp scode código einmalc geheimzahl secret jwt hmac bearer authoriz clave lüssel luessel"
    " freischalt lizenz credential creds zugangsdaten anmeld apikey api_key api-key accesskey access_key"
    " access-key authkey auth_key auth-key cookie dsn fernet identified hashpw _hash( crypt( :{plain"
    " :{clear :{sha :{ssha :{crypt :{md5 setuser masterauth !!str <<< pdo btoa client( database("
    # commands and services that take them
    " connect getconnection createuser create_user login authenticate radius community wlan wifi wi-fi"
    " curl mysql mariadb mycli ftp> twine hydra freerdp winrm crackmap certutil useradd usermod adduser"
    " redis- ldap smbclient sqlcmd mongo chpasswd sudo cryptsetup openssl lftp htpasswd ipmitool mosquitto"
    " plink pscp psexec networkcred rpcclient rabbitmqctl wpa_ azure devops visualstudio private wallet"
    " seed mnemonic recovery ethereum"
    # numbers of people
    " social ssn 身份 公民 national insur nino steuer idnr documento secu sécu codice cadastro aadha आधार"
    " uidai burgerservice sofi pesel nummer マイナンバー 個人 마이 주민 taxpay identit identif citizen resident"
    " passport reisepass passeport pasaporte passap paspoort 护照 パスポート licen hrerschein permis income"
    " medicare curp routing konto account st.nr st.-nr versicherung ausweis perso-nr fødsel cpr henkil"
    " hetu rodné rijksreg contribu kimlik снилс инн паспорт cedula cédula emirates teudat mykad เลข imei"
    " chassis"
    # telephones
    " phone telef teléf téléph mobil móvel móvil movel movil handy durchwahl celular whatsapp msisdn"
    " portable 電話 携帯 手机 电话 手機 फ़ोन फोन मोबाइल 전화 휴대폰 тел reach erreichbar contact landline hotline callback"
)
_PHRASES = (
    "mot de passe",
    "mots de passe",
    "api key",
    "access key",
    "auth key",
    "tan: ",
    "log in",
    "sign in",
    " -u ",
    " -u=",
    "-user ",
    "-user=",
    " -a ",
    " -auth",
    " --auth",
    "identify ",
    "ftp ",
    "bcp ",
    "nxc ",
    "rar ",
    "net use",
    "ni number",
    "permanent acc",
    "health card",
    "transit n",
    "epic no",
    "call me",
    "call us",
    "call him",
    "call her",
    "call them",
    "call back",
    "called ",
    "ring me",
    "ring us",
    "text me",
    "ruf ",
    "number is",
    "dial ",
)
# Words that are something else within others.
_ALONE = (
    r"pin|cv[vc]2?|sas|tin|dni|nif|nie|nir|cpf|bsn|rrn|dl|pan|itin|ein|mbi|nhs|sin|tfn|rfc|ird|vin|tel|tél|fax|sms|cell"
)
_ALONE_AND_SHORT = (
    r"aba|rtn|cnpj|cif|rut|cuit|cuil|c\.c|ahv|avs|svnr|sv-nr|rč|oib|tckn|snils|inn|utr|nas|abn|nric|hkid"
    r"|eid|nip|regon|niss|insz|ppsn?|cf|c\.f|fnr"
    r"|rp|kdf|crypt|pat|clé|log[ _-]?[io]n|sign[ _-]?in"
)
# Marks are apart: in text full of code one search for marks and words has too many states for the engine, and takes four
# times as long.
WORDS = Hint(
    (*_PARTS.split(), *_PHRASES),
    rf"(?i:{START}(?:(?:{_ALONE})[^a-z]|code|tax|gst|7z|(?:un)?zip |(?:thai|israeli|voter|id) (?:id|number))"
    rf"|{START_OF_SHORT}(?:{_ALONE_AND_SHORT})[^a-z0-9]|(?:passe?|pw|key|otp|eth|iva)[^a-z]|token[^s]"
    rf"|auth[^o]|shared.key|my.?number|sort.?code"
    r"|personal.?id|[\[({<_ ](?:dot|punkt|punto)[\])}>_ ]|[\[({<]\s?(?:at|ät)\s?[\])}>])"
    r"| -(?:[kPwNAX]|pw)[ =]|\" +(?:\*|\\\\+\")|\]:[0-9]+ |:(?:543[0-9]|6432|\*):",
)
