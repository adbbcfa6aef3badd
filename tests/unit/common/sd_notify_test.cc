#include "common/sd_notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "common/unique_fd.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// In the place of systemd.
class Receiver {
 public:
  Receiver() : path_(folder_.PathOf("notify")), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path_.size() < sizeof address.sun_path);
    std::memcpy(address.sun_path, path_.data(), path_.size());
    REQUIRE(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const timeval limit{30, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  }
  ~Receiver() { unsetenv("NOTIFY_SOCKET"); }

  std::string Next() const {
    std::array<char, 256> bytes;
    const ssize_t size = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    return size < 0 ? "nothing" : std::string(bytes.data(), static_cast<size_t>(size));
  }

 private:
  TempFolder folder_;
  std::string path_;
  UniqueFd fd_;
};

TEST_CASE("SdNotify: nobody waits for a receiver that does not read, and nothing is lost") {
  const Receiver receiver;
  constexpr int kMoreThanFit = 2000;  // net.unix.max_dgram_qlen is 10, or 512 in newer systems
  for (int i = 0; i < kMoreThanFit; ++i) REQUIRE(SdNotify("STATUS=" + std::to_string(i)).ok());
  SendBeat();
  AskForStartTime();
  REQUIRE(SdNotify("READY=1").ok());
  for (int i = 0; i < kMoreThanFit; ++i) REQUIRE(receiver.Next() == "STATUS=" + std::to_string(i));
  CHECK(receiver.Next() == "READY=1");
  // And as before, where there is room.
  SendBeat();
  CHECK(receiver.Next() == "WATCHDOG=1");
}

TEST_CASE("SdNotify: a socket that is not there is an error") {
  setenv("NOTIFY_SOCKET", "/does/not/exist", 1);
  CHECK_FALSE(SdNotify("READY=1").ok());
  setenv("NOTIFY_SOCKET", "relative", 1);
  CHECK_FALSE(SdNotify("READY=1").ok());
  unsetenv("NOTIFY_SOCKET");
  CHECK(SdNotify("READY=1").ok());
}

}  // namespace
}  // namespace tandem
