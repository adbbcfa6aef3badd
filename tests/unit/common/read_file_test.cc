#include "common/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string ErrorOf(const std::string& path, int64_t max_bytes) {
  const auto text = ReadFile(path, max_bytes);
  REQUIRE_FALSE(text.ok());
  CHECK(text.status().message().rfind(path, 0) == 0);
  return std::string(text.status().message().substr(path.size()));
}

TEST_CASE("ReadFile returns every byte, up to the limit") {
  const TempFolder folder;
  const std::string bytes("a\0b\n", 4);
  folder.Write("file", bytes);
  folder.Write("empty", "");
  CHECK(*ReadFile(folder.PathOf("file"), 4) == bytes);
  CHECK(ErrorOf(folder.PathOf("file"), 3) == ": holds 4 bytes, at most 3 are allowed");
  CHECK(ReadFile(folder.PathOf("empty"), 0)->empty());
}

TEST_CASE("ReadFile reports why a file cannot be read") {
  const TempFolder folder;
  CHECK(ErrorOf(folder.PathOf("none"), 10) == ": No such file or directory");
  CHECK(ReadFile(folder.PathOf("none"), 10).status().code() == StatusCode::kNotFound);
  CHECK(ErrorOf(folder.path(), 1 << 20) == ": is a folder, not a file");
  CHECK(ReadFileIfAny(folder.PathOf("none"), 10)->empty());
  CHECK_FALSE(ReadFileIfAny(folder.path(), 1 << 20).ok());
}

TEST_CASE("ReadFile reads files without a known size") {
  CHECK(ReadFile("/proc/self/stat", 1 << 20)->size() > 10);
  CHECK(ErrorOf("/proc/self/stat", 10) == ": holds more than the 10 bytes that are allowed");

  const TempFolder folder;
  const std::string pipe = folder.PathOf("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string bytes(200'000, 'x');  // more than a pipe buffers
  std::thread writer([&] { std::ofstream(pipe, std::ios::binary) << bytes; });
  const auto text = ReadFile(pipe, 1 << 20);
  writer.join();
  CHECK(*text == bytes);
}

TEST_CASE("ReadFile waits for one who writes to a pipe, and not for ever") {
  const TempFolder folder;
  const std::string pipe = folder.PathOf("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const auto nothing = ReadFile(pipe, 10, /*writer_limit_s=*/0);
  CHECK(nothing.status().code() == StatusCode::kFailedPrecondition);
  CHECK(nothing.status().message() == pipe + ": a pipe to which nobody has written for 0 s");
  const int kept = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // what is written stays
  const int writer = open(pipe.c_str(), O_WRONLY);
  StatusOr<std::string> text = std::string();
  std::thread reader([&] { text = ReadFile(pipe, 10, /*writer_limit_s=*/0); });
  CHECK(write(writer, "late", 4) == 4);
  close(writer);
  reader.join();
  close(kept);
  CHECK(*text == "late");
}

}  // namespace
}  // namespace tandem
