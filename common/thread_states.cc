#include "common/thread_states.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "common/proc_stat.h"
#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {
namespace {

constexpr std::string_view kTasks = "/proc/self/task/";

// Where a thread waits that has nothing to do. Reading a file is not among them: a file system in a
// program of its own answers slowly, and the kernel shows that as it shows a wait for a socket.
constexpr auto kEventCalls = std::to_array<long>({
#ifdef SYS_poll  // newer architectures have only the calls below
    SYS_poll, SYS_epoll_wait, SYS_select,
#endif
    SYS_ppoll, SYS_epoll_pwait, SYS_pselect6, SYS_rt_sigtimedwait, SYS_accept4, SYS_recvmsg,
    SYS_recvfrom, SYS_clock_nanosleep, SYS_nanosleep,
    SYS_restart_syscall,  // one with a time, after SIGSTOP and SIGCONT
});

std::string TextOf(pid_t thread, const char* name) {
  constexpr int64_t kMaxBytes = 1 << 12;
  auto text = ReadFile(std::string(kTasks) + std::to_string(thread) + name, kMaxBytes);
  return text.ok() ? *std::move(text) : std::string();
}

}  // namespace

ThreadState ParseThreadState(std::string_view stat, std::string_view syscall) {
  // A call may be interrupted by a page that has to be read: then the thread is in D.
  const auto fields = StatFields(stat);
  if (fields.empty() || fields[0] != "S") return ThreadState::kRuns;
  const auto number = ParseNumber<long>(syscall.substr(0, syscall.find(' ')));
  if (!number) return ThreadState::kRuns;  // "running"
  if (*number == SYS_futex) return ThreadState::kAwaitsWord;
  return std::ranges::count(kEventCalls, *number) > 0 ? ThreadState::kAwaitsEvent
                                                      : ThreadState::kRuns;
}

ThreadState ReadThreadState(pid_t thread) {
  return ParseThreadState(TextOf(thread, "/stat"), TextOf(thread, "/syscall"));
}

std::vector<pid_t> OwnThreads() {
  std::vector<pid_t> threads;
  DIR* const folder = opendir(std::string(kTasks).c_str());
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder)) {
    if (const auto thread = ParseNumber<pid_t>(std::string_view(entry->d_name))) {
      threads.push_back(*thread);
    }
  }
  closedir(folder);
  return threads;
}

pid_t OwnThread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

}  // namespace tandem
