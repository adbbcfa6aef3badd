#pragma once

// Holds leases on KV blocks of this engine's cache and sends the blocks to readers that show the
// lease's ticket. One thread serves all of them; a reader that is slow holds up no other, one that
// breaks the protocol or does nothing is dropped.
// Thread: the engine loop calls. The cache must outlive it. Failure, in Start: the system's, with
// the address. Its connections are bounded; further readers are turned away, with a warning.

#include <poll.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/mailbox.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/kv_remote/address.h"
#include "engine_core/kv_remote/session.h"

namespace tandem {

struct KvServerOptions {
  KvAddress address;
  double lease_s = 30;
  int64_t max_leased_blocks = 0;  // at once, unless they are one request's
};

class KvServer {
 public:
  // memory: a file of the cache (ShareMemory), for readers on this host; or none.
  // on_released: called on the server's thread with each request whose blocks are read no longer;
  // it must only post.
  static StatusOr<std::unique_ptr<KvServer>> Start(KvServerOptions options, BlockParts parts,
                                                   KvShape shape, UniqueFd memory,
                                                   std::function<void(RequestId)> on_released);
  ~KvServer();

  // Where it listens, with the real port.
  const KvAddress& address() const { return options_.address; }
  // The blocks stay as they are until on_released names the request. Tickets ascend.
  void Lease(KvLease lease) { commands_.Push({.lease = std::move(lease)}); }
  // Nobody is going to read the request's blocks. If it still has a lease, on_released follows.
  void GiveUp(RequestId id) { commands_.Push({.given_up = std::move(id)}); }

 private:
  struct Command {  // one of the two
    std::optional<KvLease> lease = {};
    RequestId given_up = {};
  };

  KvServer(KvServerOptions options, UniqueFd socket, UniqueFd wake, KvHoldings holdings,
           std::function<void(RequestId)> on_released);
  void Run();
  void Poll(double most_seconds);
  void TakeCommands();
  void Accept();
  void Serve();
  void MakeRoom();
  void EndLeases();
  void WarnRarely(const char* what, int64_t* count) const;

  const KvServerOptions options_;
  const UniqueFd socket_;
  const UniqueFd wake_;  // an eventfd
  const std::function<void(RequestId)> on_released_;
  const SystemClock clock_;
  Mailbox<Command> commands_;  // closed: the thread ends
  // The thread's own.
  KvHoldings holdings_;
  std::vector<std::unique_ptr<KvSession>> sessions_;
  std::vector<pollfd> polled_;  // wake_, socket_, then the sessions
  std::vector<Command> taken_;
  double accepts_from_ = 0;
  int64_t num_expired_ = 0, num_crowded_out_ = 0, num_turned_away_ = 0;
  std::thread thread_;
};

}  // namespace tandem
