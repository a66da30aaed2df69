"""The section [trust]: which sources may state what, and how far new accounts count."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from flywheel.config._section import Section

_KINDS = ("reader:", "file:")
_FORMS = "* (everything), signed, reader:NAME, reader:NAME:ORIGIN or file:GLOB, each also with ! in front"


class TrustConfig(Section):
    """Who may state what. The last rule that fits a record's source decides; without one it may not."""

    outcomes: list[str] = Field(
        default=["*", "!reader:*:field", "!reader:*:feedback"],
        description="Sources whose outcomes decide an episode; those of others are claims, worth nothing until known "
        f"outcomes show their worth. Rules: {_FORMS}; origins: verifier, callback, recorded, field, feedback.",
    )
    audits: list[str] = Field(default=["file:audits/*"], description="Sources of reviewers' answers in an audit.")
    policies: list[str] = Field(default=["*"], description="Sources that may name the policy that acted.")
    feedback: list[str] = Field(default=["*"], description="Sources whose feedback counts; that of others does not.")
    new_account: float = Field(
        default=0.5, ge=0, le=1, description="Weight of what an account does before it has worked on another task."
    )
    established: int = Field(
        default=3, ge=1, le=30, description="Earlier tasks from which an account's deeds have their full weight."
    )
    burst_h: float = Field(
        default=24.0, gt=0, description="Hours between new accounts up to which they may be one burst."
    )

    @field_validator("outcomes", "audits", "policies", "feedback")
    @classmethod
    def _are_rules(cls, rules: list[str]) -> list[str]:
        for rule in rules:
            plain = rule.removeprefix("!")
            if plain not in {"*", "signed"} and not (plain.startswith(_KINDS) and plain.partition(":")[2]):
                raise PydanticCustomError("rule", "a rule of another form than {forms}", {"forms": _FORMS})
        return rules
