#include "engine_core/workers/cpu_bind.h"

#include <sched.h>

#include <cerrno>
#include <optional>
#include <string_view>

#include "common/strings.h"

namespace tandem {
namespace {

// "3" or "0-7"; false: neither.
bool AddRange(std::string_view range, std::vector<int>* cpus) {
  const std::vector<std::string_view> ends = Split(range, '-');
  const std::optional<int> first = ParseNumber<int>(ends.front());
  const std::optional<int> last = ParseNumber<int>(ends.back());
  if (ends.size() > 2 || !first || !last || *first < 0 || *last < *first || *last >= CPU_SETSIZE) {
    return false;
  }
  for (int cpu = *first; cpu <= *last; ++cpu) cpus->push_back(cpu);
  return true;
}

}  // namespace

StatusOr<std::vector<std::vector<int>>> ParseCpuBind(const std::string& text, int num_ranks) {
  std::vector<std::vector<int>> ranks;
  if (text.empty()) return ranks;
  for (const std::string_view list : Split(text, '|')) {
    std::vector<int>& cpus = ranks.emplace_back();
    for (const std::string_view range : Split(list, ',')) {
      if (AddRange(range, &cpus)) continue;
      return InvalidArgumentError("--cpu-bind " + text + ": '" + std::string(range) +
                                  "' must be a CPU or a range such as 0-7");
    }
  }
  if (ranks.size() == static_cast<size_t>(num_ranks)) return ranks;
  return InvalidArgumentError("--cpu-bind " + text + ": has " + std::to_string(ranks.size()) +
                              " lists of CPUs, must have one for each of " +
                              std::to_string(num_ranks) + " ranks, separated by |");
}

Status BindToCpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string names;
  for (const int cpu : cpus) {
    CPU_SET(static_cast<size_t>(cpu), &set);
    names += (names.empty() ? "" : ",") + std::to_string(cpu);
  }
  if (sched_setaffinity(0, sizeof set, &set) == 0) return OkStatus();
  return ErrnoError(errno, "--cpu-bind: none of CPUs " + names + " may be used here");
}

}  // namespace tandem
