"""The names that ctest knows, read from the build files and the tests themselves, so that nothing need be built.

A Catch case is `executable:case`; a Python test is the name in its python_test line, with `.method` for one of its
methods; python_test_classes makes `name_Class` of each class. And the table of deploy/OPERATIONS.md, which names them.
"""
import ast
import re

NUM_ASKS = 40


def calls(text, function):
    """The argument lists of a function's calls in a CMake file."""
    for match in re.finditer(rf"^\s*{function}\(([^()]*)\)", text, re.M):
        yield re.sub(r"#.*", "", match.group(1)).split()


def catch_cases(source):
    """The names of TEST_CASE; literals that stand one after another are one name."""
    for match in re.finditer(r'\bTEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', source):
        literals = re.findall(r'"(?:[^"\\]|\\.)*"', match.group(1))
        yield "".join(ast.literal_eval(literal) for literal in literals)


def methods(source):
    return re.findall(r"^    def (test_\w+)\(", source, re.M)


def python_names(name, source, by_class):
    classes = re.findall(r"^class (\w+)\(unittest\.TestCase\):", source, re.M) if by_class else []
    for test in [f"{name}_{each}" for each in classes] or [name]:
        yield test
        for method in methods(source):
            yield f"{test}.{method}"


def ctest_names(files, read):
    """files: the tracked paths; read(path): a file's text."""
    names = set()
    for file in sorted(files):
        if not re.fullmatch(r"tests/(\w+/)?(\w+\.cmake|CMakeLists\.txt)", file):
            continue
        text = read(file)
        for name, *arguments in calls(text, "tandem_test"):
            names.add(name)
            for source in arguments:
                if f"tests/{source}" in files:
                    names.update(f"{name}:{case}" for case in catch_cases(read(f"tests/{source}")))
        names.update(f"fuzz_{arguments[0]}" for arguments in calls(text, "fuzz_target"))
        for function, by_class in (("python_test", False), ("python_test_classes", True)):
            for name, *arguments in calls(text, function):
                if arguments and f"tests/{arguments[0]}" in files:
                    names.update(python_names(name, read(f"tests/{arguments[0]}"), by_class))
        names.update(arguments[1] for arguments in calls(text, "add_test") if arguments[:1] == ["NAME"])
    return {name for name in names if not re.search(r'\$|^"', name)}  # no loop variables, no quoted names


def check_asks(text, names, tree):
    """Yields (line, message) for what is wrong in the table of asks: a number, or a test or path that is not there."""
    expected = 1
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 4 or not cells[0].isdigit():
            continue
        if int(cells[0]) != expected:
            yield number, f"has ask {cells[0]} where {expected} belongs"
        expected = int(cells[0]) + 1
        shown = re.findall(r"`([^`]+)`", cells[3])
        for name in shown:
            if name not in names and not tree.has(name):
                yield number, f"names {name}, which is neither a test nor a path"
        if not shown and not cells[3].startswith("no test"):
            yield number, f'shows ask {cells[0]} by nothing; name a test, or write "no test" and why'
    if expected != NUM_ASKS + 1:
        yield 1, f"ends at ask {expected - 1} of {NUM_ASKS}"
