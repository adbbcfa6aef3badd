#pragma once

// Which client may run a request alone on an engine, because it may be what ended the one before
// (Resumption): one at a time, in the order in which they ask. Before a turn begins, all clients
// have been asked to leave the engine, and have sent their aborts. Other processes that serve the
// same engines have turns here too, as the clients here have there.
// Thread: begun on main, before the shards start; then the first client's shard, to which all is
// posted. Borrows the clients, whose shards have ended when this is destroyed.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace tandem {

class EngineClient;

class ProbationTurns {
 public:
  // How a client gets an engine that other processes serve, too; asker: the client's index.
  struct Sharing {
    // Calls `reserved` once all processes have left the engine. This one does when begin_here is
    // called, which calls what it is given.
    std::function<void(int asker, int engine_index,
                       std::function<void(std::function<void()> left)> begin_here,
                       std::function<void()> reserved)>
        reserve;
    // has_ended: so has the engine, which the others may notice later.
    std::function<void(int asker, bool has_ended)> release;
  };

  // One client for each shard.
  explicit ProbationTurns(std::vector<EngineClient*> clients);
  ProbationTurns(const ProbationTurns&) = delete;

  // Before the shards start. Without it no other process serves the engines.
  void ShareEngines(Sharing sharing) { sharing_ = std::move(sharing); }
  // Calls `left` when the turn has come and all clients have left the engine. Returns the turn.
  int64_t Begin(int engine_index, std::function<void()> left);
  // Of a turn that has begun, or whose time has not come.
  // has_ended: so has the engine.
  void End(int64_t turn, bool has_ended = false);

 private:
  struct Turn {
    int64_t number = 0;
    int engine_index = 0;
    std::function<void()> left;
  };

  void Reserve(size_t asker, int engine_index);
  void Release(size_t asker, bool has_ended);
  void BeginFirst();
  void OnLeft(int64_t turn);

  const std::vector<EngineClient*> clients_;
  Sharing sharing_;
  std::deque<Turn> turns_;    // the first one is under way
  size_t num_left_ = 0;       // clients that have left its engine
  int64_t num_turns_ = 0;     // ever
  std::vector<int64_t> own_;  // each client's turn
};

}  // namespace tandem
