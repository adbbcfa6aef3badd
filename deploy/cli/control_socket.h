#pragma once

// How a command reaches a running `tandem serve`: a socket "control" in its runtime folder, which
// only this user may enter. A request is one packet of words; replies are lines while it is carried
// out and an end with an exit status. A socket and not a signal, because a request has arguments,
// its sender wants to know what became of it, and its sender's end takes it back. Thread: the one
// that uses it. Failure: Status; a peer that is gone is noticed by the next read.

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

// The server's end of one request.
class ControlRequest {
 public:
  ControlRequest(UniqueFd connection, std::vector<std::string> words)
      : connection_(std::move(connection)), words_(std::move(words)) {}

  const std::vector<std::string>& words() const { return words_; }
  int fd() const { return connection_.get(); }  // readable when the sender is gone
  void Report(std::string_view line) const;
  void End(int exit_status, std::string_view line) const;

 private:
  UniqueFd connection_;
  std::vector<std::string> words_;
};

class ControlSocket {
 public:
  Status Listen(const std::string& folder);
  int fd() const { return listener_.get(); }
  // nullopt: a connection without a request, or one that was refused.
  std::optional<ControlRequest> Accept();

 private:
  void RefuseOne() const;

  UniqueFd listener_;
  UniqueFd spare_;  // its number is for a connection to refuse when no other is left
};

// A connection to the `tandem serve` with this process id, or, with 0, to the only one of this
// user. NOT_FOUND: there is none. FAILED_PRECONDITION: there are several.
StatusOr<UniqueFd> ConnectToServer(pid_t pid);
// Sends a request, calls `report` for each line but the last, and returns the last one with its
// exit status.
struct ControlEnd {
  int exit_status = 0;
  std::string line;
};
StatusOr<ControlEnd> Ask(const UniqueFd& server, const std::vector<std::string>& words,
                         const std::function<void(std::string_view line)>& report);

}  // namespace tandem
