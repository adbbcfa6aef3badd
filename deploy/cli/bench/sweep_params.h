#pragma once

// The parameter lists of a sweep: JSON objects whose keys are flags that replace those of a command
// line. Pure, apart from reading the file that a list may be in. Errors: INVALID_ARGUMENT with the
// place.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

using CommandWords = std::vector<std::string>;

// {"max_num_seqs": 64, "enable_prefix_caching": false} is --max-num-seqs 64
// --no-enable-prefix-caching.
struct ParameterSet {
  struct Setting {
    std::string flag;    // without dashes in front; "_" is "-"
    std::string text;    // the value in tables and links
    CommandWords words;  // what the command line gets; empty: the flag is removed (JSON null)
    bool is_bool = false;
  };
  std::string name;  // "_benchmark_name", else the settings: "max-num-seqs=64"; may be empty
  std::vector<Setting> settings;

  const Setting* Find(std::string_view flag) const;
};

// A list of objects, or an object of named objects; inline JSON or the path of a file with it.
// Empty text: one empty set, which leaves the command line as it is.
StatusOr<std::vector<ParameterSet>> ParseParameterSets(std::string_view json_or_path);

// The command with each setting replacing the flag's own value.
CommandWords WithSettings(CommandWords command, const ParameterSet& set);

// "max_num_seqs=max_concurrency": only pairs of sets with equal values of these flags are run.
struct VariableLink {
  std::string serve, bench;
};
StatusOr<std::vector<VariableLink>> ParseLinks(std::string_view text);

// Which bench sets follow one serve set. Serve sets without any are left out.
struct Combination {
  size_t serve_idx = 0;
  std::vector<size_t> bench_idx;
};
// INVALID_ARGUMENT when a link names a flag that a set does not have.
StatusOr<std::vector<Combination>> CrossParameters(const std::vector<ParameterSet>& serve,
                                                   const std::vector<ParameterSet>& bench,
                                                   const std::vector<VariableLink>& links);

// A command line as a shell splits it: blanks, quotes, backslashes; no variables, no globs.
StatusOr<CommandWords> SplitShellWords(std::string_view text);
// The reverse: a line that a shell would split into these words.
std::string ShellCommand(const CommandWords& words);

// The value of "--port 8001" or "--port=8001", the last one when there are several.
std::optional<std::string> FlagValue(const CommandWords& command, std::string_view flag);

}  // namespace tandem
