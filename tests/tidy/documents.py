"""What documents claim about the tree: the paths and links they name exist, and what users can set or see is listed.

Pure functions over a set of tracked files, so that documents_test.py can try them on a tree of its own.
"""
import fnmatch
import pathlib
import posixpath
import re

SOURCE_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".md", ".cmake", ".def")
PLACEHOLDER = re.compile(r"[<>…$]|\.\.\.")


def is_pattern(path):
    return any(letter in path for letter in "*?[")


class Tree:
    """The tracked files, as paths from the root with forward slashes."""

    def __init__(self, files):
        self.files = set(files)
        self.folders = {str(parent) for file in self.files for parent in pathlib.PurePosixPath(file).parents} - {"."}
        self.top_level = {path for path in self.files | self.folders if "/" not in path}
        self.names = {posixpath.basename(file) for file in self.files}
        self.beginnings = {file[:match.start()] for file in self.files for match in re.finditer(r"\.", file)}

    def has(self, path):
        """A file, a folder, a pattern that matches one, or a file without its ending (a .h and .cc pair)."""
        path = posixpath.normpath(path)
        if path in self.files or path in self.folders or path in self.beginnings:
            return True
        return is_pattern(path) and any(fnmatch.filter(paths, pattern) for paths, pattern in (
            (self.files, path), (self.folders, path), (self.files, path + ".*")))

    def has_name(self, name):
        return name in self.names or (is_pattern(name) and bool(fnmatch.filter(self.names, name)))


def expand_braces(word):
    """a/{b,c}.h → a/b.h and a/c.h."""
    match = re.search(r"\{([^{}]*)\}", word)
    if not match:
        return [word]
    return [path for choice in match.group(1).split(",")
            for path in expand_braces(word[:match.start()] + choice + word[match.end():])]


def code_words(text):
    """(line number, word) of all that stands in backticks, fences or indented blocks."""
    in_fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_fence = not in_fence
            continue
        pieces = [line] if in_fence or line.startswith("    ") else re.findall(r"`([^`]+)`", line)
        for piece in pieces:
            for word in piece.split():
                yield number, word.strip("`'\"()[],;:")


def named_paths(word, tree):
    """The paths that a word of code names: below a folder of the root, or a source file by its name alone."""
    if PLACEHOLDER.search(word) or "://" in word or word.startswith(("-", "/")):
        return []
    word = word.split("#")[0]
    first = word.split("/")[0]
    if "/" in word and (first in tree.top_level or first == ".."):
        return expand_braces(word.rstrip("/"))
    if "/" not in word and re.fullmatch(r"[\w*][\w*.{},-]*", word) and word.endswith(SOURCE_SUFFIXES):
        return expand_braces(word)
    return []


def check_paths(name, text, tree):
    """Yields (line, message) for each path in code that the tree lacks. name: the document's own path."""
    folder = posixpath.dirname(name)
    for number, word in code_words(text):
        for path in named_paths(word, tree):
            found = tree.has(path) or tree.has(posixpath.join(folder, path))
            if not found and "/" not in path:
                found = tree.has_name(path)
            if not found:
                yield number, f"names {path}, which does not exist"


def heading_anchors(text):
    """GitHub's anchors of a document's headings."""
    anchors = set()
    for line in text.splitlines():
        match = re.match(r"#+ (.*)", line)
        if match:
            kept = re.sub(r"[^\w\- ]", "", match.group(1).lower())
            anchors.add(kept.replace(" ", "-"))
    return anchors


def check_links(name, text, tree, read):
    """Yields (line, message) for each relative link to no file or no heading. read(path): a document's text."""
    in_fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            in_fence = not in_fence
        if in_fence:
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if not tree.has(path):
                yield number, f"links to {path}, which does not exist"
            elif anchor and path.endswith(".md") and anchor not in heading_anchors(read(path)):
                yield number, f"links to {path}#{anchor}, which is no heading there"


# What a user can set or see: (what, files whose rows define it, pattern of a row's name, document that lists them all).
LISTED = [
    ("API field", "frontend/openai/*_request.h", r'^\s*\{"(\w+)",', "docs/user/api.md"),
    ("API field", "frontend/anthropic/*_request.h", r'^\s*\{"(\w+)",', "docs/user/api.md"),
    ("route", "frontend/api/routes.cc", r'"(/[a-z0-9_/{}:]+)\*?"', "docs/user/api.md"),
    ("route", "frontend/api/dev.cc", r'"(/[a-z0-9_/]+)\*?"', "docs/user/api.md"),
    ("metric", "frontend/metrics/*", r'"((?:vllm:|http_)[a-z_]{2,})"', "docs/operator/metrics.md"),
]


def check_listed(tree, read, listed=None):
    """Yields (document, message) for each defined name that its document does not have in code."""
    for what, pattern, row, document in LISTED if listed is None else listed:
        words = {word for _, word in code_words(read(document))}
        defined = set()
        for file in sorted(fnmatch.filter(tree.files, pattern)):
            defined.update(name.replace(":path}", "}") for name in re.findall(row, read(file), re.M))
        if not defined:
            yield document, f"no {what} found in {pattern}: tests/tidy/documents.py looks in the wrong place"
        for item in sorted(defined - words):
            # A route that ends in a slash is a prefix.
            if not (item.endswith("/") and any(word.startswith(item) for word in words)):
                yield document, f"does not list the {what} {item}"
