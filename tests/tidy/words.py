"""Turns of phrase that the house avoids in comments, names, messages and documents (docs/style.md, Words).

A short list of what is never right here; good English needs a reader.
"""
import re

# (pattern, what to write instead)
AVOIDED = [
    (r"\b(is|are|was|were|be|been|being|not|never|gets) told\b", "things are reported, sent, passed or signalled"),
    (r"\btells? (what|whether|which|how|of|that|apart|us)\b", "a thing reports, returns, shows or contains"),
    (r"\b(told|tells)_|_(told|tells)\b", "reported, scored, returned: the field's name"),
    (r"\bsays? (what|whether|which|how)\b", "a thing states, names, returns or contains"),
    (r"\bspeaks? of\b", "names, mentions"),
    (r"\bhears?\b|\bheard\b", "receives, gets"),
    (r"\bso many (of|rows|tokens|blocks|bytes|requests|threads|numbers|words|seconds|steps)\b", "n, num_x, this many"),
    (r"\bwhoever\b", "the caller, the code that"),
]
PATTERNS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in AVOIDED]


def check_words(text):
    """Yields (line number, message) for each phrase to avoid. `like this` in backticks is exempt: it quotes."""
    for number, line in enumerate(text.splitlines(), 1):
        prose = re.sub(r"`[^`]*`|\"[^\"]{0,24}\"(?= tokens)", "", line)
        for pattern, instead in PATTERNS:
            match = pattern.search(prose)
            if match:
                yield number, f'"{match.group(0)}": {instead}'
