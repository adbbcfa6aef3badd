#include "proto_msgpack/tcp_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/read_file.h"
#include "common/strings.h"
#include "common/unique_fd.h"
#include "proto_msgpack/handshake_address.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {
namespace {

constexpr size_t kKeySize = 40;
constexpr int64_t kMaxFileBytes = 4096;
constexpr std::string_view kOwnPublic = "own-public: ", kOwnSecret = "own-secret: ",
                           kPeerPublic = "peer-public: ";

std::string PathOf(const std::string& folder, TcpSide side) {
  return folder + "/" + TcpKeysName(side);
}

Status Write(const std::string& path, const KeyPair& own, const KeyPair& peer) {
  const std::string text = "# Made by `tandem keys`. Who has this file is taken for its owner.\n" +
                           std::string(kOwnPublic) + own.public_key + "\n" +
                           std::string(kOwnSecret) + own.secret_key + "\n" +
                           std::string(kPeerPublic) + peer.public_key + "\n";
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0 && errno == EEXIST) return AlreadyExistsError(path + " is there already");
  if (file.get() < 0) return ErrnoError(errno, "create " + path);
  const ssize_t written = write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return OkStatus();
  return ErrnoError(written < 0 ? errno : ENOSPC, "write " + path);
}

bool IsZ85(std::string_view key) {
  return key.size() == kKeySize && std::all_of(key.begin(), key.end(), [](char each) {
           return each > ' ' && each <= '~' && each != '"' && each != '\'' && each != '\\';
         });
}

}  // namespace

std::string TcpKeysName(TcpSide side) {
  return side == TcpSide::kFrontend ? "frontend.keys" : "engine.keys";
}

Status MakeTcpKeys(const std::string& folder) {
  ASSIGN_OR_RETURN(const KeyPair frontend, NewKeyPair());
  ASSIGN_OR_RETURN(const KeyPair engine, NewKeyPair());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(errno, "make folder " + folder);
  }
  RETURN_IF_ERROR(Write(PathOf(folder, TcpSide::kFrontend), frontend, engine));
  return Write(PathOf(folder, TcpSide::kEngine), engine, frontend);
}

StatusOr<TcpKeys> ReadTcpKeys(const std::string& folder, TcpSide side) {
  const std::string path = PathOf(folder, side);
  struct stat about;
  if (stat(path.c_str(), &about) != 0) return ErrnoError(errno, "--tcp-keys: " + path);
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return FailedPreconditionError("--tcp-keys: others may read " + path + ": chmod 600");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  TcpKeys keys;
  for (const std::string_view line : Split(text, '\n')) {
    if (line.starts_with(kOwnPublic)) keys.own_public = line.substr(kOwnPublic.size());
    if (line.starts_with(kOwnSecret)) keys.own_secret = line.substr(kOwnSecret.size());
    if (line.starts_with(kPeerPublic)) keys.peer_public = line.substr(kPeerPublic.size());
  }
  if (IsZ85(keys.own_public) && IsZ85(keys.own_secret) && IsZ85(keys.peer_public)) return keys;
  return InvalidArgumentError("--tcp-keys: " + path + " is not what `tandem keys` makes");
}

Status CheckTcp(const std::string& address, const std::string& keys_folder, bool is_insecure) {
  if (!keys_folder.empty() && is_insecure) {
    return InvalidArgumentError("--insecure-tcp: with --tcp-keys nothing is sent openly");
  }
  if (!IsOpenToNetwork(address) || !keys_folder.empty() || is_insecure) return OkStatus();
  return InvalidArgumentError(
      address +
      ": prompts and outputs would cross the network for everyone to read, and to send. `tandem "
      "keys FOLDER` makes keys for --tcp-keys; --insecure-tcp does without");
}

}  // namespace tandem::wire
