#include "proto_msgpack/ipc_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

namespace fs = std::filesystem;

UniqueFd MakeSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

const std::string kNobody = "2147483646";  // above the kernel's largest process id

UniqueFd Shared(const IpcFolder& folder) {
  return UniqueFd(fcntl(folder.lock_fd(), F_DUPFD_CLOEXEC, 0));
}

TEST_CASE("ipc folder: a lock that is shared holds until both have let go") {
  const TempFolder temp;
  const std::string path = temp.PathOf("a/b");
  StatusOr<IpcFolder> first = IpcFolder::Take(path, "1");
  REQUIRE(first.ok());
  CHECK(IpcFolder::Take(path, "2").status().code() == StatusCode::kAlreadyExists);
  IpcFolder second = IpcFolder::Join(path, "2", Shared(*first));
  first->LetGo();
  CHECK(IpcFolder::Take(path, "3").status().code() == StatusCode::kAlreadyExists);
  second.LetGo();
  CHECK(IpcFolder::Take(path, "3").ok());
}

TEST_CASE("ipc folder: what removes old files sees that the folder is in use") {
  const TempFolder temp;
  const std::string path = temp.PathOf("wire");
  std::optional<IpcFolder> folder = *IpcFolder::Take(path, "1");
  // As systemd-tmpfiles does before it looks into a folder.
  const UniqueFd cleaner(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  CHECK(flock(cleaner.get(), LOCK_SH | LOCK_NB) != 0);
  folder->LetGo();
  CHECK(flock(cleaner.get(), LOCK_SH | LOCK_NB) == 0);
}

TEST_CASE("ipc folder: a name leads to the frontend that published it last") {
  const TempFolder temp;
  const IpcFolder first = *IpcFolder::Take(temp.PathOf("wire"), "1");
  const IpcFolder second = IpcFolder::Join(temp.PathOf("wire"), "2", Shared(first));
  const fs::path name = temp.PathOf("wire/handshake");
  REQUIRE(first.Publish("handshake").ok());
  CHECK(fs::read_symlink(name) == "handshake_1");
  REQUIRE(second.Publish("handshake").ok());
  REQUIRE(second.Publish("handshake").ok());
  CHECK(fs::read_symlink(name) == "handshake_2");
  first.Withdraw("handshake");
  CHECK(fs::is_symlink(name));
  second.Withdraw("handshake");
  CHECK_FALSE(fs::is_symlink(name));
  // What another version has left there is replaced; what cannot be is named.
  const UniqueFd old = MakeSocket(name);
  REQUIRE(first.Publish("handshake").ok());
  CHECK(fs::read_symlink(name) == "handshake_1");
  fs::remove(name);
  fs::create_directory(name);
  CHECK(first.Publish("handshake").message().find(name.string()) != std::string::npos);
}

TEST_CASE("ipc folder: other frontends' sockets are found, nothing else is") {
  const TempFolder temp;
  const IpcFolder folder = *IpcFolder::Take(temp.PathOf("wire"), "1");
  const std::string other = "_" + std::to_string(getppid());
  const UniqueFd sockets[] = {MakeSocket(folder.SocketOf("h")),
                              MakeSocket(temp.PathOf("wire/h" + other)),
                              MakeSocket(temp.PathOf("wire/h_0" + other)),
                              MakeSocket(temp.PathOf("wire/hand" + other)),
                              MakeSocket(temp.PathOf("wire/h")),
                              MakeSocket(temp.PathOf("wire/h_" + kNobody))};
  temp.Write("wire/h_3", "no socket");
  REQUIRE(folder.Publish("x").ok());
  CHECK(folder.OthersOf("h") == std::vector<std::string>{temp.PathOf("wire/h" + other)});
  CHECK(folder.OthersOf("y").empty());
}

TEST_CASE("ipc folder: only sockets of processes that are gone are removed") {
  const TempFolder temp;
  fs::create_directory(temp.PathOf("wire"));
  fs::permissions(temp.PathOf("wire"), fs::perms::owner_all);
  const std::string mine = std::to_string(getpid());
  const UniqueFd sockets[] = {
      MakeSocket(temp.PathOf("wire/input_0_" + kNobody)),
      MakeSocket(temp.PathOf("wire/input_0_" + mine)), MakeSocket(temp.PathOf("wire/input_0_x")),
      MakeSocket(temp.PathOf("wire/input_-1")), MakeSocket(temp.PathOf("wire/input_0"))};
  temp.Write("wire/file_" + kNobody, "a file");
  const StatusOr<IpcFolder> taken = IpcFolder::Take(temp.PathOf("wire"), mine);
  REQUIRE(taken.ok());
  CHECK_FALSE(fs::exists(temp.PathOf("wire/input_0_" + kNobody)));
  CHECK(fs::exists(temp.PathOf("wire/file_" + kNobody)));
  for (const std::string& kept : {"input_0_" + mine, std::string("input_0_x"),
                                  std::string("input_-1"), std::string("input_0")}) {
    CHECK(fs::exists(temp.PathOf("wire/" + kept)));
  }
  const UniqueFd again = MakeSocket(temp.PathOf("wire/input_0_" + kNobody));
  (void)IpcFolder::Join(temp.PathOf("wire"), "1", Shared(*taken));
  CHECK_FALSE(fs::exists(temp.PathOf("wire/input_0_" + kNobody)));
}

}  // namespace
}  // namespace tandem::wire
