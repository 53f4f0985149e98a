"""JSON schemas, regular expressions and Lark grammars as llguidance takes them, and what is wrong with
them in plain words.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from engine.constraint.closed_schema import closed
from engine.constraint.gbnf import is_gbnf, lark_of
from engine.constraint.least import least_bytes
from engine.constraint.roomy import with_room
from engine.constraint.unique_items import with_unique_items
from engine.constraint.written_schema import as_meant
from engine.errors import BadSetting
from engine.lazy_dataclass import dataclass
from engine.words import N_, _, translate

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MOST_CHARACTERS = 200_000
_MOST_REFERENCES = 2_000
"""Rules that refer to rules are compiled by recursion; `with_room` has room for this many, one in the
other.
"""
_WHITESPACE = r" |\r?\n(?: {0,24}|\t{0,12})"
"""Between the parts of a JSON text: nothing, a space, or a new line with an indent.

Not more: small models go on with blanks forever.
"""

_REGEX = N_("the regular expression")
NO_FORCING = '%llguidance {"no_forcing": true}'
"""llguidance otherwise allows only its own way of cutting a text that is certain to come into tokens."""

_REGEX_TROUBLE = re.compile(r"\n( *)\^.*\nerror: (.+)")
# a rule's name before its colon, or a schema's reference
_REFERENCE = re.compile(r"[\w\]}]\s*:|\$(?:ref|dynamicRef|recursiveRef)\b")
_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): (.+)")


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A checked grammar.

    `name` is the word for it in messages; `text` is llguidance's own form (JSON); `is_json`: its texts are
    JSON. `marks` are the tokens that it names by their ids. A text that `may_be_cut` is not brought to an
    early end where tokens run short. `least` is a number of bytes that its texts have at least.
    """

    name: str
    text: str
    is_json: bool = False
    marks: frozenset[int] = frozenset()
    may_be_cut: bool = False
    least: int = 0

    def matcher(self, tokens: LLTokenizer) -> LLMatcher:
        """A matcher of these texts, compiled again: milliseconds, where its `deep_copy` takes some
        microseconds.
        """
        from llguidance import LLMatcher

        return with_room(lambda: LLMatcher(tokens, self.text, log_level=0, limits=_limits()))


def json_source() -> GrammarSource:
    """Any JSON object or array."""
    return named_schema("JSON", {"type": ["object", "array"]})


def schema_source(schema: str | Mapping[str, Any]) -> GrammarSource:
    """The texts of all values that satisfy a JSON schema (draft 2020-12; a text or a parsed one).

    Its objects have only the members that it names, unless it says otherwise (`closed`). Blanks only as
    `_WHITESPACE` has them, unless the schema's "x-guidance" says otherwise. Raises `BadSetting` for what is
    no schema, cannot be fulfilled, or uses a keyword that cannot be enforced.
    """
    parsed = _parse(schema) if isinstance(schema, str) else schema
    if parsed is True:
        parsed = {}
    if not isinstance(parsed, Mapping):
        raise BadSetting(
            _('The JSON schema is not an object in braces; it should look like {"type": "object", ...}.')
        )
    with suppress(RecursionError):  # what is nested too deeply is refused below
        parsed = with_unique_items(closed(as_meant(parsed)))
    return named_schema(_("the JSON schema"), dict(parsed))


def regex_source(pattern: str) -> GrammarSource:
    r"""The texts that a regular expression matches as a whole; \d is 0 to 9. Raises `BadSetting`."""
    name = translate(_REGEX)
    pattern = _whole_characters(name, pattern)
    if len(pattern) - len(pattern.rstrip("\\")) & 1:
        raise BadSetting(
            _(
                "The regular expression ends in the middle of an escape; write the last backslash twice, "
                "or a letter after it."
            )
        )
    from llguidance import regex_to_lark

    return checked_source(name, [{"lark_grammar": f"{NO_FORCING}\nstart: /{regex_to_lark(pattern, 'd')}/"}])


def lark_source(grammar: str) -> GrammarSource:
    """The texts of a Lark grammar (llguidance's dialect), whose first rule is `start`, or of a GBNF grammar
    (llama.cpp's), whose first rule is `root`. Raises `BadSetting`.
    """
    name = _("the grammar")
    grammar = _whole_characters(name, grammar)
    if is_gbnf(grammar):
        grammar = lark_of(grammar)
    return checked_source(name, [{"lark_grammar": f"{grammar}\n{NO_FORCING}"}])


def _limits() -> Any:
    """llguidance's limits: about 15 ms for one mask, 100 MB for one grammar; errors without its inner
    state.
    """
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=50_000, verbose_errors=False)


def named_schema(name: str, schema: dict[str, Any]) -> GrammarSource:
    """As `schema_source`, for a parsed schema that messages call `name`."""
    schema = with_short_blanks(schema)
    grammars: list[dict[str, Any]] = [
        {"lark_grammar": f"{NO_FORCING}\nstart: @inner"},
        {"name": "inner", "json_schema": schema},
    ]
    source = checked_source(name, grammars)
    return dataclasses.replace(source, is_json=True, least=least_bytes(schema))


def with_short_blanks(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose texts have blanks only as `_WHITESPACE` has them, and any character as an escape of
    JSON, unless it says otherwise.
    """
    options = schema.get("x-guidance", {})
    if (
        isinstance(options, Mapping)
        and "whitespace_pattern" not in options
        and options.get("whitespace_flexible") is not False
    ):
        written = {"whitespace_pattern": _WHITESPACE, "json_allow_general_unicode_escapes": True}
        return {**schema, "x-guidance": {**written, **options}}
    return schema


def _parse(schema: str) -> Any:
    schema = _whole_characters(_("the JSON schema"), schema)
    try:
        return json.loads(schema, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise BadSetting(
            _(
                "The JSON schema is not valid JSON at line {lineno}, column {colno}: {reason}.",
                lineno=error.lineno,
                colno=error.colno,
                reason=_lower(error.msg),
            )
        ) from None
    except ValueError as error:
        raise BadSetting(
            _("The JSON schema has a number that cannot be used: {reason}.", reason=_lower(str(error)))
        ) from None
    except RecursionError:
        raise BadSetting(
            _("The JSON schema is nested too deeply; use $ref for what repeats itself.")
        ) from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _whole_characters(name: str, text: str) -> str:
    """`text`, in which half a surrogate pair, which has no UTF-8, becomes U+FFFD, as in the tokenizer. Raises
    `BadSetting` if it is empty or too long.
    """
    if not text.strip():
        raise BadSetting(_("There is no text for {name}; enter it, or choose another format.", name=name))
    if len(text) > _MOST_CHARACTERS:
        raise BadSetting(
            _(
                "{what} has {text:,} characters; at most {most_characters:,} are allowed.",
                what=_upper(name),
                text=len(text),
                most_characters=_MOST_CHARACTERS,
            )
        )
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def checked_source(
    name: str,
    grammars: list[dict[str, Any]],
    marks: frozenset[int] = frozenset(),
    most_references: int = _MOST_REFERENCES,
) -> GrammarSource:
    """A grammar in llguidance's form, in which the tokens `marks` are named. Raises `BadSetting`."""
    from llguidance import LLMatcher

    try:
        text = json.dumps({"grammars": grammars}, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadSetting(
            _("{what} cannot be written as JSON: {reason}.", what=_upper(name), reason=_lower(str(error)))
        ) from None
    if name != translate(_REGEX) and sum(1 for _unused in _REFERENCE.finditer(text)) > most_references:
        raise BadSetting(
            _(
                "{what} has more than {most_references:,} rules or references; simplify it.",
                what=_upper(name),
                most_references=most_references,
            )
        )
    failed, messages = with_room(lambda: LLMatcher.validate_grammar_with_warnings(text, limits=_limits()))
    if failed:
        raise BadSetting(_sentence(name, messages[0]))
    if not marks and any(message.startswith("no tokenizer") for message in messages):
        raise BadSetting(
            _(
                "{what} names tokens in angle brackets, which cannot occur in a reply; write "
                "texts in quotes.",
                what=_upper(name),
            )
        )
    return GrammarSource(name, text, marks=marks)


def _sentence(name: str, message: str) -> str:
    """One plain sentence from llguidance's message, which can have many lines."""
    regex, place = _REGEX_TROUBLE.search(message), _PLACE.match(message)
    if name == translate(_REGEX):
        if regex:
            return _(
                "The regular expression is not valid at character {regex}: {regex_2}.",
                regex=len(regex[1]) - 3,
                regex_2=regex[2],
            )
        if "lookarounds not supported" in message:
            return _(
                "The regular expression has \\b, or ^ or $ elsewhere than at its ends, which is not "
                "possible; leave it out."
            )
        place = None
    if place:
        trouble = _("a regular expression is not valid, {regex}", regex=regex[2]) if regex else place[3]
        return _(
            "The grammar is not valid at line {place}, column {place_2}: {reason}.",
            place=place[1],
            place_2=place[2],
            reason=_lower(trouble),
        )
    if regex:
        shown = message[: regex.start()].rpartition("\n")[2].strip()
        return _(
            "{what} has a pattern {shown!r} that is not valid: {regex}.",
            what=_upper(name),
            shown=shown,
            regex=regex[2],
        )
    if message.startswith("Unimplemented keys:"):
        keys = ", ".join(re.findall(r'"[^"]*"', message))
        return _(
            "{what} uses {keys}, which cannot be enforced while a reply is written; remove it.",
            what=_upper(name),
            keys=keys,
        )
    if "coerce_one_of" in message:
        return _(
            '{what} uses "oneOf" with branches that can be true at the same time, which '
            'cannot be enforced; use "anyOf".',
            what=_upper(name),
        )
    if message.startswith("Resource"):
        return _(
            '{what} refers to another document with "$ref", which is not loaded; put it under "$defs".',
            what=_upper(name),
        )
    message = message.partition("\n")[0].removeprefix("Unsatisfiable schema: ")
    return _("{what} cannot be used: {reason}.", what=_upper(name), reason=_lower(message))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lower(text: str) -> str:
    text = text.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text.partition(" ")[0][1:].islower() else text
