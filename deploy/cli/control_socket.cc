#include "deploy/cli/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "common/exit_status.h"
#include "common/log.h"
#include "common/packets.h"
#include "common/strings.h"
#include "common/unix_address.h"
#include "deploy/cli/runtime_directory.h"

namespace tandem {
namespace {

constexpr std::string_view kName = "/control";
constexpr int kRequestMs = 1000;  // for a sender, which is a program of ours, to send its words
constexpr char kLine = 'l', kEnd = 'e';

// A server of this user that listens in the folder, or none.
UniqueFd ConnectIn(const std::string& folder, pid_t pid) {
  const StatusOr<sockaddr_un> address = UnixAddress(folder + std::string(kName));
  if (!address.ok()) return UniqueFd();
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), AsSockaddr(*address), sizeof *address) != 0) {
    return UniqueFd();
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return UniqueFd();
  const bool is_meant = peer.uid == geteuid() && (pid == 0 || peer.pid == pid);
  return is_meant ? std::move(fd) : UniqueFd();
}

UniqueFd AcceptOne(int listener) {
  return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// nullopt: no connection, or none with a request.
std::optional<ControlRequest> ReceiveRequest(UniqueFd connection) {
  if (!connection) return std::nullopt;
  const StatusOr<Packet> packet = ReceivePacket(connection.get(), kRequestMs);
  if (!packet.ok()) return std::nullopt;
  std::vector<std::string> words;
  for (const std::string_view word : Split(packet->bytes, '\0')) words.emplace_back(word);
  return ControlRequest(std::move(connection), std::move(words));
}

}  // namespace

// ---- The server ----

// What cannot be sent had a reader that is gone.
void ControlRequest::Report(std::string_view line) const {
  (void)SendPacket(fd(), (kLine + std::string(line)).substr(0, kMaxPacketBytes));
}

void ControlRequest::End(int exit_status, std::string_view line) const {
  const std::string head = {kEnd, static_cast<char>(exit_status)};
  (void)SendPacket(fd(), (head + std::string(line)).substr(0, kMaxPacketBytes));
}

Status ControlSocket::Listen(const std::string& folder) {
  const std::string path = folder + std::string(kName);
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  listener_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return ErrnoError(errno, "control socket");
  constexpr int kBacklog = 16;
  if (bind(fd(), AsSockaddr(address), sizeof address) != 0 || listen(fd(), kBacklog) != 0) {
    return ErrnoError(errno, "bind " + path);
  }
  spare_ = OpenSpare();
  return OkStatus();
}

std::optional<ControlRequest> ControlSocket::Accept() {
  UniqueFd connection = AcceptOne(fd());
  if (connection) return ReceiveRequest(std::move(connection));
  if (errno != EMFILE && errno != ENFILE) return std::nullopt;
  spare_.Reset();
  RefuseOne();
  spare_ = OpenSpare();
  return std::nullopt;
}

// Read first: a connection that closes with unread words would lose the line.
void ControlSocket::RefuseOne() const {
  const std::optional<ControlRequest> request = ReceiveRequest(AcceptOne(fd()));
  if (!request) return;
  constexpr std::string_view kWhy = "the server may have no more files open (ulimit -n)";
  LOG_WARNING << "a command's request is refused: " << kWhy;
  request->End(kExitFailed, kWhy);
}

// ---- The command ----

StatusOr<UniqueFd> ConnectToServer(pid_t pid) {
  std::vector<UniqueFd> found;
  // A server may have been started when the user's sessions were kept, or were not.
  const char* given = std::getenv("XDG_RUNTIME_DIR");
  std::set<std::string> folders = {RuntimeFolder()};
  if (given != nullptr && *given == '/') folders.insert(given);
  std::string looked_in;
  for (const std::string& folder : folders) {
    looked_in += (looked_in.empty() ? "" : " and ") + folder;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (!entry.path().filename().string().starts_with(kRuntimeFolderPrefix)) continue;
      UniqueFd server = ConnectIn(entry.path(), pid);
      if (server) found.push_back(std::move(server));
    }
  }
  if (found.size() > 1) {
    return FailedPreconditionError("several servers run; name one by --server and its process id");
  }
  if (!found.empty()) return std::move(found.front());
  return NotFoundError(
      (pid == 0 ? std::string("no `tandem serve` of this user runs")
                : "process " + std::to_string(pid) + " is no `tandem serve` of this user") +
      " (looked in " + looked_in + ")");
}

StatusOr<ControlEnd> Ask(const UniqueFd& server, const std::vector<std::string>& words,
                         const std::function<void(std::string_view line)>& report) {
  std::string request;
  for (const std::string& word : words)
    request += (request.empty() ? "" : std::string(1, '\0')) + word;
  if (request.size() > kMaxPacketBytes) return InvalidArgumentError("the command line is too long");
  RETURN_IF_ERROR(SendPacket(server.get(), request));
  while (true) {
    const StatusOr<Packet> reply = ReceivePacket(server.get());
    if (!reply.ok()) return UnavailableError("the server has ended");
    const std::string& bytes = reply->bytes;
    if (bytes.size() >= 2 && bytes.front() == kEnd) {
      return ControlEnd{static_cast<unsigned char>(bytes[1]), bytes.substr(2)};
    }
    report(std::string_view(bytes).substr(1));
  }
}

}  // namespace tandem
