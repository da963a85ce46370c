"""Words that hold English sentences together and say nothing about their topic."""

from __future__ import annotations

_ARTICLES_AND_PRONOUNS = """
    a an the this that these those i me my mine myself we us our ours ourselves you your yours
    yourself he him his himself she her hers herself it its itself they them their theirs
    themselves who whom whose which what something anything everything nothing none each other
    others another such same
"""
_VERBS = """
    am is are was were be been being have has had having do does did doing done can could may
    might must shall should will would cannot let
"""
_PREPOSITIONS_AND_CONJUNCTIONS = """
    about above after against along among around as at because before behind below between both
    but by down during either else except for from if in into like nor of off on onto or out over
    per since so than though although through to toward towards under unless until up upon via
    when where whereas whether while with within without and yet
"""
_ADVERBS_AND_QUANTIFIERS = """
    again all almost already also always any ever every even few further hence here how however
    indeed instead just less many more moreover most much never no not now often only otherwise
    own perhaps rather really several some sometimes still then there therefore thus too very why
"""
# What a tokenizer leaves of don't, we'll, they've, you're and their like.
_REMNANTS = """
    ain aren couldn didn doesn don hadn hasn haven isn mustn needn shouldn wasn weren
    wouldn ll re ve
"""

ENGLISH = frozenset(
    " ".join(
        (
            _ARTICLES_AND_PRONOUNS,
            _VERBS,
            _PREPOSITIONS_AND_CONJUNCTIONS,
            _ADVERBS_AND_QUANTIFIERS,
            _REMNANTS,
        )
    ).split()
)
