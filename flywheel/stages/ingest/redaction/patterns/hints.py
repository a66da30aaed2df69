"""What all payloads are searched for first: digits, the marks of services' keys, words that announce something.

polars does it, in one pass for all kinds that share a hint; only where it finds something the kinds' triggers are
looked for. Its engine makes an automaton at each call, state by state as a text needs them: an expression with many
words costs more than the search. Words that need no surroundings are therefore parts, which Aho and Corasick's
algorithm finds in a third of the time, and expressions have what is left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flywheel.stages.ingest.redaction.patterns.registers import is_short, registers
from flywheel.stages.ingest.redaction.patterns.services import forms


@dataclass(frozen=True)
class Hint:
    """What the pieces of payloads are searched for: parts, in small letters, and an expression.

    With `twice`, those in which it is are searched for the triggers of its kinds before whole payloads are.
    """

    parts: tuple[str, ...] = ()
    pattern: str = ""
    twice: bool = False


# What is before a word in JSON: no letter, or the letter of an escape, as where a word begins a line.
START = r"(?:[^a-z]|\\[bfnrt])"
START_OF_SHORT = r"(?:[^a-z0-9]|\\[bfnrt])"

# Words that announce, in small letters: parts of names, and whole words. A login is followed by a user, then a
# password.
PARTS = {
    "password": r"passw|passphrase|passcode|passkey|storepass|keypass|kennwort|contraseñ|contrasen|mots? de passe"
    r"|senha|wachtwoord"
    r"|hasł|haslo|lösenord|парол|şifre|sifre|parola|jelsz|heslo|salasana|adgangskode|passord|rootpw|密码|密碼|パスワード|비밀번호|securestring|decrypt|encrypt|unprotect|tacacs|snmp",
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

DIGITS = Hint(pattern=r"[0-9](?:[ .()/:-]{0,3}[0-9]){5}", twice=True)
JOINED = Hint(pattern=r"[.:-][0-9A-Fa-f]{0,4}[.:-]", twice=True)  # parts of addresses of the network
# The marks of services' keys and of what is sent. Literals alone, which the engine finds several times faster than an
# expression, so in all ways to write them; what a mark needs around it is in the triggers of the kinds.
_SENT = (
    "eyJ Q~ -us -----B earer EARER asic ASIC sig= Sig= SIG= ignature= x- X- appid AppId APPID code= Code= $1 $2 $3 $4 $5"
    " $6 $7 $y $a $p $s as- ak- PuTTY"
)
_BEFORE_KEYS = "key sk rk pat tok token secret live production sdk oauth test prod sandbox dev"
_LEAST_OF_MARK = 5  # characters: fewer are found more often, more cost more
_MARKS = {
    *_SENT.split(),
    *(form.mark[: 2 * _LEAST_OF_MARK if form.mark[:_LEAST_OF_MARK].isalpha() else _LEAST_OF_MARK] for form in forms()),
    *(word + sign for word in _BEFORE_KEYS.split() for sign in "_-"),
}
MARKS = Hint(
    pattern="|".join(re.escape(m) for m in sorted(_MARKS) if not any(o in m for o in _MARKS - {m})), twice=True
)
KEYED = rf"(?:{_BEFORE_KEYS.replace(' ', '|')})[_-][A-Za-z_-]*[0-9]"

_PARTS = (
    # passwords and keys, in the languages of users
    "@ passw assw passphrase passcode passkey storepass keypass kennwort contrase senha wachtwoord hasł"
    " haslo lösenord парол şifre sifre parola jelsz heslo salasana adgangskode passord rootpw codice 密码 密碼 パスワード 비밀번호 securestring decrypt encrypt unprotect tacacs snmp pwd pswd"
    " psk mdp scode código einmalc geheimzahl secret jwt hmac bearer authoriz clave lüssel luessel"
    " freischalt lizenz credential creds zugangsdaten zugangscode anmeld apikey api_key api-key accesskey access_key"
    " access-key authkey auth_key auth-key cookie dsn fernet identified hashpw _hash( crypt( :{plain"
    " :{clear :{sha :{ssha :{crypt :{md5 setuser masterauth !!str <<< pdo btoa client( database( postgresql( remote( remotesecure( userid= bundle_ kubeadm usages radtest"
    " ugfzc3dvcmq6 cfemail email-protection arobase solana amqp_ sessid sessionid arroba chiocciola"
    " wifi: lpa:1 unb+ isa* isa| hnsha: nlauth signature> execute_kw execute( rotect fndload 口令 暗証 비번 पासवर्ड كلمة رمز סיסמ รหัสผ่าน khẩu"
    " sicherheitsfrage pregunta respuesta réponse 계좌 口座 खाता rachun konta corrente الجوال هاتف موبايل puk @ok @ybl semilla recupero récup リカバリ 助记词 니모닉 連絡先 연락처 türcode puerta lockbox 認証コード 確認コード 验证码 校验码 인증"
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
    " kenteken rejestrac immatric tessera patient medical utente rijbewijs conduc habilita gesundheitsk tarjeta carteira vitale jazdy"
    " körkort førerkort kørekort ajokort dvla driver driving personnr fahrgestell bastidor telaio บัตรประชาชน clabe cellula cellphone chiama"
    " dzwoni wa.me chassis assurance assicura verzeker beneficiary foreigner patente arzt kranken 등록 면허 여권"
    " _plate -plate seplate plaka plaque matríc matric targa cidad ciudad cittad nacional national nazional segur securit elector voter holder medicaid fiscal kennzeich isiku asmens dowód"
    " الهوية القومي الوطني cước नागरिकता নম্বর identità dowod matičn паспорт 在留 身分 osobist osobní member"
    # telephones
    " phone telef teléf téléph mobil móvel móvil movel movil handy durchwahl celular whatsapp msisdn"
    " portable 電話 携帯 手机 电话 手機 फ़ोन फोन मोबाइल 전화 휴대폰 тел reach erreich contact landline hotline callback llámame"
    " llamame appelez joignable rückruf nummer natel mobiel τηλέφ κινητ telefax número"
)
_PHRASES = (
    "mot de passe",
    "mots de passe",
    "api key",
    "access key",
    "auth key",
    "tan: ",
    " tan ",
    "tiecode",
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
    "key content",
    "sqlplus",
    "kinit",
    "hwaddr",
    "acct",
    "bssid",
    "hardware addr",
    " /p:",
    "swift",
    "@tcp(",
    "@unix(",
    "user(",
    "clave ",
    "ni number",
    "permanent acc",
    "health card",
    "transit n",
    "epic no",
    "ian id",
    "ican id",
    "yan id",
    "ani id",
    "aqi id",
    "orean id",
    "nese id",
    "british id",
    "irish id",
    "nish id",
    "polish id",
    "turkish id",
    "swedish id",
    "ghana card",
    "kra pin",
    "travel doc",
    "vehicle reg",
    "verification number",
    "call me",
    "call us",
    "call him",
    "call her",
    "call them",
    "call back",
    "liga para",
    "ligar para",
    "ligue para",
    'ת\\"ז',
    "health plan",
    "my ic ",
    "add-mask",
    "/magic",
    "/invite",
    "/verify",
    "/confirm",
    "/activate",
    "/reset",
    "called ",
    "ring me",
    "ring us",
    "text me",
    "ruf ",
    "number is",
    "dial ",
    "bel me ",
    "ring mig ",
    "numeric p",
    "<(echo",
    "<(printf",
    "r.č",
    " plate",  # of a template there are many
    "secret question",
    "security question",
    "question secr",
    "question de s",
    "-upw ",
    "-opw ",
    " exp ",
    " imp ",
    "bundle config",
    "true\\t",
    "true\\\\t",
    "false\\t/",
    " on >",
    " off >",
    "resetpass",
)
# Words that are something else within others.
_ALONE = r"pin|cv[vc]2?|sas|tin|dni|nif|nie|nir|cpf|bsn|rrn|dl|pan|itin|ein|mbi|nhs|sin|tfn|rfc|ird|vin|mac|bic|tel|tél|fax|sms|cell"
_ALONE_AND_SHORT = (
    r"ww|aba|rtn|cnpj|cif|rut|cuit|cuil|c\.c|ahv|avs|svnr|sv-nr|rč|oib|tckn|snils|inn|utr|nas|abn|nric|hkid"
    r"|eid|mob|kto|mrn|ohip|taj|cni|sns|rg|nip|regon|niss|insz|ppsn?|cf|c\.f|fnr|rib|nss|nuss|pis|pasep|cnh|cnp|егн|egn|jmbg|uan|umid|nin|bvn|ic|a/c|hp|cnic|ktp|cccd|siret|αφμ|lanr|rvnr|npi|ембг|иин|жсн|tnin|nimc"
    r"|rp|kdf|crypt|pat|clé|log[ _-]?[io]n|sign[ _-]?in"
)
_KNOWN_SHORT = {*_ALONE.split("|"), *_ALONE_AND_SHORT.split("|")}
_KNOWN = (*_PARTS.split(), *_PHRASES)
_MOST_OF_NAME = 12  # characters of a long one
_NAMES = sorted({name.lower() for name in registers() if not name.isascii() or not is_short(name)})
_SHORT_NAMES = "|".join(
    sorted(name for name in registers() if is_short(name) and name.isascii() and name.lower() not in _KNOWN_SHORT)
)
# Marks are apart: in text full of code one search for marks and words has too many states for the engine, and takes four
# times as long.
WORDS = Hint(
    (*_KNOWN, *(name[:_MOST_OF_NAME] for name in _NAMES if not any(part in name for part in _KNOWN))),
    rf"(?i:{START}(?:(?:{_ALONE})[^a-z]|code|tax|gst|7z|(?:un)?zip |(?:thai|israeli|voter|id) (?:id|number))"
    rf"|{START_OF_SHORT}(?:{_ALONE_AND_SHORT})[^a-z0-9]|(?:passe?|pw|key|otp|eth|iva)[^a-z]|token[^s]"
    rf"|auth[^o]|shared.key|my.?number|sort.?code"
    r"|personal.?id|[\[({<_ ](?:dot|punkt|punto)[\])}>_ ]|[\[({<]\s?(?:at|ät)\s?[\])}>])"
    rf"|(?:[^A-Za-z0-9]|\\[bfnrt])(?:{_SHORT_NAMES})[^A-Za-z0-9]"
    r"| -(?:[kPwNAX]|pw)[ =]|\" +(?:\*|\\\\+\")|\]:[0-9]+ |:(?:543[0-9]|6432|\*):",
)
