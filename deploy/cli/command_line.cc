#include "deploy/cli/command_line.h"

#include <algorithm>
#include <string_view>

#include "common/flag_word.h"
#include "deploy/cli/vllm_flags.h"
#include "frontend/config.h"

namespace tandem {
namespace {

// Where the values end that begin at `begin`.
size_t ValuesEnd(const std::vector<std::string>& args, size_t begin, bool takes_value,
                 bool is_list) {
  size_t end = begin;
  if (takes_value && end < args.size()) ++end;
  while (takes_value && is_list && end < args.size() && !IsFlagWord(args[end])) ++end;
  return end;
}

bool IsComplete(const std::string& argument) { return argument.find('=') != argument.npos; }

// A flag with its values.
struct GivenFlag {
  const Flag* flag;
  std::vector<std::string> words;
};

std::vector<GivenFlag> GivenFlags(const std::vector<Flag>& flags,
                                  const std::vector<std::string>& args) {
  const auto positional = std::find_if(flags.begin(), flags.end(),
                                       [](const Flag& flag) { return flag.rules.positional; });
  std::vector<GivenFlag> given;
  for (size_t i = 0; i < args.size();) {
    const size_t begin = i++;
    if (!IsFlagWord(args[begin])) {
      given.push_back({&*positional, {"--" + std::string(positional->name), args[begin]}});
      continue;
    }
    const Flag* flag = FindFlag(flags, args[begin]);
    i = ValuesEnd(args, i, !IsComplete(args[begin]) && !flag->is_bool(), flag->is_list());
    given.push_back({flag,
                     {args.begin() + static_cast<std::ptrdiff_t>(begin),
                      args.begin() + static_cast<std::ptrdiff_t>(i)}});
  }
  return given;
}

}  // namespace

Status UnknownNameError(const std::vector<Flag>& flags, std::string_view argument) {
  std::vector<Flag> all = flags;
  std::string unused;
  for (const VllmFlag& row : VllmFlags()) all.push_back({row.name, &unused, ""});
  return UnknownFlagError(all, argument);
}

std::vector<std::string> ChangedFlags(const std::vector<Flag>& flags,
                                      const std::vector<std::string>& words,
                                      const std::vector<std::string>& changes) {
  const std::vector<GivenFlag> changed = GivenFlags(flags, changes);
  std::vector<std::string> result;
  const auto append = [&result](const GivenFlag& given) {
    result.insert(result.end(), given.words.begin(), given.words.end());
  };
  for (const GivenFlag& before : GivenFlags(flags, words)) {
    const bool is_replaced =
        std::any_of(changed.begin(), changed.end(),
                    [&before](const GivenFlag& after) { return after.flag == before.flag; });
    if (!is_replaced) append(before);
  }
  for (const GivenFlag& after : changed) append(after);
  return result;
}

StatusOr<PairCommandLine> SplitCommandLine(const std::vector<std::string>& args,
                                           const std::vector<Flag>& frontend_flags,
                                           const std::vector<Flag>& engine_flags) {
  PairCommandLine pair;
  std::ptrdiff_t num_bare = 0;
  for (size_t i = 0; i < args.size();) {
    const std::string& argument = args[i++];
    if (!IsFlagWord(argument)) {
      // In front: a list whose next flag went to the other side would go on with it.
      pair.frontend.insert(pair.frontend.begin() + num_bare, argument);
      pair.engine_core.insert(pair.engine_core.begin() + num_bare, argument);
      ++num_bare;
      continue;
    }
    const Flag* in_frontend = FindFlag(frontend_flags, argument);
    const Flag* in_engine = FindFlag(engine_flags, argument);
    const Flag* flag = in_frontend != nullptr ? in_frontend : in_engine;
    const VllmFlag* row = flag == nullptr ? FindVllmFlag(argument) : nullptr;
    if (flag == nullptr && row == nullptr) {
      std::vector<Flag> all = frontend_flags;
      all.insert(all.end(), engine_flags.begin(), engine_flags.end());
      return UnknownNameError(all, argument);
    }

    const bool takes_value =
        !IsComplete(argument) &&
        (flag != nullptr ? !flag->is_bool() : row->kind != VllmFlagKind::kSwitch);
    const bool is_list = flag != nullptr ? flag->is_list() : row->kind == VllmFlagKind::kList;
    // A value of ours may begin with a dash, as a key may.
    const auto is_known = [&](const std::string& word) {
      return FindFlag(frontend_flags, word) != nullptr || FindFlag(engine_flags, word) != nullptr ||
             FindVllmFlag(word) != nullptr;
    };
    const bool is_value =
        i < args.size() && !(IsFlagWord(args[i]) && (row != nullptr || is_known(args[i])));
    if (takes_value && !is_value) {
      const std::string_view name = row != nullptr ? row->name : flag->name;
      return InvalidArgumentError("--" + std::string(name) + " needs a value");
    }
    const size_t end = ValuesEnd(args, i, takes_value, is_list);
    if (row != nullptr) {
      ASSIGN_OR_RETURN(std::string warning,
                       JudgeVllmFlag(*row, argument,
                                     {args.begin() + static_cast<std::ptrdiff_t>(i),
                                      args.begin() + static_cast<std::ptrdiff_t>(end)}));
      // A list of --config gives its flag several times.
      if (std::find(pair.warnings.begin(), pair.warnings.end(), warning) == pair.warnings.end()) {
        pair.warnings.push_back(std::move(warning));
      }
    }

    const auto copy_to = [&](std::vector<std::string>* out) {
      out->push_back(argument);
      out->insert(out->end(), args.begin() + static_cast<std::ptrdiff_t>(i),
                  args.begin() + static_cast<std::ptrdiff_t>(end));
    };
    if (in_frontend != nullptr) copy_to(&pair.frontend);
    if (in_engine != nullptr) copy_to(&pair.engine_core);
    i = end;
  }
  return pair;
}

void HideKeys(int argc, char** argv) {
  FrontendConfig config;
  std::vector<Flag> flags = FrontendFlags(config);
  std::string hub_token;  // of `tandem serve`
  flags.push_back({"hf-token", &hub_token, "", {.secret = true}});
  HideSecretArguments(flags, argc, argv);
}

}  // namespace tandem
