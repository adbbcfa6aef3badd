#pragma once

// The command line as a table: one row per flag, pointing at the member of a config struct that it
// sets. The row is the flag's whole documentation: name, type, range, default (the member's value
// before parsing), help. CLI11 does the parsing, in flags.cc only.
//   Config c;
//   const std::vector<Flag> flags = {
//       {"max-num-seqs", &c.max_num_seqs, "Running requests at once", {.min = 1, .max = 65536}},
//       {"enable-prefix-caching", &c.enable_prefix_caching, "Reuse KV blocks of equal prefixes"}};
//   ASSIGN_OR_RETURN(const FlagOutcome outcome, ParseFlags(flags, args, about));
// vLLM's conventions: "_" and "-" are the same in names, "--x v" and "--x=v", a bool has a "--no-x"
// twin and may be given a value, integers take 32k (32,000) and 32K (32,768), also m/M and g/G.
// An unknown flag is an error with a near-match hint. A flag with `env` takes its value from
// TANDEM_<env>, else VLLM_<env>, when the command line does not give it.
// Thread: main, before others start.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"

namespace tandem {

struct FlagRules {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> choices = {};  // allowed words of a string flag
  std::string_view allowed = {};  // what a number must be, where min and max do not explain it
  std::string_view env = {};
  std::string_view short_name = {};  // without the dash: "tp" for "-tp"
  bool positional = false;           // also taken from the first bare word
  bool secret = false;               // its values are shown nowhere
  bool live = false;                 // a settings file may change it while the process runs
};

using FlagTarget = std::variant<bool*, int64_t*, double*, std::string*, std::optional<bool>*,
                                std::optional<int64_t>*, std::optional<double>*,
                                std::optional<std::string>*, std::vector<std::string>*>;

struct Flag {
  std::string_view name;  // without dashes
  FlagTarget target;
  std::string_view help;
  FlagRules rules = {};

  bool is_bool() const {
    return std::holds_alternative<bool*>(target) ||
           std::holds_alternative<std::optional<bool>*>(target);
  }
  bool is_list() const { return std::holds_alternative<std::vector<std::string>*>(target); }
};

enum class FlagOutcome { kRun, kHelpShown };

// Fills the targets. `--help` prints the table to stdout and returns kHelpShown; `--help=word` only
// the rows that contain the word. Errors name the flag, the value and what is allowed.
StatusOr<FlagOutcome> ParseFlags(const std::vector<Flag>& flags,
                                 const std::vector<std::string>& args, std::string_view about);

// Sets the targets of `live` flags from a settings file: lines of "name: value", empty ones and
// those that begin with '#'. Other targets stay. Errors name the line and what is wrong with it.
Status ApplySettings(const std::vector<Flag>& flags, std::string_view text);

// The arguments without secret flags and their values.
std::vector<std::string> WithoutSecrets(const std::vector<Flag>& flags,
                                        const std::vector<std::string>& args);

// Overwrite what ps and /proc show of secret flags: their values in argv, and in the environment,
// which ParseFlags must have read before.
void HideSecretArguments(const std::vector<Flag>& flags, int argc, char** argv);
void HideSecretVariables(const std::vector<Flag>& flags);

// Arguments that set every target to the value it has now; targets that hold none, and secret
// flags, are left out.
std::vector<std::string> ToArguments(const std::vector<Flag>& flags);

// The target's value as text: a list's words with blanks between them, nullopt where it holds none.
// Secret values too.
std::optional<std::string> FlagValueText(const Flag& flag);

// The environment variable that sets the flag where nothing else does, e.g. "TANDEM_MODEL"; "" when
// there is none.
std::string FlagVariable(const Flag& flag);

// The row that "--some_name", "--no-some-name" or "-tp" names; nullptr when there is none.
const Flag* FindFlag(const std::vector<Flag>& flags, std::string_view argument);

// "unknown flag --max-num-seq; did you mean --max-num-seqs?"
Status UnknownFlagError(const std::vector<Flag>& flags, std::string_view argument);

// "32k" -> 32000, "32K" -> 32768, "-1" -> -1.
std::optional<int64_t> ParseHumanInt(std::string_view text);

std::string FlagHelp(const std::vector<Flag>& flags, std::string_view about,
                     std::string_view filter);

}  // namespace tandem
