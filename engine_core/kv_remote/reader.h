#pragma once

// Reads KV blocks that other engines hold for this one's requests. One thread serves all holders;
// one that is slow or gone holds up no other.
// Thread: the engine loop calls. The cache must outlive it. Failure: of a read, its KvReadEnd;
// what has not ended when this goes ends without one.
// REQUIRES: nobody reads the blocks of a job, and nobody else writes to them, until it has ended.

#include <poll.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/mailbox.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/kv_remote/peer.h"

namespace tandem {

class KvReader {
 public:
  // on_end: called on the reader's thread; must only post.
  static StatusOr<std::unique_ptr<KvReader>> Start(BlockParts parts, KvShape shape,
                                                   KvReaderOptions options,
                                                   std::function<void(KvReadEnd)> on_end);
  ~KvReader();

  // A request waits that will read under this ticket: the lease is kept alive until it has.
  void Hold(const KvAddress& holder, const RequestId& id, const KvTicket& ticket);
  // Each ends once. Then the lease is released.
  void Read(const KvAddress& holder, KvReadJob job);
  // The request will not read.
  void Release(const KvAddress& holder, const RequestId& id);

 private:
  enum class Act { kHold, kRead, kRelease };
  struct Command {
    Act act = Act::kHold;
    KvAddress holder;
    KvReadJob job;  // id and ticket, of a read all
  };

  KvReader(UniqueFd wake, KvReading reading);
  void Run();
  void Poll();
  void TakeCommands();
  void Serve();

  const UniqueFd wake_;  // an eventfd
  const KvReading reading_;
  const SystemClock clock_;
  Mailbox<Command> commands_;  // closed: the thread ends
  // The thread's own.
  std::unordered_map<std::string, std::unique_ptr<KvPeer>> peers_;
  std::vector<pollfd> polled_;  // wake_, then those of polled_peers_
  std::vector<KvPeer*> polled_peers_;
  std::vector<Command> taken_;
  std::thread thread_;
};

}  // namespace tandem
