#include "engine_core/recorder/flight_ring.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "common/unique_fd.h"
#include "engine_core/recorder/flight_file.h"
#include "engine_core/recorder/flight_folder.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSmall = FlightRing::kMinBytes;  // segments of 8 KiB

FlightRing MakeRing(size_t bytes = kSmall) {
  auto ring = FlightRing::Create(bytes, "about this");
  REQUIRE(ring.ok());
  return *std::move(ring);
}

void AppendNumber(FlightRing* ring, uint64_t number, size_t padding = 0) {
  REQUIRE(ring->Append(static_cast<uint8_t>(number % 7 + 1), [&](ByteWriter* out) {
    out->Fixed(number);
    out->Bytes(std::string(padding, 'x'));
  }));
}

FlightFile FileOf(const FlightRing& ring, const fs::path& folder, const char* reason = "test") {
  const std::string path = (folder / "ring").string();
  const UniqueFd fd(open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600));
  REQUIRE(ring.WriteTo(fd.get(), reason) == 0);
  auto file = ReadFlightFile(path);
  REQUIRE(file.status().ToString() == OkStatus().ToString());
  return *std::move(file);
}

uint64_t NumberOf(const FlightRecord& record) {
  return ByteReader(record.payload).Fixed<uint64_t>();
}

TEST_CASE("FlightRing: a file has the records in order, and why it was written") {
  const TempFolder folder;
  FlightRing ring = MakeRing();
  for (uint64_t i = 0; i < 100; ++i) AppendNumber(&ring, i);
  const FlightFile file = FileOf(ring, folder.path(), "a reason");
  CHECK(file.about == "about this");
  CHECK(file.reason == "a reason");
  CHECK(file.is_whole_run);
  REQUIRE(file.records.size() == 100);
  for (uint64_t i = 0; i < 100; ++i) {
    CHECK(file.records[i].kind == i % 7 + 1);
    CHECK(NumberOf(file.records[i]) == i);
  }
}

TEST_CASE("FlightRing: the newest records stay, without a hole, however long it runs") {
  const TempFolder folder;
  const size_t padding = GENERATE(size_t{0}, size_t{100}, size_t{4000}, size_t{8000});
  CAPTURE(padding);
  FlightRing ring = MakeRing();
  constexpr uint64_t kCount = 20'000;
  for (uint64_t i = 0; i < kCount; ++i) AppendNumber(&ring, i, padding);
  const FlightFile file = FileOf(ring, folder.path());
  CHECK_FALSE(file.is_whole_run);
  // At least all segments but the current one, each with what fits.
  const size_t per_segment = (kSmall / 8) / (padding + 20);
  CHECK(file.records.size() >= 7 * std::max<size_t>(per_segment, 1));
  for (size_t i = 0; i < file.records.size(); ++i) {
    CHECK(NumberOf(file.records[i]) == kCount - file.records.size() + i);
  }
}

TEST_CASE("FlightRing: a record larger than a segment is refused, and the next ones are kept") {
  const TempFolder folder;
  FlightRing ring = MakeRing();
  AppendNumber(&ring, 1);
  const std::string large(kSmall / 8, 'x');
  CHECK_FALSE(ring.Append(1, [&](ByteWriter* out) { out->Bytes(large); }));
  AppendNumber(&ring, 2);
  const FlightFile file = FileOf(ring, folder.path());
  REQUIRE(file.records.size() == 2);
  CHECK(NumberOf(file.records[1]) == 2);
}

TEST_CASE("FlightRing: a frozen ring takes nothing in and complains about nothing") {
  const TempFolder folder;
  FlightRing ring = MakeRing();
  AppendNumber(&ring, 1);
  ring.Freeze();
  AppendNumber(&ring, 2);
  CHECK(FileOf(ring, folder.path()).records.size() == 1);
}

TEST_CASE("FlightRing: too long a text about the engine is refused") {
  CHECK_FALSE(FlightRing::Create(kSmall, std::string(kRingHeadBytes, 'x')).ok());
}

TEST_CASE("FlightFile: cut files have what is whole, broken ones are refused") {
  const TempFolder folder;
  FlightRing ring = MakeRing();
  for (uint64_t i = 0; i < 2000; ++i) AppendNumber(&ring, i);  // several segments
  const FlightFile whole = FileOf(ring, folder.path());
  size_t last = 0;
  for (size_t size = kRingHeadBytes; size <= whole.bytes.size(); size += 97) {
    const auto cut = ParseFlightFile(whole.bytes.substr(0, size));
    REQUIRE(cut.ok());
    CHECK(cut->records.size() >= last);
    last = cut->records.size();
  }
  CHECK(last + 10 > whole.records.size());
  CHECK_FALSE(ParseFlightFile("").ok());
  CHECK_FALSE(ParseFlightFile(std::string(kRingHeadBytes, '\0')).ok());
  std::string wrong_size = whole.bytes;
  wrong_size[kRingHeadBytes + 16 + 1 + 3] = '\x7f';  // of the first record
  CHECK_FALSE(ParseFlightFile(wrong_size).ok());
  std::string wrong_sequence = whole.bytes;
  wrong_sequence[kRingHeadBytes] = 5;
  CHECK_FALSE(ParseFlightFile(wrong_sequence).ok());
}

// ---- files ----

std::set<std::string> NamesIn(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST_CASE("FlightFolder: files are their owner's alone, and the oldest make room") {
  const TempFolder temp;
  const fs::path path = temp.PathOf("a/b");
  FlightRing ring = MakeRing();
  AppendNumber(&ring, 1);
  auto folder = FlightFolder::Open(path.string(), 1000, &ring);
  REQUIRE(folder.status().ToString() == OkStatus().ToString());
  struct stat about = {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0700);
  std::ofstream(path / "not-ours.flight") << "x";
  for (int i = 0; i < 20; ++i) {
    const auto file = (*folder)->Write("again");
    REQUIRE(file.ok());
    REQUIRE(stat(file->c_str(), &about) == 0);
    CHECK((about.st_mode & 0777) == 0600);
    CHECK(ReadFlightFile(*file)->records.size() == 1);
  }
  const std::set<std::string> names = NamesIn(path);
  CHECK(names.size() == FlightFolder::kMaxFiles + 1);
  CHECK(names.contains("not-ours.flight"));
  const std::string newest = "tandem-1000-" + std::to_string(getpid()) + "-20.flight";
  CHECK(names.contains(newest));
}

TEST_CASE(
    "FlightFolder: the place is what is asked for, else where services and users keep state") {
  CHECK(FlightFolder::Choose("/some/where") == "/some/where");
  setenv("STATE_DIRECTORY", "/var/lib/tandem:/var/lib/other", 1);
  CHECK(FlightFolder::Choose("") == "/var/lib/tandem");
  unsetenv("STATE_DIRECTORY");
  setenv("XDG_STATE_HOME", "/home/a/state", 1);
  CHECK(FlightFolder::Choose("") == "/home/a/state/tandem");
  unsetenv("XDG_STATE_HOME");
}

TEST_CASE("FlightFolder: a folder that cannot be written is an error that names it") {
  FlightRing ring = MakeRing();
  const auto folder = FlightFolder::Open("/proc/no/such/folder", 0, &ring);
  REQUIRE_FALSE(folder.ok());
  CHECK(folder.status().message().find("/proc/no/such/folder") != std::string::npos);
}

// In a process of its own, whose files may not grow; a full disk looks the same to it.
TEST_CASE("FlightFolder: what cannot be written whole leaves no file") {
  const TempFolder temp;
  const pid_t child = fork();
  if (child == 0) {
    auto ring = FlightRing::Create(kSmall, "");
    auto folder = ring.ok() ? FlightFolder::Open(temp.path(), 1, &*ring) : ring.status();
    if (!folder.ok()) _exit(1);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    ring->Append(3, [](ByteWriter* out) { out->Fixed(uint64_t{77}); });
    signal(SIGXFSZ, SIG_IGN);
    const rlimit few = {8, 8};
    setrlimit(RLIMIT_FSIZE, &few);
    const bool is_written = (*folder)->Write("again").ok();
    (*folder)->WriteLast("last");
    _exit(is_written ? 2 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(NamesIn(temp.path()).empty());
}

// In a process of its own, which ends by the signal as it would without us.
TEST_CASE("FlightFolder: a fatal signal writes a recording and still ends the process") {
  const TempFolder temp;
  const int number = GENERATE(SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL);
  CAPTURE(number);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDERR_FILENO);
    for (const int fatal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(fatal, SIG_DFL);
    auto ring = FlightRing::Create(kSmall, "");
    if (!ring.ok()) _exit(1);
    auto folder = FlightFolder::Open(temp.path(), 1, &*ring);
    if (!folder.ok()) _exit(2);
    ring->Append(3, [](ByteWriter* out) { out->Fixed(uint64_t{77}); });
    (*folder)->CatchFatalSignals();
    if (number == SIGABRT) std::abort();
    raise(number);
    _exit(3);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == number);
  const std::set<std::string> names = NamesIn(temp.path());
  REQUIRE(names.size() == 1);
  const auto file = ReadFlightFile(temp.PathOf(*names.begin()));
  REQUIRE(file.ok());
  REQUIRE(file->records.size() == 1);
  CHECK(NumberOf(file->records[0]) == 77);
  CHECK(file->reason.starts_with("SIG"));
}

}  // namespace
}  // namespace tandem
