#include "engine_core/recorder/flight_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/last_words.h"
#include "common/strings.h"
#include "common/unique_fd.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".flight";
constexpr const char* kPrefix = "tandem-";
constexpr int kMaxAttempts = 16;  // names that are taken

struct FatalSignal {
  int number;
  const char* reason;
};
constexpr FatalSignal kFatalSignals[] = {{SIGABRT, "SIGABRT: abort, or a failed CHECK"},
                                         {SIGSEGV, "SIGSEGV: a bad address"},
                                         {SIGBUS, "SIGBUS: memory that is not there"},
                                         {SIGFPE, "SIGFPE: a division by zero"},
                                         {SIGILL, "SIGILL: not an instruction"}};

// What a signal handler reads.
std::atomic<FlightFolder*> caught_for{nullptr};
struct sigaction previous[std::size(kFatalSignals)];
// A stack that ran over is a reason to end up here.
alignas(64) char handler_stack[size_t{64} << 10];

void OnFatalSignal(int number) {
  size_t i = 0;
  while (kFatalSignals[i].number != number) ++i;
  WriteLastFlight(kFatalSignals[i].reason);
  // Blocked until this returns, and then what it would have been without us.
  sigaction(number, &previous[i], nullptr);
  raise(number);
}

char* Put(const char* text, char* to, const char* end) {
  while (*text != '\0' && to < end) *to++ = *text++;
  return to;
}

void Say(const char* first, const char* second) {
  char line[4200];
  char* end = line + sizeof line - 1;
  char* at = Put(second, Put(first, line, end), end);
  *at++ = '\n';
  WriteLastWords({line, static_cast<size_t>(at - line)});
}

const char* FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : nullptr;
}

}  // namespace

void WriteLastFlight(const char* reason) {
  if (FlightFolder* folder = caught_for.load(); folder != nullptr) folder->WriteLast(reason);
}

std::string FlightFolder::Choose(const std::string& wish) {
  if (!wish.empty()) return wish;
  // systemd separates several by a colon.
  if (const char* state = FromEnvironment("STATE_DIRECTORY")) {
    return std::string(Split(state, ':').front());
  }
  if (const char* state = FromEnvironment("XDG_STATE_HOME")) return std::string(state) + "/tandem";
  if (const char* home = FromEnvironment("HOME"); home != nullptr && access(home, W_OK) == 0) {
    return std::string(home) + "/.local/state/tandem";
  }
  return "/tmp/tandem-" + std::to_string(getuid());
}

StatusOr<std::unique_ptr<FlightFolder>> FlightFolder::Open(const std::string& path,
                                                           double unix_time, FlightRing* ring) {
  std::error_code error;
  const bool is_new = fs::create_directories(path, error);
  if (error) return ErrnoError(error.value(), "make folder " + path);
  if (is_new) fs::permissions(path, fs::perms::owner_all, error);
  if (error) return ErrnoError(error.value(), "protect folder " + path);
  if (access(path.c_str(), W_OK | X_OK) != 0) return ErrnoError(errno, "write to folder " + path);
  const std::string name = kPrefix + std::to_string(static_cast<int64_t>(unix_time)) + "-" +
                           std::to_string(getpid()) + "-";
  const std::string absolute = fs::absolute(path, error).string();
  if (absolute.size() + name.size() + 32 > kMaxPathBytes) {
    return InvalidArgumentError("the name of folder " + path + " is too long");
  }
  std::unique_ptr<FlightFolder> folder(
      new FlightFolder(absolute, (fs::path(absolute) / name).string(), ring));
  folder->DeleteOld(kMaxFiles - 1);
  return folder;
}

FlightFolder::FlightFolder(std::string folder, const std::string& stem, FlightRing* ring)
    : folder_(std::move(folder)), stem_(stem), ring_(ring) {}

FlightFolder::~FlightFolder() {
  FlightFolder* self = this;
  if (!caught_for.compare_exchange_strong(self, nullptr)) return;
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    sigaction(kFatalSignals[i].number, &previous[i], nullptr);
  }
}

void FlightFolder::CatchFatalSignals() {
  CHECK(caught_for.exchange(this) == nullptr);
  stack_t stack = {};
  stack.ss_sp = handler_stack;
  stack.ss_size = sizeof handler_stack;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = OnFatalSignal;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    sigaction(kFatalSignals[i].number, &action, &previous[i]);
  }
}

StatusOr<std::string> FlightFolder::Write(const std::string& reason) {
  DeleteOld(kMaxFiles - 1);
  char path[kMaxPathBytes];
  const UniqueFd fd(OpenNext(path));
  if (!fd) return ErrnoError(errno, "make file " + std::string(path));
  // A segment may be replaced while it is written.
  constexpr int kMaxWrites = 4;
  for (int i = 0; i < kMaxWrites; ++i) {
    const uint64_t num_begun = ring_->num_begun();
    const bool is_empty = ftruncate(fd.get(), 0) == 0 && lseek(fd.get(), 0, SEEK_SET) == 0;
    const int error = is_empty ? ring_->WriteTo(fd.get(), reason.c_str()) : errno;
    if (error != 0) {
      unlink(path);  // a part of it can not be read, and keeps a full disk full
      return ErrnoError(error, "write " + std::string(path));
    }
    if (ring_->num_begun() == num_begun) return std::string(path);
  }
  return std::string(path);
}

void FlightFolder::WriteLast(const char* reason) {
  if (is_over_.exchange(true)) return;
  ring_->Freeze();
  char path[kMaxPathBytes];
  const int fd = OpenNext(path);
  const int error = fd < 0 ? errno : ring_->WriteTo(fd, reason);
  if (fd >= 0) close(fd);
  if (fd >= 0 && error != 0) unlink(path);
  Say(error == 0 ? "flight recording written: " : "flight recording NOT written: ", path);
}

int FlightFolder::OpenNext(char* path) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    int number = ++num_files_;
    char digits[16];
    char* first = digits + sizeof digits - 1;
    *first = '\0';
    for (; number > 0; number /= 10) *--first = static_cast<char>('0' + number % 10);
    const char* end = path + kMaxPathBytes - 1;
    *Put(kSuffix, Put(first, Put(stem_.c_str(), path, end), end), end) = '\0';
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

void FlightFolder::DeleteOld(int num_kept) const {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const fs::file_time_type time = entry.last_write_time(error);
    if (!error) files.emplace_back(time, entry.path());
  }
  std::ranges::sort(files);
  for (size_t i = 0; i + static_cast<size_t>(num_kept) < files.size(); ++i) {
    fs::remove(files[i].second, error);
  }
}

}  // namespace tandem
