"""Man pages (man(7)) of commands.Command."""
import re

SECTIONS = {"tandem-frontend": 8, "tandem-engine-core": 8}  # daemons
PLACEHOLDERS = {"int": "NUMBER", "float": "NUMBER", "text": "TEXT", "texts": "TEXT ..."}
EXIT_STATUS = ((0, "Success, or ended by SIGTERM or SIGINT."), (1, "Failed."), (2, "A command line that cannot work."),
               (3, "A model that cannot be loaded, or too little memory for it."))


def section_of(command):
    return SECTIONS.get(command.page, 1)


def escaped(text):
    """Text as roff shows it: no commands, ASCII hyphens that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...").replace("`", "\\(ga").replace("'", "\\(aq")
    text = "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in text)
    text = re.sub(r"(?<=[,|])(?=\S)", r"\\:", text)  # a line may end there
    return re.sub(r"^(?=[.])", r"\\&", text, flags=re.M)


def option(flag):
    names = ["--" + flag["name"]] + (["-" + flag["short"]] if flag["short"] else [])
    head = ", ".join(f"\\fB{escaped(name)}\\fR" for name in names)
    if flag["type"] == "bool":
        head += f", \\fB\\-\\-no\\-{escaped(flag['name'])}\\fR"
    else:
        value = "|".join(flag["choices"]) or PLACEHOLDERS[flag["type"]]
        head += f" \\fI{escaped(value)}\\fR"
    text = flag["help"].rstrip(".")
    if flag["default"]:
        text += f". Default: {flag['default']}"
    if flag["env"]:
        text += f". Environment: {flag['env']}"
    return f".TP\n{head}\n{escaped(text)}.\n"


def page(command, version, others):
    """The page's text. others: (name, section) of SEE ALSO."""
    title, section = command.page.upper(), section_of(command)
    text = f'.TH "{escaped(title)}" "{section}" "" "tandem {version}" "Tandem"\n.ad l\n.nh\n'
    text += f".SH NAME\n{escaped(command.page)} \\- {escaped(command.summary)}\n.SH SYNOPSIS\n"
    words = f"\\fB{escaped(command.name)}\\fR"
    if command.subcommands:
        text += f"{words} \\fIcommand\\fR [\\fIflags\\fR]\n.SH COMMANDS\n"
        for each in command.subcommands:
            text += f".TP\n\\fB{escaped(each.words[-1])}\\fR\n{escaped(each.summary)}. See\n" \
                    f".BR {escaped(each.page)} ({section_of(each)}).\n"
    else:
        positional = "".join(f" [\\fI{escaped(flag['name'].upper())}\\fR]" for flag in command.flags if flag["positional"])
        text += f"{words}{positional} [\\fIflags\\fR]\n"
    if command.about:
        text += f".SH DESCRIPTION\n{escaped(command.about)}\n"
    if command.flags:
        text += ".SH OPTIONS\nNames may be written with \\(lq_\\(rq for \\(lq\\-\\(rq, and values as\n" \
                "\\fB\\-\\-name value\\fR or \\fB\\-\\-name=value\\fR. Whole numbers take k, m and g (thousands) and\n" \
                "K, M and G (powers of 1024).\n"
        text += "".join(option(flag) for flag in command.flags)
    variables = [flag for flag in command.flags if flag["env"]]
    if variables:
        text += ".SH ENVIRONMENT\nAn empty variable counts as absent; without one, the same name that begins with VLLM_ counts.\n"
        text += "".join(f".TP\n{escaped(flag['env'])}\nSets \\fB\\-\\-{escaped(flag['name'])}\\fR where the command line does "
                        "not.\n" for flag in variables)
    text += ".SH EXIT STATUS\n" + "".join(f".TP\n{code}\n{escaped(what)}\n" for code, what in EXIT_STATUS)
    see = [f".BR {escaped(name)} ({number})" for name, number in others]
    text += ".SH SEE ALSO\n" + ",\n".join(see) + "\n"
    return text


def neighbours(command, commands):
    """The pages above and below a command, and the programs."""
    names = {each.page: section_of(each) for each in commands}
    above = {command.page.rsplit("-", i)[0] for i in (1, 2)} if command.words[0] == "tandem" else set()
    below = {each.page for each in command.subcommands}
    found = (above | below | {"tandem-frontend", "tandem-engine-core", "tandem"}) - {command.page}
    return [(name, names[name]) for name in sorted(found) if name in names]


def write(commands, version, folder):
    for command in commands:
        section = section_of(command)
        path = folder / f"man{section}" / f"{command.page}.{section}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(command, version, neighbours(command, commands)))
