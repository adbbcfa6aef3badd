#include "deploy/cli/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "common/clock.h"
#include "common/exit_status.h"
#include "common/flags.h"
#include "common/strings.h"
#include "common/unique_fd.h"
#include "deploy/cli/report_failure.h"
#include "engine_core/recorder/flight_ring.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCommand = "record";
constexpr std::string_view kAbout =
    "tandem record [flags]: write what the flight recorder of a running engine core holds to a "
    "file.\nReplay it with tandem-engine-core --replay FILE.";
constexpr int kMaxCopies = 5;

struct RecordConfig {
  int64_t pid = 0;
  std::string out;
};

std::vector<Flag> RecordFlags(RecordConfig& config) {
  return {{"pid", &config.pid, "The engine core; 0: the only one there is", {.min = 0}},
          {"out", &config.out, "The file, which must not exist. Default: tandem-TIME-PID.flight"}};
}

// A process's descriptor of a flight recorder, as a path; empty: it has none, or is not ours.
std::string RingOf(const std::string& process) {
  std::error_code error;
  for (fs::directory_iterator fd(process + "/fd", error), end; !error && fd != end;
       fd.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(fd->path(), gone).string();
    if (target.starts_with(std::string("/memfd:") + kRingName + " ")) return fd->path().string();
  }
  return "";
}

// The processes with a flight recorder, and the paths of their rings.
std::vector<std::pair<int64_t, std::string>> FindRings() {
  std::vector<std::pair<int64_t, std::string>> rings;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const auto pid = ParseNumber<int64_t>(entry.path().filename().string());
    if (!pid) continue;
    std::string ring = RingOf(entry.path().string());
    if (!ring.empty()) rings.emplace_back(*pid, std::move(ring));
  }
  std::sort(rings.begin(), rings.end());
  return rings;
}

StatusOr<std::pair<int64_t, std::string>> ChooseRing(int64_t pid) {
  if (pid != 0) {
    std::string ring = RingOf("/proc/" + std::to_string(pid));
    if (!ring.empty()) return std::pair(pid, std::move(ring));
    return NotFoundError("process " + std::to_string(pid) +
                         " has no flight recorder, or belongs to another user");
  }
  std::vector<std::pair<int64_t, std::string>> rings = FindRings();
  if (rings.size() == 1) return std::move(rings.front());
  if (rings.empty()) {
    return NotFoundError(
        "no engine core of this user has a flight recorder (as root, all are seen)");
  }
  std::string pids;
  for (const auto& [one, ring] : rings) pids += " " + std::to_string(one);
  return InvalidArgumentError("there are several, choose one with --pid:" + pids);
}

StatusOr<std::string> CopyOnce(int fd) {
  struct stat about = {};
  if (fstat(fd, &about) != 0) return ErrnoError(errno, "fstat");
  std::string bytes(static_cast<size_t>(about.st_size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size =
        pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoError(errno, "read");
    if (size == 0) return DataLossError("the flight recorder is shorter than it was");
    done += static_cast<size_t>(size);
  }
  return bytes;
}

uint64_t NumBegun(const std::string& bytes) {
  return reinterpret_cast<const RingHead*>(bytes.data())->num_begun.load();
}

// A segment that the process replaces while it is copied is torn.
StatusOr<std::string> CopyRing(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoError(errno, "open " + path);
  ASSIGN_OR_RETURN(std::string bytes, CopyOnce(fd.get()));
  if (bytes.size() < kRingHeadBytes) return DataLossError("this is no flight recorder");
  for (int i = 1; i < kMaxCopies; ++i) {
    ASSIGN_OR_RETURN(std::string again, CopyOnce(fd.get()));
    if (NumBegun(again) == NumBegun(bytes)) return bytes;
    bytes = std::move(again);
  }
  return UnavailableError("its records change faster than they can be copied; try again");
}

Status WriteFile(std::string ring, const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return ErrnoError(errno, "make " + path);
  const int error = FlightRing::WriteRing(ring.data(), fd.get(), "tandem record");
  if (error == 0) return OkStatus();
  unlink(path.c_str());  // a part is of no use, and would be in the way of the next try
  return ErrnoError(error, "write " + path);
}

}  // namespace

int RunRecord(const std::vector<std::string>& args) {
  RecordConfig config;
  const StatusOr<FlagOutcome> parsed = ParseFlags(RecordFlags(config), args, kAbout);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  const auto chosen = ChooseRing(config.pid);
  if (!chosen.ok()) return ReportFailure(kCommand, chosen.status(), kExitFailed);
  const auto& [pid, path] = *chosen;
  if (config.out.empty()) {
    config.out = "tandem-" + std::to_string(static_cast<int64_t>(SystemClock().Unix())) + "-" +
                 std::to_string(pid) + ".flight";
  }
  StatusOr<std::string> ring = CopyRing(path);
  if (!ring.ok()) {
    return ReportFailure(kCommand, ring.status().WithContext("process " + std::to_string(pid)),
                         kExitFailed);
  }
  if (const Status status = WriteFile(*std::move(ring), config.out); !status.ok()) {
    return ReportFailure(kCommand, status, kExitFailed);
  }
  std::printf("%s\n", config.out.c_str());
  return kExitOk;
}

}  // namespace tandem
