#include "deploy/cli/command_line.h"

#include <algorithm>
#include <string_view>

#include "common/strings.h"
#include "frontend/config.h"

namespace tandem {
namespace {

// Units and charts written for vLLM use these. They ask for what we always do, or for what this
// kind of machine does not have, so ignoring them changes no response.
struct MeaninglessFlag {
  std::string_view name;
  bool takes_value;
};
constexpr MeaninglessFlag kMeaningless[] = {
    {"trust-remote-code", false},
    {"disable-custom-all-reduce", false},
    {"disable-frontend-multiprocessing", false},
    {"enable-scale-out", false},
    {"gpu-memory-utilization", true},
    {"device-memory-utilization", true},
    {"swap-space", true},
    {"cpu-offload-gb", true},
    {"download-dir", true},
    {"tokenizer-mode", true},
    {"uvicorn-log-level", true},
    {"distributed-executor-backend", true},
    {"compilation-config", true},
    {"worker-cls", true},
    {"config-format", true},
};

const MeaninglessFlag* FindMeaningless(std::string_view argument) {
  std::string name(argument.substr(0, argument.find('=')));
  std::replace(name.begin(), name.end(), '_', '-');
  for (const MeaninglessFlag& flag : kMeaningless) {
    if (name == "--" + std::string(flag.name) || name == "--no-" + std::string(flag.name))
      return &flag;
  }
  return nullptr;
}

bool IsFlag(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-' && !ParseNumber<double>(argument);
}

bool IsList(const Flag& flag) {
  return std::holds_alternative<std::vector<std::string>*>(flag.target);
}

// Where the values end that begin at `begin`.
size_t ValuesEnd(const std::vector<std::string>& args, size_t begin, bool takes_value,
                 bool is_list) {
  size_t end = begin;
  if (takes_value && end < args.size()) ++end;
  while (takes_value && is_list && end < args.size() && !IsFlag(args[end])) ++end;
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
    if (!IsFlag(args[begin])) {
      given.push_back({&*positional, {"--" + std::string(positional->name), args[begin]}});
      continue;
    }
    const Flag* flag = FindFlag(flags, args[begin]);
    i = ValuesEnd(args, i, !IsComplete(args[begin]) && !flag->is_bool(), IsList(*flag));
    given.push_back({flag,
                     {args.begin() + static_cast<std::ptrdiff_t>(begin),
                      args.begin() + static_cast<std::ptrdiff_t>(i)}});
  }
  return given;
}

}  // namespace

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
  for (size_t i = 0; i < args.size();) {
    const std::string& argument = args[i++];
    if (!IsFlag(argument)) {
      pair.frontend.push_back(argument);
      pair.engine_core.push_back(argument);
      continue;
    }
    const Flag* in_frontend = FindFlag(frontend_flags, argument);
    const Flag* in_engine = FindFlag(engine_flags, argument);
    const Flag* flag = in_frontend != nullptr ? in_frontend : in_engine;
    const MeaninglessFlag* meaningless = flag == nullptr ? FindMeaningless(argument) : nullptr;
    if (flag == nullptr && meaningless == nullptr) {
      std::vector<Flag> all = frontend_flags;
      all.insert(all.end(), engine_flags.begin(), engine_flags.end());
      return UnknownFlagError(all, argument);
    }

    const bool takes_value =
        !IsComplete(argument) && (flag != nullptr ? !flag->is_bool() : meaningless->takes_value);
    const size_t end = ValuesEnd(args, i, takes_value, flag != nullptr && IsList(*flag));

    const auto copy_to = [&](std::vector<std::string>* out) {
      out->push_back(argument);
      out->insert(out->end(), args.begin() + static_cast<std::ptrdiff_t>(i),
                  args.begin() + static_cast<std::ptrdiff_t>(end));
    };
    if (in_frontend != nullptr) copy_to(&pair.frontend);
    if (in_engine != nullptr) copy_to(&pair.engine_core);
    if (meaningless != nullptr) pair.ignored.push_back(argument);
    i = end;
  }
  return pair;
}

void HideKeys(int argc, char** argv) {
  FrontendConfig config;
  HideSecretArguments(FrontendFlags(config), argc, argv);
}

}  // namespace tandem
