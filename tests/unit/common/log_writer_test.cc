#include "common/log_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/strings.h"
#include "common/unique_fd.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kLong = 30;  // seconds, for what happens at once

struct Pipe {
  Pipe() {
    std::array<int, 2> ends;
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
    signal(SIGPIPE, SIG_IGN);
  }
  // Until the pipe has no room left; returns how many bytes that took.
  size_t Fill() {
    fcntl(write_end.get(), F_SETFL, O_NONBLOCK);
    size_t size = 0;
    while (write(write_end.get(), "\n", 1) == 1) ++size;
    fcntl(write_end.get(), F_SETFL, 0);
    return size;
  }
  UniqueFd read_end, write_end;
};

std::string ReadToEnd(int fd) {
  std::string text;
  std::array<char, 4096> bytes;
  for (ssize_t got; (got = read(fd, bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<size_t>(got));
  }
  return text;
}

std::string Missing(int64_t num_missing) { return std::to_string(num_missing) + " missing\n"; }

std::string Numbered(int number) {
  std::string line = std::to_string(number) + " ";
  line.resize(1000, 'x');
  return line + "\n";
}

TEST_CASE("LogWriter: lines are written in order, and a flush waits for them") {
  Pipe pipe;
  LogWriter writer(pipe.write_end.get(), Missing);
  CHECK(writer.Flush(0));
  for (int i = 0; i < 3; ++i) writer.Write(std::to_string(i) + "\n");
  REQUIRE(writer.Flush(kLong));
  std::array<char, 6> text;
  REQUIRE(read(pipe.read_end.get(), text.data(), text.size()) == 6);
  CHECK(std::string(text.data(), text.size()) == "0\n1\n2\n");
}

TEST_CASE("LogWriter: without a reader nobody waits, and what is missing is counted in its place") {
  Pipe pipe;
  const size_t filled = pipe.Fill();
  std::string text;
  constexpr int kNumLines = 10'000;
  {
    LogWriter writer(pipe.write_end.get(), Missing);
    for (int i = 0; i < kNumLines; ++i) writer.Write(Numbered(i));  // 10 MB
    writer.Write("last word\n", /*is_last_word=*/true);
    CHECK_FALSE(writer.Flush(0.01));
    std::thread reader([&] { text = ReadToEnd(pipe.read_end.get()); });
    CHECK(writer.Flush(kLong));
    writer.Write("after\n");
    CHECK(writer.Flush(kLong));
    pipe.write_end.Reset();
    reader.join();
  }
  const std::vector<std::string_view> lines = Split(std::string_view(text).substr(filled), '\n');
  int num_kept = 0;
  while (lines[static_cast<size_t>(num_kept)].starts_with(std::to_string(num_kept) + " "))
    ++num_kept;
  CHECK(num_kept == LogWriter::kMaxWaitingBytes / 1001);
  const std::vector<std::string_view> rest(lines.begin() + num_kept, lines.end());
  CHECK(rest == std::vector<std::string_view>{std::to_string(kNumLines - num_kept) + " missing",
                                              "last word", "after", ""});
}

TEST_CASE("LogWriter: lines that were dropped last are reported without another one") {
  Pipe pipe;
  const size_t filled = pipe.Fill();
  LogWriter writer(pipe.write_end.get(), Missing);
  const std::string half(LogWriter::kMaxWaitingBytes / 2, 'x');
  writer.Write(half);
  writer.Write(half);
  writer.Write("dropped\n");
  std::string text(filled + 2 * half.size() + Missing(1).size(), ' ');
  for (size_t got = 0; got < text.size();) {
    const ssize_t some = read(pipe.read_end.get(), text.data() + got, text.size() - got);
    REQUIRE(some > 0);
    got += static_cast<size_t>(some);
  }
  CHECK(text.ends_with("xx" + Missing(1)));
}

TEST_CASE("LogWriter: what a full disk and a reader that has gone refuse is missing, too") {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full);
  Pipe pipe;
  pipe.read_end.Reset();
  for (const int fd : {full.get(), pipe.write_end.get()}) {
    LogWriter writer(fd, Missing);
    writer.Write("1\n");
    CHECK(writer.Flush(kLong));
    writer.Write("2\n");
    CHECK(writer.Flush(kLong));
  }
}

TEST_CASE("LogWriter: a descriptor that another process made not to wait is waited for") {
  Pipe pipe;
  const size_t filled = pipe.Fill();
  fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  std::string text;
  {
    LogWriter writer(pipe.write_end.get(), Missing);
    writer.Write("kept\n");
    CHECK_FALSE(writer.Flush(0.01));
    std::thread reader([&] { text = ReadToEnd(pipe.read_end.get()); });
    CHECK(writer.Flush(kLong));
    pipe.write_end.Reset();
    reader.join();
  }
  CHECK(text.substr(filled) == "kept\n");
}

}  // namespace
}  // namespace tandem
