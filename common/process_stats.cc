#include "common/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>

#include "common/proc_stat.h"
#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {
namespace {

int64_t CountOpenFiles() {
  DIR* dir = ::opendir("/proc/self/fd");
  if (dir == nullptr) return 0;
  int64_t count = -3;  // ".", ".." and the descriptor of this listing
  while (::readdir(dir) != nullptr) ++count;
  ::closedir(dir);
  return count;
}

double BootTime() {
  std::ifstream stat("/proc/stat");
  std::string word;
  double seconds = 0;
  while (stat >> word) {
    if (word == "btime" && stat >> seconds) break;
  }
  return seconds;
}

}  // namespace

std::optional<ProcessStats> ReadProcessStats() {
  constexpr int64_t kMaxStatBytes = 1 << 16;
  const auto text = ReadFile("/proc/self/stat", kMaxStatBytes);
  if (!text.ok()) return std::nullopt;
  const auto fields = StatFields(*text);
  if (fields.size() < 22) return std::nullopt;
  const auto field = [&fields](size_t number) {
    return ParseNumber<int64_t>(fields[number - kFirstStatField]).value_or(0);
  };
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  static const double boot_time = BootTime();
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return ProcessStats{.virtual_bytes = field(23),
                      .resident_bytes = field(24) * ::sysconf(_SC_PAGESIZE),
                      .cpu_s = static_cast<double>(field(14) + field(15)) / ticks,
                      .started_at = boot_time + static_cast<double>(field(22)) / ticks,
                      .open_files = CountOpenFiles(),
                      .max_files = static_cast<int64_t>(limit.rlim_cur)};
}

}  // namespace tandem
