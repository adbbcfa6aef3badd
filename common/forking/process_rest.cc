#include "common/forking/process_rest.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "common/proc_stat.h"
#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {
namespace {

constexpr int64_t kMaxBytes = 1 << 12;

std::string TextOf(const std::string& path) {
  auto text = ReadFile(path, kMaxBytes);
  return text.ok() ? *std::move(text) : std::string();
}

// "/proc/77"; empty: the process has ended.
std::string FolderOf(const UniqueFd& process) {
  const std::string text = TextOf("/proc/self/fdinfo/" + std::to_string(process.get()));
  for (const std::string_view line : Split(text, '\n')) {
    constexpr std::string_view kPid = "Pid:";
    if (!line.starts_with(kPid)) continue;
    const auto pid = ParseNumber<pid_t>(StripAscii(line.substr(kPid.size())));
    if (pid && *pid > 0) return "/proc/" + std::to_string(*pid);
  }
  return "";
}

bool AllThreadsRest(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator threads(folder + "/task", error);
  for (; !error && threads != std::filesystem::directory_iterator(); threads.increment(error)) {
    if (!ThreadRests(TextOf(threads->path().string() + "/stat"))) return false;
  }
  return !error;
}

}  // namespace

int64_t CpuTicksOf(std::string_view stat) {
  constexpr size_t kUser = 14 - kFirstStatField, kSystem = 15 - kFirstStatField;
  const auto fields = StatFields(stat);
  if (fields.size() <= kSystem) return -1;
  const auto user = ParseNumber<int64_t>(fields[kUser]);
  const auto system = ParseNumber<int64_t>(fields[kSystem]);
  return user && system ? *user + *system : -1;
}

bool ThreadRests(std::string_view stat) {
  const auto fields = StatFields(stat);
  return !fields.empty() && (fields[0] == "S" || fields[0] == "T");
}

int ProcessRest::Look() {
  const std::optional<int64_t> before = cpu_ticks_;
  cpu_ticks_.reset();
  const std::string folder = FolderOf(process_);
  if (!folder.empty() && AllThreadsRest(folder)) {
    const int64_t ticks = CpuTicksOf(TextOf(folder + "/stat"));
    if (ticks >= 0) cpu_ticks_ = ticks;
  }
  num_looks_ = cpu_ticks_ && cpu_ticks_ == before ? num_looks_ + 1 : 0;
  return num_looks_;
}

void ProcessRest::Kill() const {
  syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
}

}  // namespace tandem
