#include "common/packets.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tandem {
namespace {

constexpr size_t kMaxFds = 3;

using ControlBuffer = std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))>;

bool IsGone(int error_number) { return error_number == EPIPE || error_number == ECONNRESET; }

Status GoneError() { return UnavailableError("the process at the other end is gone"); }

void TakeFds(msghdr* header, std::vector<UniqueFd>* fds) {
  for (cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr;
       control = CMSG_NXTHDR(header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof fd);
      fds->emplace_back(fd);
    }
  }
}

ssize_t Receive(int socket, msghdr* header, int flags) {
  ssize_t size = 0;
  while ((size = recvmsg(socket, header, MSG_CMSG_CLOEXEC | flags)) < 0 && errno == EINTR) {
  }
  return size;
}

Status WaitForPacket(int socket, int timeout_ms) {
  pollfd waited = {socket, POLLIN, 0};
  int count = 0;
  while ((count = poll(&waited, 1, timeout_ms)) < 0 && errno == EINTR) {
  }
  if (count < 0) return ErrnoError(errno, "poll");
  if (count > 0) return OkStatus();
  return Status(StatusCode::kDeadlineExceeded,
                "nothing received in " + std::to_string(timeout_ms) + " ms");
}

}  // namespace

StatusOr<std::pair<UniqueFd, UniqueFd>> MakePacketSockets() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoError(errno, "socketpair");
  }
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Status SendPacket(int socket, std::string_view bytes, std::span<const int> fds) {
  CHECK_LE(bytes.size(), kMaxPacketBytes);
  CHECK_LE(fds.size(), kMaxFds);
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) ControlBuffer control = {};
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(first), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (sendmsg(socket, &header, MSG_NOSIGNAL) >= 0) return OkStatus();
    if (errno == EINTR) continue;
    return IsGone(errno) ? GoneError() : ErrnoError(errno, "sendmsg");
  }
}

StatusOr<Packet> ReceivePacket(int socket, int timeout_ms) {
  char buffer[kMaxPacketBytes];  // not in the packet, which would be cleared first
  iovec part = {buffer, sizeof buffer};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) ControlBuffer control = {};
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  // Mostly it is there already.
  ssize_t size = Receive(socket, &header, timeout_ms < 0 ? 0 : MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) {
    RETURN_IF_ERROR(WaitForPacket(socket, timeout_ms));
    size = Receive(socket, &header, 0);
  }
  if (size < 0) return IsGone(errno) ? GoneError() : ErrnoError(errno, "recvmsg");
  Packet packet;
  TakeFds(&header, &packet.fds);
  if (size == 0) return GoneError();  // no packet is empty
  packet.bytes.assign(buffer, static_cast<size_t>(size));
  return packet;
}

StatusOr<UniqueFd> MakeMemoryFile(const char* name, std::string_view bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC));
  if (!fd) return ErrnoError(errno, "memfd_create");
  while (!bytes.empty()) {
    const ssize_t size = write(fd.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoError(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return fd;
}

StatusOr<std::string> ReadMemoryFile(int fd) {
  struct stat about = {};
  if (fstat(fd, &about) != 0) return ErrnoError(errno, "fstat");
  std::string bytes(static_cast<size_t>(about.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size =
        pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return ErrnoError(size < 0 ? errno : EIO, "pread");
    done += static_cast<size_t>(size);
  }
  return bytes;
}

}  // namespace tandem
