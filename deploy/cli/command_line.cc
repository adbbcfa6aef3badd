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

}  // namespace

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

    const bool takes_value = argument.find('=') == argument.npos &&
                             (flag != nullptr ? !flag->is_bool() : meaningless->takes_value);
    size_t end = i;
    if (takes_value && end < args.size()) ++end;
    while (takes_value && flag != nullptr && IsList(*flag) && end < args.size() &&
           !IsFlag(args[end]))
      ++end;

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
