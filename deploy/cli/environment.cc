#include "deploy/cli/environment.h"

#include <algorithm>
#include <string_view>

#include "common/own_variable.h"

namespace tandem {
namespace {

// Read beside those of flags, with either prefix.
constexpr std::string_view kReadElsewhere[] = {
    "CPU_KVCACHE_SPACE",               // engine_core/flags/engine_config.cc
    "KV_EVENTS_USE_INT_BLOCK_HASHES",  // engine_core/kv_event_batch.cc
    "LOGGING_PREFIX",                  // common/log.cc
    "LOGGING_STREAM",
    "LOG_STATS_INTERVAL",  // frontend/metrics/stats_log.cc
    "SUPERVISOR_PID",      // common/sd_notify.h
    "USE_MODELSCOPE",      // deploy/cli/hub_cache.cc
};

bool IsRead(std::string_view name, const std::vector<Flag>& flags) {
  const auto is_of = [name](const Flag& flag) { return flag.rules.env == name; };
  return std::any_of(flags.begin(), flags.end(), is_of) ||
         std::find(std::begin(kReadElsewhere), std::end(kReadElsewhere), name) !=
             std::end(kReadElsewhere);
}

}  // namespace

std::vector<std::string> UnreadVariables(const char* const* environment,
                                         const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (entry.size() <= name.size() + 1) continue;
    for (const std::string_view prefix : kVariablePrefixes) {
      if (name.starts_with(prefix) && !IsRead(name.substr(prefix.size()), flags)) {
        names.emplace_back(name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string UnreadVariablesWarning(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = "environment:";
  for (const std::string& name : names) text += (name == names.front() ? " " : ", ") + name;
  return text + (names.size() == 1 ? " has" : " have") +
         " no effect: docs/user/flags.md lists the variables that are read";
}

}  // namespace tandem
