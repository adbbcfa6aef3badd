"""Turns of phrase that the house avoids in comments, names, messages and documents (docs/style.md, Words).

A short list of what is never right here; good English needs a reader.
"""
import re

# (letters that each match has: most lines are done with them, pattern, what to write instead)
AVOIDED = [
    (" told", r"\b(is|are|was|were|be|been|being|not|never|gets) told\b", "things are reported, sent, passed or signalled"),
    ("tell", r"\btells? (what|whether|which|how|of|that|apart|us)\b", "a thing reports, returns, shows or contains"),
    ("told", r"\btold_|_told\b", "reported, scored, returned: the field's name"),
    ("tells", r"\btells_|_tells\b", "reported, scored, returned: the field's name"),
    ("say", r"\bsays? (what|whether|which|how)\b", "a thing states, names, returns or contains"),
    ("speak", r"\bspeaks? of\b", "names, mentions"),
    ("hear", r"\bhears?\b|\bheard\b", "receives, gets"),
    ("so many", r"\bso many (of|rows|tokens|blocks|bytes|requests|threads|numbers|words|seconds|steps)\b", "n, num_x, this many"),
    ("whoever", r"\bwhoever\b", "the caller, the code that"),
]
PATTERNS = [(letters, re.compile(pattern, re.IGNORECASE), instead) for letters, pattern, instead in AVOIDED]


def check_words(text):
    """Yields (line number, message) for each phrase to avoid. `like this` in backticks is exempt: it quotes."""
    for number, line in enumerate(text.splitlines(), 1):
        prose = line
        if "`" in line or "tokens" in line:
            prose = re.sub(r"`[^`]*`|\"[^\"]{0,24}\"(?= tokens)", "", line)
        lowered = prose.lower()
        for letters, pattern, instead in PATTERNS:
            match = letters in lowered and pattern.search(prose)
            if match:
                yield number, f'"{match.group(0)}": {instead}'
