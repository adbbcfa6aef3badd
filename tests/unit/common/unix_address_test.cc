#include "common/unix_address.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/unique_fd.h"
#include "tests/support/files/temp_folder.h"

namespace tandem {
namespace {

TEST_CASE("UnixAddress: what is bound at it is a file at the path") {
  const TempFolder folder;
  const std::string path = folder.PathOf("socket");
  const StatusOr<sockaddr_un> address = UnixAddress(path);
  REQUIRE(address.ok());
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  REQUIRE(bind(fd.get(), AsSockaddr(*address), sizeof *address) == 0);
  CHECK(access(path.c_str(), F_OK) == 0);
}

TEST_CASE("UnixAddress: the longest path keeps its terminator, a longer one is refused") {
  const std::string longest(sizeof sockaddr_un{}.sun_path - 1, 'x');
  const StatusOr<sockaddr_un> address = UnixAddress(longest);
  REQUIRE(address.ok());
  CHECK(std::string(address->sun_path) == longest);
  const Status refused = UnixAddress(longest + "y").status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(refused.message(), Catch::Contains("107 bytes"));
}

TEST_CASE("UnixAddress: a path that names no file is refused") {
  CHECK_FALSE(UnixAddress("").ok());
  CHECK_FALSE(UnixAddress(std::string("/tmp/a\0b", 8)).ok());
  CHECK_FALSE(UnixAddress(std::string("\0a", 2)).ok());
}

}  // namespace
}  // namespace tandem
