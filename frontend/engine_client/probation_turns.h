#pragma once

// Which shard may run a request alone on an engine, because it may be what ended the one before
// (Resumption): one at a time, in the order in which they ask. Before a shard's turn begins, all
// others have been asked to leave the engine, and have sent their aborts.
// Thread: begun on main, before the shards start; then the first client's shard, to which all is
// posted. Borrows the clients, whose shards have ended when this is destroyed.

#include <cstddef>
#include <deque>
#include <vector>

namespace tandem {

class EngineClient;

class ProbationTurns {
 public:
  // One client for each shard. With one there is nothing to do.
  explicit ProbationTurns(std::vector<EngineClient*> clients);
  ProbationTurns(const ProbationTurns&) = delete;

 private:
  struct Turn {
    EngineClient* client = nullptr;
    int engine_index = 0;
  };

  void Begin(const Turn& turn);
  void OnLeft();
  void End();

  const std::vector<EngineClient*> clients_;
  std::deque<Turn> turns_;  // the first one is under way
  size_t num_left_ = 0;     // others that have left its engine
};

}  // namespace tandem
