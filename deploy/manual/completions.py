"""Completion of `tandem …` for bash, zsh and fish, from commands.Command. Values that have no list are file names."""
import shlex

PROGRAMS = "tandem tandem-frontend tandem-engine-core"


def flag_names(command):
    for flag in command.flags:
        yield "--" + flag["name"]
        if flag["type"] == "bool":
            yield "--no-" + flag["name"]
        if flag["short"]:
            yield "-" + flag["short"]
    yield "--help"


def spellings(flag):
    return ["--" + flag["name"]] + (["-" + flag["short"]] if flag["short"] else [])


BASH = """\
# bash completion of tandem; made from the flag tables.
_tandem_words() {
  # What may follow the command $1, and with a second word: the values of that flag.
  case "$1 $2" in
%(values)s
  esac
  [ -n "$2" ] && return
  case "$1" in
%(words)s
  esac
}
_tandem() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[0]##*/} i
  # "--flag=value" is three words.
  if [ "$word" = = ]; then word=; elif [ "$previous" = = ]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi
  if [ "$command" = tandem ]; then
    for ((i = 1; i < COMP_CWORD; ++i)); do
      case " $(_tandem_words "$command" "") " in
        *" ${COMP_WORDS[i]} "*) [[ ${COMP_WORDS[i]} == -* ]] || command="$command ${COMP_WORDS[i]}" ;;
        *) break ;;
      esac
    done
  fi
  COMPREPLY=()
  local words
  if [[ $previous == -* ]]; then words=$(_tandem_words "$command" "${previous//_/-}"); fi
  if [ -z "$words" ]; then
    words=$(_tandem_words "$command" "")
    # Words that are no flags are commands, and else file names.
    [[ $word == -* || $words != -* ]] || return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _tandem %(programs)s
"""


def bash(commands):
    values, words = [], []
    for command in commands:
        key = command.name
        names = [each.words[-1] for each in command.subcommands] + (["--help", "--version"] if key == "tandem" else [])
        if command.flags:
            names = list(flag_names(command))
        words.append(f"    {shlex.quote(key)}) echo {shlex.quote(' '.join(names))} ;;")
        for flag in command.flags:
            if flag["choices"]:
                patterns = "|".join(shlex.quote(f"{key} {name}") for name in spellings(flag))
                values.append(f"    {patterns}) echo {shlex.quote(' '.join(flag['choices']))} ;;")
    return BASH % {"values": "\n".join(values), "words": "\n".join(words), "programs": PROGRAMS}


def zsh_spec(flag):
    """The lines of _arguments for one flag."""
    about = "".join("\\" + c if c in "[]:\\" else c for c in flag["help"])
    if flag["type"] == "bool":
        return [f"--{flag['name']}[{about}]", f"--no-{flag['name']}[the opposite of --{flag['name']}]"]
    action = "(" + " ".join(flag["choices"]) + ")" if flag["choices"] else "_files"
    return [f"{name}{'=' if name.startswith('--') else ''}[{about}]:value:{action}" for name in spellings(flag)]


def zsh(commands):
    text = f"#compdef {PROGRAMS}\n# zsh completion of tandem; made from the flag tables.\n\n"
    for command in commands:
        function = "_" + command.page.replace("-", "_")
        text += f"{function}() {{\n"
        if command.subcommands:
            rows = " ".join(shlex.quote(f"{each.words[-1]}:{each.summary}") for each in command.subcommands)
            text += f"  local -a commands=({rows})\n" \
                    f"  if ((CURRENT == 2)); then _describe command commands; return; fi\n" \
                    f"  local next={function}_${{words[2]//-/_}}\n" \
                    f"  shift words; ((--CURRENT))\n  (($+functions[$next])) && $next || _files\n"
        else:
            specs = [spec for flag in command.flags for spec in zsh_spec(flag)]
            text += "  _arguments \\\n" + "".join(f"    {shlex.quote(spec)} \\\n" for spec in specs) + "    '*:file:_files'\n"
        text += "}\n"
    return text + """
case ${words[1]:t} in
  tandem-frontend) _tandem_frontend "$@" ;;
  tandem-engine-core) _tandem_engine_core "$@" ;;
  *) _tandem "$@" ;;
esac
"""


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(commands):
    lines = ["# fish completion of tandem; made from the flag tables."]
    for command in commands:
        program, rest = command.words[0], command.words[1:]
        where = "" if not rest else "-n " + fish_quoted("; and ".join(f"__fish_seen_subcommand_from {word}" for word in rest)) + " "
        if command.subcommands:
            names = " ".join(each.words[-1] for each in command.subcommands)
            here = "; and ".join([f"__fish_seen_subcommand_from {word}" for word in rest] +
                                 [f"not __fish_seen_subcommand_from {names}"])
            lines += [f"complete -c {program} -f -n {fish_quoted(here)} -a {each.words[-1]} -d {fish_quoted(each.summary)}"
                      for each in command.subcommands]
        for flag in command.flags:
            short = f" -o {flag['short']}" if flag["short"] else ""
            value = "" if flag["type"] == "bool" else \
                f" -xa {fish_quoted(' '.join(flag['choices']))}" if flag["choices"] else " -rF"
            lines.append(f"complete -c {program} {where}-l {flag['name']}{short}{value} -d {fish_quoted(flag['help'])}")
            if flag["type"] == "bool":
                lines.append(f"complete -c {program} {where}-l no-{flag['name']}")
    return "\n".join(lines) + "\n"


def write(commands, folder):
    for path, text in (("bash-completion/completions/tandem", bash(commands)), ("zsh/vendor-completions/_tandem", zsh(commands)),
                       ("fish/vendor_completions.d/tandem.fish", fish(commands))):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    # bash loads a file by the program's name.
    for name in PROGRAMS.split()[1:]:
        link = folder / "bash-completion/completions" / name
        link.unlink(missing_ok=True)
        link.symlink_to("tandem")
